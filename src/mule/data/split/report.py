"""Report of a split: how every actor is used, how many actors do each action on each side, and what leaks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int
from pydantic import BaseModel, ConfigDict

from mule.core.errors import TooFewActors
from mule.core.files import write_file
from mule.data.split.leakage import (
    LEAKAGE_CONVENTION,
    MetAction,
    Shared,
    identical_videos,
    met_in_pretraining,
    readings,
    shared_groups,
)
from mule.data.split.splits import SIDES, Split, listed, table_digest
from mule.data.table.table import ActorTable

LEAST_TO_CALIBRATE = 20
"""Held-out known actors that `mule bundle` needs (`novelty.calibration.FEWEST_HELD_OUT`)."""
ENOUGH_TO_CALIBRATE = 30
"""Leaves room for actors in clips that cannot be read."""

UsedRows = Mapping[str, Int[np.ndarray, " used"]]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SideCounts(_Frozen):
    """Size of a side and its losses. Used and lost actors add up to the actors in its videos."""

    videos: int
    """Videos of this side that the table has."""
    groups: int | None
    """None if videos have no groups."""
    actors: int
    used: dict[str, int]
    """Number of used actors by kind."""
    lost: dict[str, int]
    """Number of unused actors by reason."""
    videos_used: int
    """Videos with at least one used actor."""


class SplitClassCounts(_Frozen):
    """Number of actors that do an action: in the table, and among the used actors of each side."""

    action: str
    set: str
    table: int
    train: int
    val: int
    test: int


class Leakage(_Frozen):
    """What one side, or the backbone, knows about another side."""

    videos_on_two_sides: int = 0
    """Always 0: a split with such a video is refused."""
    groups_on_two_sides: tuple[Shared, ...]
    groups_checked: bool
    identical_files: tuple[Shared, ...]
    files_checked: int
    """Number of compared video files; 0 if none were given."""
    met_in_pretraining: tuple[MetAction, ...]
    not_comparable: tuple[str, ...]
    """Actions whose names contain no word."""
    num_pretraining_labels: int
    """Number of labels; 0 if none were given."""
    convention: str = LEAKAGE_CONVENTION


class SplitReport(_Frozen):
    """All counts of a table under a split."""

    name: str
    digest: str
    policy: str
    seed: int
    table_digest: str
    is_table_of_split: bool
    """Whether the split was made from this table."""
    num_actors: int
    num_on_no_side: int
    videos_on_no_side: tuple[str, ...]
    videos_missing: int
    """Videos of the split that the table does not have."""
    sides: dict[str, SideCounts]
    train_kept: dict[str, int] = {}
    """Number of training actors that stay under each rule, `drop` and `unlabel`; empty if no action is novel."""
    novel_sets: dict[str, int]
    """Number of novel test actors for choosing, for reporting, and for neither (those with actions of both sets)."""
    classes: tuple[SplitClassCounts, ...]
    leakage: Leakage
    notes: tuple[str, ...]
    """Sentences about possible surprises."""

    def require_usable(self) -> None:
        """Check that there are actors to train on, known actors to test on and, if any action is novel, novel ones.

        Raises:
            TooFewActors: one of them is missing; the message names it.
        """
        test = self.sides["test"].used
        novel = sum(self.novel_sets.values())
        is_open = any(each.set.startswith("novel") for each in self.classes)
        none_of = [
            *(["training actors"] if not sum(self.sides["train"].used.values()) else []),
            *(["known test actors"] if not sum(test.values()) - novel else []),
            *(["novel test actors"] if is_open and not novel else []),
        ]
        if none_of:
            raise TooFewActors(
                f"a split must leave actors to train on and actors to test on; {self.name!r} leaves no "
                f"{' and no '.join(none_of)}. If actors do several actions at once, most of them are mixed: choose novel "
                "actions that seldom occur with others (--policy list), or try --mixed keep and --train-novel unlabel."
            )

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        write_file(path, self.model_dump_json(indent=2) + "\n")


def found_leakage(
    split: Split, *, pretraining_labels: Sequence[str] = (), video_files: Mapping[str, Path] | None = None
) -> Leakage:
    """Find what is on two sides of a split, and which of its actions the backbone knows."""
    actions = (*split.classes.known_train, *split.classes.z3) if pretraining_labels else ()
    files = video_files or {}
    return Leakage(
        groups_on_two_sides=shared_groups(split.videos, split.groups),
        groups_checked=bool(split.groups),
        identical_files=identical_videos(split.videos, files),
        files_checked=sum(video in files for video in split.videos.side_of()),
        met_in_pretraining=met_in_pretraining(actions, pretraining_labels),
        not_comparable=tuple(action for action in actions if not readings(action)),
        num_pretraining_labels=len(pretraining_labels),
    )


def split_report(
    table: ActorTable,
    split: Split,
    fates: Mapping[str, Mapping[str, Mapping[str, int]]],
    *,
    used_rows: UsedRows,
    novel_sets: dict[str, int],
    leakage: Leakage,
) -> SplitReport:
    """Build the report of a table under a split.

    Args:
        table: the table that was split.
        split: the split.
        fates: for each side, under `used` and `lost`, the number of actors by kind or reason.
        used_rows: the rows that each side uses.
        novel_sets: the number of novel test actors by purpose.
        leakage: the leaks of the split.
    """
    side_of = split.videos.side_of()
    digest = table_digest(table)
    no_side = tuple(video for video in table.videos if video not in side_of)
    on_side = np.isin(table.video_index, [at for at, video in enumerate(table.videos) if video in side_of])
    sides = {side: _side_counts(table, split, side, fates[side], used_rows[side]) for side in SIDES}
    classes = _class_counts(table, split, used_rows)
    return SplitReport(
        name=split.name,
        digest=split.digest,
        policy=split.policy,
        seed=split.seed,
        table_digest=digest,
        is_table_of_split=digest == split.table_digest,
        num_actors=len(table),
        num_on_no_side=int(np.count_nonzero(~on_side)),
        videos_on_no_side=no_side,
        videos_missing=len(side_of) - (len(table.videos) - len(no_side)),
        sides=sides,
        train_kept=_train_kept(table, split) if split.classes.z3 else {},
        novel_sets=novel_sets,
        classes=classes,
        leakage=leakage,
        notes=tuple(_notes(split, sides, classes, novel_sets)),
    )


def _side_counts(
    table: ActorTable,
    split: Split,
    side: str,
    fates: Mapping[str, Mapping[str, int]],
    rows: Int[np.ndarray, " used"],
) -> SideCounts:
    there = set(table.videos).intersection(getattr(split.videos, side))
    return SideCounts(
        videos=len(there),
        groups=len({split.groups[video] for video in there}) if split.groups else None,
        actors=sum(fates["used"].values()) + sum(fates["lost"].values()),
        used=dict(fates["used"]),
        lost=dict(fates["lost"]),
        videos_used=len(np.unique(table.video_index[rows])),
    )


def _train_kept(table: ActorTable, split: Split) -> dict[str, int]:
    """Count the training actors with a taught action, without those that do a novel one (`drop`) and with them."""
    on_side = np.isin(
        table.video_index, [at for at, each in enumerate(table.videos) if each in split.videos.train]
    )
    sets = (split.classes.known_train, split.classes.z3)
    is_taught, is_novel = (
        table.labels[:, [name in names for name in table.classes]].any(axis=1) for names in map(set, sets)
    )
    kept = {"drop": on_side & is_taught & ~is_novel, "unlabel": on_side & is_taught}
    return {rule: int(np.count_nonzero(rows)) for rule, rows in kept.items()}


def _class_counts(table: ActorTable, split: Split, used_rows: UsedRows) -> tuple[SplitClassCounts, ...]:
    counts = {side: table.labels[rows].sum(axis=0) for side, rows in used_rows.items()}
    counts["table"] = table.labels.sum(axis=0)
    column = {name: at for at, name in enumerate(table.classes)}
    return tuple(
        SplitClassCounts(
            action=name,
            set=key,
            **{where: int(count[column[name]]) if name in column else 0 for where, count in counts.items()},
        )
        for name, key in split.classes.set_of().items()
    )


def _notes(
    split: Split,
    sides: Mapping[str, SideCounts],
    classes: Sequence[SplitClassCounts],
    novel_sets: Mapping[str, int],
) -> list[str]:
    """Return sentences about what a reader would not expect from the numbers."""
    tested = {"z2", *(["z1"] if split.rules.z1_at_test == "known" else [])}
    absent = [each.action for each in classes if not each.table]
    present = [each for each in classes if each.table]
    untaught = [each.action for each in present if each.set in ("z1", "z2") and not each.train]
    untested = [each.action for each in present if each.set in tested and not each.test]
    unseen = [each.action for each in present if each.set.startswith("novel") and not each.test]
    lists = [
        (absent, "Actions that do not occur in the table"),
        (untaught, "Known actions without a training actor"),
        (untested, "Known actions without a test actor"),
        (unseen, "Novel actions without a test actor"),
    ]
    notes = [f"{what}: {listed(names)}." for names, what in lists if names]
    num_val = sum(sides["val"].used.values())
    if not num_val:
        notes.append(
            "There are no validation actors, which training needs: draw some with --val-share 0.15 or more."
        )
    elif num_val < ENOUGH_TO_CALIBRATE:
        notes.append(
            f"Validation has {num_val} known actors; without a frozen backbone, `mule bundle` needs at least "
            f"{LEAST_TO_CALIBRATE} to calibrate, and some may be unreadable. With one, training actors calibrate too. Raise "
            f"--val-share until validation has {ENOUGH_TO_CALIBRATE}, or label more actors."
        )
    if split.classes.z3 and not split.classes.novel_choose:
        notes.append("Every novel action is for reporting; make no choices on novel actors.")
    if novel_sets["neither"] and not novel_sets["report"]:
        notes.append("Every novel actor does actions of both novel sets; none is for reporting alone.")
    return notes
