"""What decides where a backbone is frozen: what people are seen by, compared with known actors (`novelty.crossfit`).

    seen     known actors of training and validation ─▶ whitened cosine, label prototypes ─▶ −log p

No weight is trained, so training actors calibrate it too: each by parts fitted without its film.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mule.core.errors import MissingOutputs, NotFitted
from mule.core.records import Novelty
from mule.detection.tracks import NO_TRACK
from mule.inference.outputs import SideOutputs
from mule.novelty.combining import CombinedScore
from mule.novelty.crossfit import SeenParts, parts_without
from mule.novelty.known import KnownActors

SEEN_SCORE = "seen"
MOST_KNOWN_ACTORS = 4000
"""Of more known actors, as many are taken at equal steps: fitting takes the square of their number."""
NO_INPUTS = "needs a frozen backbone whose maps of labelled actors are kept"


def known_actors(sides: Sequence[SideOutputs]) -> KnownActors:
    """Return the known actors of some sides, as what decides keeps them.

    An actor with the same id in one video is one track. Actors of one film form a group, or of one video where the split
    knows no films.

    Raises:
        MissingOutputs: the sides do not say what their actors are seen by.
    """
    if not all(side.inputs for side in sides):
        raise MissingOutputs(NO_INPUTS)
    sides = [side.deciding for side in sides]
    known = [np.flatnonzero(side.does_known) for side in sides]
    places = [
        (side.videos[video], side.group_of, side.truth.actor_ids[row])
        for side, rows in zip(sides, known, strict=True)
        for row, video in zip(rows.tolist(), side.video_index[rows].tolist(), strict=True)
    ]
    films = [group_of.get(video, video) for video, group_of, _ in places]
    names = {name: at for at, name in enumerate(dict.fromkeys(films))}
    tracks: dict[tuple[str, str], int] = {}
    numbers = [tracks.setdefault((video, who), len(tracks)) if who else NO_TRACK for video, _, who in places]
    actors = KnownActors(
        inputs={
            name: torch.cat([side.inputs[name][rows] for side, rows in zip(sides, known, strict=True)])
            for name in sides[0].inputs
        },
        labels=torch.cat(
            [torch.from_numpy(side.labels[rows]) for side, rows in zip(sides, known, strict=True)]
        ),
        actions=sides[0].classes,
        groups=torch.tensor([names[film] for film in films], dtype=torch.int64),
        group_names=tuple(names),
        tracks=torch.tensor(numbers, dtype=torch.int64),
        is_example=torch.zeros(len(films), dtype=torch.bool),
        group_of={video: film for (video, _, _), film in zip(places, films, strict=True)},
    )
    if len(actors) <= MOST_KNOWN_ACTORS:
        return actors
    return actors.at(torch.linspace(0, len(actors) - 1, MOST_KNOWN_ACTORS).round().long())


@dataclass
class SeenRule:
    """The novelty score of a model with a frozen backbone; actors of a film it knows are judged by parts fitted without it."""

    _known: KnownActors | None = field(default=None, repr=False)
    _combined: CombinedScore = field(default_factory=lambda: CombinedScore(1), repr=False)
    _parts: list[tuple[set[str], SeenParts]] = field(
        default_factory=list[tuple[set[str], SeenParts]], repr=False
    )
    """Parts fitted without some films; last those fitted to all."""

    @property
    def name(self) -> str:
        """The name of the score in tables."""
        return SEEN_SCORE

    @property
    def learns_from(self) -> frozenset[str]:
        """Training and validation: all known actors there are."""
        return frozenset({"train", "val"})

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Fit to the known actors of both sides, and calibrate by leaving out films.

        Raises:
            MissingOutputs: the sides do not say what their actors are seen by.
            TooFewActors: there are fewer than 20 actors, or all are of one film.
        """
        known = known_actors([train, held_out])
        fitted = known.fitted()
        self._combined = CombinedScore(fitted.ranks.shape[1])
        self._combined.fit_crossed(fitted.ranks, fitted.folds)
        self._parts = [
            ({known.group_names[at] for at in known.groups[fitted.folds == fold].tolist()}, parts)
            for fold, parts in parts_without(known.inputs, known.labels, fitted.folds)
        ]
        self._parts.append((set(), fitted.parts))
        self._known = known

    @property
    def known_novelty(self) -> Tensor:
        """The novelty of all known actors, each by parts that never saw its film: a threshold is set on them."""
        together = self._combined.together
        return together(together.held_out).rank

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the side does not say what its actors are seen by.
        """
        if self._known is None:
            raise NotFitted(f"{self.name} must be fitted on known actors first. Call fit(train, held_out).")
        if not outputs.inputs:
            raise MissingOutputs(NO_INPUTS)
        films = [
            outputs.group_of.get(outputs.videos[at], outputs.videos[at])
            for at in outputs.video_index.tolist()
        ]
        ranks = self._parts[-1][1].ranks(outputs.inputs)
        for some, parts in self._parts[:-1]:
            rows = torch.tensor([film in some for film in films], dtype=torch.bool)
            if rows.any():
                ranks[rows] = parts.ranks({name: each[rows] for name, each in outputs.inputs.items()})
        return self._combined(ranks).novelty
