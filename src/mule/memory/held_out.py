"""Held-out known actors: what a memory's two numbers, and everything taught later, are set by."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32
from torch import Tensor

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.memory.memory import require_fingerprint


@dataclass(frozen=True)
class HeldOut:
    """Known actors that neither trained the network nor are remembered, as the network saw them.

    They decide what is usual among known actors. Novel ones must not be here: they would decide what counts as novel.
    """

    features: Float32[Tensor, "actors dim"]
    """What a memory keeps of each actor."""
    outputs: Float32[Tensor, "actors classes"]
    """h: the network's raw output for each action, whose sign says for or against."""
    labels: Float32[Tensor, "actors classes"]
    class_names: tuple[str, ...]
    model: str
    """SHA-256 of the weights whose features and outputs these are."""
    videos: tuple[str, ...] | None = None
    """Names of all videos they were seen in; None where nobody wrote them down."""

    def __post_init__(self) -> None:
        require_fingerprint(self.model)
        problems = list(_misfits(self))
        if problems:
            raise ShapeError(f"held-out actors must be of one kind: {'; '.join(problems)}.")
        if not (torch.isfinite(self.features).all() and torch.isfinite(self.outputs).all()):
            raise NotFinite(
                "features and outputs of held-out actors must be finite. Look for NaN in the network."
            )
        if ((self.labels < 0) | (self.labels > 1) | self.labels.isnan()).any():
            raise RangeError("labels of held-out actors must lie from 0 to 1.")
        is_novel = ~(self.labels > 0).any(dim=1)
        if is_novel.any():
            raise RangeError(
                f"held-out actors must do at least one known action; {int(is_novel.sum())} of {len(self)} do none, the "
                f"first is actor {int(torch.nonzero(is_novel)[0])}. Leave them out, or they decide what counts as novel."
            )

    def __len__(self) -> int:
        """How many actors there are."""
        return len(self.features)


def apart_from(held_out: HeldOut | None, videos: Sequence[str]) -> Bool[Tensor, " actors"]:
    """Which actors, by the video of each, may be remembered beside held-out ones: those of other videos.

    Actors of one video share camera, light and often the person. With some of them remembered the held-out ones would look
    less strange than those of a new video do, and more of these would be flagged than was promised.
    """
    taken = set[str]() if held_out is None else set(held_out.videos or ())
    return torch.tensor([video not in taken for video in videos], dtype=torch.bool)


def _misfits(held_out: HeldOut) -> Iterator[str]:
    actors, classes = len(held_out.features), len(held_out.class_names)
    for name, expected in (
        ("features", (actors, held_out.features.shape[-1])),
        ("outputs", (actors, classes)),
        ("labels", (actors, classes)),
    ):
        tensor = getattr(held_out, name)
        if tuple(tensor.shape) != expected or tensor.dtype != torch.float32:
            yield f"{name} must be float32 {expected}, got {tensor.dtype} {tuple(tensor.shape)}"
