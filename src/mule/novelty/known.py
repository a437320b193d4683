"""The known actors of a model, as they are seen: from them alone its novelty follows, in closed form.

known actors ─▶ `crossfit` ─▶ parts: how novel a new actor is
                          ╰─▶ crossed ranks: how novel a known actor of a new film looks

A model keeps the actors, not only what was fitted to them. When an action is taught, its examples join; when one is
forgotten, those who did nothing else leave; then everything is fitted again, and the promise holds for the actions that the
model knows now.

*Idle people.* Examples of nothing going on stand beside the actions, as further classes: before an act, after it, standing by.
People who resemble them are no strangers, and who is nearest to one is idle (`idle_share`). Like examples of a taught action,
they calibrate nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import ShapeError, TooFewActors
from mule.novelty.calibration import FEWEST_HELD_OUT
from mule.novelty.crossfit import LABELS_INPUT, Inputs, SeenParts, crossed_ranks, folds_with_examples
from mule.novelty.whitened import joined_blocks

IDLE_SOFTNESS = 0.1
"""Difference of cosines at which one is e times as likely as the other."""


def idle_share(similarity: Float[Tensor, "actors classes"], *, num_idle: int) -> Float[Tensor, " actors"]:
    """Return how much each actor resembles idle people rather than people who act: above ½ where an idle class is nearest.

        σ((s_idle − s_action) / softness), each the largest cosine of its kind

    Args:
        similarity: cosines with the actions, and last with the idle classes.
        num_idle: how many idle classes there are; with none nobody is idle.

    >>> shares = idle_share(torch.tensor([[0.9, 0.1, 0.2], [0.3, 0.2, 0.8], [0.4, 0.4, 0.4]]), num_idle=1)
    >>> [round(each, 2) for each in shares.tolist()]
    [0.0, 0.99, 0.5]
    """
    if not num_idle:
        return similarity.new_zeros(len(similarity))
    actions, idle = similarity[:, :-num_idle], similarity[:, -num_idle:]
    return torch.sigmoid((idle.amax(dim=1) - actions.amax(dim=1)) / IDLE_SOFTNESS)


@dataclass(frozen=True)
class KnownActors:
    """Actors that do a known action, examples of actions taught later, and examples of nothing going on; one row each."""

    inputs: Inputs
    labels: Bool[Tensor, "actors classes"]
    """What each does: the actions, then the idle classes; each does something or is idle, never both."""
    actions: tuple[str, ...]
    """The names of the first columns. Tags are no actions."""
    groups: Int[Tensor, " actors"]
    """The film or video of each, a place in `group_names`."""
    group_names: tuple[str, ...]
    tracks: Int[Tensor, " actors"]
    """Which of them are looks at one person, in the order of time; −1 where nobody was followed."""
    is_example: Bool[Tensor, " actors"]
    """Whether an actor was chosen to teach an action: it calibrates nothing."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    """The group of each video; a video that is not here is a group of its own."""
    idle: tuple[str, ...] = ()
    """The names of the last columns: kinds of idleness, such as `before` and `after` an act."""

    def __post_init__(self) -> None:
        rows = {name: len(each) for name, each in self.inputs.items()}
        rows |= {name: len(getattr(self, name)) for name in ("groups", "tracks", "is_example")}
        if not self.inputs or set(rows.values()) != {len(self.labels)}:
            raise ShapeError(
                f"known actors must have inputs, and one row each in all of them; labels have {len(self.labels)}, {rows}."
            )
        num_columns = len(self.actions) + len(self.idle)
        if self.labels.shape[1] != num_columns or (self.is_idle & self._acts).any():
            raise ShapeError(
                f"labels must have a column for each of {num_columns} actions and idle classes, and nobody who acts is idle; "
                f"got {self.labels.shape[1]} columns, and {int((self.is_idle & self._acts).sum())} who are both."
            )

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self.labels)

    @property
    def num_calibrating(self) -> int:
        """The number of actors that calibrate: all but examples and idle ones."""
        return int(self.calibrates.sum())

    @property
    def calibrates(self) -> Bool[Tensor, " actors"]:
        """Which actors say how novel known ones look."""
        return ~self.is_example & ~self.is_idle

    @property
    def is_idle(self) -> Bool[Tensor, " actors"]:
        """Which actors are examples of nothing going on."""
        return self.labels[:, len(self.actions) :].any(dim=1)

    @property
    def _acts(self) -> Bool[Tensor, " actors"]:
        return self.labels[:, : len(self.actions)].any(dim=1)

    @property
    def num_groups(self) -> int:
        """The number of films or videos that those actors are of."""
        return len(self.groups[self.calibrates].unique())

    def taught(self, action: str, inputs: Inputs, videos: Sequence[str]) -> "KnownActors":
        """Return these actors and examples of one more action, seen by (at least) the same inputs.

        Args:
            action: its name.
            inputs: what each example is seen by.
            videos: the video of each example.
        """
        return self._joined(
            [action] * len(videos), inputs, videos, actions=(*self.actions, action), idle=self.idle
        )

    def with_examples(self, does: Sequence[str], inputs: Inputs, videos: Sequence[str]) -> "KnownActors":
        """Return these actors and more examples of actions that are known, seen by (at least) the same inputs."""
        unknown = sorted(set(does) - set(self.actions))
        if unknown:
            raise ShapeError(f"more examples must be of known actions; {', '.join(unknown)} are not.")
        return self._joined(does, inputs, videos, actions=self.actions, idle=self.idle)

    def with_idle(self, kinds: Sequence[str], inputs: Inputs, videos: Sequence[str]) -> "KnownActors":
        """Return these actors and examples of nothing going on, seen by (at least) the same inputs.

        Args:
            kinds: what each example shows, such as `before`, `after` or `standing by`; every kind is a class of its own.
            inputs: what each example is seen by.
            videos: the video of each example.
        """
        clashing = sorted(set(kinds) & set(self.actions))
        if clashing:
            raise ShapeError(f"kinds of idleness must not be called like actions; {', '.join(clashing)} are.")
        idle = tuple(dict.fromkeys([*self.idle, *kinds]))
        return self._joined(kinds, inputs, videos, actions=self.actions, idle=idle)

    def _joined(
        self,
        does: Sequence[str],
        inputs: Inputs,
        videos: Sequence[str],
        *,
        actions: tuple[str, ...],
        idle: tuple[str, ...],
    ) -> "KnownActors":
        """Return these actors and examples of one class each, with columns for these actions and idle classes."""
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise ShapeError(
                f"examples must be seen by {', '.join(self.inputs)}; {', '.join(missing)} is missing."
            )
        groups = [self.group_of.get(video, video) for video in videos]
        names = dict.fromkeys([*self.group_names, *groups])
        number = {name: at for at, name in enumerate(names)}
        column = {name: at for at, name in enumerate((*actions, *idle))}
        labels = self.labels.new_zeros(len(self) + len(groups), len(column))
        labels[: len(self), [column[name] for name in (*self.actions, *self.idle)]] = self.labels
        labels[torch.arange(len(self), len(labels)), [column[name] for name in does]] = True
        return KnownActors(
            {name: torch.cat([each, inputs[name].to(each)]) for name, each in self.inputs.items()},
            labels,
            actions,
            torch.cat([self.groups, torch.tensor([number[name] for name in groups], dtype=torch.int64)]),
            tuple(names),
            torch.cat([self.tracks, self.tracks.new_full((len(groups),), -1)]),
            torch.cat([self.is_example, self.is_example.new_ones(len(groups))]),
            self.group_of,
            idle,
        )

    def only(self, actions: Sequence[str]) -> "KnownActors":
        """Return idle ones and those who do one of these actions, without the others' columns; the order of actions stays."""
        kept = [name in actions for name in self.actions] + [True] * len(self.idle)
        columns = torch.tensor(kept, dtype=torch.bool)
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
        kept = self.calibrates
        folds = folds_with_examples(self.groups, ~kept)
        others = self.num_calibrating - int(folds[kept].bincount().max())
        if others < FEWEST_HELD_OUT:
            raise TooFewActors(
                f"every part of the films must leave at least {FEWEST_HELD_OUT} known actors in the others; of "
                f"{self.num_calibrating} actors in {self.num_groups} films or videos, {others} are left. Label more people, "
                "in more films."
            )
        ranks = crossed_ranks(self.inputs, self.labels, folds)
        parts = SeenParts.fit(self.inputs, self.labels)
        return FittedToKnown(parts, ranks[kept], folds[kept], self.tracks[kept], len(self.idle))


@dataclass(frozen=True)
class FittedToKnown:
    """What decides, and the known actors that calibrate it, as parts fitted without their group rank them."""

    parts: SeenParts
    ranks: Float[Tensor, "actors parts"]
    folds: Int[Tensor, " actors"]
    tracks: Int[Tensor, " actors"]
    num_idle: int = 0
    """How many of the last classes are idle ones."""
    watched: Float[Tensor, " tracks"] | None = None
    """The largest `best_window` of each known person while videos were watched, by parts fitted without its film."""

    def idle(self, inputs: Inputs) -> Float[Tensor, " actors"] | None:
        """Return how much each actor resembles idle people (`idle_share`); None without examples of them."""
        if not self.num_idle:
            return None
        parts = self.parts
        similarity = parts.whitened.similarity(joined_blocks([inputs[name] for name in parts.blocks]))
        if parts.prototypes is not None:
            similarity = (similarity + parts.prototypes.similarity(inputs[LABELS_INPUT])) / 2
        return idle_share(similarity, num_idle=self.num_idle)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything there is to save, except the names of the blocks."""
        about = {
            "ranks": self.ranks,
            "folds": self.folds,
            "tracks": self.tracks,
            "num_idle": torch.tensor(self.num_idle),
        }
        watched = {} if self.watched is None else {"watched": self.watched}
        return {**self.parts.tensors(), **about, **watched}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], blocks: Sequence[str]) -> "FittedToKnown":
        """Return what was saved."""
        num_idle = (
            int(tensors["num_idle"]) if "num_idle" in tensors else 0
        )  # not in files of earlier versions
        return cls(
            SeenParts.of(tensors, blocks),
            tensors["ranks"],
            tensors["folds"],
            tensors["tracks"],
            num_idle,
            tensors.get("watched"),
        )
