"""The learning rate over time: a number for every step, and nothing to remember."""

import math
from dataclasses import dataclass
from typing import Literal

from mule.core.errors import RangeError


@dataclass(frozen=True)
class Schedule:
    """A linear rise, then a constant rate, one that falls at milestones, or a cosine. Lengths are in steps."""

    lr: float
    num_steps: int
    """Of the whole training, the rise included."""
    kind: Literal["constant", "step", "cosine"] = "constant"
    warmup_steps: int = 0
    warmup_lr: float = 0.0
    """Of the first step, if there is a rise (Goyal et al. 2017)."""
    milestones: tuple[int, ...] = ()
    """Steps from which on the rate is multiplied by `factor` once more."""
    factor: float = 0.1
    final_share: float = 0.0
    """What is left of the rate at the end of a cosine."""

    def __post_init__(self) -> None:
        if not 0 <= self.warmup_steps <= self.num_steps:
            raise RangeError(
                f"the rise must end within the training; it takes {self.warmup_steps} of {self.num_steps} steps. Lower "
                "schedule.warmup_epochs, or train longer."
            )

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.warmup_lr + (self.lr - self.warmup_lr) * step / self.warmup_steps
        if self.kind == "step":
            return self.lr * self.factor ** sum(step >= milestone for milestone in self.milestones)
        if self.kind == "cosine":
            done = (step - self.warmup_steps) / max(self.num_steps - self.warmup_steps, 1)
            falling = (1 + math.cos(math.pi * min(done, 1.0))) / 2
            return self.lr * (self.final_share + (1 - self.final_share) * falling)
        return self.lr
