"""Apply a split: find the actors for training, validation and test, and count why the others are left out.

train   a novel action: dropped (or loses the label)  ─▶ no taught action left: dropped ─▶ used
val     a novel action: dropped, whatever the rules   ─▶ no taught action left: dropped ─▶ used
test    no known or novel action: dropped ─▶ known and novel: dropped (or by their share) ─▶ known | novel
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from mule.core.errors import RangeError
from mule.data.split.report import SplitReport, found_leakage, split_report
from mule.data.split.splits import SIDES, Rules, Split, listed
from mule.data.table.table import ActorTable

RowMask = Bool[np.ndarray, " rows"]


class Fate(Enum):
    """How an actor is used: its side, whether it is used or lost, and its kind or the reason."""

    TRAIN_USED = ("train", "used", "known")
    TRAIN_UNLABELLED = ("train", "used", "known, novel labels removed")
    TRAIN_NOVEL = ("train", "lost", "does a novel action")
    TRAIN_UNTAUGHT = ("train", "lost", "does no taught action")
    TRAIN_WITHOUT_LABEL = ("train", "lost", "has no label")
    VAL_USED = ("val", "used", "known")
    VAL_NOVEL = ("val", "lost", "does a novel action")
    VAL_UNTAUGHT = ("val", "lost", "does no taught action")
    VAL_WITHOUT_LABEL = ("val", "lost", "has no label")
    TEST_KNOWN = ("test", "used", "known")
    TEST_NOVEL = ("test", "used", "novel")
    TEST_MIXED_AS_KNOWN = ("test", "used", "mixed, kept as known")
    TEST_MIXED_AS_NOVEL = ("test", "used", "mixed, kept as novel")
    TEST_CLOSED_UNTAUGHT = ("test", "used", "without a taught action")
    TEST_MIXED = ("test", "lost", "does known and novel actions")
    TEST_UNDECIDED = ("test", "lost", "does no known or novel action")
    TEST_WITHOUT_LABEL = ("test", "lost", "has no label")

    @property
    def is_used(self) -> bool:
        """Whether the actor is used on its side."""
        return self.value[1] == "used"


FATES = tuple(Fate)
NOVEL_FATES = (Fate.TEST_NOVEL, Fate.TEST_MIXED_AS_NOVEL)
NO_SIDE = -1
_SIDE_NUMBER = {side: at for at, side in enumerate(SIDES)}


@dataclass(frozen=True)
class UsedActors:
    """The actors of one side. `labels` has a column per taught action, in the order of `classes.known_train`."""

    actors: ActorTable
    rows: Int[np.ndarray, " actors"]
    """Their rows in the table that was split."""
    labels: Bool[np.ndarray, "actors classes"]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class UsedTestActors(UsedActors):
    """The actors of the test side, each known or novel.

    Make choices on the known actors of the validation side and the novel actors `is_for_choosing`. Report results on
    the known actors of the test side and the novel actors `is_for_reporting`. A novel actor with actions of both sets
    is in neither.
    """

    is_novel: Bool[np.ndarray, " actors"]
    is_for_choosing: Bool[np.ndarray, " actors"]
    is_for_reporting: Bool[np.ndarray, " actors"]


class JudgedActors(NamedTuple):
    """Actors of one side, their rows in the table that was split, and which of them are novel."""

    actors: ActorTable
    rows: Int[np.ndarray, " actors"]
    is_novel: Bool[np.ndarray, " actors"]


@dataclass(frozen=True)
class OpenSetSides:
    """The actors of each side, and a report of all others, made on first use."""

    train: UsedActors
    val: UsedActors
    test: UsedTestActors
    make_report: Callable[[], SplitReport] = field(repr=False)

    def judged(self, side: str) -> "JudgedActors":
        """Return the actors of a side to judge.

        Where a split reserves some novel actions for choosing and others for reporting, the test has only the latter.
        """
        if side != "test":
            used = self.train if side == "train" else self.val
            return JudgedActors(used.actors, used.rows, np.zeros(len(used), dtype=bool))
        test = self.test
        if not (test.is_for_choosing.any() and test.is_for_reporting.any()):
            return JudgedActors(test.actors, test.rows, test.is_novel)
        is_reported = ~test.is_novel | test.is_for_reporting
        return JudgedActors(test.actors.at(is_reported), test.rows[is_reported], test.is_novel[is_reported])

    @cached_property
    def report(self) -> SplitReport:
        """What became of every actor, and what leaks from one side to another."""
        return self.make_report()


def apply_split(
    table: ActorTable,
    split: Split,
    *,
    pretraining_labels: Sequence[str] = (),
    video_files: Mapping[str, Path] | None = None,
) -> OpenSetSides:
    """Divide a table by a split. The table need not be the one the split was made from; it may hold detections.

    Args:
        table: actors; those in videos on no side are counted and left out.
        split: the split.
        pretraining_labels: classes of the backbone's pre-training, to compare with the actions.
        video_files: paths of the videos, to find identical files on two sides.

    Raises:
        RangeError: the table has actions that the split does not name.
    """
    unknown = sorted(set(table.classes).difference(split.classes.set_of()))
    if unknown:
        raise RangeError(
            f"every action of the table must be in a set of the split; {listed(unknown)} are in none of {split.name!r}."
        )
    fate = fates(table, split)
    used = {
        side: np.flatnonzero(
            np.isin(fate, [at for at, each in enumerate(FATES) if each.is_used and each.value[0] == side])
        )
        for side in SIDES
    }
    test = _test_actors(table, split, used["test"], fate)
    make_report = partial(
        _report, table, split, fate, used=used, test=test, labels=pretraining_labels, files=video_files
    )
    train, val = (
        UsedActors(table.at(used[side]), used[side], _labels(table, used[side], split.classes.known_train))
        for side in ("train", "val")
    )
    return OpenSetSides(train, val, test, make_report)


def _report(  # noqa: PLR0913 - the parts of one report
    table: ActorTable,
    split: Split,
    fate: Int[np.ndarray, " rows"],
    *,
    used: Mapping[str, Int[np.ndarray, " _used"]],
    test: UsedTestActors,
    labels: Sequence[str],
    files: Mapping[str, Path] | None,
) -> SplitReport:
    return split_report(
        table,
        split,
        _counted(fate),
        used_rows=used,
        novel_sets=_novel_sets(test),
        leakage=found_leakage(split, pretraining_labels=labels, video_files=files),
    )


def fates(table: ActorTable, split: Split) -> Int[np.ndarray, " rows"]:
    """Return each actor's fate as an index into `FATES`, or `NO_SIDE` if its video is on no side."""
    side_of = split.videos.side_of()
    number = np.array(
        [_SIDE_NUMBER.get(side_of.get(video, ""), NO_SIDE) for video in table.videos], dtype=np.int64
    )
    side = number[table.video_index]
    rows = np.full(len(table), NO_SIDE, dtype=np.int64)
    for fate, is_met in _fates_met(table, split).items():
        rows[is_met & (side == _SIDE_NUMBER[fate.value[0]])] = FATES.index(fate)
    return rows


def _fates_met(table: ActorTable, split: Split) -> dict[Fate, RowMask]:
    """Return the actors that each fate applies to on its side. The last fate that applies counts."""
    classes, rules = split.classes, split.rules
    decides = classes.known_train if rules.z1_at_test == "known" else classes.z2
    num_labels, num_taught, num_known, num_novel = _numbers_done(
        table, table.classes, classes.known_train, decides, classes.z3
    )
    has_none, is_taught, is_novel = num_labels == 0, num_taught > 0, num_novel > 0
    return {
        Fate.TRAIN_USED: is_taught,
        Fate.TRAIN_UNTAUGHT: ~is_taught,
        Fate.TRAIN_WITHOUT_LABEL: has_none,
        **(
            {Fate.TRAIN_UNLABELLED: is_novel & is_taught}
            if rules.train_novel == "unlabel"
            else {Fate.TRAIN_NOVEL: is_novel}
        ),
        Fate.VAL_USED: is_taught,
        Fate.VAL_UNTAUGHT: ~is_taught,
        Fate.VAL_WITHOUT_LABEL: has_none,
        Fate.VAL_NOVEL: is_novel,
        Fate.TEST_KNOWN: num_known > 0,
        Fate.TEST_NOVEL: is_novel,
        **_undecided(num_known + num_novel == 0, has_none, is_open=bool(classes.z3)),
        **_mixed(num_known, num_novel, rules),
    }


def _undecided(is_undecided: RowMask, has_none: RowMask, *, is_open: bool) -> dict[Fate, RowMask]:
    if not is_open:  # a closed-set protocol scores every actor
        return {Fate.TEST_CLOSED_UNTAUGHT: is_undecided}
    return {Fate.TEST_UNDECIDED: is_undecided, Fate.TEST_WITHOUT_LABEL: has_none}


def _mixed(
    num_known: Int[np.ndarray, " rows"], num_novel: Int[np.ndarray, " rows"], rules: Rules
) -> dict[Fate, RowMask]:
    is_mixed = (num_known > 0) & (num_novel > 0)
    if rules.mixed == "drop":
        return {Fate.TEST_MIXED: is_mixed}
    is_novel_enough = num_novel / np.maximum(num_known + num_novel, 1) >= rules.mixed_share
    return {
        Fate.TEST_MIXED_AS_KNOWN: is_mixed & ~is_novel_enough,
        Fate.TEST_MIXED_AS_NOVEL: is_mixed & is_novel_enough,
    }


def _test_actors(
    table: ActorTable, split: Split, rows: Int[np.ndarray, " actors"], fate: Int[np.ndarray, " rows"]
) -> UsedTestActors:
    is_novel = np.isin(fate[rows], [FATES.index(each) for each in NOVEL_FATES])
    actors = table.at(rows)
    in_choose, in_report = _numbers_done(actors, split.classes.novel_choose, split.classes.novel_report)
    return UsedTestActors(
        actors,
        rows,
        _labels(table, rows, split.classes.known_train),
        is_novel=is_novel,
        is_for_choosing=is_novel & (in_choose > 0) & (in_report == 0),
        is_for_reporting=is_novel & (in_report > 0) & (in_choose == 0),
    )


def _novel_sets(test: UsedTestActors) -> dict[str, int]:
    choose, report, novel = (
        int(np.count_nonzero(each)) for each in (test.is_for_choosing, test.is_for_reporting, test.is_novel)
    )
    return {"choose": choose, "report": report, "neither": novel - choose - report}


def _counted(fate: Int[np.ndarray, " rows"]) -> dict[str, dict[str, dict[str, int]]]:
    counts = np.bincount(fate[fate != NO_SIDE], minlength=len(FATES))
    counted: dict[str, dict[str, dict[str, int]]] = {side: {"used": {}, "lost": {}} for side in SIDES}
    for each, count in zip(FATES, counts.tolist(), strict=True):
        side, what, words = each.value
        if count or each in (Fate.TRAIN_USED, Fate.VAL_USED, Fate.TEST_KNOWN, Fate.TEST_NOVEL):
            counted[side][what][words] = count
    return counted


def _numbers_done(table: ActorTable, *sets: Sequence[str]) -> list[Int[np.ndarray, " rows"]]:
    """Count the actions of each set that each actor does."""
    row, label = np.nonzero(table.labels)
    is_in_set = [np.array([name in set(names) for name in table.classes], dtype=bool) for names in sets]
    return [np.bincount(row[is_in[label]], minlength=len(table)) for is_in in is_in_set]


def _labels(
    table: ActorTable, rows: Int[np.ndarray, " actors"], classes: Sequence[str]
) -> Bool[np.ndarray, "actors classes"]:
    """Return the labels of these actions, in their order; False for an action that the table does not name."""
    at = {name: column for column, name in enumerate(table.classes)}
    labels = np.zeros((len(rows), len(classes)), dtype=bool)
    for column, name in enumerate(classes):
        if name in at:
            labels[:, column] = table.labels[rows, at[name]]
    return labels
