import json
from fractions import Fraction

import numpy as np
import pytest
from watched import header, moment, opinion, seen, three_moments

from mule.core.errors import AnnotationError, FileError
from mule.data.convert.ava_files import AVA_60, FrameNumbers, read_label_map
from mule.data.convert.coco import actors_from_coco
from mule.data.convert.conversion import ActionRule, BoxSettings
from mule.data.convert.cvat import actors_from_cvat
from mule.data.convert.viame import actors_from_viame
from mule.evaluation.ava import read_detections
from mule.watching.outputs.exports import (
    EXPORTS,
    action_ids,
    export_labels,
    frame_number,
    novel_label,
    write_ava,
    write_coco,
    write_cvat,
    write_label_map,
    write_viame,
)

STRANGE = [
    "<script>alert(1)</script>",
    "../../x",
    'say "hi", it\'s & done',
    "long " * 400 + "name",
    "שלום עולם",
    "走る",
    "=1+1",
    "]]>",
]


def expected(moments, novel="novel", person="person"):
    """(time, track, box, classes) of every actor, by a slow and obvious loop."""
    rows = []
    for each in moments:
        for actor in each.actors:
            names = {opinion.action for opinion in actor.so_far.actions}
            names |= {novel} if actor.decision == "novel" else set()
            names |= set() if names else {person}
            rows.append((each.key_time_s, str(actor.track_id), actor.box_xyxy_unit, frozenset(names - {""})))
    return sorted(rows)


def found(table):
    return sorted(
        (time, actor, tuple(box), frozenset(table.action_names(row)))
        for row, (time, actor, box) in enumerate(
            zip(table.time_s.tolist(), table.actor_id, table.boxes_xyxy_unit.tolist(), strict=True)
        )
    )


def assert_alike(table, rows, *, within):
    assert table.videos == ("lobby",)
    got = found(table)
    assert [(time, actor, names) for time, actor, _, names in got] == [(t, a, n) for t, a, _, n in rows]
    np.testing.assert_allclose([box for _, _, box, _ in got], [box for _, _, box, _ in rows], atol=within)


def read_back(kind, path, classes=()):
    if kind == "coco":
        return actors_from_coco(path, BoxSettings())[0]
    if kind == "viame":
        return actors_from_viame([path], BoxSettings(size_px=(200, 100), video="lobby"), min_confidence=0.0)[
            0
        ]
    marks = ActionRule(from_class=False, from_attributes=True, attributes=frozenset(classes))
    return actors_from_cvat(
        [path], BoxSettings(actions=marks, frame_rate=Fraction(25), keep_unlabelled=True)
    )[0]


@pytest.mark.parametrize(("kind", "person"), [("coco", "person"), ("viame", "person"), ("cvat", "")])
def test_every_export_comes_back_through_our_own_reader(tmp_path, kind, person):
    name, write = EXPORTS[kind]
    write(tmp_path / name, header(), three_moments())
    table = read_back(kind, tmp_path / name, ("walk", "talk", "sit", "novel"))
    assert_alike(table, expected(three_moments(), person=person), within=1e-5)


@pytest.mark.parametrize("kind", ["coco", "viame", "cvat"])
@pytest.mark.parametrize("name", STRANGE)
def test_strange_names_survive_every_export(tmp_path, kind, name):
    top = header([name, "sit"])
    moments = [moment(1.0, seen(3, actions=[opinion(name, 5.0, 1.0)]))]
    file, write = EXPORTS[kind]
    write(tmp_path / file, top, moments)
    table = read_back(kind, tmp_path / file, (name, "sit", "novel"))
    assert found(table)[0][3] == {name}
    assert sorted(path.name for path in tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("kind", ["coco", "viame", "cvat"])
def test_a_result_without_anybody_is_a_sound_empty_file(tmp_path, kind):
    file, write = EXPORTS[kind]
    write(tmp_path / file, header(), [moment(0.0)])
    with pytest.raises(AnnotationError, match="must hold something for the table"):
        read_back(kind, tmp_path / file)


def test_ava_rows_come_back_with_their_scores(tmp_path):
    write_ava(tmp_path / "ava.csv", header(), three_moments())
    frames = FrameNumbers()
    boxes = read_detections(tmp_path / "ava.csv", frames)
    rows = [
        (each.key_time_s, actor.box_xyxy_unit, header().classes.index(said.action) + 1, said.probability)
        for each in three_moments()
        for actor in each.actors
        for said in actor.so_far.actions
    ]
    numbers = frames.of(["lobby"] * len(rows), np.array([row[0] for row in rows]))
    np.testing.assert_array_equal(boxes.frame, numbers)
    np.testing.assert_allclose(boxes.boxes_xyxy, [row[1] for row in rows], atol=1e-6)
    np.testing.assert_array_equal(boxes.action_id, [row[2] for row in rows])
    np.testing.assert_allclose(boxes.score, [row[3] for row in rows], atol=1e-6)
    assert (tmp_path / "ava.csv").read_text().splitlines()[0] == "lobby,0"


def test_ava_ids_are_the_published_ones_where_all_classes_are_avas():
    assert action_ids(header(list(AVA_60.values()))) == {name: number for number, name in AVA_60.items()}
    assert action_ids(header(["walk", "stand", "juggle"])) == {"walk": 1, "stand": 2, "juggle": 3}


@pytest.mark.parametrize("classes", [["walk", "sit"], list(AVA_60.values()), ['a "b" c', "it's"]])
def test_the_label_map_names_every_id(tmp_path, classes):
    write_label_map(tmp_path / "labels.pbtxt", header(classes))
    ids = action_ids(header(classes))
    assert read_label_map(tmp_path / "labels.pbtxt") == {number: name for name, number in ids.items()}


def test_a_class_called_novel_is_not_taken_for_novelty():
    top = header(["novel", "novel*"])
    assert novel_label(top) == "novel**"
    actor = seen(actions=[opinion("novel", 3.0, 1.0)], novelty=0.99)
    assert [label.name for label in export_labels(actor, top)] == ["novel", "novel**"]


@pytest.mark.parametrize(("rate", "time_s", "frame"), [("25", 0.0, 0), ("25", 0.0399, 1), ("25", 0.0394, 0),
                                                       ("30000/1001", 10.01, 300), ("30000/1001", 10.0, 299)])  # fmt: skip
def test_frames_are_those_on_screen(rate, time_s, frame):
    top = header()
    top = top.model_copy(update={"source": top.source.model_copy(update={"frame_rate": rate})})
    assert frame_number(time_s, top) == frame


def test_a_cvat_track_pauses_where_the_actor_was_not_seen(tmp_path):
    moments = [moment(0.0, seen(1)), moment(1.0), moment(2.0, seen(1)), moment(3.0, seen(1))]
    write_cvat(tmp_path / "cvat.xml", header(), moments)
    text = (tmp_path / "cvat.xml").read_text()
    states = [
        (int(line.split('frame="')[1].split('"')[0]), line.split('outside="')[1][0])
        for line in text.splitlines()
        if "<box" in line
    ]
    assert states == [(0, "0"), (1, "1"), (50, "0"), (75, "0"), (76, "1")]


def test_every_coco_number_is_finite_and_every_reference_holds(tmp_path):
    write_coco(tmp_path / "coco.json", header(), three_moments())
    content = json.loads((tmp_path / "coco.json").read_text(), parse_constant=pytest.fail)
    ids = {
        kind: {each["id"] for each in content[kind]} for kind in ("videos", "images", "categories", "tracks")
    }
    for each in content["annotations"]:
        assert each["image_id"] in ids["images"]
        assert each["category_id"] in ids["categories"]
        assert each["track_id"] in ids["tracks"]
    assert all(each["video_id"] in ids["videos"] for each in content["images"])


def test_kwcoco_finds_the_same_tracks(tmp_path):
    kwcoco = pytest.importorskip("kwcoco", reason="needs kwcoco (pip install kwcoco)")
    write_coco(tmp_path / "coco.json", header(), three_moments())
    dataset = kwcoco.CocoDataset(tmp_path / "coco.json")
    assert dataset.validate(missing=False)["errors"] == []
    assert sorted(dataset.index.trackid_to_aids) == [0, 4, 7]
    rows = sorted(
        (
            dataset.imgs[each["image_id"]]["time_s"],
            each["track_id"],
            dataset.cats[each["category_id"]]["name"],
        )
        for each in dataset.anns.values()
    )
    assert rows == sorted(
        (time, int(actor), name) for time, actor, _, names in expected(three_moments()) for name in names
    )


def test_nothing_is_left_where_a_file_cannot_be_written(tmp_path):
    (tmp_path / "there").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        write_viame(tmp_path / "there" / "viame.csv", header(), three_moments())
