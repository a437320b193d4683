import json
from fractions import Fraction

import pytest
from from_files import assert_refused, assert_same, assert_survives_the_file, run, table_of, written

from mule.core.errors import AnnotationError
from mule.data.convert.coco import actors_from_coco
from mule.data.convert.conversion import ActionRule, BoxSettings, is_key_frame, is_key_time
from mule.data.table.reading import read_actor_table

CATEGORIES = [{"id": 1, "name": "walk"}, {"id": 2, "name": "talk"}, {"id": 7, "name": "person"}]
HALF = (0.0, 0.0, 0.5, 0.5)


def document(images, annotations, **others):
    return {"images": images, "annotations": annotations, "categories": list(CATEGORIES), **others}


def kwcoco():
    """As kwcoco writes it: videos, frame indices, tracks; a UNIX timestamp that is no time in the video."""
    images = [
        {
            "id": at,
            "file_name": f"a/{at}.jpg",
            "video_id": 5,
            "frame_index": at,
            "timestamp": 1.7e9,
            "width": 200,
            "height": 100,
        }
        for at in range(31)
    ]
    annotations = [
        {"id": 1, "image_id": 0, "bbox": [0, 0, 100, 50], "category_id": 1, "track_id": 3},
        {"id": 2, "image_id": 0, "bbox": [0, 0, 100, 50], "category_id": 2, "track_id": 3},
        {"id": 3, "image_id": 12, "bbox": [0, 0, 100, 50], "category_id": 1, "track_id": 3},
        {"id": 4, "image_id": 25, "bbox": [-2, 10.0, 52, 90], "category_id": 1, "track_id": "x"},
        {"id": 5, "image_id": 25, "bbox": [0, 0, 200, 100], "category_id": 1, "iscrowd": 1},
        {"id": 6, "image_id": 25, "category_id": 1, "keypoints": []},
    ]
    return document(images, annotations, videos=[{"id": 5, "name": "a"}], info={}, licenses=[])


def converted(tmp_path, content, settings=BoxSettings(), **others):  # noqa: B008 - frozen
    return actors_from_coco(written(tmp_path, "labels.json", json.dumps(content)), settings, **others)


def test_kwcoco_becomes_the_expected_table(tmp_path):
    table, report = converted(tmp_path, kwcoco(), BoxSettings(frame_rate=Fraction(25)))
    expected = table_of(
        ("a", 0, HALF, "walk;talk", "3"),
        ("a", 12 / 25, HALF, "walk", "3"),
        ("a", 1, (0, 0.1, 0.25, 1), "walk", "x"),
    )
    assert_same(table, expected)
    assert_survives_the_file(table, tmp_path)
    assert (report.unit, report.num_read, report.num_kept) == ("annotations", 6, 4)
    assert report.dropped == {"crowd": 1, "without_a_box": 1}
    assert report.noted["boxes_joined_to_one_of_the_same_actor"] == 1
    assert report.noted["boxes_cut_at_the_edge_of_the_frame"] == 1


def test_key_times_keep_the_nearest_frames(tmp_path):
    table, report = converted(tmp_path, kwcoco(), BoxSettings(every_s=Fraction(1), frame_rate=Fraction(25)))
    assert table.time_s.tolist() == [0, 1]
    assert report.dropped["between_key_times"] == 1


@pytest.mark.parametrize("rate", [Fraction(5), Fraction(24), Fraction(30000, 1001), Fraction(25)])
@pytest.mark.parametrize("every", [Fraction(1), Fraction(1, 2), Fraction(1, 50), Fraction(37, 100)])
def test_each_key_time_has_one_frame_the_nearest_one(rate, every):
    found = [frame for frame in range(80) if is_key_frame(frame, rate, every)]
    times = [k * every for k in range(min(int(70 / rate / every), 60))]
    nearest = {max(range(80), key=lambda f: (-abs(f / rate - time), f)) for time in times}
    assert [frame for frame in found if frame <= max(nearest)] == sorted(nearest)


def test_stated_times_are_kept_to_half_a_millisecond():
    assert [time for time in (0.0, 0.4996, 0.5, 0.501, 1.0) if is_key_time(time, Fraction(1, 2))] == [
        0,
        0.4996,
        0.5,
        1,
    ]
    assert is_key_time(0.123, None)


def test_annotations_of_one_box_without_a_track_are_one_actor(tmp_path):
    images = [{"id": "i", "file_name": "clips/b/frame_000030.jpg", "width": 10, "height": 10}]
    annotations = [
        {"image_id": "i", "bbox": [0, 0, 5, 5], "category_id": 1},
        {"image_id": "i", "bbox": [0, 0, 5, 5], "category_id": 2},
        {"image_id": "i", "bbox": [0, 0, 5, 6], "category_id": 2},
    ]
    table, _ = converted(
        tmp_path, document(images, annotations), BoxSettings(frame_rate=Fraction(10)), first_frame=10
    )
    assert_same(
        table, table_of(("clips/b", 2, HALF, "walk;talk", ""), ("clips/b", 2, (0, 0, 0.5, 0.6), "talk", ""))
    )


@pytest.mark.parametrize(
    ("image", "video", "time_s"),
    [
        ({"movie": "m", "timestamp": 902}, "m", 902),  # AIA's AVA files
        ({"video": "v.mp4", "frame": 8}, "v.mp4", 2),
        ({"video": "v.mp4", "time_s": 1.5, "frame": 8}, "v.mp4", 1.5),
        ({"file_name": "v.mp4", "time": 3}, "v.mp4", 3),
        ({"video_id": 1, "frame_id": 8}, "named", 2),  # CocoVID
        ({"file_name": "v\\000008.png"}, "v", 2),
    ],
)
def test_an_image_says_its_video_and_time_in_many_ways(tmp_path, image, video, time_s):
    size = {"width": 10, "height": 10}
    annotation = {"image_id": 1, "bbox": [0, 0, 5, 5], "category_id": 1, "instance_id": 4}
    content = document(
        [{"id": 1, **image, **size}], [annotation], videos=[{"id": 1, "name": "named", "fps": 4}]
    )
    table, _ = converted(tmp_path, content, BoxSettings(frame_rate=Fraction(4)))
    assert_same(table, table_of((video, time_s, HALF, "walk", "4")))


def test_the_rate_of_a_video_may_be_in_the_file(tmp_path):
    content = kwcoco() | {"videos": [{"id": 5, "name": "a", "fps": 12.5}]}
    table, _ = converted(tmp_path, content)
    assert table.time_s.tolist() == [0, 12 / 12.5, 2]


def test_attributes_name_actions_by_themselves_or_by_their_text(tmp_path):
    images = [{"id": 1, "video": "v", "time": 0, "width": 10, "height": 10}]
    annotation = {"image_id": 1, "bbox": [0, 0, 5, 5], "category_id": 7}
    annotations = [
        annotation
        | {"track_id": 1, "attributes": {"wave": True, "run": False, "pose": "sit", "occluded": True}},
        annotation | {"track_id": 2, "attributes": {"age": 31, "pose": "None", "speed": "1.5"}},
        annotation
        | {"track_id": 3, "attributes": ["jump"], "dive_detection_attributes": {"actions": ["eat", "drink"]}},
        annotation | {"track_id": 4, "category_id": 1, "attributes": {"wave": "true"}},
    ]
    rule = ActionRule(from_class=False, from_attributes=True)
    table, report = converted(tmp_path, document(images, annotations), BoxSettings(rule))
    expected = [("1", "sit;wave"), ("3", "drink;eat;jump"), ("4", "wave")]
    assert_same(table, table_of(*(("v", 0, HALF, actions, actor) for actor, actions in expected)))
    assert report.dropped == {"without_an_action": 1}
    kept, report = converted(
        tmp_path,
        document(images, annotations),
        BoxSettings(
            ActionRule(from_class=False, from_attributes=True, attributes=frozenset({"pose"})),
            only_classes=frozenset({"person"}),
            keep_unlabelled=True,
        ),
    )
    assert_same(
        kept,
        table_of(
            *(("v", 0, HALF, actions, actor) for actor, actions in [("1", "sit"), ("2", ""), ("3", "")])
        ),
    )
    assert report.dropped == {"of_another_class": 1}


def test_boxes_that_are_left_out_are_not_judged(tmp_path):
    content = kwcoco()
    content["annotations"].append({"image_id": 0, "bbox": [0, 0, 999, 0], "category_id": 7})
    table, report = converted(
        tmp_path, content, BoxSettings(only_classes=frozenset({"walk", "talk"}), frame_rate=Fraction(25))
    )
    assert len(table) == 3
    assert report.dropped["of_another_class"] == 1


def test_an_attribute_that_never_occurs_is_named(tmp_path):
    rule = ActionRule(from_class=True, from_attributes=True, attributes=frozenset({"posture"}))
    with pytest.raises(
        AnnotationError, match=r"the given attributes must occur; posture do not\. The file has: none"
    ):
        converted(tmp_path, kwcoco(), BoxSettings(rule, frame_rate=Fraction(25)))


def wrong(**changes):
    content = kwcoco()
    for place, value in changes.items():
        key, at, field = place.split("__")
        content[key][int(at)] = value if field == "all" else content[key][int(at)] | {field: value}
    return json.dumps(content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "labels.json, line 1, column 1: must be JSON"),
        ('{"images": [\n{"id": 1,}]}', "labels.json, line 2, column"),
        ("[]", "labels.json: must be an object with 'images'"),
        ('{"images": []}', "labels.json, annotations: must be a list; got nothing"),
        (json.dumps(document([], [])), "of 0 annotations none is left"),
        ('{"images": [], "annotations": [], "n": NaN}', "numbers must be finite; got NaN"),
        ("[" * 100_000, "labels.json: must be readable JSON"),
        (b'{"images": "\xff"}', "line 1: must be UTF-8 text"),
        (wrong(annotations__1__image_id=99), "annotations[1].image_id: must be among the images; got '99'"),
        (wrong(annotations__1__category_id=99), "annotations[1].category_id: must be among the categories"),
        (
            wrong(annotations__1__bbox=[1, 2, 3]),
            "annotations[1].bbox: must be [x, y, width, height] in pixels",
        ),
        (wrong(annotations__1__bbox=[1, 2, True, 3]), "annotations[1].bbox: must be"),
        (
            wrong(annotations__1__bbox=[0, 0, 300, 50]),
            "annotations[1]: a box must lie in the frame of 200 x 100",
        ),
        (wrong(annotations__1__bbox=[10, 10, 0, 5]), "annotations[1]: a box must have a width and a height"),
        (
            wrong(annotations__1__bbox=[10, 10, 50, 50]),
            "annotations[1]: an actor must be in one place at a time",
        ),
        (
            wrong(annotations__1__attributes="walk"),
            "annotations[1].attributes: must be an object of attributes",
        ),
        (wrong(annotations__1__all=5), "annotations[1]: must be an object; got '5'"),
        (wrong(images__2__id=1), "images[2]: must be an object with an id of its own"),
        (wrong(images__2__width=0), "images[2]: must have a width and a height above 0"),
        (wrong(images__2__video_id=8), "images[2].video_id: must be among the videos; got '8'"),
        (wrong(images__2__frame_index=-1), "images[2]: must have a frame number or a time, 0 or later"),
        (wrong(images__2__frame_index=1.5), "images[2]: must have a frame number or a time, 0 or later"),
        (
            wrong(annotations__1__bbox=[0, 0, 1e999, 5]).replace("Infinity", "1e999"),
            "annotations[1].bbox: must be",
        ),
        (wrong(categories__0__name=""), "categories[0].name: a category must have a name"),
        (wrong(categories__0__name="a;b"), "annotations[0]: an action must not contain ';'"),
        (wrong(categories__0__name="Talk"), "a class must be spelled one way; got 'Talk' and 'talk'"),
    ],
)
def test_wrong_documents_are_refused_by_place_and_nothing_is_written(tmp_path, content, words):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "labels.json", content)
    assert_refused(run("from-coco", path, "--fps", "25", "--out", out), words, out)


def test_what_the_file_leaves_open_is_asked_for(tmp_path):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "labels.json", json.dumps(kwcoco()))
    assert_refused(run("from-coco", path, "--out", out), "give the frame rate with --fps", out)
    assert_refused(run("from-coco", path, "--fps", "0", "--out", out), "above zero", out)
    assert_refused(run("from-coco", path, "--size", "0x5", "--out", out), "WIDTHxHEIGHT", out)
    assert_refused(run("from-coco", path, "--attribute", "pose", "--out", out), "--actions", out)


def test_the_command_writes_the_table_its_options_ask_for(tmp_path):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "labels.json", json.dumps(kwcoco()))
    outcome = run(
        *(
            "from-coco",
            path,
            "--fps",
            "25",
            "--every",
            "1",
            "--video",
            "film",
            "--size",
            "400x200",
            "--out",
            out,
        )
    )
    assert outcome.exit_code == 0, outcome.output
    assert "left out: between key times" in outcome.stdout
    expected = table_of(
        ("film", 0, (0, 0, 0.25, 0.25), "walk;talk", "3"), ("film", 1, (0, 0.05, 0.125, 0.5), "walk", "x")
    )
    assert_same(read_actor_table(out), expected)
