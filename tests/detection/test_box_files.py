"""Precomputed boxes: every format gives the same table, every bad row is named."""

import json
import pickle

import pytest
import torch

from mule.core.errors import AnnotationError
from mule.detection.cards import COCO_CLASSES, OTHER_OBJECT
from mule.detection.detections import PERSON, FrameKey
from mule.detection.files import load_ava_csv, load_boxes

AVA = """\
1j20qq1JyX4,0902,0.100,0.200,0.500,0.800,12,0.95
1j20qq1JyX4,0902,0.100,0.200,0.500,0.800,80,0.90
1j20qq1JyX4,0902,0.600,0.200,0.900,0.800,,0.40
1j20qq1JyX4,0904
5BDj0ow5hnA,0902,0.250,0.250,0.750,0.750,,1
"""
FRAMES = [FrameKey("1j20qq1JyX4", 902.0), FrameKey("1j20qq1JyX4", 903.0), FrameKey("5BDj0ow5hnA", 902.0)]


@pytest.fixture
def save(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def coco(entries, *, categories=None, **image):
    described = {"id": 7, "width": 200, "height": 100, "movie": "v", "timestamp": 902, **image}
    return {"images": [described], "annotations": entries, "categories": categories or []}


@pytest.mark.parametrize(
    ("name", "content"), [("none.csv", ""), ("none.json", {}), ("images.json", coco([]))]
)
def test_files_without_boxes_are_ordinary(save, name, content):
    table = load_boxes(save(name, content))
    assert len(table.scores) == 0
    found = table.detections(FRAMES, width_px=10, height_px=10)
    assert (len(found), found.num_images) == (0, 3)


def test_ava_rows_of_one_box_become_one_actor_with_the_best_score(save):
    table = load_boxes(save("ava.csv", AVA))
    assert table.frames == (FRAMES[0], FrameKey("1j20qq1JyX4", 904.0), FRAMES[2])
    assert table.scores.tolist() == pytest.approx([0.95, 0.40, 1.0])
    assert (table.num_repeated, table.num_clipped) == (1, 0)
    assert (table.class_index == PERSON).all()


def test_boxes_of_frames_come_in_pixels_in_the_order_asked_for(save):
    table = load_ava_csv(save("ava.csv", AVA))
    found = table.detections(FRAMES, width_px=200, height_px=100)
    assert found.image_index.tolist() == [0, 0, 2]
    expected = torch.tensor([[20.0, 20, 100, 80], [120, 20, 180, 80], [50, 25, 150, 75]])
    torch.testing.assert_close(found.boxes_xyxy_px, expected)
    turned = table.detections(FRAMES[::-1], width_px=200, height_px=100)
    assert turned.image_index.tolist() == [0, 2, 2]
    torch.testing.assert_close(turned.boxes_xyxy_px, expected[[2, 0, 1]])


def test_seven_columns_mean_score_one_and_times_are_kept_to_the_millisecond(save):
    table = load_ava_csv(save("gt.csv", "v,12.4804,0.1,0.1,0.2,0.2,3\n"))
    assert table.scores.tolist() == [1.0]
    assert len(table.detections([FrameKey("v", 12.48)], width_px=100, height_px=100)) == 1


def test_a_first_line_of_names_is_read_and_labels_are_classes(save):
    text = "video,key_time_s,x1,y1,x2,y2,label,score\nv,1,0,0,1,1,person,0.9\nv,1,0,0,1,1,cup,0.8\nv,1,0,0,.5,1,object,0.7\n"
    table = load_boxes(save("own.csv", text))
    assert table.class_index.tolist() == [PERSON, COCO_CLASSES.index("cup"), OTHER_OBJECT]
    with pytest.raises(AnnotationError, match=r"own\.csv, line 3: column 'label' must be .* got 'persn'"):
        load_boxes(save("own.csv", text.replace("cup", "persn")))


def test_boxes_by_frame_say_the_same_as_the_csv(save):
    content = {
        "1j20qq1JyX4,0902": [[0.1, 0.2, 0.5, 0.8, 0.95], [0.6, 0.2, 0.9, 0.8, 0.4]],
        "1j20qq1JyX4,0904": [],
        "5BDj0ow5hnA,0902": [[0.25, 0.25, 0.75, 0.75]],
    }
    by_frame, by_row = load_boxes(save("a.json", content)), load_ava_csv(save("a.csv", AVA))
    assert by_frame.frames == by_row.frames
    for name in ("boxes_xyxy_unit", "scores", "class_index", "frame_index"):
        torch.testing.assert_close(getattr(by_frame, name), getattr(by_row, name))


def test_coco_annotations_are_boxes_by_width_and_height_in_pixels(save):
    entries = [
        {"image_id": 7, "category_id": 1, "bbox": [20, 10, 80, 40]},
        {"image_id": 7, "category_id": 1, "bbox": [0, 0, 200, 100], "iscrowd": 1},
        {"image_id": 7, "category_id": 44, "bbox": [0, 0, 20, 10]},
    ]
    table = load_boxes(save("coco.json", coco(entries)))
    torch.testing.assert_close(
        table.boxes_xyxy_unit, torch.tensor([[0.1, 0.1, 0.5, 0.5], [0.0, 0.0, 0.1, 0.1]])
    )
    assert table.class_index.tolist() == [PERSON, COCO_CLASSES.index("bottle")]
    assert table.frames == (FrameKey("v", 902.0),)


def test_coco_results_take_their_images_from_the_annotation_file(save):
    images = save("ava_val_v2.2_min.json", coco([], categories=[{"id": 1, "name": "person"}]))
    results = save(
        "ava_val_det_object_bbox.json",
        [
            {"image_id": 7, "category_id": 62, "bbox": [20.0, 10.0, 80.0, 40.0], "score": 0.75},
            {"image_id": 7, "bbox": [0, 0, 9, 9], "score": 0.5},
        ],
    )
    table = load_boxes(results, images_path=images)
    assert table.class_index.tolist() == [COCO_CLASSES.index("chair"), OTHER_OBJECT]
    assert table.scores.tolist() == [0.75, 0.5]
    with pytest.raises(AnnotationError, match="Give the COCO annotations that describe them as images_path"):
        load_boxes(results)


def test_categories_go_by_name_where_the_file_names_them_and_images_by_file_name(save):
    content = coco(
        [
            {"image_id": "a", "category_id": 5, "bbox": [1, 1, 5, 5]},
            {"image_id": "a", "category_id": 6, "bbox": [1, 1, 6, 6]},
        ],
        categories=[{"id": 5, "name": "person"}, {"id": 6, "name": "forklift"}],
    )
    content["images"] = [{"id": "a", "width": 10, "height": 10, "file_name": "yard/1.jpg"}]
    table = load_boxes(save("yard.json", content))
    assert table.class_index.tolist() == [PERSON, OTHER_OBJECT]
    assert table.frames == (FrameKey("yard/1.jpg", 0.0),)


def test_boxes_just_over_the_edge_are_clipped_and_counted(save):
    table = load_ava_csv(save("edge.csv", "v,1,-0.02,0.5,0.5,1.04,,0.9\nv,1,0,0,1,1,,0.9\n"))
    torch.testing.assert_close(table.boxes_xyxy_unit[0], torch.tensor([0.0, 0.5, 0.5, 1.0]))
    assert table.num_clipped == 1


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("v,1,nan,0,1,1,,0.9", "must be finite numbers"),
        ("v,1,0,0,inf,1,,0.9", "must be finite numbers"),
        ("v,one,0,0,1,1,,0.9", "must be finite numbers"),
        ("v,1,0,0,1,1,,", "must be finite numbers"),
        ("v,1,10,20,110,220,,0.9", "Were pixels and fractions confused"),
        ("v,1,1.01,0,1.04,1,,0.9", "inside the image"),
        ("v,1,0.5,0,0.4,1,,0.9", "x2 > x1"),
        ("v,1,0.5,0,0.500000001,1,,0.9", "x2 > x1"),
        ("v,1,0,0,1,1,12,37", "AVA's ground truth"),
        ("v,1,0,0,1,1,,-0.5", r"within 0\.\.1"),
        ("v,1,0,0,1", "2, 7 or 8 columns"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_file_and_line(save, row, says):
    with pytest.raises(AnnotationError, match=rf"bad\.csv, line 2: .*{says}"):
        load_boxes(save("bad.csv", f"v,1,0,0,1,1,,0.9\n{row}\n"))


def test_all_problems_are_told_at_once_but_not_endlessly(save):
    with pytest.raises(AnnotationError) as caught:
        load_boxes(save("bad.csv", "v,1,0\n" * 3 + "v,1,0,0,1,1,,0.9\n" + "v,x\n" * 4))
    text = str(caught.value)
    assert [f"line {n}:" in text for n in (1, 2, 3, 4, 5, 6, 7)] == [
        True,
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert text.endswith("and 2 more.")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"v,1": [[0, 0, 1]]}, r"entry 'v,1', box 0: must be \[x1"),
        ({"v,1": [[0, 0, 1, "1"]]}, "box 0: must be"),
        ({"v,1": [[0, 0, 1, True]]}, "box 0: must be"),
        ({"v,1": [[0, 0, 1, 10**400]]}, "box 0: must be"),
        ({"v": [[0, 0, 1, 1]]}, "called 'video,timestamp'"),
        ({"v,1": {"box": 1}}, "hold a list"),
        ([1, 2], "images_path"),
        (coco([{"image_id": 8, "bbox": [0, 0, 1, 1]}]), "entry 0: image_id 8 is not among the 1 images"),
        (coco([{"image_id": 7, "box": [0, 0, 1, 1]}]), "entry 0: must have 'image_id', 'bbox'"),
        (coco([{"image_id": [7], "bbox": [0, 0, 1, 1]}]), "entry 0: must have"),
        (coco([{"image_id": 7, "bbox": [0, 0, 1]}]), "entry 0: must have"),
        (coco([{"image_id": 7, "bbox": [0, 0, 1, 1], "score": "high"}]), "entry 0: must have"),
        (coco([{"image_id": 7, "bbox": [0, 0, 0, 1]}]), "entry 0: box must have x2 > x1"),
        (coco([{"image_id": 7, "bbox": [500, 0, 9, 9]}]), "entry 0: .*pixels and fractions"),
        (coco(["box"]), "entry 0: must have"),
        (coco([], width=0), "image 0: width and height must be above 0"),
        (coco([], timestamp="902"), "image 0: must have 'id', 'width', 'height'"),
        ({"images": 3, "annotations": []}, "the list 'images' is missing"),
        ({"images": [], "annotations": {}}, "a list 'annotations'"),
    ],
)
def test_json_with_wrong_fields_is_named_by_file_and_entry(save, content, says):
    with pytest.raises(AnnotationError, match=rf"bad\.json, (file: )?.*{says}"):
        load_boxes(save("bad.json", content))


def test_json_numbers_must_be_finite(save):
    with pytest.raises(AnnotationError, match=r"bad\.json: .* numbers must be finite; got NaN"):
        load_boxes(save("bad.json", {"v,1": [[0, 0, 1, float("nan")]]}))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("cut.json", b'{"v,1": [[0.1, 0.2,', r"cut\.json, line 1, column 20: must be JSON"),
        ("empty.json", b"", r"empty\.json, line 1, column 1: must be JSON"),
        ("picture.json", b"\x89PNG\r\n\x1a\n\xff\xd8", r"picture\.json, line 1: must be UTF-8 text"),
        ("picture.csv", b"\xff\xd8\xff\xe0", r"picture\.csv, line 1: must be UTF-8 text"),
        ("endless.csv", b"a" * 200_000, r"endless\.csv: not a CSV file"),
    ],
)
def test_files_that_are_cut_or_are_something_else_are_refused_by_name(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AnnotationError, match=says):
        load_boxes(tmp_path / name)


def test_a_missing_file_and_a_pickle_are_refused_by_name(tmp_path):
    with pytest.raises(AnnotationError, match=r"none\.csv: must be a readable file; there is no such file"):
        load_boxes(tmp_path / "none.csv")
    (tmp_path / "boxes.pkl").write_bytes(pickle.dumps({"v,0902": [[0, 0, 1, 1, 1]]}))
    with pytest.raises(AnnotationError, match="Pickles can run code and are not opened"):
        load_boxes(tmp_path / "boxes.pkl")


def test_a_table_of_objects_keeps_its_classes(save):
    text = "video,time_s,x1,y1,x2,y2,object_class,score\nv,1,0,0,1,1,person,0.9\nv,1,0,0,1,0.5,cup,0.8\nv,1,0,0,0.5,1,net,0.7\n"
    table = load_boxes(save("objects.csv", text))
    assert table.class_index.tolist() == [PERSON, COCO_CLASSES.index("cup"), OTHER_OBJECT]
