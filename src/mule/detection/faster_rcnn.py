"""Faster R-CNN, the detector family of the paper, from torchvision (extra `mule-actions[torchvision]`).

torchvision publishes weights for ResNet-50-FPN. For the paper's ResNeXt-101-FPN it publishes none: the network is built
from torchvision's parts, and the user brings its state dict.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import DetectorError
from mule.detection.boxes import clip_to_image, has_area
from mule.detection.cards import CLASS_INDEX_BY_CATEGORY_ID, COCO_CLASSES, OTHER_OBJECT
from mule.detection.detections import PAPER_ACTOR_SCORE, Detections, concatenate
from mule.detection.detector import RgbFrames, require_rgb_frames

FasterRcnnKind = Literal["resnet50", "resnet50_v2", "resnext101"]
NUM_COCO_CATEGORIES = 91  # background, then category ids 1..90


class FasterRcnnDetector:
    """A torchvision detection model over COCO categories: RGB 0..1 in, boxes, labels and scores per image out.

    All frames of a call go through the model together, on its own device. The model resizes, normalises and suppresses boxes itself; this class maps labels and drops weak boxes.
    """

    class_names = (*COCO_CLASSES, "other")

    def __init__(
        self, model: nn.Module, *, actor_score: float = PAPER_ACTOR_SCORE, min_score: float = 0.1
    ) -> None:
        self.actor_score = actor_score
        self._model = model.eval()
        self._min_score = min_score
        self._class_index = torch.full((NUM_COCO_CATEGORIES,), OTHER_OBJECT)
        for category_id, class_index in CLASS_INDEX_BY_CATEGORY_ID.items():
            self._class_index[category_id] = class_index

    def __call__(self, frames: RgbFrames) -> Detections:
        """Return all detections of each frame, in pixels of the given frames, clipped to the frame."""
        require_rgb_frames(frames)
        images = frames.float() / (255 if frames.dtype == torch.uint8 else 1)
        weights = next(self._model.parameters(), images)
        with torch.inference_mode():
            outputs = self._model(list(images.to(weights.device))) if len(images) else []
        return concatenate(
            [self._detections(image, output) for image, output in zip(images, outputs, strict=True)]
        )

    def _detections(self, image: Float[Tensor, "3 rows cols"], given: Mapping[str, Tensor]) -> Detections:
        output = {name: given[name].to("cpu") for name in ("boxes", "labels", "scores")}
        boxes = clip_to_image(output["boxes"].clone(), width_px=image.shape[2], height_px=image.shape[1])
        kept = has_area(boxes) & (output["scores"] >= self._min_score)
        class_index = self._class_index[output["labels"][kept]]
        return Detections(
            boxes_xyxy_px=boxes[kept],
            scores=output["scores"][kept].clone(),
            class_index=class_index,
            image_index=torch.zeros_like(class_index),
            num_images=1,
        )


def load_faster_rcnn(path: str | Path, *, device: str = "cpu") -> FasterRcnnDetector:
    """Load a detector from a state dict of torchvision's Faster R-CNN for COCO; its tensors tell which network it is.

    Raises:
        DetectorError: the file cannot be used, torchvision cannot be imported, or there is no such device.
    """
    path = Path(path)
    state = _read_state_dict(path)
    builders = _builders()
    kind = faster_rcnn_kind(state)
    model = builders[kind]()
    try:
        model.load_state_dict(state)  # torchvision itself renames the keys of older files
    except RuntimeError as mismatch:
        raise DetectorError(
            f"{path}: must hold the weights of Faster R-CNN {kind} for {NUM_COCO_CATEGORIES} COCO categories; "
            f"torch reports: {str(mismatch)[:400]} ..."
        ) from mismatch
    return FasterRcnnDetector(_moved(model, device))


def faster_rcnn_kind(state: Mapping[str, Tensor]) -> FasterRcnnKind:
    """Tell the network by what only it has: a convolutional box head, or the 23 blocks of a deep third stage."""
    if any(name.startswith("roi_heads.box_head.0.") for name in state):
        return "resnet50_v2"
    return "resnext101" if "backbone.body.layer3.22.conv1.weight" in state else "resnet50"


def _moved(model: nn.Module, device: str) -> nn.Module:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it supports the device
        reason = str(error).partition("\n")[0]
        raise DetectorError(
            f"the device must be one that torch can use here; got '{device}': {reason}"
        ) from error


def _builders() -> Mapping[FasterRcnnKind, Callable[[], nn.Module]]:
    try:
        from torchvision.models.detection import FasterRCNN, fasterrcnn_resnet50_fpn_v2  # pyright: ignore[reportMissingImports]
        from torchvision.models.detection.backbone_utils import resnet_fpn_backbone  # pyright: ignore[reportMissingImports]
        from torchvision.ops import FrozenBatchNorm2d  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError) as missing:
        raise DetectorError(
            "Faster R-CNN needs torchvision, built for the torch that is installed: pip install 'mule-actions[torchvision]'; "
            f"it could not be imported: {missing}."
        ) from missing

    def with_frozen_norm(backbone: str, eps: float) -> nn.Module:
        body = resnet_fpn_backbone(
            backbone_name=backbone, weights=None, norm_layer=partial(FrozenBatchNorm2d, eps=eps)
        )
        return FasterRCNN(body, num_classes=NUM_COCO_CATEGORIES)

    return {
        "resnet50": partial(with_frozen_norm, "resnet50", 0.0),  # the published weights use eps 0
        "resnet50_v2": partial(fasterrcnn_resnet50_fpn_v2, weights=None, weights_backbone=None),
        "resnext101": partial(with_frozen_norm, "resnext101_32x8d", 1e-5),
    }


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise DetectorError(
            f"{path}: there is no such detector file. `mule weights list` shows what can be downloaded."
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as failure:  # torch raises many kinds of errors for a damaged file
        raise DetectorError(
            f"{path} ({path.stat().st_size} bytes): not a complete file of tensors. Files that could run code are "
            f"refused. Download it again with `mule weights pull`. torch reports: {failure}"
        ) from failure
    if isinstance(state, dict) and isinstance(state.get("model"), dict):
        state = state["model"]  # as torchvision's own training script saves it
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DetectorError(f"{path}: must hold a state dict, tensors by name; got {type(state).__name__}.")
    return state
