"""The time an actor keeps: cycles of every action at their own tempo, phase and amplitude, and curves over them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mule.stage.poses import Series

GAIT_SPEED = {"walk": 0.50, "run": 0.85, "push_box": 0.20}
"""Body heights per second at usual tempo and amplitude."""

RATES = {
    "walk": 0.9, "run": 1.4, "squat": 0.62, "jump": 0.95, "bow": 0.55, "sway": 0.6,
    "arm_circle": 0.9, "clap": 1.7, "wave": 1.5, "punch": 1.15, "jacks": 0.9, "salute": 0.5,
    "carry_box": 0.9, "kick_ball": 0.7, "bounce_ball": 1.3, "push_box": 0.7, "juggle": 1.15,
    "overhead_lift": 0.6, "handshake": 1.7, "pass_ball": 0.55, "high_five": 0.8,
}  # fmt: skip
"""Cycles per second at usual tempo."""


@dataclass(frozen=True)
class Beat:
    """When and in which manner an actor moves."""

    time_s: Series
    phase: float
    tempo: float
    amplitude: float
    is_right_handed: bool = True
    meeting: Float[np.ndarray, "frames 3"] | None = None
    """Where hands meet the partner's: forwards, leftwards of the actor; third, how tall the pair is on average."""
    is_first: bool = True
    """Of a pair, whether this actor throws first."""

    def turns(self, action: str) -> Series:
        """How many cycles of the action have gone by."""
        return self.time_s * (self.tempo * RATES[action]) + self.phase


def sine(turns: Series) -> Series:
    """Sine over whole turns."""
    return np.sin(2 * np.pi * turns)


def cosine(turns: Series) -> Series:
    """Cosine over whole turns."""
    return np.cos(2 * np.pi * turns)


def pulse(turns: Series) -> Series:
    """0 at whole turns, 1 halfway."""
    return 0.5 - 0.5 * cosine(turns)


def smooth(share: Series) -> Series:
    """From 0 to 1 with a soft beginning and end."""
    held = np.clip(share, 0.0, 1.0)
    return held * held * (3 - 2 * held)


def within(turns: Series, start: float, end: float) -> Series:
    """How far the cycle has come from `start` to `end` of it, 0 before and 1 after."""
    return np.clip((turns % 1.0 - start) / (end - start), 0.0, 1.0)
