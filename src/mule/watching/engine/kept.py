"""What is kept of each look, so that everything can be decided again without the video.

outputs, last-layer features    half precision
inputs that decide              `LEVELS` levels between the smallest and the largest number of each actor and input
backbone features, labels       not kept: they follow from the inputs (`Eyes`)

Watching judges these rounded numbers, not those before rounding, so that deciding again from the file gives the same answers, and
a bundle that is calibrated by watching is calibrated on rounded ones. Half precision for the inputs would take three times the space.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from mule.core.records import Evidence
from mule.novelty.crossfit import LABELS_INPUT, Inputs
from mule.watching.moments import Contributor

LEVELS = 56
"""Of an input: two people at one key time a second then take less than 10 MB an hour."""


@dataclass(frozen=True)
class Coded:
    """Numbers in equal steps, from the smallest of a row to the largest."""

    codes: UInt8[Tensor, "actors dim"]
    low: Float[Tensor, " actors"]
    step: Float[Tensor, " actors"]

    @classmethod
    def of(cls, rows: Float[Tensor, "actors dim"]) -> "Coded":
        """Round each row.

        >>> Coded.of(torch.tensor([[0.0, 2.0, 11.0]])).values.round(decimals=2).tolist()
        [[0.0, 2.0, 11.0]]
        """
        rows = rows.float()
        low = rows.amin(dim=1) if len(rows) else rows.new_zeros(0)
        step = (rows.amax(dim=1) - low) / (LEVELS - 1) if len(rows) else low
        codes = (rows - low[:, None]) / step.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
        return cls(codes.round().to(torch.uint8), low, step)

    @property
    def values(self) -> Float[Tensor, "actors dim"]:
        """The rounded numbers."""
        return self.codes.float() * self.step[:, None] + self.low[:, None]


@dataclass(frozen=True)
class KeptLooks:
    """What decides about the people of one key time or of many, one row each."""

    outputs: Float[Tensor, "actors outputs"]
    """The network's own outputs."""
    features: Float[Tensor, "actors dim"]
    """What a memory keeps of each actor, or as much of it as does not follow from the inputs."""
    inputs: Mapping[str, Coded]
    """What actors are seen by; empty where network and memory decide."""

    @classmethod
    def of(
        cls,
        outputs: Float[Tensor, "actors outputs"],
        features: Float[Tensor, "actors dim"],
        inputs: Inputs,
    ) -> "KeptLooks":
        """Round what one look shows of each actor; labels are left out."""
        coded = {name: Coded.of(inputs[name]) for name in sorted(inputs) if name != LABELS_INPUT}
        return cls(in_half(outputs), in_half(features), coded)

    def __len__(self) -> int:
        """Return the number of looks."""
        return len(self.outputs)

    @classmethod
    def joined(cls, parts: Sequence["KeptLooks"]) -> "KeptLooks":
        """Return the looks of several key times as one; there must be one at least."""
        inputs = {
            name: Coded(
                *(
                    torch.cat([getattr(part.inputs[name], each) for part in parts])
                    for each in ("codes", "low", "step")
                )
            )
            for name in parts[0].inputs
        }
        outputs, features = (
            torch.cat([getattr(part, each) for part in parts]) for each in ("outputs", "features")
        )
        return cls(outputs, features, inputs)

    def at(self, rows: Int[Tensor, " chosen"]) -> "KeptLooks":
        """Return some of these looks."""
        inputs = {
            name: Coded(each.codes[rows], each.low[rows], each.step[rows])
            for name, each in self.inputs.items()
        }
        return KeptLooks(self.outputs[rows], self.features[rows], inputs)

    @property
    def seen(self) -> dict[str, Float[Tensor, "actors _dim"]]:
        """The inputs as numbers, without labels."""
        return {name: each.values for name, each in self.inputs.items()}


@dataclass(frozen=True)
class Place:
    """One key time: who is where in the frame."""

    key_time_s: float
    rows: int
    cols: int
    """The size of the frame."""
    track_ids: Int[Tensor, " actors"]
    """Rising."""
    boxes_xyxy_px: Float[Tensor, "actors 4"]
    scores: Float[Tensor, " actors"]

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self.track_ids)


@dataclass(frozen=True)
class KeptMoment:
    """All that is kept of one key time."""

    place: Place
    looks: KeptLooks
    likeliest: Int[Tensor, " actors"]
    """The action, among the classes of the model that watched, that others were left out for (`likeliest_action`)."""
    contributors: Sequence[Contributor | None]
    """Who or what of the scene contributed most to it."""


def as_kept(inputs: Inputs) -> Inputs:
    """Return what actors are seen by as it is kept; labels stay as they are.

    >>> as_kept({"roi": torch.tensor([[0.0, 0.3, 55.0]])})["roi"].tolist()
    [[0.0, 0.0, 55.0]]
    """
    return {
        name: each if name == LABELS_INPUT else Coded.of(each).values.to(each)
        for name, each in inputs.items()
    }


def in_half(numbers: Tensor) -> Tensor:
    """Return numbers as half precision keeps them."""
    largest = torch.finfo(torch.float16).max
    return numbers.clamp(-largest, largest).half().float()


def likeliest_action(network: Evidence) -> Int[Tensor, " actors"]:
    """Return the action that the network's evidence is most for, by expected probability."""
    if not network.num_actors:
        return torch.zeros(0, dtype=torch.int64)
    return network.positive.div(network.positive + network.negative + 2).argmax(dim=1)
