"""The known actors of a model, as they are seen: from them alone its novelty follows, in closed form.

known actors ─▶ `crossfit` ─▶ parts: how novel a new actor is
                          ╰─▶ crossed ranks: how novel a known actor of a new film looks

A model keeps the actors, not only what was fitted to them. When an action is taught, its examples join; when one is
forgotten, those who did nothing else leave; then everything is fitted again, and the promise holds for the actions that the
model knows now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import ShapeError, TooFewActors
from mule.novelty.calibration import FEWEST_HELD_OUT
from mule.novelty.crossfit import Inputs, SeenParts, crossed_ranks, folds_with_examples


@dataclass(frozen=True)
class KnownActors:
    """Actors that do a known action, and examples of actions taught later; one row each."""

    inputs: Inputs
    labels: Bool[Tensor, "actors actions"]
    """What each does; each does something."""
    actions: tuple[str, ...]
    """The names of the columns. Tags are no actions."""
    groups: Int[Tensor, " actors"]
    """The film or video of each, a place in `group_names`."""
    group_names: tuple[str, ...]
    tracks: Int[Tensor, " actors"]
    """Which of them are looks at one person, in the order of time; −1 where nobody was followed."""
    is_example: Bool[Tensor, " actors"]
    """Whether an actor was chosen to teach an action: it calibrates nothing."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    """The group of each video; a video that is not here is a group of its own."""

    def __post_init__(self) -> None:
        rows = {name: len(each) for name, each in self.inputs.items()}
        rows |= {name: len(getattr(self, name)) for name in ("groups", "tracks", "is_example")}
        if not self.inputs or set(rows.values()) != {len(self.labels)}:
            raise ShapeError(
                f"known actors must have inputs, and one row each in all of them; labels have {len(self.labels)}, {rows}."
            )

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self.labels)

    @property
    def num_calibrating(self) -> int:
        """The number of actors that calibrate: all but examples."""
        return int((~self.is_example).sum())

    @property
    def num_groups(self) -> int:
        """The number of films or videos that those actors are of."""
        return len(self.groups[~self.is_example].unique())

    def taught(self, action: str, inputs: Inputs, videos: Sequence[str]) -> "KnownActors":
        """Return these actors and examples of one more action, seen by (at least) the same inputs.

        Args:
            action: its name.
            inputs: what each example is seen by.
            videos: the video of each example.
        """
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise ShapeError(
                f"examples must be seen by {', '.join(self.inputs)}; {', '.join(missing)} is missing."
            )
        groups = [self.group_of.get(video, video) for video in videos]
        count, names = len(groups), dict.fromkeys([*self.group_names, *groups])
        number = {name: at for at, name in enumerate(names)}
        old = torch.cat([self.labels, self.labels.new_zeros(len(self), 1)], dim=1)
        new = torch.cat(
            [self.labels.new_zeros(count, len(self.actions)), self.labels.new_ones(count, 1)], dim=1
        )
        return KnownActors(
            {name: torch.cat([each, inputs[name].to(each)]) for name, each in self.inputs.items()},
            torch.cat([old, new]),
            (*self.actions, action),
            torch.cat([self.groups, torch.tensor([number[name] for name in groups], dtype=torch.int64)]),
            tuple(names),
            torch.cat([self.tracks, self.tracks.new_full((count,), -1)]),
            torch.cat([self.is_example, self.is_example.new_ones(count)]),
            self.group_of,
        )

    def only(self, actions: Sequence[str]) -> "KnownActors":
        """Return those who do one of these actions, without the others' columns; the order of actions stays."""
        columns = torch.tensor([name in actions for name in self.actions], dtype=torch.bool)
        known = self.at(torch.nonzero(self.labels[:, columns].any(dim=1)).flatten())
        names = tuple(name for name in self.actions if name in actions)
        return replace(known, labels=known.labels[:, columns], actions=names)

    def at(self, rows: Int[Tensor, " chosen"]) -> "KnownActors":
        """Return some of these actors."""
        return replace(
            self,
            inputs={name: each[rows] for name, each in self.inputs.items()},
            labels=self.labels[rows],
            groups=self.groups[rows],
            tracks=self.tracks[rows],
            is_example=self.is_example[rows],
        )

    def fitted(self) -> "FittedToKnown":
        """Fit everything to these actors.

        Raises:
            TooFewActors: they are of one group, too few to calibrate, or no two do the same.
        """
        folds, kept = folds_with_examples(self.groups, self.is_example), ~self.is_example
        others = self.num_calibrating - int(folds[kept].bincount().max())
        if others < FEWEST_HELD_OUT:
            raise TooFewActors(
                f"every part of the films must leave at least {FEWEST_HELD_OUT} known actors in the others; of "
                f"{self.num_calibrating} actors in {self.num_groups} films or videos, {others} are left. Label more people, "
                "in more films."
            )
        ranks = crossed_ranks(self.inputs, self.labels, folds)
        parts = SeenParts.fit(self.inputs, self.labels)
        return FittedToKnown(parts, ranks[kept], folds[kept], self.tracks[kept])


@dataclass(frozen=True)
class FittedToKnown:
    """What decides, and the known actors that calibrate it, as parts fitted without their group rank them."""

    parts: SeenParts
    ranks: Float[Tensor, "actors parts"]
    folds: Int[Tensor, " actors"]
    tracks: Int[Tensor, " actors"]

    def tensors(self) -> dict[str, Tensor]:
        """Return everything there is to save, except the names of the blocks."""
        return {**self.parts.tensors(), "ranks": self.ranks, "folds": self.folds, "tracks": self.tracks}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], blocks: Sequence[str]) -> "FittedToKnown":
        """Return what was saved."""
        return cls(SeenParts.of(tensors, blocks), tensors["ranks"], tensors["folds"], tensors["tracks"])
