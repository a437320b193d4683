"""Open-set splits: which actions are taught, which are novel, and which videos are on which side.

A split is one readable TOML file. Its digest covers everything in it, so two results with the same digest used the
same split. A file that does not match its digest is refused.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tomli_w
from pydantic import ConfigDict, TypeAdapter, ValidationError

from mule.core.documents import toml_of
from mule.core.errors import AnnotationError, RangeError
from mule.core.files import write_file
from mule.data.table.table import ActorTable

SPLIT_FORMAT = "mule-split-1"
NAMES_SHOWN = 5

Policy = Literal["paper", "random", "grouped", "list", "closed"]
Side = Literal["train", "val", "test"]
SIDES: tuple[Side, ...] = get_args(Side)


@dataclass(frozen=True)
class ClassSets:
    """Disjoint sets of actions. Z1 and Z2 are taught, Z2 is tested as known, Z3 is novel.

    Z3 has two parts: use the first to make choices that need novel actions, and report results on the second.
    """

    z1: tuple[str, ...]
    z2: tuple[str, ...]
    novel_choose: tuple[str, ...]
    novel_report: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    """Labels that are neither known nor novel, such as the twenty AVA classes that are not evaluated."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        names = (*self.known_train, *self.z3, *self.ignored)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise RangeError(f"an action must be in one set, once; {listed(twice)} appear more often.")
        if not self.known_train:
            raise RangeError("at least one action must be taught; Z1 and Z2 are both empty.")

    @property
    def known_train(self) -> tuple[str, ...]:
        """Z1 and Z2: the taught actions, in the order of a model's outputs."""
        return self.z1 + self.z2

    @property
    def z3(self) -> tuple[str, ...]:
        """The novel actions."""
        return self.novel_choose + self.novel_report

    def set_of(self) -> dict[str, str]:
        """Return the name of the set that each action is in."""
        return {name: key for key, names in asdict(self).items() for name in names}


@dataclass(frozen=True)
class Rules:
    """How to treat actors whose labels span several sets, and how the sides were made."""

    mixed: Literal["drop", "keep"] = "drop"
    """Test actors with both known and novel actions: drop them, as in the paper, or keep them."""
    mixed_share: float = 0.5
    """Count a kept mixed actor as novel if at least this share of its known and novel actions is novel."""
    train_novel: Literal["drop", "unlabel"] = "drop"
    """Training actors with a novel action: drop them, or keep only their taught labels."""
    z1_at_test: Literal["ignore", "known", "tags"] = "ignore"
    """How Z1 counts at test: not at all, as in the paper; as known; or as tags, which novel actors may have too, so
    they neither make an actor known nor enter its novelty score."""
    sides: Literal["drawn", "given"] = "given"
    val_share: float = 0.0
    test_share: float = 0.0
    """Requested shares of the actors on drawn sides."""
    groups_from: str = ""
    """File and column that give each video's group; drawn sides keep the videos of a group together."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        for name in ("mixed_share", "val_share", "test_share"):  # 0 and 0.0 must give one digest
            object.__setattr__(self, name, float(getattr(self, name)))
        if not 0 < self.mixed_share <= 1:
            raise RangeError(f"mixed_share must be above 0 and at most 1; got {self.mixed_share}.")
        if min(self.val_share, self.test_share) < 0 or self.val_share + self.test_share >= 1:
            raise RangeError(
                "val_share and test_share must be at least 0 and leave actors for training; got "
                f"{self.val_share} and {self.test_share}."
            )


@dataclass(frozen=True)
class SideVideos:
    """The videos of each side. No video is on two sides."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(self.train + self.val + self.test).items() if count > 1]
        if twice:
            raise RangeError(f"a video must be on one side, once; {listed(twice)} appear more often.")

    def side_of(self) -> dict[str, Side]:
        """Return the side of each video."""
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
    """Group of each video (film, scene, camera); empty if the videos have no groups."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        without = (
            [video for video in self.videos.side_of() if video not in self.groups] if self.groups else []
        )
        if without:
            raise RangeError(
                f"if videos have groups, every video must have one; {listed(without)} have none."
            )

    @property
    def tags(self) -> tuple[str, ...]:
        """Taught labels that do not tell whether an actor is novel."""
        return self.classes.z1 if self.rules.z1_at_test == "tags" else ()

    @property
    def digest(self) -> str:
        """SHA-256 of the whole content of the split."""
        content = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()


def table_digest(table: ActorTable) -> str:
    """Return the SHA-256 of the rows in their order; it is the same for CSV and Parquet."""
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
    """Write the split and its digest as TOML.

    Raises:
        FileError: the file cannot be written.
    """
    write_file(path, _toml(split))


def read_split(path: Path, *, accept_edits: bool = False) -> Split:
    """Read a split.

    Args:
        path: a file that `write_split` wrote.
        accept_edits: accept a file that was edited, although its digest no longer matches.

    Raises:
        AnnotationError: the file is not a split, or was edited after it was written.
    """
    try:
        content: dict[str, Any] = toml_of(path.read_bytes())
    except (OSError, ValueError) as error:
        raise AnnotationError(f"{path}: must be a readable split in TOML; {error}.") from None
    written_digest, file_format = content.pop("digest", None), content.pop("format", None)
    if file_format != SPLIT_FORMAT:
        raise AnnotationError(
            f"{path}: format must be {SPLIT_FORMAT!r}; got {file_format!r}. Is this a split file?"
        )
    try:
        split = TypeAdapter(Split).validate_python(content)
    except ValidationError as error:
        raise AnnotationError(f"{path}: {_reasons(error)}.") from None
    if written_digest != split.digest and not accept_edits:
        raise AnnotationError(
            f"{path}: the digest must match the content; the file states {str(written_digest)[:12]}… but its content has "
            f"{split.digest[:12]}…. The file was edited after it was written, so earlier results used another split. To "
            "keep the edit, run `mule data split-report SPLIT TABLE --accept-edits`, which writes the new digest."
        )
    return split


def listed(names: Iterable[str]) -> str:
    """Return the first few names in quotes and the number of further ones."""
    names = list(names)
    more = len(names) - NAMES_SHOWN
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _reasons(error: ValidationError) -> str:
    reasons = [
        f"{'.'.join(map(str, problem['loc'])) or 'the split'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    ]
    return "; ".join(reason.rstrip(".") for reason in reasons)


_COMMENTS = {
    "classes": 'Taught: z1 and z2. Tested as known: z2, and z1 if rules.z1_at_test is "known". Novel (Z3): the two other\n'
    "# lists; use the first to make choices that need novel actions, and report results on the second.",
    "rules": "How actors whose actions span several sets are treated, and how the sides were made.",
    "videos": "No video is on two sides.",
    "groups": "The group of each video.",
}


def _toml(split: Split) -> str:
    content = asdict(split)
    head = {key: value for key, value in content.items() if not isinstance(value, dict)}
    sections = {name: table for name, table in content.items() if isinstance(table, dict) and table}
    comment = "# An open-set split by `mule data split`. The digest covers everything below it; an edited file is refused."
    return "\n".join(
        [
            comment,
            tomli_w.dumps({"format": SPLIT_FORMAT, "digest": split.digest, **head}, indent=2),
            *(
                f"# {_COMMENTS[name]}\n{tomli_w.dumps({name: table}, indent=2)}"
                for name, table in sections.items()
            ),
        ]
    )
