"""Boxes from files and folders: the right ones at the right time, and who is who where somebody knew."""

import csv

import pytest
import torch

from mule.core.errors import AnnotationError, DetectorError
from mule.watching.engine.finding import DetectedBoxes, box_finder

FRAME = torch.zeros(3, 100, 200, dtype=torch.uint8)


def written(path, header, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def folder(tmp_path):
    written(
        tmp_path / "tracks.csv",
        ("video", "frame", "time_s", "actor_id", "x1", "y1", "x2", "y2"),
        ("v", 0, 0.0, "ann", 0.1, 0.1, 0.2, 0.9),
        ("v", 16, 1.0, "bob", 0.5, 0.1, 0.6, 0.9),
        ("v", 16, 1.0, "ann", 0.2, 0.1, 0.3, 0.9),
        ("w", 0, 0.0, "cy", 0.0, 0.0, 1.0, 1.0),
    )
    written(
        tmp_path / "objects.csv",
        ("video", "time_s", "x1", "y1", "x2", "y2", "object_class", "score"),
        ("v", 1.0, 0.4, 0.4, 0.5, 0.5, "ball", 0.8),
    )
    return tmp_path


def ids(found):
    assert found.track_ids is not None
    return found.track_ids.tolist()


def test_a_time_without_boxes_has_none(folder):
    found = box_finder(folder, "v")(FRAME, key_time_s=0.5)
    assert len(found.detections) == 0
    assert ids(found) == []


def test_a_folder_knows_who_is_who_in_the_order_of_appearance(folder):
    finder = box_finder(folder, "v")
    assert finder.class_names == ("person", "ball")
    first, second = finder(FRAME, key_time_s=0.0), finder(FRAME, key_time_s=1.05)
    assert ids(first) == [0]
    assert ids(second) == [1, 0, -1]
    assert second.detections.class_index.tolist() == [0, 0, 1]
    torch.testing.assert_close(second.detections.boxes_xyxy_px[0], torch.tensor([100.0, 10.0, 120.0, 90.0]))
    assert not finder.links_between


def test_actors_do_where_there_are_no_tracks(folder):
    (folder / "tracks.csv").unlink()
    written(
        folder / "actors.csv",
        ("video", "time_s", "x1", "y1", "x2", "y2", "actions", "actor_id"),
        ("v", 1.0, 0.2, 0.1, 0.3, 0.9, "walk", "ann"),
    )
    assert ids(box_finder(folder, "v")(FRAME, key_time_s=1.0)) == [0, -1]


def test_a_file_of_avas_is_found_by_video_and_time(tmp_path):
    path = tmp_path / "boxes.csv"
    path.write_text("v,1.0,0.1,0.1,0.5,0.9,,0.7\nv,2.0\n")
    finder = box_finder(path, "v")
    found = finder(FRAME, key_time_s=1.0)
    assert found.track_ids is None
    assert found.detections.scores.tolist() == pytest.approx([0.7])
    assert len(finder(FRAME, key_time_s=2.0).detections) == 0


def test_a_detector_is_asked_itself_also_between_key_times():
    class Nobody:
        class_names = ("person",)
        actor_score = 0.4

        def __call__(self, frames):
            from mule.detection.detections import no_detections

            return no_detections(len(frames))

    finder = box_finder(Nobody(), "v")
    assert isinstance(finder, DetectedBoxes)
    assert finder.links_between
    assert finder.actor_score == 0.4
    assert len(finder(FRAME, key_time_s=0.0).detections) == 0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda _: "boxes.pkl", DetectorError, "must be a YOLOX file"),
        (lambda folder: folder / "nothing.csv", AnnotationError, "must be a readable file"),
        (lambda folder: folder / "nothing.onnx", DetectorError, "no such detector file"),
        (lambda folder: folder / "videos", AnnotationError, "must hold tracks.csv or actors.csv"),
    ],
)
def test_what_is_no_detector_is_refused(tmp_path, make, error, message):
    (tmp_path / "videos").mkdir()
    with pytest.raises(error, match=message):
        box_finder(make(tmp_path), "v")


def test_a_video_that_the_boxes_do_not_know_is_named(folder):
    with pytest.raises(AnnotationError, match="must have boxes of the video 'x'; it has boxes of v, w"):
        box_finder(folder, "x")


def test_rows_without_an_id_are_refused(folder):
    (folder / "tracks.csv").unlink()
    written(
        folder / "actors.csv",
        ("video", "time_s", "x1", "y1", "x2", "y2", "actions", "actor_id"),
        ("v", 1.0, 0.2, 0.1, 0.3, 0.9, "walk", ""),
    )
    with pytest.raises(AnnotationError, match="every row must have an actor_id"):
        box_finder(folder, "v")
