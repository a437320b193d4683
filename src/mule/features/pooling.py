"""Feature maps of backbones, and features of actors, objects and context pooled from them.

    maps (per pathway) ─ mean over time ─ concat ─▶ context map ─ RoIAlign ─ max over the box ─▶ one feature per box

Boxes of all clips form one array (boxes, 4) in pixels of the network's input; `clip_index` names the clip of each box.
A clip without actors or objects has no rows.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import NotFinite, RangeError, ShapeError


@dataclass(frozen=True)
class FeatureMaps:
    """One map per pathway, all on one grid of cells; a cell covers `stride` × `stride` pixels of the input."""

    maps: tuple[Float[Tensor, "clips _channels _frames rows cols"], ...]
    stride: int

    def __post_init__(self) -> None:
        grids = [(each.shape[0], each.shape[3], each.shape[4]) for each in self.maps]
        if any(grid != grids[0] for grid in grids):
            raise ShapeError(
                "the maps of all pathways must share clips, rows and columns; got "
                f"{[tuple(each.shape) for each in self.maps]}. Give both pathways frames of one size."
            )

    @property
    def channels(self) -> int:
        """Channels of all pathways together: the length of an actor's feature."""
        return sum(each.shape[1] for each in self.maps)

    def without_time(self) -> "FeatureMaps":
        """Return the temporal mean of each map, as one frame."""
        return FeatureMaps(tuple(each.mean(dim=2, keepdim=True) for each in self.maps), self.stride)


@dataclass(frozen=True)
class RoiSampling:
    """Settings of RoIAlign; the defaults are those of SlowFast's and ACAR's detection heads."""

    bins: int = 7
    """A box is divided into bins × bins."""
    samples: int = 0
    """Samples along each side of a bin; 0 uses one per cell. Only fixed numbers can be exported."""
    aligned: bool = False
    """Whether cell centres are at half a cell (Detectron2), or at grid lines with boxes of at least one cell."""


DETECTION_HEAD = RoiSampling()
LOOK = RoiSampling(bins=4, samples=2)
"""For the mean over a box, which needs few samples."""


def context_map(features: FeatureMaps) -> Float[Tensor, "clips channels rows cols"]:
    """Return the temporal mean of each pathway, with channels concatenated."""
    timeless = [each.squeeze(2) if each.shape[2] == 1 else each.mean(dim=2) for each in features.maps]
    return timeless[0] if len(timeless) == 1 else torch.cat(timeless, dim=1)


def box_features(
    context: Float[Tensor, "clips channels rows cols"],
    boxes_xyxy_px: Float[Tensor, "boxes 4"],
    clip_index: Int[Tensor, " boxes"],
    *,
    stride: int,
    sampling: RoiSampling = DETECTION_HEAD,
) -> Float[Tensor, "boxes channels"]:
    """Return one feature per actor or object: the maximum of each channel within the box."""
    return roi_align(context, boxes_xyxy_px, clip_index, stride=stride, sampling=sampling).amax(dim=(2, 3))


def roi_align(
    context: Float[Tensor, "clips channels rows cols"],
    boxes_xyxy_px: Float[Tensor, "boxes 4"],
    clip_index: Int[Tensor, " boxes"],
    *,
    stride: int,
    sampling: RoiSampling = DETECTION_HEAD,
) -> Float[Tensor, "boxes channels bins bins"]:
    """Return the mean of bilinear samples in every bin of every box (He et al., ICCV 2017), as torchvision does.

    Bilinear weights, the border rule and the mean are products of one factor per axis, so a box is two small matrices,
    one that mixes rows and one that mixes columns: out = W_y · map · W_xᵀ. Channels are innermost, so that each factor
    is one wide product per box instead of a narrow one per channel.
    """
    _require_usable(boxes_xyxy_px, clip_index, num_clips=len(context))
    boxes = boxes_xyxy_px.to(torch.promote_types(context.dtype, torch.float32))
    start, end = (boxes / stride - (0.5 if sampling.aligned else 0.0)).split(2, dim=1)
    length = end - start if sampling.aligned else (end - start).clamp(min=1)
    mix_cols = _axis_weights(start[:, 0], length[:, 0], num_cells=context.shape[3], sampling=sampling)
    mix_rows = _axis_weights(start[:, 1], length[:, 1], num_cells=context.shape[2], sampling=sampling)
    mix_cols, mix_rows = mix_cols.to(context.dtype), mix_rows.to(context.dtype)
    maps = context.permute(0, 2, 3, 1)[clip_index]  # (boxes, rows, cols, channels)
    rows_mixed = (mix_rows @ maps.flatten(2)).unflatten(2, maps.shape[2:])
    return (mix_cols.unsqueeze(1) @ rows_mixed).permute(0, 3, 1, 2)


def box_volumes(
    features: FeatureMaps,
    boxes_xyxy_px: Float[Tensor, "boxes 4"],
    clip_index: Int[Tensor, " boxes"],
    *,
    sampling: RoiSampling = DETECTION_HEAD,
) -> Float[Tensor, "boxes channels frames bins bins"]:
    """Return every frame of the maps within the box. Pathways with more frames are averaged to the fewest."""
    num_frames = min(each.shape[2] for each in features.maps)
    rows, cols = features.maps[0].shape[3:]
    maps = [
        each if each.shape[2] == num_frames else F.adaptive_avg_pool3d(each, (num_frames, rows, cols))
        for each in features.maps
    ]
    together = maps[0] if len(maps) == 1 else torch.cat(maps, dim=1)
    frames = together.transpose(1, 2).flatten(0, 1)  # (clips × frames, channels, rows, cols)
    at = (clip_index[:, None] * num_frames + torch.arange(num_frames, device=clip_index.device)).flatten()
    repeated = boxes_xyxy_px.repeat_interleave(num_frames, dim=0)
    pooled = roi_align(frames, repeated, at, stride=features.stride, sampling=sampling)
    return pooled.unflatten(0, (-1, num_frames)).transpose(1, 2)


def _axis_weights(
    start: Float[Tensor, " boxes"], length: Float[Tensor, " boxes"], *, num_cells: int, sampling: RoiSampling
) -> Float[Tensor, "boxes bins cells"]:
    """Return the weight of each cell of an axis in each bin.

    A sample more than one cell outside the map has no weight; a nearer one is moved to the border.
    """
    bin_length = length / sampling.bins
    if sampling.samples:
        num_samples, most = torch.full_like(length, sampling.samples), sampling.samples
    else:
        num_samples = bin_length.ceil().clamp(min=0)
        most = int(num_samples.max()) if len(length) else 0
    num_samples = num_samples[:, None, None]
    sample = torch.arange(most, dtype=length.dtype, device=length.device)
    bins = torch.arange(sampling.bins, dtype=length.dtype, device=length.device)
    start, bin_length = start[:, None, None], bin_length[:, None, None]
    position = start + bins[:, None] * bin_length + (sample + 0.5) * bin_length / num_samples.clamp(min=1)
    counts = (sample < num_samples) & (position >= -1) & (position <= num_cells)
    cell = torch.arange(num_cells, dtype=length.dtype, device=length.device)
    distance = (position.clamp(0, num_cells - 1)[..., None] - cell).abs()
    weight = (1 - distance).clamp(min=0) * counts[..., None]
    return weight.sum(dim=2) / num_samples.clamp(min=1)


def _require_usable(boxes_xyxy_px: Tensor, clip_index: Tensor, *, num_clips: int) -> None:
    is_recording = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if is_recording or len(boxes_xyxy_px) == 0:  # values cannot be checked in a graph
        return
    if not torch.isfinite(boxes_xyxy_px).all():
        box = int(torch.nonzero(~torch.isfinite(boxes_xyxy_px))[0, 0])
        raise NotFinite(
            f"box corners must be finite; box {box} is {boxes_xyxy_px[box].tolist()}. Drop it, or check the detector."
        )
    if int(clip_index.min()) < 0 or int(clip_index.max()) >= num_clips:
        raise RangeError(
            f"clip_index must name one of {num_clips} clips, from 0; got values from {int(clip_index.min())} to "
            f"{int(clip_index.max())}."
        )
