"""Looks along a track add up.

Evidence fuses by `fused_evidence`: discounted cumulative fusion, where ρ = 1/2 lets no number of looks weigh more than
two; eight looks reach 89 % of that, and older ones are forgotten.

People stop what they do and begin something else. *A look that contradicts the looks before starts over*: if its conflict
with them, |P − P′|·(1 − u)·(1 − u′) at the action where it is largest, is above one half, they no longer count. On takes of
Stage rendered for development, where actions change every two to four seconds, mAP was 0.51 with one look, 0.23 with eight
without this rule and 0.48 with it. Novelty does not start over: how many looks it rests on must not depend on what they
show (see `UsualNovelty`).

*Idle looks say nothing about the act*: they are left out, so that they dilute nothing, and two in a row end it: nothing before
them counts any longer.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.core.records import Evidence, Opinion
from mule.core.tensors import Promised, require_tensors
from mule.evidence.fusion import along_tracks, fused_evidence, sums_along_tracks
from mule.evidence.head import opinion_from
from mule.novelty.tracks import IDLE_ENDS_ACT
from mule.watching.engine.finding import MOST_HIDDEN_S
from mule.watching.engine.judging import (
    Judgements,
)
from mule.watching.engine.usual import UsualNovelty

MOST_LOOKS = 8
LARGEST_CONFLICT = 0.5


def forget_after_s(every_s: float) -> float:
    """Return how long a track may be unseen before its looks are forgotten."""
    return 2 * MOST_HIDDEN_S + every_s


def packed(looks: Judgements) -> Float[Tensor, "actors numbers"]:
    """All numbers of each look in one row."""
    parts = (
        looks.network.positive,
        looks.network.negative,
        looks.together.positive,
        looks.together.negative,
    )
    columns = [each.double() for each in (*parts, looks.rank[:, None], looks.log_trust[:, None])]
    return torch.cat(columns, dim=1)


def unpacked(rows: Float[Tensor, "looks numbers"], num_classes: int) -> Judgements:
    """The looks that `packed` put into rows."""
    *parts, last = rows.split([num_classes] * 4 + [2], dim=1)
    return Judgements(
        Evidence(parts[0], parts[1]),
        Evidence(parts[2], parts[3]),
        last[:, 0],
        last[:, 1],
        torch.ones(len(rows), dtype=torch.int64),
    )


def conflict(before: Opinion, now: Opinion) -> Float[Tensor, " actors"]:
    """How far two opinions contradict each other, from 0 to 1: |P − P′|·(1 − u)·(1 − u′), largest over the actions.

    Where either is unsure there is no contradiction.
    """
    sureness = (1 - before.uncertainty) * (1 - now.uncertainty)
    return ((before.probability - now.probability).abs() * sureness).amax(dim=1)


@dataclass
class _Track:
    """The last looks at one track, packed, and how novel it was by each of them."""

    looks: deque[Tensor]
    ranks: deque[float]
    latest_s: float
    num_idle: int = 0
    """How many looks in a row were idle, up to now."""

    def add(self, row: Tensor, rank: float, *, is_idle: bool) -> None:
        """Add a look; one that is idle counts for nothing but the end of the act."""
        self.num_idle = self.num_idle + 1 if is_idle else 0
        if self.num_idle >= IDLE_ENDS_ACT:
            self.looks.clear()
            self.ranks.clear()
        if not is_idle:
            self.looks.append(row)
            self.ranks.append(rank)


@dataclass(frozen=True)
class Counting:
    """The looks that count for each actor of a key time, packed, and how novel it was by those that count for novelty."""

    looks: list[list[Tensor]]
    ranks: list[list[float]]


_STATE: Mapping[str, Promised] = {
    "track_id": (torch.int64, ("tracks",)),
    "num_looks": (torch.int64, ("tracks",)),
    "latest_s": (torch.float64, ("tracks",)),
    "looks": (torch.float64, ("looks", "numbers")),
    "num_ranks": (torch.int64, ("tracks",)),
    "ranks": (torch.float64, ("ranks",)),
    "num_idle": (torch.int64, ("tracks",)),
}


class TrackLooks:
    """The last looks at every live track. Memory grows with the people in view, not with the stream."""

    def __init__(self, usual: UsualNovelty, num_classes: int, *, most_looks: int = MOST_LOOKS) -> None:
        if most_looks < 1:
            raise RangeError(f"most_looks must be at least 1; got {most_looks}.")
        self._usual = usual
        self._num_classes = num_classes
        self._most_looks = most_looks
        self._tracks: dict[int, _Track] = {}

    def add(
        self, track_ids: list[int], now: Judgements, *, key_time_s: float, forget_after_s: float
    ) -> Judgements:
        """Add one look at each of these tracks and return what all their looks say together; an idle one speaks for itself.

        Tracks unseen for longer than `forget_after_s` are forgotten, and so are looks that this one contradicts.
        """
        counting = self.remember(track_ids, now, key_time_s=key_time_s, forget_after_s=forget_after_s)
        return self.together([counting], idle=now.idle)

    def remember(
        self, track_ids: list[int], now: Judgements, *, key_time_s: float, forget_after_s: float
    ) -> "Counting":
        """Add one look at each of these tracks, and return the looks that count now; `together` says what they say."""
        for number in [
            n for n, track in self._tracks.items() if key_time_s - track.latest_s > forget_after_s
        ]:
            del self._tracks[number]
        self._forget_contradicted(track_ids, now)
        counting = Counting([], [])
        rows, is_idle = packed(now), now.is_idle.tolist()
        for number, row, rank, idles in zip(track_ids, rows, now.rank.tolist(), is_idle, strict=True):
            track = self._tracks.setdefault(number, self._track([], [], key_time_s))
            track.add(row, rank, is_idle=idles)
            track.latest_s = key_time_s
            counting.looks.append([row] if idles else list(track.looks))
            counting.ranks.append([rank] if idles else list(track.ranks))
        return counting

    def together(
        self, counting: Sequence["Counting"], *, idle: Float[Tensor, " actors"] | None
    ) -> Judgements:
        """Return what the looks that count say together, of one key time or, which is faster, of many."""
        looks, index, num_looks = self._unpacked([kept for each in counting for kept in each.looks])
        count = len(num_looks)
        return Judgements(
            network=fused_evidence(sums_along_tracks(looks.network, index, num_tracks=count)),
            together=fused_evidence(sums_along_tracks(looks.together, index, num_tracks=count)),
            rank=self._usual.so_far([ranks for each in counting for ranks in each.ranks]),
            log_trust=along_tracks(looks.log_trust, index, num_tracks=count),
            num_looks=num_looks,
            idle=idle,
        )

    def _forget_contradicted(self, track_ids: list[int], now: Judgements) -> None:
        is_idle = now.is_idle.tolist()
        kept = [() if number not in self._tracks else self._tracks[number].looks for number in track_ids]
        rows = [row for row, looks in enumerate(kept) if looks and not is_idle[row]]
        if not rows:
            return
        looks, num_looks = self._rows([kept[row] for row in rows])
        *_, positive, negative, _ = looks.split([self._num_classes] * 4 + [2], dim=1)
        sums = sums_along_tracks(
            Evidence(positive, negative), torch.repeat_interleave(num_looks), num_tracks=len(rows)
        )
        before = opinion_from(fused_evidence(sums))
        evidence = Evidence(now.together.positive[rows].double(), now.together.negative[rows].double())
        is_contradicted = conflict(before, opinion_from(evidence)) > LARGEST_CONFLICT
        for row, is_over in zip(rows, is_contradicted.tolist(), strict=True):
            if is_over:
                self._tracks[track_ids[row]].looks.clear()

    def _unpacked(
        self, kept: Sequence[Sequence[Tensor]]
    ) -> tuple[Judgements, Int[Tensor, " looks"], Int[Tensor, " tracks"]]:
        """The looks at some tracks, the track of each look, and how many each track has."""
        rows, num_looks = self._rows(kept)
        return unpacked(rows, self._num_classes), torch.repeat_interleave(num_looks), num_looks

    def _rows(
        self, kept: Sequence[Sequence[Tensor]]
    ) -> tuple[Float[Tensor, "looks numbers"], Int[Tensor, " tracks"]]:
        """The packed looks at some tracks, and how many each track has."""
        none = torch.zeros(0, 4 * self._num_classes + 2, dtype=torch.float64)
        rows = torch.cat([none, *(row[None] for looks in kept for row in looks)])
        return rows, torch.tensor([len(looks) for looks in kept], dtype=torch.int64)

    def _track(
        self, looks: Iterable[Tensor], ranks: Iterable[float], latest_s: float, num_idle: int = 0
    ) -> _Track:
        most_ranks = min(self._most_looks, self._usual.most_looks)
        return _Track(
            deque(looks, maxlen=self._most_looks), deque(ranks, maxlen=most_ranks), latest_s, num_idle
        )

    @property
    def state(self) -> dict[str, Tensor]:
        """All looks that are kept; `restore` continues from it."""
        numbers = sorted(self._tracks)
        tracks = [self._tracks[number] for number in numbers]
        rows, num_looks = self._rows([track.looks for track in tracks])
        return {
            "track_id": torch.tensor(numbers, dtype=torch.int64),
            "num_looks": num_looks,
            "latest_s": torch.tensor([track.latest_s for track in tracks], dtype=torch.float64),
            "looks": rows,
            "num_ranks": torch.tensor([len(track.ranks) for track in tracks], dtype=torch.int64),
            "ranks": torch.tensor([rank for track in tracks for rank in track.ranks], dtype=torch.float64),
            "num_idle": torch.tensor([track.num_idle for track in tracks], dtype=torch.int64),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue as the object whose `state` this was.

        Raises:
            ShapeError: it is not such a state.
        """
        found = require_tensors(state, _STATE, sizes={"numbers": 4 * self._num_classes + 2})
        for count, kept in (("num_looks", "looks"), ("num_ranks", "ranks")):
            if bool((state[count] < 0).any()) or int(state[count].sum()) != found[kept]:
                raise ShapeError(
                    f"{count} must add up to the {found[kept]} {kept}; got {state[count].tolist()[:5]}."
                )
        is_unseen = (state["num_ranks"] < 1) & (state["num_idle"] < 1)
        if bool(is_unseen.any()) or bool((state["looks"][:, :-2] < 0).any()):
            raise ShapeError(
                "every track must have a rank or an idle look, and evidence must not be negative; some have not."
            )
        if len(state["track_id"].unique()) < found["tracks"]:
            raise ShapeError("every track must be kept once; some are kept more often.")
        looks = state["looks"].split(state["num_looks"].tolist())
        ranks = [each.tolist() for each in state["ranks"].split(state["num_ranks"].tolist())]
        tracks = map(self._track, looks, ranks, state["latest_s"].tolist(), state["num_idle"].tolist())
        self._tracks = dict(zip(state["track_id"].tolist(), tracks, strict=True))
