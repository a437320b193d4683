"""Leaks of a split: actions that the backbone already knows, and videos or groups on two sides.

Actions and labels are compared word by word. Words are reduced to their stem (catching, catches, catch), words without
meaning of their own are left out, and a compound equals its parts (`pullup`, `pull ups`). Either half of `run/jog` is
enough, and so is `climb` of `climb (e.g., a mountain)`. The likeness of an action to a label is the share of the
action's words that the label has. This finds similar names, not similar pictures: `shoot bow` matches
`shooting basketball` but not `archery`, and `play musical instrument` does not match `playing violin`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from mule.core.files import sha256_of
from mule.data.split.splits import SideVideos

LIKENESS = 0.5
"""Half of the words of an action: its verb or its object."""
LEAKAGE_CONVENTION = (
    "An action counts as met in pre-training if a label shares at least half of its words, compared by their stems. "
    "Only names are compared: synonyms are missed, and a shared word need not mean the same action."
)

_CODE = re.compile(r"^\s*(?:c\d{3}\b|\d+[\s:,.)])")
_WORD = re.compile(r"[^\W\d_]+")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MetAction(_Frozen):
    """An action whose name resembles a class that the backbone was trained on."""

    action: str
    label: str
    """The label most like it."""
    likeness: float
    """Share of the action's words that the label has, from 0 to 1."""
    num_labels: int
    """Number of labels that resemble it."""


class Shared(_Frozen):
    """A group or file that is on more than one side."""

    name: str
    videos: tuple[str, ...]
    """Training first, test last."""
    sides: tuple[str, ...]


def stem(word: str) -> str:
    """Return a word without the endings of English verbs and plurals: `run` for `running` and `runs`."""
    for ending, least in (("ing", 3), ("ies", 2), ("ed", 3), ("es", 3), ("s", 3)):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= least:
            word = word.removesuffix(ending) + ("y" if ending == "ies" else "")
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 3 else word


_EMPTY_WORDS = """
    a an and another at by do down eg for from get give go group have in into it make not object of
    on or other out person people play put self some someone something take the their thing to up
    use with"""
_EMPTY_STEMS = frozenset(map(stem, _EMPTY_WORDS.split()))


def words(name: str) -> tuple[str, ...]:
    """Return the stems of the words that tell actions apart, in their order, or of all words if none does.

    >>> words("Throwing a ball"), words("get up")
    (('throw', 'ball'), ('get', 'up'))
    """
    every = [stem(word) for word in _words(name)]
    return tuple([each for each in every if each not in _EMPTY_STEMS] or every)


def readings(action: str) -> list[tuple[str, ...]]:
    """Return the words of each way to read an action's name, such as `run` and `jog` for `run/jog`.

    >>> readings("run/jog (fast)")
    [('run',), ('jog',), ('jog', 'fast')]
    """
    outside = re.sub(r"\([^)]*\)", " ", action)
    texts = [*outside.split("/"), *re.sub(r"\be\.g\.", " ", action).split("/")]
    return [each for each in dict.fromkeys(map(words, texts)) if each]


def met_in_pretraining(
    actions: Sequence[str], labels: Sequence[str], *, min_likeness: float = LIKENESS
) -> tuple[MetAction, ...]:
    """Return the actions whose names resemble a label of the pre-training, each with its most similar label."""
    words_of = {label: _with_compounds(label) for label in labels}
    met = []
    for action in actions:
        ways = readings(action)
        if not ways:
            continue
        ranked = [
            (*max(_likeness(way, has) for way in ways), -len(has), label) for label, has in words_of.items()
        ]
        alike = [entry for entry in ranked if entry[0] >= min_likeness]
        if alike:
            best = max(alike, key=lambda entry: entry[:3])
            met.append(
                MetAction(action=action, label=best[3], likeness=round(best[0], 3), num_labels=len(alike))
            )
    return tuple(met)


def shared_groups(videos: SideVideos, groups: Mapping[str, str]) -> tuple[Shared, ...]:
    """Return the groups with videos on more than one side."""
    return _on_several_sides(
        videos, ((groups[video], video) for video in videos.side_of() if video in groups)
    )


def identical_videos(videos: SideVideos, files: Mapping[str, Path]) -> tuple[Shared, ...]:
    """Return identical files on different sides. Only files of equal size are read."""
    by_size: dict[int, list[str]] = defaultdict(list)
    for video in videos.side_of():
        if video in files:
            by_size[files[video].stat().st_size].append(video)
    alike = [video for same in by_size.values() if len(same) > 1 for video in same]
    return _on_several_sides(videos, ((sha256_of(files[video]), video) for video in alike))


def _likeness(action: tuple[str, ...], label: frozenset[str]) -> tuple[float, bool]:
    """Return the share of the action's words that the label has, and whether the first (usually the verb) is among them."""
    if len(action) > 1 and "".join(action) in label:
        return 1.0, True
    has = [word in label for word in action]
    return sum(has) / len(has), has[0]


def _with_compounds(label: str) -> frozenset[str]:
    compounds = (stem(first + second) for first, second in pairwise(_words(label)))
    return frozenset((*words(label), *compounds))


def _words(name: str) -> list[str]:
    return _WORD.findall(_CODE.sub(" ", name.casefold()))


def _on_several_sides(videos: SideVideos, named: Iterable[tuple[str, str]]) -> tuple[Shared, ...]:
    side_of = videos.side_of()
    members: dict[str, list[str]] = defaultdict(list)
    for name, video in named:
        members[name].append(video)
    sides = {name: tuple(dict.fromkeys(side_of[video] for video in found)) for name, found in members.items()}
    return tuple(
        Shared(name=name, videos=tuple(found), sides=sides[name])
        for name, found in sorted(members.items())
        if len(sides[name]) > 1
    )
