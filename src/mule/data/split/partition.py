"""Divide actions into taught and novel ones, and videos into training, validation and test.

Names are shuffled by the digest of seed and name, so a seed gives the same partition on every machine, with every
library version and for every order of the classes. Sides are drawn so that each has its share of every action.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from mule.core.errors import AnnotationError, RangeError, did_you_mean
from mule.core.text_rows import read_names, read_pairs
from mule.data.convert.ava_files import AVA_60, AVA_80
from mule.data.split.splits import SIDES, ClassSets, SideVideos, listed
from mule.data.table.table import ActorTable

CHARADES_Z1 = """
    000 002 005 011 012 014 015 018 023 025 027 030 035 037 038 039 044 049 050 054 058 060 063 064 066 071
    077 083 084 085 096 097 102 104 105 109 111 114 115 117 123 124 133 136 139 140 143 146 147 150 154 155"""
CHARADES_Z2 = """
    004 013 017 021 022 028 029 031 032 036 040 041 042 043 045 046 047 048 051 057 059 062 065 068 073 074
    076 080 088 091 098 099 101 107 110 113 116 118 119 121 122 127 128 130 132 138 142 148 149 151 152 153"""
CHARADES_Z3 = """
    001 003 006 007 008 009 010 016 019 020 024 026 033 034 052 053 055 056 061 067 069 070 072 075 078 079
    081 082 086 087 089 090 092 093 094 095 100 103 106 108 112 120 125 126 129 131 134 135 137 141 144 145 156"""
"""`charades-52-52-53`: the paper prints only the sizes, so this is `random_partition` with seed 0."""

NUM_CHARADES_CLASSES = 157
_SETS = ("z1", "z2", "novel", "choose", "report", "ignored")


def shuffled(names: Iterable[str], seed: int, *, purpose: str) -> list[str]:
    """Return the names in an order that depends only on the seed and the purpose."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{purpose}\0{seed}\0{name}".encode()).digest())


def class_sets(
    thirds: tuple[Sequence[str], Sequence[str], Sequence[str]],
    *,
    seed: int = 0,
    group_of: Mapping[str, str] | None = None,
) -> ClassSets:
    """Return Z1, Z2 and Z3 as given, with Z3 halved: one half for choosing, the other (larger if odd) for reporting."""
    z1, z2, z3 = map(tuple, thirds)
    choose, report = _halves(z3, seed, group_of or {})
    return ClassSets(z1, z2, novel_choose=choose, novel_report=report)


def paper_partition(classes: Sequence[str], *, charades_names: Mapping[int, str] | None = None) -> ClassSets:
    """Return the published partition of AVA or the built-in one of Charades, depending on the class names.

    AVA: of the 60 evaluated classes, in the order of their list, Z1 is the first 20, Z2 the next and Z3 the last;
    the other 20 are ignored. Charades: 52, 52 and 53 classes. Actions that do not occur stay in their set. As in the
    paper, all of Z3 is reported on, and none is left for choosing.

    Args:
        classes: the classes of the table.
        charades_names: names of the Charades classes in the table; by default their codes, such as `c008`.

    Raises:
        RangeError: the classes belong to neither data set.
    """
    spelled = charades_names or {number: f"c{number:03d}" for number in range(NUM_CHARADES_CLASSES)}
    ignored: list[str] = []
    if classes and set(spelled.values()).issuperset(classes):
        z1, z2, z3 = (
            [spelled[int(number)] for number in numbers.split()]
            for numbers in (CHARADES_Z1, CHARADES_Z2, CHARADES_Z3)
        )
    else:
        z1, z2, z3 = (tuple(AVA_60.values())[start : start + 20] for start in (0, 20, 40))
        ignored = [name for name in classes if name not in AVA_60.values()]
    unknown = sorted(set(ignored).difference(AVA_80.values()))
    if unknown:
        raise RangeError(
            "the paper's partitions need the classes of AVA ('answer phone', …) or Charades (c000 … c156, or the names in its "
            f"list of classes); {listed(unknown)} belong to neither. Use the policy random, grouped or list."
        )
    return ClassSets(tuple(z1), tuple(z2), (), tuple(z3), tuple(ignored))


def random_partition(classes: Sequence[str], *, seed: int) -> ClassSets:
    """Draw three sets of equal size at random; a remainder goes to Z3, then to Z2."""
    return grouped_partition(dict.fromkeys(classes, ""), seed=seed)


def grouped_partition(group_of: Mapping[str, str], *, seed: int) -> ClassSets:
    """Draw three sets of equal size, each with its share of every group.

    The actions are dealt like cards, group after group, so two sets differ by at most one action, overall and within
    each group.
    """
    if len(group_of) < 3:
        raise RangeError(f"three sets need at least 3 actions; got {len(group_of)}.")
    cards = _by_group(group_of, group_of, seed, purpose="classes")
    z3, z2, z1 = (sorted(cards[start::3]) for start in range(3))
    return class_sets((z1, z2, z3), seed=seed, group_of=group_of)


def listed_partition(
    classes: Sequence[str], novel: Sequence[str], *, z1: Sequence[str] = (), seed: int = 0
) -> ClassSets:
    """Make the given actions novel; the others go to Z2, except those in `z1`, which are taught but not tested."""
    unknown = sorted({*novel, *z1}.difference(classes))
    if unknown or not novel:
        raise RangeError(
            f"the novel actions must be among the {len(classes)} of the table, at least one; "
            + (f"{listed(unknown)} are not." if unknown else "the list is empty.")
            + "".join(did_you_mean(name, classes) for name in unknown)
        )
    z2 = [name for name in classes if name not in {*novel, *z1}]
    return class_sets((z1, z2, novel), seed=seed)


def closed_partition(classes: Sequence[str]) -> ClassSets:
    """Teach every action; none is novel. The 20 AVA classes that are not evaluated are ignored."""
    is_ava = bool(classes) and set(AVA_80.values()).issuperset(classes)
    taught = tuple(AVA_60.values()) if is_ava else tuple(classes)
    return ClassSets((), tuple(taught), (), (), tuple(name for name in classes if name not in taught))


def beside_tags(sets: ClassSets, tags: Sequence[str]) -> ClassSets:
    """Add tags to a partition: labels that describe how an actor is seen, which are taught and never novel.

    Tags are Z1 and all taught actions Z2, so under `z1_at_test = "tags"` the actions alone decide who is known.
    """
    return replace(sets, z1=tuple(tags), z2=sets.known_train)


def told_apart(classes: Sequence[str], tag_mark: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the actions and the tags of a table; tags are names that contain the mark, such as `view:back`.

    Raises:
        RangeError: there are no tags, or nothing but tags.
    """
    tags = tuple(name for name in classes if tag_mark in name)
    actions = tuple(name for name in classes if tag_mark not in name)
    if not (tags and actions):
        raise RangeError(
            f"some names must contain the tag mark {tag_mark!r} and some must not; {len(tags)} of {len(classes)} do."
        )
    return actions, tags


def read_partition(path: Path, classes: Sequence[str], *, seed: int = 0) -> ClassSets:
    """Read a partition: a text file with one novel action per line, or a `.csv` with columns `action` and `set`.

    A set is `z1`, `z2`, `novel`, `choose`, `report` or `ignored`. A CSV file must name every action of the table. The
    seed divides `novel` into actions for choosing and for reporting.
    """
    if path.suffix.lower() != ".csv":
        return listed_partition(classes, read_names(path, of="novel actions"), seed=seed)
    set_of = read_pairs(path, "action", "set")
    wrong = sorted(set(set_of.values()).difference(_SETS))
    left_out = [name for name in classes if name not in set_of]
    if wrong or left_out:
        raise AnnotationError(
            f"{path}: every action of the table must be in one of the sets {', '.join(_SETS)}; "
            + "; ".join(
                ([f"got the sets {listed(wrong)}"] if wrong else [])
                + ([f"{listed(left_out)} are in none"] if left_out else [])
            )
            + "."
        )
    z1, z2, novel, choose, report, ignored = (
        tuple(n for n, s in set_of.items() if s == each) for each in _SETS
    )
    to_choose, to_report = _halves(novel, seed, {})
    return ClassSets(z1, z2, choose + to_choose, report + to_report, ignored)


def group_by_prefix(classes: Sequence[str], mark: str) -> dict[str, str]:
    """Return each action's group, the part of its name before the mark: `movement` for `movement:walking`.

    Raises:
        RangeError: some names do not contain the mark.
    """
    without = [name for name in classes if mark not in name]
    if without:
        raise RangeError(
            f"to group actions by prefix, each name must contain {mark!r}; {listed(without)} do not. Give a file of groups."
        )
    return {name: name.split(mark, 1)[0] for name in classes}


def _halves(
    novel: Sequence[str], seed: int, group_of: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    cards = _by_group(novel, group_of, seed, purpose="choose")
    choose, report = (tuple(name for name in novel if name in cards[start::2]) for start in (1, 0))
    return choose, report


def _by_group(names: Iterable[str], group_of: Mapping[str, str], seed: int, *, purpose: str) -> list[str]:
    return sorted(shuffled(names, seed, purpose=purpose), key=lambda name: group_of.get(name, ""))


TRAIN_SIDE, VAL_SIDE, TEST_SIDE = range(len(SIDES))
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
    """Draw sides that each have about their share of the actors of every action; groups of videos stay together.

    Rare actions come first. A known action goes to training before test, a novel one to test first, so an action with
    two groups can still be learnt and tested. Apart from that, known and novel actions are drawn alike, so that they
    do not come from different films at test.

    Args:
        table: the table whose videos are divided.
        classes: known and novel actions.
        val_share: share of all actors for validation.
        test_share: share of all actors for test.
        seed: seed of the order of the groups.
        groups: group of each video; by default each video is a group.

    Raises:
        RangeError: `val_share` is above 0, but one video or group is left for training and validation together.
    """
    group_of = [*table.videos] if not groups else _groups_of(table.videos, groups)
    names = shuffled(set(group_of), seed, purpose="sides")
    place = {name: at for at, name in enumerate(names)}
    group_index = np.array([place[name] for name in group_of], dtype=np.int64)
    counts = _label_counts(table, classes, group_index[table.video_index], len(names))
    rows = np.bincount(group_index[table.video_index], minlength=len(names))
    shares = np.array([1 - val_share - test_share, val_share, test_share])
    is_novel = np.arange(counts.shape[1]) >= len(classes.known_train)
    wanted = np.stack([np.where(is_novel, TEST_SIDE, TRAIN_SIDE), np.full(len(is_novel), TEST_SIDE)])
    side = _allotted(counts, rows, shares, wanted=wanted)
    if val_share and VAL_SIDE not in side:
        side[_spared(table, classes, group_index, counts * (side == TRAIN_SIDE)[:, None])] = VAL_SIDE
    videos = sorted(zip(table.videos, side[group_index].tolist(), strict=True))
    return SideVideos(*(tuple(video for video, at in videos if at == wanted) for wanted in range(len(SIDES))))


def _spared(
    table: ActorTable,
    classes: ClassSets,
    group_of_video: Int[np.ndarray, " videos"],
    counts: Int[np.ndarray, "groups classes"],
) -> int:
    """Return the training group to validate on: it has actors who do known actions alone, and training spares it best.

    Training spares a group if few actions occur in no other one; of equal groups the smallest goes. `counts` is zero
    outside of training.
    """
    training = np.flatnonzero(counts.any(axis=1))
    if len(training) < 2:
        raise RangeError(
            "--val-share must leave videos to train on and draw at least one to validate on; training and validation "
            f"have {len(training)} together (groups of videos stay together). Add videos, or set --val-share 0."
        )
    names = set(classes.z3)
    is_novel = np.array([name in names for name in table.classes], dtype=bool)
    is_usable = table.labels.any(axis=1) & ~table.labels[:, is_novel].any(axis=1)
    usable = np.bincount(group_of_video[table.video_index[is_usable]], minlength=len(counts))
    is_alone = (counts > 0) & (np.count_nonzero(counts, axis=0) == 1)
    return min(
        training.tolist(),
        key=lambda group: (not usable[group], int(is_alone[group].sum()), int(counts[group].sum()), group),
    )


def given_sides(side_of: Mapping[str, str]) -> SideVideos:
    """Return sides from a file's `train`, `val` or `test` for each video."""
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
    """Count the actors of each group that do each action, known actions first."""
    column = {name: at for at, name in enumerate((*classes.known_train, *classes.z3))}
    number = np.array([column.get(name, len(column)) for name in table.classes], dtype=np.int64)
    row, label = np.nonzero(table.labels)
    width = len(column) + 1  # one more column for ignored actions
    flat = np.bincount(group[row] * width + number[label], minlength=num_groups * width)
    return flat.reshape(num_groups, width)[:, :-1]


def _allotted(
    counts: Int[np.ndarray, "groups classes"],
    rows: Int[np.ndarray, " groups"],
    shares: Float[np.ndarray, " sides"],
    *,
    wanted: Int[np.ndarray, "wishes classes"],
) -> Int[np.ndarray, " groups"]:
    """Assign groups to sides greedily: take the rarest remaining action, then its groups one by one.

    A group goes to a side that still misses and wants its actions, or else to the side that lacks the largest share of
    them. Groups come in the given order, not largest first; otherwise known and novel test actors would come from
    groups of different size.
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
