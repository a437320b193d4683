"""The detector interface, and YOLOX files run by onnxruntime."""

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

RgbFrames = Shaped[Tensor, "frames channels rows cols"]
"""RGB frames, uint8 from 0 to 255 or floating point from 0 to 1."""

STRIDES_PX = (8, 16, 32)
LARGEST_INPUT_PX = 4096
"""Sides of a detector's input."""
PAD_GREY = 114
MAX_CANDIDATES = 1000  # per frame, best first, to limit the overlap matrix


@runtime_checkable
class Detector(Protocol):
    """Finds persons and objects in frames."""

    @property
    def class_names(self) -> Sequence[str]:
        """Names by class index; index 0 is `person`."""
        ...

    @property
    def actor_score(self) -> float:
        """Least score of an actor."""
        ...

    def __call__(self, frames: RgbFrames) -> Detections:
        """Return all detections of each frame, in pixels of the given frames."""
        ...


def require_rgb_frames(frames: RgbFrames) -> None:
    """Check that frames have three channels and are uint8, or floating point within 0..1."""
    if frames.ndim != 4 or frames.shape[1] != 3 or 0 in frames.shape[1:]:
        raise ShapeError(
            f"frames must be (frames, 3, rows, cols), RGB; got {tuple(frames.shape)}. Pass an image "
            "of shape (rows, cols, 3) as image.permute(2, 0, 1)[None]."
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
    """Fit the frame into the top-left corner of a grey canvas; return the canvas and the scale in x and y.

    The canvas is BGR with values from 0 to 255, as YOLOX expects.
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
    """Return column, row and stride of every YOLOX anchor: strides 8, 16, 32, each row by row."""
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
    """Return boxes (cxcywh, input pixels): centre = (xy + cell) · stride, size = exp(wh) · stride."""
    stride = grid[:, 2:]
    return torch.cat([(raw[:, :2] + grid[:, :2]) * stride, raw[:, 2:].exp() * stride], dim=1)


class YoloxDetector:
    """A YOLOX ONNX file, run by onnxruntime: BGR 0..255 in, (1, anchors, 5 + classes) out.

    A file exported with a free number of images sees all frames of a call at once. The file may or may not decode its boxes: on a grey image, decoded centres are spread over the input in pixels,
    raw ones are near zero. Files exported before YOLOX 0.1.1 expect another normalisation and are not supported.

    >>> YoloxDetector("nowhere.onnx")
    Traceback (most recent call last):
    mule.core.errors.DetectorError: ...
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
        """Load the file and run it on a grey image.

        Args:
            path: The ONNX file.
            actor_score: Least score of an actor; see the file's card.
            min_score: Least score of a reported box. The tracker uses persons between this and `actor_score`.
            max_iou: Drop the weaker of two boxes of one class that overlap more than this.
            class_names: Names by class index; person first.
            threads: Threads of onnxruntime; 0 takes as many as torch.
        """
        self.path = Path(path)
        self.actor_score = actor_score
        self.class_names = tuple(class_names)
        self._min_score = min_score
        self._max_iou = max_iou
        self._session = _open_session(self.path, threads)
        self._input_name, self._most_frames, self._height_px, self._width_px = _require_image_input(
            self.path, self._session
        )
        self._grid = anchor_grid(self._height_px, self._width_px)
        grey = torch.full((3, self._height_px, self._width_px), float(PAD_GREY))
        self._is_decoded = bool(
            self._run(grey[None])[0, :, :2].max() > max(self._height_px, self._width_px) / 2
        )

    def __call__(self, frames: RgbFrames) -> Detections:
        """Return all detections of each frame, in pixels of the given frames, clipped to the frame."""
        require_rgb_frames(frames)
        together = self._most_frames or max(len(frames), 1)
        return concatenate([each for part in frames.split(together) for each in self._detect(part)])

    def _detect(self, frames: RgbFrames) -> list[Detections]:
        """Return the detections of each frame; the network sees all of them at once."""
        if not len(frames):
            return []
        fitted = [letterbox(each, height_px=self._height_px, width_px=self._width_px) for each in frames]
        outputs = self._run(torch.stack([canvas for canvas, _ in fitted]))
        return [
            self._detections(*each)
            for each in zip(frames, outputs, (scale for _, scale in fitted), strict=True)
        ]

    def _detections(
        self,
        frame: Shaped[Tensor, "3 rows cols"],
        output: Float[Tensor, "anchors channels"],
        scale_xy: tuple[float, float],
    ) -> Detections:
        scale_x, scale_y = scale_xy
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

    def _run(self, canvases: Float[Tensor, "frames 3 rows cols"]) -> Float[Tensor, "frames anchors channels"]:
        try:
            outputs = self._session.run(None, {self._input_name: canvases.numpy()})
        except Exception as failure:  # see _open_session
            raise DetectorError(
                f"{self.path}: must run on {self._width_px}x{self._height_px} px; onnxruntime reports: "
                f"{' '.join(str(failure).split())[:300]}. Export the detector again."
            ) from failure
        expected = (len(canvases), len(self._grid), 5 + len(self.class_names))
        if len(outputs) != 1 or tuple(outputs[0].shape) != expected:
            raise DetectorError(
                f"{self.path}: a YOLOX file for {self._width_px}x{self._height_px} px and "
                f"{len(self.class_names)} classes must have one output of shape {expected}; got "
                f"{[tuple(output.shape) for output in outputs]}. Give class_names if it has other classes."
            )
        output = torch.from_numpy(outputs[0])
        lowest, highest = (value.item() for value in output[..., 4:].aminmax())
        if not (torch.isfinite(output[..., :4]).all() and 0 <= lowest <= highest <= 1):  # never true of NaN
            raise DetectorError(
                f"{self.path}: outputs of a YOLOX file must be finite, with scores within 0..1; got scores from {lowest:.4g} to {highest:.4g}. "
                "Is it another kind of network, or exported without its sigmoids?"
            )
        return output


def _open_session(path: Path, threads: int) -> Any:  # noqa: ANN401 - onnxruntime is optional, so is its type
    try:
        import onnxruntime
    except ImportError as missing:
        raise DetectorError(
            f"Detecting with {path} needs onnxruntime: pip install 'mule-actions[onnx]', or give precomputed boxes."
        ) from missing
    if not path.is_file():
        raise DetectorError(
            f"{path}: there is no such detector file. `mule weights list` shows what can be downloaded."
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others need the core
    options.log_severity_level = 4  # failures are raised, not printed
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as failure:  # onnxruntime's errors have no other common parent
        raise DetectorError(
            f"{path} ({path.stat().st_size} bytes): not a complete ONNX file. Download it again with "
            f"`mule weights pull`. onnxruntime reports: {failure}"
        ) from failure


def _require_image_input(path: Path, session: Any) -> tuple[str, int | None, int, int]:  # noqa: ANN401 - see _open_session
    """Return the input's name, the frames it takes at once (None for any number), its height and its width."""
    inputs = session.get_inputs()
    match [(i.type, i.shape) for i in inputs]:
        case [("tensor(float)", [1 | str() | None as most, 3, int(height_px), int(width_px)])] if (
            0 < height_px <= LARGEST_INPUT_PX
            and 0 < width_px <= LARGEST_INPUT_PX
            and height_px % STRIDES_PX[-1] == width_px % STRIDES_PX[-1] == 0
        ):
            return inputs[0].name, 1 if most == 1 else None, height_px, width_px
    raise DetectorError(
        f"{path}: a YOLOX file must take one float image (1, 3, height, width) with fixed sides that are multiples "
        f"of {STRIDES_PX[-1]}, at most {LARGEST_INPUT_PX}; got {[(i.name, i.type, i.shape) for i in inputs]}."
    )
