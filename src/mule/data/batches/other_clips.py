"""Augmentations that mix in other clips or undo motion.

*Other backgrounds*: a clip is shown before the background of another, so that a scene predicts less of its actions.

clip ────▶ view ──┬─ inside the boxes of its actors and objects, grown ─▶ unchanged
other clip ─ median over time ─ outside them ──────────────────────────▶ the static background of the other clip

*Undone motion*: a clip without its motion is an example of actors who do no known action.

             ╭─ one frame, held ────────╮
clip ────────┤                          ├─▶ the same pixels, actors and objects; no action
             ╰─ frames in random order ─╯

So neither scene nor posture alone predicts an action; motion does.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Generator, Tensor

from mule.core.errors import RangeError
from mule.data.batches.samples import ClipName, ClipSample, ClipSamples, ClipView, ViewedClip, sample_at
from mule.video.transforms import resized

MOST_GROWTH = 0.25
"""Boxes grow on each side by a random share of their size, up to this: actors move away from their place in the key
frame."""
MOST_FRAMES = 9
"""The median is taken over at most this many frames of the other clip."""


@dataclass(frozen=True)
class OtherBackground:
    """A view that shows some clips before the static background of another clip of the data set.

    Labels and boxes are unchanged. If the other clip cannot be read, the clip keeps its own background.
    """

    view: ClipView
    samples: ClipSamples
    share: float
    """Share of draws that get another background."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise RangeError(f"the share of other backgrounds must lie in [0, 1]; got {self.share}.")

    def __call__(self, sample: ClipSample, generator: Generator) -> ViewedClip:
        """Return one random view of the clip."""
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
    """Return the static background of a clip: the median of some of its frames, pixel by pixel."""
    every = -(-len(frames) // MOST_FRAMES)
    return frames[::every].median(dim=0).values


def near_boxes(
    boxes_xyxy_px: Float[Tensor, "boxes 4"], rows: int, cols: int, *, growth: float
) -> Bool[Tensor, "rows cols"]:
    """Return which pixels lie in one of the boxes, each grown on all sides by a share of its size."""
    x1, y1, x2, y2 = boxes_xyxy_px[:, :, None, None].unbind(dim=1)
    across, down = growth * (x2 - x1), growth * (y2 - y1)
    col, row = torch.arange(cols)[None, None, :] + 0.5, torch.arange(rows)[None, :, None] + 0.5
    is_in = (col >= x1 - across) & (col <= x2 + across) & (row >= y1 - down) & (row <= y2 + down)
    return is_in.any(dim=0)


@dataclass(frozen=True)
class UndoneMotion:
    """A data set in which some random draws show no action: half of these are frozen, half are shuffled in time.

    Clips read by position are unchanged.
    """

    samples: ClipSamples
    share: float
    """Share of draws whose motion is undone."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise RangeError(f"the share of clips without motion must lie in [0, 1]; got {self.share}.")

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the data set."""
        return self.samples.classes

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, position: int) -> ClipSample:
        """Return the clip at the position, unchanged."""
        return self.samples[position]

    def name_of(self, position: int) -> ClipName:
        """Return the name of the clip, without reading it."""
        return self.samples.name_of(position)

    def drawn(self, position: int, generator: Generator) -> ClipSample:
        """Return the clip at the position, with or without its motion."""
        sample = sample_at(self.samples, position, generator)
        if torch.rand((), generator=generator).item() >= self.share:
            return sample
        frames = sample.frames[_without_order(len(sample.frames), generator)]
        return replace(sample, frames=frames, labels=torch.zeros_like(sample.labels))


def _without_order(num_frames: int, generator: Generator) -> Int[Tensor, " frames"]:
    if torch.rand((), generator=generator).item() < 0.5:
        return torch.randint(num_frames, (1,), generator=generator).expand(num_frames)
    return torch.randperm(num_frames, generator=generator)
