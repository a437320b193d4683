"""YOLOX through onnxruntime, on tiny files made here whose every output is known."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from mule.core.errors import DetectorError, RangeError, ShapeError
from mule.detection.cards import CLASS_INDEX_BY_CATEGORY_ID, COCO_CLASSES, FASTER_RCNN_CARDS, YOLOX_CARDS
from mule.detection.detections import PERSON
from mule.detection.detector import YoloxDetector, anchor_grid, decode_boxes, letterbox, require_rgb_frames

SIDE = 64
NUM_ANCHORS = 8 * 8 + 4 * 4 + 2 * 2
NAMES = ("person", "ball", "cup")


def anchor(column: int, row: int, stride: int) -> int:
    start = {8: 0, 16: 64, 32: 80}[stride]
    return start + row * (SIDE // stride) + column


def raw_output(boxes) -> np.ndarray:
    """What a network says of boxes given as (column, row, stride, dx, dy, log w, log h, class, score)."""
    output = np.zeros((1, NUM_ANCHORS, 5 + len(NAMES)), np.float32)
    for column, row, stride, dx, dy, log_w, log_h, kind, score in boxes:
        line = output[0, anchor(column, row, stride)]
        line[:5] = dx, dy, log_w, log_h, 1.0
        line[5 + kind] = score
    return output


def save_network(
    path: Path, output: np.ndarray, *, shape=(1, 3, SIDE, SIDE), first_row_is_colour=False
) -> Path:
    """A network that says `output` of every image; its first row may score the three channels' means instead."""
    constant = numpy_helper.from_array(output, "constant")
    initialisers, nodes = [constant], []
    if first_row_is_colour:
        pieces = {
            "head": output[:, :1, :5],
            "rest": output[:, 1:],
            "scale": np.float32(255),
            "flat": np.array([1, 1, 3]),
        }
        initialisers = [numpy_helper.from_array(np.asarray(value), name) for name, value in pieces.items()]
        nodes = [
            helper.make_node("GlobalAveragePool", ["images"], ["mean"]),
            helper.make_node("Div", ["mean", "scale"], ["unit"]),
            helper.make_node("Reshape", ["unit", "flat"], ["colour"]),
            helper.make_node("Concat", ["head", "colour"], ["first"], axis=2),
            helper.make_node("Concat", ["first", "rest"], ["output"], axis=1),
        ]
    else:
        nodes = [helper.make_node("Identity", ["constant"], ["output"])]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, output.shape)],
        initialisers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.fixture
def network(tmp_path):
    def save(*boxes, **options) -> Path:
        return save_network(tmp_path / "tiny.onnx", raw_output(boxes), **options)

    return save


def detector(path, **options):
    return YoloxDetector(path, class_names=NAMES, threads=1, **options)


def frames(num_frames=1, rows=SIDE, cols=SIDE):
    return torch.zeros(num_frames, 3, rows, cols, dtype=torch.uint8)


def test_an_empty_batch_and_an_empty_scene_are_ordinary(network):
    detect = detector(network())
    assert (len(detect(frames(0))), detect(frames(0)).num_images) == (0, 0)
    assert (len(detect(frames(2))), detect(frames(2)).num_images) == (0, 2)


def save_free_network(path, output):
    """A network for any number of images; the brighter an image, the further right its boxes."""
    moves = np.zeros_like(output)
    moves[..., 0] = 1 / 255
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("ReduceMean", ["mean"], ["light"], axes=[1], keepdims=1),
        helper.make_node("Unsqueeze", ["light", "axis"], ["each"]),
        helper.make_node("Mul", ["each", "moves"], ["moved"]),
        helper.make_node("Add", ["constant", "moved"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "free",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", *output.shape[1:]])],
        [
            numpy_helper.from_array(output, "constant"),
            numpy_helper.from_array(moves, "moves"),
            numpy_helper.from_array(np.array([2]), "axis"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_file_for_any_number_of_images_sees_all_frames_at_once_and_finds_the_same(tmp_path, monkeypatch):
    path = save_free_network(tmp_path / "free.onnx", raw_output([(1, 1, 16, 0.0, 0.0, 0.0, 0.0, 1, 0.8)]))
    detect = detector(path)
    shown = torch.stack([torch.full((3, SIDE, SIDE), level, dtype=torch.uint8) for level in (0, 100, 255)])
    alone = [detect(each[None]).boxes_xyxy_px for each in shown]
    sizes: list[int] = []
    run = detect._run  # pyright: ignore[reportPrivateUsage] - how often the network runs is its business
    monkeypatch.setattr(detect, "_run", lambda canvases: sizes.append(len(canvases)) or run(canvases))
    together = detect(shown)
    assert sizes == [3]
    for at, boxes in enumerate(alone):
        torch.testing.assert_close(together.of_image(at).boxes_xyxy_px, boxes)
    assert not torch.equal(alone[0], alone[1])
    assert detect(shown[:0]).num_images == 0


def test_anchors_are_listed_stride_by_stride_row_by_row():
    expected = [
        [col, row, stride]
        for stride in (8, 16, 32)
        for row in range(96 // stride)
        for col in range(64 // stride)
    ]
    assert anchor_grid(96, 64).tolist() == expected


def test_decoding_follows_the_formula():
    raw = torch.tensor([[0.25, 0.5, 0.0, np.log(2.0)]], dtype=torch.float32)
    grid = torch.tensor([[3.0, 1.0, 16.0]])
    torch.testing.assert_close(decode_boxes(raw, grid), torch.tensor([[52.0, 24.0, 16.0, 32.0]]))


@pytest.mark.parametrize(("rows", "cols"), [(64, 64), (128, 128), (32, 64), (100, 50), (33, 71)])
def test_a_box_comes_back_in_pixels_of_the_frame_whatever_its_shape(network, rows, cols):
    scale = min(SIDE / rows, SIDE / cols)
    scale_x, scale_y = int(cols * scale) / cols, int(rows * scale) / rows
    found = detector(network((1, 1, 16, 0.0, 0.0, 0.0, 0.0, 1, 0.8)))(frames(rows=rows, cols=cols))
    expected = [8 / scale_x, 8 / scale_y, min(24 / scale_x, cols), min(24 / scale_y, rows)]
    assert found.boxes_xyxy_px[0].tolist() == pytest.approx(expected)
    assert found.class_index.tolist() == [1]
    assert found.scores.tolist() == pytest.approx([0.8])


def test_boxes_reaching_out_of_the_frame_are_clipped_and_those_in_the_padding_are_gone(network):
    path = network((0, 0, 32, 0.0, 0.0, 0.0, 0.0, 0, 0.9), (1, 1, 32, 0.5, 0.9, -2.0, -2.0, 0, 0.9))
    found = detector(path)(frames(rows=32, cols=64))
    assert found.boxes_xyxy_px.tolist() == [[0, 0, 16, 16]]


def test_weaker_boxes_of_one_class_fall_and_other_classes_and_unsure_boxes_follow_their_rules(network):
    path = network(
        (2, 2, 8, 0.0, 0.0, 1.0, 1.0, 0, 0.9),
        (3, 2, 8, -0.9, 0.0, 1.0, 1.0, 0, 0.7),
        (2, 3, 8, 0.0, -0.9, 1.0, 1.0, 1, 0.6),
        (7, 7, 8, 0.0, 0.0, 1.0, 1.0, 2, 0.05),
    )
    found = detector(path)(frames())
    assert found.scores.tolist() == pytest.approx([0.9, 0.6])
    assert found.class_index.tolist() == [PERSON, 1]
    assert len(detector(path, min_score=0.01, max_iou=0.99)(frames())) == 4


def test_a_file_that_decodes_its_boxes_itself_gives_the_same_boxes(network, tmp_path):
    plain = detector(network((3, 1, 16, 0.25, 0.5, 0.3, 0.6, 0, 0.9)))(frames())
    output = raw_output([(3, 1, 16, 0.25, 0.5, 0.3, 0.6, 0, 0.9)])
    output[0, :, :4] = decode_boxes(torch.from_numpy(output[0, :, :4]), anchor_grid(SIDE, SIDE)).numpy()
    decoded = detector(save_network(tmp_path / "decoded.onnx", output))(frames())
    torch.testing.assert_close(decoded.boxes_xyxy_px, plain.boxes_xyxy_px)


def test_the_network_sees_blue_green_red_from_0_to_255_for_bytes_and_floats_alike(network):
    path = network((0, 0, 8, 2.0, 2.0, 1.0, 1.0, 0, 1.0), first_row_is_colour=True)
    image = torch.tensor([51, 102, 204], dtype=torch.uint8).expand(1, SIDE, SIDE, 3)  # red, green, blue
    image = image.permute(0, 3, 1, 2)
    for given in (image, image.contiguous(), image.float() / 255, image.double() / 255):
        found = detector(path)(given)
        assert found.class_index.tolist() == [0]  # channel 0 is the strongest: blue
        assert found.scores.tolist() == pytest.approx([0.8], abs=1e-6)


def test_padding_is_grey_and_to_the_right_and_below():
    canvas, scale = letterbox(torch.full((3, 20, 40), 200, dtype=torch.uint8), height_px=64, width_px=32)
    assert scale == (0.8, 0.8)
    assert (canvas[:, :16] == 200).all()
    assert (canvas[:, 16:] == 114).all()


def test_frames_of_a_batch_are_looked_at_one_by_one(network):
    path = network((0, 0, 8, 2.0, 2.0, 1.0, 1.0, 0, 1.0), first_row_is_colour=True)
    batch = torch.stack([torch.full((3, SIDE, SIDE), value, dtype=torch.uint8) for value in (255, 0, 51)])
    found = detector(path)(batch)
    assert found.num_images == 3
    assert found.image_index.tolist() == [0, 2]
    assert found.scores.tolist() == pytest.approx([1.0, 0.2])


@pytest.mark.parametrize(
    ("frames_given", "error", "says"),
    [
        (torch.zeros(2, 3, 4, 4, dtype=torch.int64), ShapeError, "uint8"),
        (torch.zeros(1, 3, 0, 4, dtype=torch.uint8), ShapeError, "frames, 3, rows, cols"),
        (torch.zeros(1, 4, 4, 3, dtype=torch.uint8), ShapeError, "permute"),
        (torch.full((1, 3, 4, 4), 255.0), RangeError, "divide by 255"),
        (torch.full((1, 3, 4, 4), torch.nan), RangeError, "within 0..1"),
        (torch.full((1, 3, 4, 4), -1.7), RangeError, "normalise only for the backbone"),
    ],
)
def test_frames_that_are_not_pictures_are_refused(frames_given, error, says):
    with pytest.raises(error, match=says):
        require_rgb_frames(frames_given)


@pytest.mark.parametrize("content", [b"", b"hello, not a network", b"\x08\x07\x12\x04half"])
def test_a_file_that_is_not_onnx_is_refused_by_name(tmp_path, content):
    path = tmp_path / "wrong.onnx"
    path.write_bytes(content)
    with pytest.raises(DetectorError, match=r"wrong\.onnx \(\d+ bytes\): not a complete ONNX file"):
        YoloxDetector(path)


def test_half_a_file_is_refused_by_name(network, tmp_path):
    whole = network().read_bytes()
    (tmp_path / "half.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DetectorError, match=r"half\.onnx .* not a complete ONNX file"):
        detector(tmp_path / "half.onnx")


def test_a_file_that_is_missing_is_refused_by_name(tmp_path):
    with pytest.raises(DetectorError, match=r"none\.onnx: there is no such detector file"):
        YoloxDetector(tmp_path / "none.onnx")


@pytest.mark.parametrize("shape", [(1, 3, 60, 64), (1, 1, SIDE, SIDE), (1, 3, SIDE), (4, 3, SIDE, SIDE)])
def test_a_network_that_takes_no_such_image_is_refused(network, shape):
    with pytest.raises(DetectorError, match="multiples of 32, at most 4096; got"):
        detector(network(shape=shape))


def test_a_network_with_another_output_is_refused_with_both_shapes(network, tmp_path):
    with pytest.raises(DetectorError, match=r"\(1, 84, 85\); got \[\(1, 84, 8\)\]"):
        YoloxDetector(network())
    other = save_network(tmp_path / "other.onnx", np.zeros((1, 100, 8), np.float32))
    with pytest.raises(DetectorError, match=r"other\.onnx.*\(1, 100, 8\)"):
        detector(other)


@pytest.mark.parametrize("value", [3.0, -1.0, np.nan])
def test_a_network_whose_scores_are_no_probabilities_is_refused(tmp_path, value):
    output = raw_output([])
    output[0, 5, 6] = value
    with pytest.raises(DetectorError, match=r"within 0\.\.1"):
        detector(save_network(tmp_path / "odd.onnx", output))


def test_without_onnxruntime_the_extra_is_named(network, monkeypatch):
    path = network()
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(DetectorError, match=r"mule-actions\[onnx\]"):
        detector(path)


def test_cards_are_complete_and_larger_detectors_score_higher():
    precision = [YOLOX_CARDS[f"yolox_{size}"].coco_ap or 0 for size in ("nano", "tiny", "s", "m", "l", "x")]
    assert precision[0] > 0
    assert precision == sorted(precision)
    for name, card in {**YOLOX_CARDS, **{c.name: c for c in FASTER_RCNN_CARDS.values()}}.items():
        assert card.name == name
        assert card.address
        assert card.address.startswith("https://")
        assert card.sha256 is None or len(bytes.fromhex(card.sha256)) == 32
        assert card.sha256 or (card.hash_prefix and f"-{card.hash_prefix}." in card.address)
        assert 0 < card.actor_score <= 0.85


def test_coco_has_eighty_classes_with_person_first():
    assert len(COCO_CLASSES) == len(set(COCO_CLASSES)) == len(CLASS_INDEX_BY_CATEGORY_ID) == 80
    named = {
        1: "person",
        13: "stop sign",
        44: "bottle",
        62: "chair",
        67: "dining table",
        77: "cell phone",
        90: "toothbrush",
    }
    for category_id, name in named.items():
        assert COCO_CLASSES[CLASS_INDEX_BY_CATEGORY_ID[category_id]] == name
