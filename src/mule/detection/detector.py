"""Detectors: frames in, boxes with scores and classes out. YOLOX through onnxruntime is the built-in one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.errors import DetectorError, RangeError, ShapeError
from mule.detection.boxes import clip_to_image, has_area, nms, xyxy_from_cxcywh
from mule.detection.cards import COCO_CLASSES
from mule.detection.detections import PAPER_ACTOR_SCORE, Detections, concatenate

Frames = Shaped[Tensor, "frames channels rows cols"]
"""RGB, uint8 from 0 to 255 or floating point from 0 to 1, as the video room gives them."""

STRIDES_PX = (8, 16, 32)
PAD_GREY = 114
MAX_CANDIDATES = 1000  # per frame, best first: keeps the overlap matrix of a noisy frame small


@runtime_checkable
class Detector(Protocol):
    """Finds persons and objects in frames."""

    @property
    def class_names(self) -> Sequence[str]:
        """Names by class index; index 0 is the person."""
        ...

    @property
    def actor_score(self) -> float:
        """Score from which a person of this detector counts as an actor."""
        ...

    def __call__(self, frames: Frames) -> Detections:
        """Everything found in each frame, in pixels of the frames given."""
        ...


def require_rgb_frames(frames: Frames) -> None:
    """Refuses what a detector cannot look at: anything but uint8, or floats within 0..1, with three channels."""
    if frames.ndim != 4 or frames.shape[1] != 3 or 0 in frames.shape[1:]:
        raise ShapeError(
            f"frames must be (frames, 3, rows, cols), RGB; got {tuple(frames.shape)}. An image that is "
            "(rows, cols, 3) goes in as image.permute(2, 0, 1)[None]."
        )
    if frames.dtype == torch.uint8:
        return
    if not frames.is_floating_point():
        raise ShapeError(f"frames must be uint8 (0..255) or floating point (0..1); got {frames.dtype}.")
    if frames.numel() and not ((frames >= 0) & (frames <= 1)).all():
        raise RangeError(
            "floating-point frames must lie within 0..1; found values from "
            f"{frames.min().item():.4g} to {frames.max().item():.4g}. Pass uint8 frames, or divide by 255; "
            "normalise only for the backbone."
        )


def letterbox(
    frame: Shaped[Tensor, "3 rows cols"], *, height_px: int, width_px: int
) -> tuple[Float[Tensor, "3 input_rows input_cols"], tuple[float, float]]:
    """The frame shrunk or grown to fit, in the top-left corner of a grey canvas, and its scale in x and y.

    Channels come out in the order blue, green, red with values from 0 to 255, as YOLOX was trained.
    """
    rows, cols = frame.shape[1:]
    fit = min(height_px / rows, width_px / cols)
    new_rows, new_cols = max(int(rows * fit), 1), max(int(cols * fit), 1)
    resized = F.interpolate(frame[None], size=(new_rows, new_cols), mode="bilinear")[0]
    bgr = resized.flip(0).float() * (1 if frame.dtype == torch.uint8 else 255)
    canvas = torch.full((3, height_px, width_px), float(PAD_GREY))
    canvas[:, :new_rows, :new_cols] = bgr
    return canvas, (new_cols / cols, new_rows / rows)


def anchor_grid(height_px: int, width_px: int) -> Float[Tensor, "anchors 3"]:
    """Column, row and stride of every anchor of YOLOX: strides 8, 16, 32, each row by row."""
    levels = []
    for stride in STRIDES_PX:
        row, col = torch.meshgrid(
            torch.arange(height_px // stride), torch.arange(width_px // stride), indexing="ij"
        )
        levels.append(torch.stack([col, row, torch.full_like(row, stride)], dim=-1).reshape(-1, 3))
    return torch.cat(levels).float()


def decode_boxes(
    raw: Float[Tensor, "anchors 4"], grid: Float[Tensor, "anchors 3"]
) -> Float[Tensor, "anchors 4"]:
    """Boxes (cxcywh, pixels of the network's input): centre = (xy + cell) · stride, size = exp(wh) · stride."""
    stride = grid[:, 2:]
    return torch.cat([(raw[:, :2] + grid[:, :2]) * stride, raw[:, 2:].exp() * stride], dim=1)


class YoloxDetector:
    """Any YOLOX-family ONNX file, run by onnxruntime: BGR 0..255 in, (1, anchors, 5 + classes) out.

    Files with and without the decoding of boxes inside are both understood: on a plain grey image, centres
    count in pixels across the whole input if decoded, in cells around zero if not.
    Files exported before YOLOX 0.1.1 expect another normalisation and are not supported.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        actor_score: float = PAPER_ACTOR_SCORE,
        min_score: float = 0.1,
        max_iou: float = 0.45,
        class_names: Sequence[str] = COCO_CLASSES,
        threads: int = 0,
    ) -> None:
        """Reads the file and tries it on a grey image.

        Args:
            path: The ONNX file.
            actor_score: Score from which a person is an actor; the file's card knows it.
            min_score: Boxes below are not reported. The tracker uses persons between this and `actor_score`.
            max_iou: Overlap from which the weaker of two boxes of one class is dropped.
            class_names: Names by class index; person first.
            threads: For onnxruntime; 0 lets it take every core.
        """
        self.path = Path(path)
        self.actor_score = actor_score
        self.class_names = tuple(class_names)
        self._min_score = min_score
        self._max_iou = max_iou
        self._session = _open_session(self.path, threads)
        self._input_name, self._height_px, self._width_px = _require_image_input(self.path, self._session)
        self._grid = anchor_grid(self._height_px, self._width_px)
        grey = torch.full((3, self._height_px, self._width_px), float(PAD_GREY))
        self._is_decoded = bool(self._run(grey)[:, :2].max() > max(self._height_px, self._width_px) / 2)

    def __call__(self, frames: Frames) -> Detections:
        """Everything found in each frame, in pixels of the frames given, clipped to the frame."""
        require_rgb_frames(frames)
        return concatenate([self._detect(frame) for frame in frames])

    def _detect(self, frame: Shaped[Tensor, "3 rows cols"]) -> Detections:
        canvas, (scale_x, scale_y) = letterbox(frame, height_px=self._height_px, width_px=self._width_px)
        output = self._run(canvas)
        best, class_index = output[:, 5:].max(dim=1)
        best = best * output[:, 4]  # objectness times class score
        candidates = torch.nonzero(best >= self._min_score)[:, 0]
        candidates = candidates[best[candidates].argsort(descending=True, stable=True)[:MAX_CANDIDATES]]
        boxes = output[candidates, :4]
        if not self._is_decoded:
            boxes = decode_boxes(boxes, self._grid[candidates])
        boxes = xyxy_from_cxcywh(boxes) / boxes.new_tensor([scale_x, scale_y, scale_x, scale_y])
        boxes = clip_to_image(boxes, width_px=frame.shape[2], height_px=frame.shape[1])
        seen = has_area(boxes)
        boxes, candidates = boxes[seen], candidates[seen]
        scores, class_index = best[candidates], class_index[candidates]
        kept = nms(boxes, scores, max_iou=self._max_iou, group=class_index)
        return Detections(
            boxes_xyxy_px=boxes[kept],
            scores=scores[kept],
            class_index=class_index[kept],
            image_index=torch.zeros_like(kept),
            num_images=1,
        )

    def _run(self, canvas: Float[Tensor, "3 rows cols"]) -> Float[Tensor, "anchors channels"]:
        outputs = self._session.run(None, {self._input_name: canvas[None].numpy()})
        expected = (1, len(self._grid), 5 + len(self.class_names))
        if len(outputs) != 1 or tuple(outputs[0].shape) != expected:
            raise DetectorError(
                f"{self.path}: a YOLOX file for {self._width_px}x{self._height_px} px and "
                f"{len(self.class_names)} classes gives one output of shape {expected}; this one gives "
                f"{[tuple(output.shape) for output in outputs]}. Give class_names if it knows other classes."
            )
        output = torch.from_numpy(outputs[0][0])
        lowest, highest = (value.item() for value in output[:, 4:].aminmax())
        if not (torch.isfinite(output[:, :4]).all() and 0 <= lowest <= highest <= 1):  # never true of NaN
            raise DetectorError(
                f"{self.path}: boxes, objectness and class scores of a YOLOX file are finite, the scores within "
                f"0..1; found scores from {lowest:.4g} to {highest:.4g}. "
                "Is it another kind of network, or exported without its sigmoids?"
            )
        return output


def _open_session(path: Path, threads: int) -> Any:  # noqa: ANN401 - onnxruntime is optional, so is its type
    try:
        import onnxruntime
    except ImportError as missing:
        raise DetectorError(
            f"Detecting with {path} needs onnxruntime: pip install 'mule[onnx]', or give precomputed boxes."
        ) from missing
    if not path.is_file():
        raise DetectorError(
            f"{path}: there is no such detector file. Its card gives the address to get it from."
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # failures are raised; they need not be printed as well
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as failure:  # onnxruntime's errors share no parent but this one
        raise DetectorError(
            f"{path} ({path.stat().st_size} bytes): not an ONNX file, or not all of one. Get it again and compare "
            f"its checksum with the card. onnxruntime says: {failure}"
        ) from failure


def _require_image_input(path: Path, session: Any) -> tuple[str, int, int]:  # noqa: ANN401 - see _open_session
    inputs = session.get_inputs()
    match [(i.type, i.shape) for i in inputs]:
        case [("tensor(float)", [1 | str() | None, 3, int(height_px), int(width_px)])] if (
            height_px % STRIDES_PX[-1] == 0 and width_px % STRIDES_PX[-1] == 0
        ):
            return inputs[0].name, height_px, width_px
    raise DetectorError(
        f"{path}: a YOLOX file takes one float image (1, 3, height, width) with fixed sides that are multiples "
        f"of {STRIDES_PX[-1]}; this one takes {[(i.name, i.type, i.shape) for i in inputs]}."
    )
