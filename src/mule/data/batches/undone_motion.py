"""Clips whose motion is undone, as examples of actors who do nothing that was taught.

             ╭─ one frame, held ────────╮
clip ────────┤                          ├─▶ the same pixels, actors and objects; no action
             ╰─ frames in random order ─╯

What a scene or a posture looks like is then no reason to name an action: only how things move is.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from mule.core.errors import RangeError
from mule.data.batches.samples import ClipName, ClipSample, ClipSamples, sample_at


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
