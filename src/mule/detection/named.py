"""Detectors by name, the same for every command: a file, a card of `mule weights list`, or `builtin`.

FILE.onnx                     YOLOX, run by onnxruntime
FILE.pth                      Faster R-CNN of torchvision; its tensors tell which: ResNet-50, ResNet-50 v2, ResNeXt-101
FILE.pdmodel                  PicoDet, run by OpenVINO; its weights beside it
FILE.safetensors, builtin     a centre detector; the built-in one knows rendered scenes
yolox_s, fasterrcnn_…         a card whose file was pulled
"""

import importlib.resources
from pathlib import Path

from mule.core.errors import DetectorError, did_you_mean
from mule.core.files import cache_folder, sha256_while_unchanged
from mule.detection.cards import DETECTOR_CARDS, DetectorCard
from mule.detection.centres import read_centre_detector
from mule.detection.detector import Detector, YoloxDetector
from mule.detection.faster_rcnn import load_faster_rcnn
from mule.detection.picodet import PicoDetector

BUILTIN_DETECTOR = "builtin"
UNKNOWN_ACTOR_SCORE = 0.3
"""The least score of an actor for a detector file without a card; small detectors are unsure."""


def detector_place(name: str | Path) -> Path:
    """Return the file or folder that a name means; the file of a card must be the published one.

    Raises:
        DetectorError: there is no such detector, or its file was not pulled or is damaged.
    """
    path = Path(name)
    if path.exists():
        return path
    if str(name) == BUILTIN_DETECTOR:
        return Path(str(importlib.resources.files("mule") / "models" / "stage" / "detector.safetensors"))
    card = DETECTOR_CARDS.get(str(name))
    if card is None:
        names = (BUILTIN_DETECTOR, *DETECTOR_CARDS)
        raise DetectorError(
            f"{name}: a detector must be a file, a folder or one of {', '.join(names)}; it is none."
            + (_RESNEXT if "resnext" in str(name) else did_you_mean(str(name), names))
        )
    return _pulled(card)


_RESNEXT = " torchvision publishes no weights of Faster R-CNN with ResNeXt-101-FPN: train it, and give the state dict as FILE.pth."


def _pulled(card: DetectorCard) -> Path:
    path = cache_folder() / card.file_name
    if not path.is_file():
        raise DetectorError(
            f"{path}: the detector must be on disk; it is not. Run `mule weights pull {card.name}`."
        )
    if not card.is_of(sha256_while_unchanged(path)):
        raise DetectorError(
            f"{path}: must be the published file of '{card.name}'; its SHA-256 checksum is another. Delete it, and run "
            f"`mule weights pull {card.name}`."
        )
    return path


def load_detector(path: Path, *, threads: int = 0, device: str = "cpu") -> Detector:
    """Load a detector from a file; its least score of an actor is that of its card.

    Args:
        path: a file from `detector_place`.
        threads: threads of onnxruntime; 0 takes as many as torch.
        device: torch device of Faster R-CNN; the others run on the CPU.

    Raises:
        DetectorError: the file cannot be used, or the extra that runs it is missing.
    """
    suffix = path.suffix.lower()
    if suffix == ".pth":
        return load_faster_rcnn(path, device=device)
    if device != "cpu":
        raise DetectorError(f"{path}: only Faster R-CNN (.pth) runs on {device}; leave the device out.")
    if suffix == ".onnx":
        return YoloxDetector(path, actor_score=_actor_score(path), threads=threads)
    if suffix == ".pdmodel":
        return PicoDetector(path, actor_score=_actor_score(path), threads=threads)
    if suffix == ".safetensors":
        return read_centre_detector(path)
    raise DetectorError(
        f"{path}: a detector must be a YOLOX file (.onnx), PicoDet (.pdmodel), Faster R-CNN (.pth), a centre detector (.safetensors), or boxes "
        "in .csv or .json; this is none of them."
    )


def _actor_score(path: Path) -> float:
    sha256 = sha256_while_unchanged(path) if path.is_file() else ""
    card = next((card for card in DETECTOR_CARDS.values() if card.is_of(sha256)), None)
    return UNKNOWN_ACTOR_SCORE if card is None else card.actor_score
