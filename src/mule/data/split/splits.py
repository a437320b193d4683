"""An open-set split: which actions are taught and which are novel, which videos lie on which side, by which rules.

A split is one TOML file that people can read. Its digest covers all of it, so two results with one digest rest on
the same split; a file that no longer agrees with its digest is refused.
"""

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from mule.core.errors import AnnotationError, RangeError
from mule.core.files import write_file
from mule.data.table.table import ActorTable

FORMAT = "mule-split-1"
NAMES_SHOWN = 5

Policy = Literal["paper", "random", "grouped", "list", "closed"]
Side = Literal["train", "val", "test"]
SIDES: tuple[Side, ...] = get_args(Side)


@dataclass(frozen=True)
class ClassSets:
    """The actions in disjoint sets. Z1 and Z2 are taught, Z2 is tested as known, Z3 is novel.

    Z3 has two parts: what is chosen by looking at novel actions is chosen on the first and reported on the second.
    """

    z1: tuple[str, ...]
    z2: tuple[str, ...]
    novel_choose: tuple[str, ...]
    novel_report: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    """Labels that count neither way, as AVA's twenty classes that are not evaluated."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        names = (*self.known_train, *self.z3, *self.ignored)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise RangeError(f"an action must lie in one set, once; {listed(twice)} lie in more.")
        if not self.known_train:
            raise RangeError("some actions must be taught; Z1 and Z2 are both empty.")

    @property
    def known_train(self) -> tuple[str, ...]:
        """Z1 and Z2: the taught actions, in the order of a model's outputs."""
        return self.z1 + self.z2

    @property
    def z3(self) -> tuple[str, ...]:
        """The novel actions."""
        return self.novel_choose + self.novel_report

    def set_of(self) -> dict[str, str]:
        """The set of each action, by the name of its field."""
        return {name: key for key, names in asdict(self).items() for name in names}


@dataclass(frozen=True)
class Rules:
    """What happens to actors whose labels do not fit one set, and how the sides were found."""

    mixed: Literal["drop", "keep"] = "drop"
    """Test actors with known and novel actions: dropped, as in the paper, or kept."""
    mixed_share: float = 0.5
    """A mixed actor that is kept is novel if at least this share of the actions that decide are."""
    train_novel: Literal["drop", "unlabel"] = "drop"
    """Training actors with a novel action: dropped, or kept for their taught actions alone."""
    z1_at_test: Literal["ignore", "known", "tags"] = "ignore"
    """Whether Z1 decides nothing at test, as in the paper, or counts as known; or is tags, which are of novel actors too:
    they decide nothing, and novelty is not read from them."""
    sides: Literal["drawn", "given"] = "given"
    val_share: float = 0.0
    test_share: float = 0.0
    """Shares of the actors that drawn sides were to have."""
    groups_from: str = ""
    """Where the group of each video comes from; videos of a group stay on one side when sides are drawn."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        for name in ("mixed_share", "val_share", "test_share"):  # 0 and 0.0 must give one digest
            object.__setattr__(self, name, float(getattr(self, name)))
        if not 0 < self.mixed_share <= 1:
            raise RangeError(f"mixed_share must lie above 0 and at most at 1; got {self.mixed_share}.")
        if min(self.val_share, self.test_share) < 0 or self.val_share + self.test_share >= 1:
            raise RangeError(
                "val_share and test_share must be at least 0 and leave something for training; got "
                f"{self.val_share} and {self.test_share}."
            )


@dataclass(frozen=True)
class SideVideos:
    """The videos of each side. No video lies on two."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(self.train + self.val + self.test).items() if count > 1]
        if twice:
            raise RangeError(f"a video must lie on one side, once; {listed(twice)} lie on more.")

    def side_of(self) -> dict[str, Side]:
        """The side of each video."""
        return {video: side for side in SIDES for video in getattr(self, side)}


@dataclass(frozen=True)
class Split:
    """One open-set (or, without novel actions, closed-set) protocol on one data set."""

    name: str
    policy: Policy
    seed: int
    table_digest: str
    classes: ClassSets
    rules: Rules
    videos: SideVideos
    groups: Mapping[str, str] = field(default_factory=dict)
    """The group of each video (a film, a scene, a camera), where videos have one."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        without = (
            [video for video in self.videos.side_of() if video not in self.groups] if self.groups else []
        )
        if without:
            raise RangeError(f"with groups every video must have one; {listed(without)} have none.")

    @property
    def tags(self) -> tuple[str, ...]:
        """Taught labels that say nothing about whether an actor is novel."""
        return self.classes.z1 if self.rules.z1_at_test == "tags" else ()

    @property
    def digest(self) -> str:
        """SHA-256 of everything the split says."""
        content = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()


def table_digest(table: ActorTable) -> str:
    """SHA-256 of what the rows say, in their order; the same for a CSV file and a Parquet file of one table."""
    digest = hashlib.sha256(json.dumps([table.videos, table.classes, table.actor_id]).encode())
    for column in (
        table.video_index.astype("<i8"),
        table.time_s.astype("<f8"),
        table.boxes_xyxy_unit.astype("<f8"),
    ):
        digest.update(np.ascontiguousarray(column).tobytes())
    digest.update(np.packbits(table.labels, axis=1).tobytes())
    return digest.hexdigest()


def write_split(split: Split, path: Path) -> None:
    """The split as TOML, with its digest; the file appears whole or not at all."""
    write_file(path, lambda unfinished: unfinished.write_text(_toml(split), encoding="utf-8"))


def read_split(path: Path, *, accept_edits: bool = False) -> Split:
    """The split of a file.

    Args:
        path: what `write_split` wrote.
        accept_edits: take what the file says now, whatever its digest says.

    Raises:
        AnnotationError: the file is no split, or was changed after it was written.
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AnnotationError(f"{path}: must be a split in TOML that can be read; {error}.") from None
    written, found = content.pop("digest", None), content.pop("format", None)
    if found != FORMAT:
        raise AnnotationError(f"{path}: format must be {FORMAT!r}; got {found!r}. Is this a split file?")
    try:
        split = TypeAdapter(Split).validate_python(content)
    except ValidationError as error:
        raise AnnotationError(f"{path}: {_told(error)}.") from None
    if written != split.digest and not accept_edits:
        raise AnnotationError(
            f"{path}: the digest must be that of the content; the file says {str(written)[:12]}… and its content gives "
            f"{split.digest[:12]}…: it was changed after it was written. Results made with it before no longer belong "
            "to it. If the change is meant, `mule data split-report SPLIT TABLE --accept-edits` writes it a new digest."
        )
    return split


def listed(names: Iterable[str]) -> str:
    """The first few names in quotes, and how many more there are."""
    names = list(names)
    more = len(names) - NAMES_SHOWN
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _told(error: ValidationError) -> str:
    told = [
        f"{'.'.join(map(str, problem['loc'])) or 'the split'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    ]
    return "; ".join(text.rstrip(".") for text in told)


_COMMENTS = {
    "classes": 'Taught: z1 and z2. Tested as known: z2, and z1 if rules.z1_at_test is "known". Novel (Z3): both other lists;\n'
    "# what is chosen by looking at novel actions is chosen on the first and reported on the second.",
    "rules": "What happens to actors whose actions do not fit one set, and how the sides were found.",
    "videos": "No video lies on two sides.",
    "groups": "What each video belongs to.",
}


def _toml(split: Split) -> str:
    content = asdict(split)
    lines = [
        "# An open-set split by `mule data split`. The digest covers everything below it; a changed file is refused.",
        f"format = {_text(FORMAT)}",
        f"digest = {_text(split.digest)}",
        *(_pair(key, value) for key, value in content.items() if not isinstance(value, dict)),
    ]
    for name, table in content.items():
        if isinstance(table, dict) and table:
            lines += ["", f"# {_COMMENTS[name]}", f"[{name}]"]
            lines += [_pair(key if name != "groups" else _text(key), value) for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _pair(key: str, value: str | int | float | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return (
            f"{key} = [{''.join(f'{chr(10)}  {_text(name)},' for name in value)}{chr(10) if value else ''}]"
        )
    return f"{key} = {_text(value) if isinstance(value, str) else repr(value)}"


def _text(value: str) -> str:
    """A TOML string; JSON's escapes are TOML's, but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
