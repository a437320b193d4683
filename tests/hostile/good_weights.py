"""Good files of tensors, graphs and pickles, small; how they are made hostile and signed again."""

import hashlib
import io
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from onnx import TensorProto, helper, numpy_helper

from mule.detection.centres import CentreNetwork, centre_detector_file, read_centre_detector
from mule.detection.detector import YoloxDetector
from mule.features.feature_files import VideoFeatures, write_features
from mule.memory.files import card_digest, tensors_digest
from tests.hostile.mutations import of_bytes


def memory_signed(folder: Path, name: str = "memory.safetensors") -> None:
    """Renew the digests within a memory."""
    try:
        content = (folder / name).read_bytes()
        tensors = safetensors.torch.load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        card = json.loads(header["__metadata__"]["card"])
        card["tensors_sha256"] = tensors_digest(tensors)
        card["card_sha256"] = card_digest(card)
        (folder / name).write_bytes(safetensors.torch.save(tensors, {"card": json.dumps(card)}))
    except Exception:  # what cannot be signed is read unsigned
        return


def card_signed(folder: Path) -> None:
    """Let the card vouch for the weights as they are."""
    card = json.loads((folder / "card.json").read_text())
    card["weights_sha256"] = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "card.json").write_text(json.dumps(card))


def bundle_signed(folder: Path) -> None:
    """Let card, bundle, calibration and memory belong to the weights as they are."""
    card_signed(folder)
    sha256 = json.loads((folder / "card.json").read_text())["weights_sha256"]
    card = json.loads((folder / "bundle.json").read_text()) | {"weights_sha256": sha256}
    (folder / "bundle.json").write_text(json.dumps(card))
    calibration = (folder / "calibration.safetensors").read_bytes()
    header = json.loads(calibration[8 : 8 + int.from_bytes(calibration[:8], "little")])["__metadata__"]
    tensors = safetensors.torch.load(calibration)
    (folder / "calibration.safetensors").write_bytes(
        safetensors.torch.save(tensors, {**header, "weights_sha256": sha256})
    )


class _Evil:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.reduced


def of_pickle(folder_of_canary: str, content: bytes, chance: random.Random) -> bytes:
    """Return a pickle that asks for code, or changed bytes."""
    if chance.random() < 0.6:
        return of_bytes(content, chance)
    import builtins
    import subprocess

    evil = chance.choice(
        (
            _Evil(subprocess.check_call, ["touch", folder_of_canary]),
            _Evil(builtins.eval, f"open({folder_of_canary!r}, 'w')"),
            _Evil(builtins.open, folder_of_canary, "w"),
            _Evil(bytearray, 10**13),
            _Evil(np.zeros, (10**6, 10**6)),
        )
    )
    whole = {"state_dict": {"a": torch.zeros(2), "b": evil}}
    if content.startswith(b"PK"):
        file = io.BytesIO()
        torch.save(whole, file)
        return file.getvalue()
    nested: list[Any] = []
    for _ in range(400):
        nested = [nested]
    return chance.choice(
        (
            lambda: pickle.dumps({"blobs": {"a": np.zeros(3), "b": evil}}, protocol=2),
            lambda: b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
            lambda: b"\x80\x02(" + b"(" * 50_000 + b"t" * 50_000 + b".",
            lambda: pickle.dumps({"blobs": {"a": nested, "b": np.zeros(10, dtype=object)}}, protocol=2),
            lambda: pickle.dumps({"params": {"a": np.zeros(3), "b": evil}, "batch_stats": {}}, protocol=2),
            lambda: pickle.dumps({"params": _first_layer(np.zeros((3, 4))), "batch_stats": {"a": {"b": 1}}}),
            lambda: _deep(chance.choice((100, 900, 50_000))),
            lambda: b"\x80\x04\x96" + (10**13).to_bytes(8, "little") + b".",
            lambda: b"\x80\x04\x8e" + (10**13).to_bytes(8, "little") + b".",
        )
    )()


def _first_layer(kernel: np.ndarray) -> dict[str, Any]:
    return {"Conv3d_1a_7x7": {"Conv_0": {"kernel": kernel}}}


def _deep(levels: int) -> bytes:
    """Variables of Flax, nested so deeply; written by hand, because pickle itself would give up."""
    return b"\x80\x02}U\x06params" + b"}U\x01a" * levels + b"}" + b"s" * levels + b"sU\x0bbatch_stats}s."


def torch_file(folder: Path, *, zipped: bool) -> None:
    """Write tensors with torch."""
    content = {"state_dict": {"conv.weight": torch.zeros(3, 4), "epoch": torch.tensor(3)}, "epoch": 7}
    torch.save(content, folder / "weights.pth", _use_new_zipfile_serialization=zipped)


def caffe2_file(folder: Path) -> None:
    """Write arrays as Caffe2 does."""
    content = {"blobs": {"conv_w": np.zeros((3, 4), np.float32), "step": np.zeros(1, np.int64)}}
    (folder / "weights.pkl").write_bytes(pickle.dumps(content, protocol=2))


def flax_file(folder: Path) -> None:
    """Write arrays as Flax does: the first layer of I3D."""
    ones = np.ones((1, 1, 1, 1, 4), np.float32)
    layer = {"Conv_0": {"kernel": np.zeros((1, 1, 1, 3, 4), np.float32)}, "BatchNorm_0": {"bias": ones}}
    content = {
        "params": {"Conv3d_1a_7x7": layer},
        "batch_stats": {"Conv3d_1a_7x7": {"BatchNorm_0": {"mean": ones, "var": ones}}},
    }
    (folder / "weights.ckpt").write_bytes(pickle.dumps(content, protocol=4))


def safe_file(folder: Path) -> None:
    """Write tensors as safetensors."""
    tensors = {"a.weight": torch.zeros(3, 4), "a.bias": torch.ones(3)}
    safetensors.torch.save_file(tensors, folder / "weights.safetensors", {"format": "pt"})


def detector(folder: Path) -> None:
    """Write a small centre detector."""
    torch.manual_seed(0)
    content = centre_detector_file(
        CentreNetwork(2), class_names=("person", "ball"), short_side_px=32, actor_score=0.5
    )
    (folder / "detector.safetensors").write_bytes(content)


def read_detector(folder: Path) -> None:
    """Load the detector and look at one frame."""
    read_centre_detector(folder / "detector.safetensors")(torch.zeros(1, 3, 32, 48))


SIDE, NUM_ANCHORS = 64, 84


def onnx_bytes(
    shape: tuple[int | str, ...] = (1, 3, SIDE, SIDE),
    *,
    output: np.ndarray | None = None,
    broken_at: str = "",
) -> bytes:
    """Return a YOLOX network that says the same of every image; `broken_at` gives it a node that fails when run."""
    said = np.zeros((1, NUM_ANCHORS, 85), np.float32) if output is None else output
    nodes = [helper.make_node("Identity", ["said"], ["output"])]
    initialisers = [numpy_helper.from_array(said, "said")]
    if broken_at:
        initialisers.append(numpy_helper.from_array(np.array([1]), "flat"))
        nodes = [  # a shape that depends on the pixels, and does not fit
            helper.make_node("ReduceMax", ["images"], ["brightest"]),
            helper.make_node("Reshape", ["brightest", "flat"], ["length"]),
            helper.make_node("Cast", ["length"], ["shape"], to=TensorProto.INT64),
            helper.make_node("Reshape", ["images", "shape"], ["output"]),
        ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)],
        initialisers,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    ).SerializeToString()


def of_onnx(content: bytes, chance: random.Random) -> bytes:
    """Return a graph of other sizes, outputs or types, or changed bytes."""
    said = np.zeros((1, NUM_ANCHORS, 85), np.float32)
    return chance.choice(
        (
            lambda: of_bytes(content, chance),
            lambda: of_bytes(content, chance),
            lambda: of_bytes(content, chance),
            lambda: onnx_bytes(
                (1, 3, chance.choice((0, 32, 100_000, 10**9, 2**40)), chance.choice((64, 3200)))
            ),
            lambda: onnx_bytes((chance.choice((-1, 0, 5, "n")), 3, SIDE, SIDE)),
            lambda: onnx_bytes((3, SIDE, SIDE)),
            lambda: onnx_bytes(output=said[..., : chance.randrange(1, 85)].copy()),
            lambda: onnx_bytes(output=said + chance.choice((np.nan, 2, -1, np.inf)).__float__()),
            lambda: onnx_bytes(output=said.astype(chance.choice((np.int64, np.float64)))),
            lambda: onnx_bytes(broken_at="run"),
        )
    )()


def read_onnx(folder: Path) -> None:
    """Open the detector and look at one frame."""
    YoloxDetector(folder / "yolox.onnx", threads=1)(torch.zeros(1, 3, 48, 64, dtype=torch.uint8))


FEATURES_KEY = "made"


def features(folder: Path) -> None:
    """Write features of a video."""
    piece = VideoFeatures(
        torch.zeros(2, 3, 2, 4),
        torch.arange(2).double(),
        torch.zeros(2, dtype=torch.int64),
        16,
        (32, 64),
        (64, 128),
    )
    write_features(folder / "film.safetensors", [piece], key=FEATURES_KEY, scratch=folder)
