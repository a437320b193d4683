"""Which actions are taught and which are novel: the policies that divide the classes of a data set.

Names are shuffled by the digest of seed and name, so a seed means the same partition on every machine, under every
version of every library, and in whatever order the classes come.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mule.core.errors import AnnotationError, RangeError
from mule.data.convert.ava_classes import AVA_60, AVA_80
from mule.data.split.splits import ClassSets, listed
from mule.data.table.name_files import read_names, read_pairs

CHARADES_Z1 = """
    000 002 005 011 012 014 015 018 023 025 027 030 035 037 038 039 044 049 050 054 058 060 063 064 066 071
    077 083 084 085 096 097 102 104 105 109 111 114 115 117 123 124 133 136 139 140 143 146 147 150 154 155"""
CHARADES_Z2 = """
    004 013 017 021 022 028 029 031 032 036 040 041 042 043 045 046 047 048 051 057 059 062 065 068 073 074
    076 080 088 091 098 099 101 107 110 113 116 118 119 121 122 127 128 130 132 138 142 148 149 151 152 153"""
CHARADES_Z3 = """
    001 003 006 007 008 009 010 016 019 020 024 026 033 034 052 053 055 056 061 067 069 070 072 075 078 079
    081 082 086 087 089 090 092 093 094 095 100 103 106 108 112 120 125 126 129 131 134 135 137 141 144 145 156"""
"""`charades-52-52-53`: the paper prints the sizes and not the classes; this is `random_partition` with seed 0."""

NUM_CHARADES_CLASSES = 157
_SETS = ("z1", "z2", "novel", "choose", "report", "ignored")


def shuffled(names: Iterable[str], seed: int, *, purpose: str) -> list[str]:
    """The names in an order that depends on the seed, on the purpose and on nothing else."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{purpose}\0{seed}\0{name}".encode()).digest())


def class_sets(
    thirds: tuple[Sequence[str], Sequence[str], Sequence[str]],
    *,
    seed: int = 0,
    ignored: Sequence[str] = (),
    group_of: Mapping[str, str] | None = None,
) -> ClassSets:
    """Z1, Z2 and Z3 as given; half of Z3 is for choosing, and the other half, the larger if odd, for reporting."""
    z1, z2, z3 = map(tuple, thirds)
    choose, report = _halves(z3, seed, group_of or {})
    return ClassSets(z1, z2, novel_choose=choose, novel_report=report, ignored=tuple(ignored))


def paper_partition(
    classes: Sequence[str], *, seed: int = 0, charades_names: Mapping[int, str] | None = None
) -> ClassSets:
    """The partition of AVA that was published, or the built-in one of Charades, told apart by the names.

    AVA: of the 60 evaluated classes, in the order of their list, Z1 is the first 20, Z2 the next and Z3 the last;
    the other 20 are ignored. Charades: 52, 52 and 53 classes. Actions that do not occur keep their place.

    Args:
        classes: of the table.
        seed: divides Z3 into what is for choosing and what for reporting.
        charades_names: what the table calls the classes of Charades; without, by their codes, `c008`.

    Raises:
        RangeError: the classes are those of neither.
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
            "the paper's partitions are of AVA's classes ('answer phone', …) and of Charades' (c000 … c156, or as the "
            f"list of Charades' classes names them); {listed(unknown)} are of neither. Use the policy random, grouped "
            "or list."
        )
    return class_sets((z1, z2, z3), seed=seed, ignored=ignored)


def random_partition(classes: Sequence[str], *, seed: int) -> ClassSets:
    """Three sets of equal size, at random; what is left over goes to Z3, then to Z2."""
    return grouped_partition(dict.fromkeys(classes, ""), seed=seed)


def grouped_partition(group_of: Mapping[str, str], *, seed: int) -> ClassSets:
    """Three sets of equal size, of which each has its share of every group.

    The actions are dealt like cards, group after group, so neither within a group nor overall do two sets differ by
    more than one.
    """
    if len(group_of) < 3:
        raise RangeError(f"three sets need at least 3 actions; got {len(group_of)}.")
    cards = _by_group(group_of, group_of, seed, purpose="classes")
    z3, z2, z1 = (sorted(cards[start::3]) for start in range(3))
    return class_sets((z1, z2, z3), seed=seed, group_of=group_of)


def listed_partition(
    classes: Sequence[str], novel: Sequence[str], *, z1: Sequence[str] = (), seed: int = 0
) -> ClassSets:
    """The given actions are novel; of the others those in `z1` are taught and not tested, all else is Z2."""
    unknown = sorted({*novel, *z1}.difference(classes))
    if unknown or not novel:
        raise RangeError(
            f"the novel actions must be among the {len(classes)} of the table, at least one; "
            + (f"{listed(unknown)} are not." if unknown else "the list is empty.")
        )
    z2 = [name for name in classes if name not in {*novel, *z1}]
    return class_sets((z1, z2, novel), seed=seed)


def closed_partition(classes: Sequence[str]) -> ClassSets:
    """Every action is taught and none is novel; of AVA's 80 those are ignored that are not evaluated."""
    is_ava = bool(classes) and set(AVA_80.values()).issuperset(classes)
    taught = tuple(AVA_60.values()) if is_ava else tuple(classes)
    return ClassSets((), tuple(taught), (), (), tuple(name for name in classes if name not in taught))


def beside_tags(sets: ClassSets, tags: Sequence[str]) -> ClassSets:
    """The partition of the actions, beside labels that describe how an actor is seen: taught, never novel.

    Tags are Z1 and all taught actions Z2, so under `z1_at_test = "tags"` the actions alone decide who is known.
    """
    return replace(sets, z1=tuple(tags), z2=sets.known_train)


def told_apart(classes: Sequence[str], tag_mark: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Actions, and tags: names that hold the mark, as `view:back`.

    Raises:
        RangeError: there are none of one of them.
    """
    tags = tuple(name for name in classes if tag_mark in name)
    actions = tuple(name for name in classes if tag_mark not in name)
    if not (tags and actions):
        raise RangeError(
            f"tags are names that hold {tag_mark!r} among others that do not; {len(tags)} of {len(classes)} hold it."
        )
    return actions, tags


def read_partition(path: Path, classes: Sequence[str], *, seed: int = 0) -> ClassSets:
    """The partition in a file: novel actions, one per line; or, if it ends in `.csv`, columns `action` and `set`.

    A set is `z1`, `z2`, `novel`, `choose`, `report` or `ignored`; an action that the CSV file leaves out is an error.
    Novel actions that are not given to choosing or to reporting are divided by the seed.
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
    """The group of each action by its own name: what stands before the mark, as `movement` in `movement:walking`.

    Raises:
        RangeError: some names have no mark.
    """
    without = [name for name in classes if mark not in name]
    if without:
        raise RangeError(
            f"to group actions by prefix, each name must hold {mark!r}; {listed(without)} do not. Give a file of groups."
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
