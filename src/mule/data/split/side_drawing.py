"""Which videos are for training, validation and test: drawn so that each side has its share of every action."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from mule.core.errors import RangeError
from mule.data.split.partition import shuffled
from mule.data.split.splits import SIDES, ClassSets, SideVideos, listed
from mule.data.table.table import ActorTable

TRAIN, VAL, TEST = range(len(SIDES))
NOWHERE = -1


def drawn_sides(
    table: ActorTable,
    classes: ClassSets,
    *,
    val_share: float,
    test_share: float,
    seed: int,
    groups: Mapping[str, str] | None = None,
) -> SideVideos:
    """Each side has about its share of the actors of every action; the videos of a group stay together.

    Rare actions go first. A known action comes to training before test, a novel one to test first, so that an action
    of two groups can still be learnt and tested. Beyond that known and novel actions are drawn alike: what tells them
    apart at test must not be the films they come from.

    Args:
        table: whose videos are drawn.
        classes: what is known and what is novel.
        val_share: of all actors.
        test_share: of all actors.
        seed: of the order in which groups come.
        groups: the group of each video; without, each is its own.
    """
    group_of = [*table.videos] if not groups else _groups_of(table.videos, groups)
    names = shuffled(set(group_of), seed, purpose="sides")
    place = {name: at for at, name in enumerate(names)}
    group_index = np.array([place[name] for name in group_of], dtype=np.int64)
    counts = _label_counts(table, classes, group_index[table.video_index], len(names))
    rows = np.bincount(group_index[table.video_index], minlength=len(names))
    shares = np.array([1 - val_share - test_share, val_share, test_share])
    is_novel = np.arange(counts.shape[1]) >= len(classes.known_train)
    wanted = np.stack([np.where(is_novel, TEST, TRAIN), np.full(len(is_novel), TEST)])
    side = _allotted(counts, rows, shares, wanted=wanted)
    videos = sorted(zip(table.videos, side[group_index].tolist(), strict=True))
    return SideVideos(*(tuple(video for video, at in videos if at == wanted) for wanted in range(len(SIDES))))


def given_sides(side_of: Mapping[str, str]) -> SideVideos:
    """The sides as a file has them, one word of `train`, `val` and `test` per video."""
    wrong = sorted(set(side_of.values()).difference(SIDES))
    if wrong:
        raise RangeError(f"a side must be one of {', '.join(SIDES)}; got {listed(wrong)}.")
    return SideVideos(*(tuple(sorted(v for v, at in side_of.items() if at == side)) for side in SIDES))


def _groups_of(videos: tuple[str, ...], groups: Mapping[str, str]) -> list[str]:
    without = [video for video in videos if video not in groups]
    if without:
        raise RangeError(
            f"every video of the table must have a group; {listed(without)} have none ({len(without)} of {len(videos)})."
        )
    return [groups[video] for video in videos]


def _label_counts(
    table: ActorTable, classes: ClassSets, group: Int[np.ndarray, " rows"], num_groups: int
) -> Int[np.ndarray, "groups classes"]:
    """How many actors of each group do each action, known actions first."""
    column = {name: at for at, name in enumerate((*classes.known_train, *classes.z3))}
    number = np.array([column.get(name, len(column)) for name in table.classes], dtype=np.int64)
    row, label = np.nonzero(table.labels)
    width = len(column) + 1  # one more for what is ignored
    flat = np.bincount(group[row] * width + number[label], minlength=num_groups * width)
    return flat.reshape(num_groups, width)[:, :-1]


def _allotted(
    counts: Int[np.ndarray, "groups classes"],
    rows: Int[np.ndarray, " groups"],
    shares: Float[np.ndarray, " sides"],
    *,
    wanted: Int[np.ndarray, "wishes classes"],
) -> Int[np.ndarray, " groups"]:
    """The side of each group, greedily: the rarest action left, its groups one by one.

    A group goes where its actions are still missing and wanted, and else to the side that most lacks them, in shares
    of what there is of each. Groups come in the order given, not largest first: known and novel test actors would
    else come from groups of different size.
    """
    side = np.full(len(counts), NOWHERE)
    total = counts.sum(axis=0)
    lacks = shares[:, None] * total
    lacks_rows = shares * rows.sum()
    missing = np.broadcast_to(shares[:, None] > 0, lacks.shape).copy()
    left = np.count_nonzero(counts, axis=0)
    open_sides = np.flatnonzero(shares > 0).tolist()

    def put(group: int) -> None:
        does = np.flatnonzero(counts[group])
        is_wish = missing[wanted[:, does], does]
        first = wanted[is_wish.argmax(axis=0), does]
        has_wish = is_wish.any(axis=0)
        wishes = np.bincount(first[has_wish], 1 / left[does[has_wish]], minlength=len(shares))
        lack = (lacks[:, does] * counts[group, does] / total[does] ** 2).sum(axis=1)
        to = max(open_sides, key=lambda s: (wishes[s], lack[s], lacks_rows[s]))
        side[group] = to
        lacks[to] -= counts[group]
        lacks_rows[to] -= rows[group]
        missing[to, does] = False
        left[does] -= 1

    while left.any():
        action = int(np.argmin(np.where(left > 0, left, len(counts) + 1)))
        for group in np.flatnonzero((side == NOWHERE) & (counts[:, action] > 0)).tolist():
            put(group)
    for group in np.flatnonzero(side == NOWHERE).tolist():
        put(group)
    return side
