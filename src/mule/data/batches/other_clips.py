"""Clips set before the backgrounds of others, so that a scene says less about what is done in it.

clip ────▶ view ──┬─ inside the boxes of its actors and objects, grown ─▶ as it is
other clip ─ median over time ─ outside them ──────────────────────────▶ what stands still in the other clip

Clips whose motion is undone, as examples of actors who do nothing that was taught.

             ╭─ one frame, held ────────╮
clip ────────┤                          ├─▶ the same pixels, actors and objects; no action
             ╰─ frames in random order ─╯

What a scene or a posture looks like is then no reason to name an action: only how things move is.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Generator, Tensor

from mule.core.errors import RangeError
from mule.data.batches.samples import ClipName, ClipSample, ClipSamples, ClipView, ViewedClip, sample_at
from mule.video.transforms import resized

MOST_GROWTH = 0.25
"""Of a box's width and height, on each side: actors move on from where the key frame shows them, and how much of their
own scene stays around them is left to chance."""
MOST_FRAMES = 9
"""Of the other clip, evenly spread, whose median is taken."""


@dataclass(frozen=True)
class OtherBackground:
    """A view that by chance shows a clip before what stands still in another clip of the data set.

    Labels and boxes stay as they are. A background that cannot be read is not taken, and the clip keeps its own.
    """

    view: ClipView
    samples: ClipSamples
    share: float
    """Of the draws that get another background."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise RangeError(f"the share of other backgrounds must lie in [0, 1]; got {self.share}.")

    def __call__(self, sample: ClipSample, generator: Generator) -> ViewedClip:
        """One view of the clip; the next one differs."""
        seen = self.view(sample, generator)
        if torch.rand((), generator=generator).item() >= self.share:
            return seen
        position = int(torch.randint(len(self.samples), (), generator=generator))
        try:
            other = sample_at(self.samples, position, generator)
        except OSError:
            return seen
        still = resized(standing_still(other.frames)[None], (seen.frames.shape[2], seen.frames.shape[3]))
        boxes = torch.cat([seen.actor_boxes_xyxy_px, seen.object_boxes_xyxy_px])
        growth = MOST_GROWTH * torch.rand((), generator=generator).item()
        is_kept = near_boxes(boxes, seen.frames.shape[2], seen.frames.shape[3], growth=growth)
        return replace(seen, frames=torch.where(is_kept, seen.frames, still.to(seen.frames)))


def standing_still(
    frames: Num[Tensor, "frames channels rows cols"],
) -> Num[Tensor, "channels rows cols"]:
    """What stands still in a clip: the median of some of its frames, pixel by pixel."""
    every = -(-len(frames) // MOST_FRAMES)
    return frames[::every].median(dim=0).values


def near_boxes(
    boxes_xyxy_px: Float[Tensor, "boxes 4"], rows: int, cols: int, *, growth: float
) -> Bool[Tensor, "rows cols"]:
    """Which pixels lie in one of the boxes, each grown on all sides by a share of its size."""
    x1, y1, x2, y2 = boxes_xyxy_px[:, :, None, None].unbind(dim=1)
    across, down = growth * (x2 - x1), growth * (y2 - y1)
    col, row = torch.arange(cols)[None, None, :] + 0.5, torch.arange(rows)[None, :, None] + 0.5
    is_in = (col >= x1 - across) & (col <= x2 + across) & (row >= y1 - down) & (row <= y2 + down)
    return is_in.any(dim=0)


@dataclass(frozen=True)
class UndoneMotion:
    """A data set of which some draws, by chance, show no action: half of these stand still, half are out of order.

    Clips asked for by position are as they are.
    """

    samples: ClipSamples
    share: float
    """Of the draws whose motion is undone."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise RangeError(f"the share of clips without motion must lie in [0, 1]; got {self.share}.")

    @property
    def classes(self) -> tuple[str, ...]:
        """Those of the data set."""
        return self.samples.classes

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, position: int) -> ClipSample:
        """The clip at the position, as it is."""
        return self.samples[position]

    def name_of(self, position: int) -> ClipName:
        """What the clip is called, without reading it."""
        return self.samples.name_of(position)

    def drawn(self, position: int, generator: Generator) -> ClipSample:
        """The clip at the position, or what is left of it without its motion."""
        sample = sample_at(self.samples, position, generator)
        if torch.rand((), generator=generator).item() >= self.share:
            return sample
        frames = sample.frames[_without_order(len(sample.frames), generator)]
        return replace(sample, frames=frames, labels=torch.zeros_like(sample.labels))


def _without_order(num_frames: int, generator: Generator) -> Int[Tensor, " frames"]:
    if torch.rand((), generator=generator).item() < 0.5:
        return torch.randint(num_frames, (1,), generator=generator).expand(num_frames)
    return torch.randperm(num_frames, generator=generator)
