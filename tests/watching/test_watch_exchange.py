"""Moments for other libraries, and their detections in: supervision, CSV and Parquet."""

import csv
import warnings
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest
import torch
from tiny_bundles import MadeUpBoxes, grey_video, stays
from watched import header, moment, opinion, seen, three_moments

from mule.core.errors import DetectorError
from mule.detection.outside import detections_from_supervision
from mule.watching.exchange import DECISIONS, moments_to_pandas
from mule.watching.outputs.exports import EXPORTS
from mule.watching.watch import watch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it is slower without OpenCV
    import supervision as sv

LEFT, RIGHT = (0.05, 0.2, 0.4, 0.9), (0.55, 0.2, 0.95, 0.9)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return grey_video(tmp_path_factory.mktemp("exchange") / "grey.mp4", seconds=3.0)


def test_a_moment_becomes_detections_that_annotators_can_draw():
    some = moment(1.0, seen(3, actions=[opinion("walk", 8, 0)]), seen(5, LEFT, novelty=0.99))
    found = some.to_supervision()
    np.testing.assert_allclose(found.xyxy, [actor.box_xyxy_px for actor in some.actors], rtol=1e-6)
    assert found.tracker_id is not None
    assert found.class_id is not None
    assert found.tracker_id.tolist() == [3, 5]
    assert (
        [DECISIONS[each] for each in found.class_id] == ["known", "novel"] == list(found.data["class_name"])
    )
    assert list(found.data["actions"]) == [("walk",), ()]
    assert list(found.data["label"]) == ["#3 · walk 90%", "#5 · novel"]
    np.testing.assert_allclose(np.asarray(found.data["p_value"]), [0.9, 0.01])
    drawn = sv.BoxAnnotator().annotate(np.zeros((100, 200, 3), np.uint8), found)
    assert drawn.any()
    assert (found.class_id == DECISIONS.index("novel")).tolist() == [False, True]
    nobody = moment(2.0).to_supervision()
    assert (len(nobody), nobody.xyxy.shape) == (0, (0, 4))


def test_boxes_and_ids_of_another_tracker_are_watched_like_those_of_a_file(video, bundle):
    def detect(frame):
        rows, cols, channels = frame.shape
        assert (channels, frame.dtype) == (3, np.uint8)
        sides = np.array([cols, rows, cols, rows])
        boxes = np.array([RIGHT, LEFT]) * sides
        return sv.Detections(
            xyxy=boxes.astype(np.float32), confidence=np.array([0.9, 0.8]), class_id=np.array([0, 0]),
            tracker_id=np.array([12, 4]),
        )  # fmt: skip

    ours = list(watch(video, model=bundle, detector=MadeUpBoxes(stays(LEFT), stays(RIGHT), has_ball=False)))
    theirs = list(watch(video, model=bundle, detector=detect))
    assert [[actor.track_id for actor in each.actors] for each in theirs] == [[4, 12]] * 3
    for mine, other in zip(ours, theirs, strict=True):
        for their, own in zip(other.actors, mine.actors, strict=True):
            assert their.box_xyxy_px == pytest.approx(own.box_xyxy_px)
            assert their.so_far == own.so_far
    without_ids = list(
        watch(video, model=bundle, detector=lambda frame: SimpleNamespace(xyxy=detect(frame).xyxy))
    )
    assert [[actor.track_id for actor in each.actors] for each in without_ids] == [[0, 1]] * 3


def test_persons_are_named_or_of_class_zero_or_everybody():
    boxes = np.array([[0, 0, 5, 9], [2, 2, 8, 8.0]])
    names = ["person"]
    named = SimpleNamespace(xyxy=boxes, data={"class_name": ["forklift", "person"]})
    assert detections_from_supervision(named, names)[0].class_index.tolist() == [1, 0]
    numbered = SimpleNamespace(xyxy=boxes, class_id=[0, 32], tracker_id=[5, 6], data={})
    detections, track_ids = detections_from_supervision(numbered, names)
    assert (detections.class_index.tolist(), names) == ([0, 2], ["person", "forklift", "sports ball"])
    assert track_ids is not None
    assert track_ids.tolist() == [5, -1]
    everybody, no_ids = detections_from_supervision(SimpleNamespace(xyxy=boxes), names)
    assert (everybody.class_index.tolist(), everybody.scores.tolist(), no_ids) == ([0, 0], [1, 1], None)
    assert torch.equal(everybody.boxes_xyxy_px, torch.from_numpy(boxes).float())


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (None, r"must return supervision\.Detections.*got NoneType"),
        (SimpleNamespace(xyxy=np.zeros((2, 3))), "must return supervision"),
        (SimpleNamespace(xyxy=[[0, 0, 1, 1]], confidence=[3.0]), "between 0 and 1; got 3 to 3"),
        (SimpleNamespace(xyxy=[[0, 0, 1, 1]], class_id=[1, 2]), "one number per box"),
        (SimpleNamespace(xyxy=[[0, 0, 1, 1], [2, 2, 3, 3]], tracker_id=[4, 4]), r"an id of their own; got \[4, 4\]"),
    ],
)  # fmt: skip
def test_detections_that_cannot_be_used_are_refused_in_a_sentence(found, told):
    with pytest.raises(DetectorError, match=told):
        detections_from_supervision(found, ["person"])


def test_tables_of_moments_have_the_rows_of_the_data_frame(tmp_path):
    moments = three_moments()
    expected = moments_to_pandas(moments)
    for kind in ("csv", "parquet"):
        name, write = EXPORTS[kind]
        write(tmp_path / name, header(), moments)
    assert (
        pyarrow.parquet.read_table(tmp_path / "moments.parquet")
        .to_pandas()
        .map(plain)
        .equals(expected.map(plain))
    )
    with (tmp_path / "moments.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["actions"].split(";") if row["actions"] else [] for row in rows] == expected[
        "actions"
    ].tolist()
    assert [float(row["x2"]) for row in rows] == expected["x2"].tolist()
    assert [row["decision"] for row in rows] == expected["decision"].tolist()
    EXPORTS["parquet"][1](tmp_path / "empty.parquet", header(), [])
    assert pyarrow.parquet.read_table(tmp_path / "empty.parquet").column_names == list(expected.columns)


def plain(cell):
    return list(cell) if isinstance(cell, np.ndarray) else cell
