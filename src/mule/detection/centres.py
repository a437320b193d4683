"""A small detector that ships with the package: a map of centres per class, and the sides of the box at each centre.

frame, short side 96 px ─▶ convolutions down to a sixteenth and back to a half ─┬─▶ heat: probability of a centre, per class
                                                                               ╰─▶ sides: left, top, right, bottom of its box

The built-in weights were trained on rendered scenes. (Objects as points, Zhou et al. 2019.)
"""

from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors import SafetensorError
from torch import Tensor, nn

from mule.core.documents import json_of
from mule.core.errors import DetectorError
from mule.core.tensors import safetensors_bytes
from mule.core.text_rows import shown
from mule.detection.boxes import clip_to_image, has_area, nms
from mule.detection.detections import Detections, concatenate
from mule.detection.detector import RgbFrames, require_rgb_frames

CENTRES_FORMAT = "mule-centres-1"
CENTRES_STRIDE, COARSEST = 2, 16
WIDTHS = (16, 32, 64, 96)
MAX_DETECTIONS = 60
MAX_IOU = 0.65
MIN_SCORE = 0.1
_MOST_LETTERS = 300

FrameMaps = Float[Tensor, "frames _channels _rows _cols"]


class CentreNetwork(nn.Module):
    """FrameMaps pixels to heat (logits) and sides (input pixels), both at half the rows and columns."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        halves, quarters, eighths, sixteenths = WIDTHS
        self.at_2 = _block(3, halves, stride=2)
        self.at_4 = nn.Sequential(_block(halves, quarters, stride=2), _block(quarters, quarters))
        self.at_8 = nn.Sequential(_block(quarters, eighths, stride=2), _block(eighths, eighths))
        self.at_16 = nn.Sequential(
            _block(eighths, sixteenths, stride=2),
            _block(sixteenths, sixteenths),
            _block(sixteenths, sixteenths),
        )
        self.up_8 = _Up(sixteenths, eighths)
        self.up_4 = _Up(eighths, quarters)
        self.up_2 = _Up(quarters, halves, width_out=quarters)
        self.heat = nn.Conv2d(quarters, num_classes, 1)
        self.sides = nn.Conv2d(quarters, 4, 1)
        nn.init.constant_(self.heat.get_parameter("bias"), -4.0)  # centres are rare
        nn.init.constant_(self.sides.get_parameter("bias"), 2.0)

    def forward(self, pixels: FrameMaps) -> tuple[FrameMaps, FrameMaps]:
        """Return heat and sides of frames whose sides are multiples of 16, with values from 0 to 1."""
        halves = self.at_2(pixels - 0.5)
        quarters = self.at_4(halves)
        eighths = self.at_8(quarters)
        fine = self.up_2(self.up_4(self.up_8(self.at_16(eighths), eighths), quarters), halves)
        return self.heat(fine), self.sides(fine).exp()


def _block(width_in: int, width_out: int, *, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width_out), nn.ReLU())


class _Up(nn.Module):
    """Upsamples a coarse map by two and adds a finer one."""

    def __init__(self, coarse: int, fine: int, *, width_out: int | None = None) -> None:
        super().__init__()
        width_out = width_out or fine
        self.from_coarse, self.from_fine = nn.Conv2d(coarse, width_out, 1), nn.Conv2d(fine, width_out, 1)
        self.mixed = _block(width_out, width_out)

    def forward(self, coarse: FrameMaps, fine: FrameMaps) -> FrameMaps:
        grown = F.interpolate(self.from_coarse(coarse), scale_factor=2.0, mode="nearest")
        return self.mixed(grown + self.from_fine(fine))


class CentreDetector:
    """Finds persons and objects with a `CentreNetwork`."""

    def __init__(
        self,
        network: nn.Module,
        *,
        class_names: Sequence[str],
        short_side_px: int,
        actor_score: float,
    ) -> None:
        """Use a network with the outputs of a `CentreNetwork`; frames are scaled to this short side."""
        self._network = network.eval()
        self.class_names = tuple(class_names)
        self.short_side_px = short_side_px
        self.actor_score = actor_score

    @torch.inference_mode()
    def __call__(self, frames: RgbFrames) -> Detections:
        """Return all detections of each frame, in pixels of the given frames, clipped to the frame."""
        require_rgb_frames(frames)
        rows, cols = frames.shape[2:]
        pixels = _scaled(frames, self.short_side_px)
        heat, sides = self._network(pixels)
        scale = frames.new_tensor([cols / pixels.shape[3], rows / pixels.shape[2]], dtype=torch.float32)
        peaks = [self._peaks(heat[at].sigmoid(), sides[at]) for at in range(len(frames))]
        return concatenate([_kept(*each, scale=scale.repeat(2), size=(rows, cols)) for each in peaks])

    def _peaks(
        self, heat: Float[Tensor, "classes rows cols"], sides: Float[Tensor, "4 rows cols"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes, scores and classes at the local maxima of the heat."""
        peaks = heat * (F.max_pool2d(heat[None], 3, stride=1, padding=1)[0] == heat)
        scores, places = peaks.flatten().topk(min(MAX_DETECTIONS, peaks.numel()))
        places, scores = places[scores >= MIN_SCORE], scores[scores >= MIN_SCORE]
        rows, cols = heat.shape[1:]
        class_index, place = places // (rows * cols), places % (rows * cols)
        return boxes_at(sides.flatten(1)[:, place].T, place, cols), scores, class_index


def boxes_at(
    sides: Float[Tensor, "places 4"], place: Int[Tensor, " places"], cols: int
) -> Float[Tensor, "places 4"]:
    """Return boxes (xyxy, input pixels) from the predicted sides at places of a map, counted row by row."""
    centre = (torch.stack([place % cols, place // cols], dim=1).float() + 0.5) * CENTRES_STRIDE
    return torch.cat([centre - sides[:, :2], centre + sides[:, 2:]], dim=1)


def read_centre_detector(path: Path) -> CentreDetector:
    """Load a detector from a file that `centre_detector_file` made.

    Raises:
        DetectorError: the file is missing, damaged or not a centre detector.
    """
    try:
        content = path.read_bytes()
        tensors = safetensors.torch.load(content)  # refuses truncated files
        length = int.from_bytes(content[:8], "little")
        about = json_of(content[8 : 8 + length]).get("__metadata__", {})
        if about.get("format") != CENTRES_FORMAT:
            raise DetectorError(
                f"{path}: format must be {CENTRES_FORMAT!r}; got {shown(str(about.get('format')))}."
            )
        names = tuple(about["class_names"].split(","))
        network = CentreNetwork(len(names))
        network.load_state_dict({name: each.float() for name, each in tensors.items()})
        return CentreDetector(
            network,
            class_names=names,
            short_side_px=int(about["short_side_px"]),
            actor_score=float(about["actor_score"]),
        )
    except DetectorError:
        raise
    except (OSError, SafetensorError, LookupError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:_MOST_LETTERS]
        raise DetectorError(f"{path}: must be the weights of a centre detector; {reason}.") from None


def centre_detector_file(
    network: CentreNetwork, *, class_names: Sequence[str], short_side_px: int, actor_score: float
) -> bytes:
    """Return a detector as the bytes of a safetensors file, in half precision."""
    tensors = {
        name: (each.half() if each.is_floating_point() else each).contiguous()
        for name, each in network.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    about = {
        "format": CENTRES_FORMAT,
        "class_names": ",".join(class_names),
        "short_side_px": str(short_side_px),
        "actor_score": f"{actor_score:.4f}",
    }
    return safetensors_bytes(tensors, about)


def _scaled(frames: RgbFrames, short_side_px: int) -> FrameMaps:
    """Scale frames to values from 0 to 1 and to this short side; both sides become multiples of 16."""
    rows, cols = frames.shape[2:]
    scale = short_side_px / min(rows, cols)
    size = [max(1, round(side * scale / COARSEST)) * COARSEST for side in (rows, cols)]
    pixels = frames.float() / (255 if frames.dtype == torch.uint8 else 1)
    if (rows, cols) == tuple(size):
        return pixels
    return F.interpolate(pixels, size=size, mode="bilinear", antialias=True).clamp(0, 1)


def _kept(
    boxes: Tensor,
    scores: Tensor,
    class_index: Tensor,
    *,
    scale: Float[Tensor, " 4"],
    size: tuple[int, int],
) -> Detections:
    """Return the boxes of one frame in its own pixels, clipped to it, without near duplicates."""
    inside = clip_to_image(boxes * scale, width_px=size[1], height_px=size[0])
    seen = torch.nonzero(has_area(inside))[:, 0]
    kept = seen[nms(inside[seen], scores[seen], max_iou=MAX_IOU, group=class_index[seen])]
    return Detections(inside[kept], scores[kept], class_index[kept], torch.zeros_like(kept), num_images=1)
