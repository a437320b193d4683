"""PicoDet files of Paddle, run by OpenVINO without Paddle: RGB in, boxes after suppression out.

A wide frame is seen as overlapping squares, because stretched to one square people in it become thin and small. Of a person
whom the edge of a square cuts, the other square shows more; the cut box is dropped.

NAME.pdmodel       the network, suppression of overlapping boxes included
NAME.pdiparams     its weights, beside it
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from mule.core.compiling import RuntimeMissing, compiled_for_cpu
from mule.core.errors import DetectorError
from mule.detection.boxes import clip_to_image, has_area, intersections, nms
from mule.detection.cards import COCO_CLASSES
from mule.detection.detections import Detections, concatenate
from mule.detection.detector import LARGEST_INPUT_PX, RgbFrames, require_rgb_frames

PARAMETERS = ".pdiparams"
WHOLE_UP_TO = 4 / 3
"""Sides of a frame that is seen whole, as the longer over the shorter."""
OVERLAP = 0.15
"""Least share that neighbouring squares share."""
SAME_IOU, MOST_INSIDE, EDGE_PX = 0.5, 0.7, 3.0
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PicoDetector:
    """A PicoDet file with 80 COCO classes; frames up to 4:3 are stretched to its square input, wider ones are divided.

    >>> PicoDetector("nowhere.pdmodel", actor_score=0.5)
    Traceback (most recent call last):
    mule.core.errors.DetectorError: ...
    """

    def __init__(
        self,
        path: str | Path,
        *,
        actor_score: float,
        min_score: float = 0.1,
        class_names: Sequence[str] = COCO_CLASSES,
        threads: int = 0,
    ) -> None:
        """Compile the file.

        Args:
            path: the .pdmodel file; its weights lie beside it.
            actor_score: least score of an actor; see the file's card.
            min_score: least score of a reported box.
            class_names: names by class index; person first.
            threads: threads of OpenVINO; 0 uses every core.
        """
        self.path = Path(path)
        self.actor_score = actor_score
        self.class_names = tuple(class_names)
        self._min_score = min_score
        self._compiled, self._height_px, self._width_px = _compiled(self.path, threads)

    def __call__(self, frames: RgbFrames) -> Detections:
        """Return all detections of each frame, in pixels of the given frames, clipped to the frame."""
        require_rgb_frames(frames)
        return concatenate([self._detect(each) for each in frames])

    def _detect(self, frame: Shaped[Tensor, "3 rows cols"]) -> Detections:
        parts = squares(*frame.shape[1:])
        found = torch.cat([self._in_part(frame, part) for part in parts])
        found = found[has_area(found[:, 2:])]
        number = found[:, 0].long()
        kept = nms(found[:, 2:], found[:, 1], max_iou=SAME_IOU, group=number)
        kept = kept[~_is_cut_elsewhere(found[kept], parts)]
        return Detections(
            boxes_xyxy_px=found[kept, 2:],
            scores=found[kept, 1],
            class_index=number[kept],
            image_index=torch.zeros_like(kept),
            num_images=1,
        )

    def _in_part(
        self, frame: Shaped[Tensor, "3 rows cols"], part: tuple[int, int, int, int]
    ) -> Float[Tensor, "boxes 6"]:
        """Return class, score and corners of what a part of the frame shows, in pixels of the frame."""
        x1, y1, x2, y2 = part
        pixels = frame[:, y1:y2, x1:x2].float() / (255 if frame.dtype == torch.uint8 else 1)
        size = (self._height_px, self._width_px)
        fitted = F.interpolate(pixels[None], size=size, mode="bilinear")[0]
        image = (fitted - torch.tensor(_MEAN)[:, None, None]) / torch.tensor(_DEVIATION)[:, None, None]
        found = self._run(image, (size[0] / (y2 - y1), size[1] / (x2 - x1)))
        boxes = clip_to_image(found[:, 2:], width_px=x2 - x1, height_px=y2 - y1)
        return torch.cat([found[:, :2], boxes + boxes.new_tensor([x1, y1, x1, y1])], dim=1)

    def _run(
        self, image: Float[Tensor, "3 rows cols"], scale: tuple[float, float]
    ) -> Float[Tensor, "boxes 6"]:
        inputs = {"image": image[None].numpy(), "scale_factor": torch.tensor([scale]).numpy()}
        try:
            rows = torch.from_numpy(self._compiled(inputs)[0].copy())
        except Exception as failure:  # OpenVINO's errors have no other common parent
            raise DetectorError(
                f"{self.path}: must run on a frame; {' '.join(str(failure).split())[:300]}. Pull it again."
            ) from failure
        if rows.ndim != 2 or rows.shape[1] != 6 or not torch.isfinite(rows).all():
            raise DetectorError(
                f"{self.path}: outputs of a PicoDet file must be rows of class, score and corners, all finite; got "
                f"{tuple(rows.shape)}. Is it another kind of network?"
            )
        rows = rows[rows[:, 1] >= self._min_score]
        if not ((rows[:, 0] >= 0) & (rows[:, 0] < len(self.class_names)) & (rows[:, 1] <= 1)).all():
            raise DetectorError(
                f"{self.path}: boxes of a PicoDet file must be of one of {len(self.class_names)} classes, with scores up to 1; got "
                f"classes {rows[:, 0].min():g} to {rows[:, 0].max():g} and scores up to {rows[:, 1].max():g}. Give class_names if "
                "it has other classes."
            )
        return rows


def squares(rows: int, cols: int) -> list[tuple[int, int, int, int]]:
    """Return the parts of a frame to look at, as corners: the whole of one up to 4:3, overlapping squares of one more oblong.

    >>> squares(480, 640)
    [(0, 0, 640, 480)]
    >>> squares(1080, 1920)
    [(0, 0, 1080, 1080), (840, 0, 1920, 1080)]
    """
    side, length = min(rows, cols), max(rows, cols)
    if length <= side * WHOLE_UP_TO:
        return [(0, 0, cols, rows)]
    count = 1 + math.ceil((length - side) / (side * (1 - OVERLAP)))
    starts = [round((length - side) * number / (count - 1)) for number in range(count)]
    if rows < cols:
        return [(start, 0, start + side, rows) for start in starts]
    return [(0, start, cols, start + side) for start in starts]


def _is_cut_elsewhere(
    found: Float[Tensor, "boxes 6"], parts: Sequence[tuple[int, int, int, int]]
) -> Bool[Tensor, " boxes"]:
    """Whether each box ends at the edge of a part inside the frame, and lies mostly in a larger box of its class."""
    boxes = found[:, 2:]
    starts = [part[axis] for part in parts[1:] for axis in (0, 1) if part[axis]]
    ends = [part[axis] for part in parts[:-1] for axis in (2, 3) if part[axis] != parts[-1][axis]]
    is_cut = torch.zeros(len(boxes), dtype=torch.bool)
    for edges, columns in ((starts, boxes[:, :2]), (ends, boxes[:, 2:])):
        for edge in edges:
            is_cut |= ((columns - edge).abs() <= EDGE_PX).any(dim=1)
    shared = intersections(boxes, boxes)
    area = shared.diagonal()
    is_inside = (shared > MOST_INSIDE * area[:, None]) & (area[None] > area[:, None])
    is_inside &= found[:, None, 0] == found[None, :, 0]
    return is_cut & is_inside.any(dim=1)


def _compiled(path: Path, threads: int) -> tuple[Any, int, int]:
    """Return the compiled network, and the height and width of its input."""
    missing = [each for each in (path, path.with_suffix(PARAMETERS)) if not each.is_file()]
    if missing:
        raise DetectorError(
            f"{missing[0]}: there is no such detector file. `mule weights list` shows what can be fetched."
        )
    try:
        compiled = compiled_for_cpu(str(path), threads)
    except RuntimeMissing as error:
        raise DetectorError(
            f"Detecting with {path} needs OpenVINO: pip install 'mule-actions[openvino]', or use another detector."
        ) from error
    except Exception as failure:  # OpenVINO's errors have no other common parent
        raise DetectorError(
            f"{path}: must be a PicoDet file that OpenVINO reads; {' '.join(str(failure).split())[:300]}. Pull it again."
        ) from failure
    shapes = {each.any_name: [_length(side) for side in each.partial_shape] for each in compiled.inputs}
    match shapes:
        case {"image": [_, 3, int(height_px), int(width_px)], "scale_factor": [_, 2]} if (
            len(shapes) == 2 and 0 < height_px <= LARGEST_INPUT_PX and 0 < width_px <= LARGEST_INPUT_PX
        ):
            return compiled, height_px, width_px
    raise DetectorError(
        f"{path}: a PicoDet file must take an image (1, 3, height, width) with fixed sides of at most {LARGEST_INPUT_PX}, and its "
        f"scale_factor (1, 2); it takes {shapes}."
    )


def _length(side: Any) -> int | None:  # noqa: ANN401 - an openvino.Dimension
    return side.get_length() if side.is_static else None
