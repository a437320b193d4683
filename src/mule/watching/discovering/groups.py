"""`groups.json`: what novel people do, as records that check themselves.

groups  ─ the model, the folders, and groups, most useful first
group   ─ members, most typical first ─▶ suggested names, nearest known actions, how often and when
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from mule.core.errors import AnnotationError
from mule.core.files import os_reason, write_file
from mule.core.settings import Count, Share
from mule.watching.moments import Amount, ModelFacts, Name, Record, SoundBox

GROUPS_FORMAT, GROUPS_VERSION = "mule.groups", 1


class NovelAct(Record):
    """Novel looks at one person in a row; a member of a group, or of none."""

    watched: str
    """The folder that `mule watch` left."""
    video: Name
    track_id: Annotated[int, Field(ge=0)]
    begin_s: Amount
    end_s: Amount
    num_looks: Count
    shown_s: Amount
    """The key time of the most novel look."""
    box_xyxy_unit: SoundBox
    """At that time."""
    typical: Annotated[float, Field(ge=-1, le=1)]
    """Cosine with the middle of its group; 0 for acts in no group."""
    sureness: Share
    """How deep inside the group it lies (HDBSCAN's membership)."""


class Suggestion(Record):
    """A name, and how much speaks for it."""

    name: Name
    share: Annotated[float, Field(ge=-1, le=1)]
    """The mean probability of a pre-training's label, or the mean cosine with a known action."""


class FoundGroup(Record):
    """Acts that look alike, most typical first."""

    number: Count
    members: Annotated[tuple[NovelAct, ...], Field(min_length=1)]
    suggestions: tuple[Suggestion, ...]
    """The backbone's own labels, likeliest first; empty if it has none."""
    nearest: tuple[Suggestion, ...]
    """The known actions that it resembles most."""
    num_looks: Count
    num_videos: Count
    num_people: Count
    """Tracks, each of which may show a person again."""
    seconds: Amount
    """How long all acts last together."""

    @property
    def doubtful(self) -> tuple[NovelAct, ...]:
        """The members, least sure first."""
        return tuple(sorted(self.members, key=lambda act: (act.sureness, act.typical)))


class FoundGroups(Record):
    """All groups, those of most looks first, and the acts that resemble nobody."""

    format: Literal["mule.groups"] = GROUPS_FORMAT
    version: Literal[1] = GROUPS_VERSION
    model: ModelFacts
    groups: tuple[FoundGroup, ...]
    apart: tuple[NovelAct, ...]


def write_groups(path: Path, groups: FoundGroups) -> None:
    """Write the groups completely, or leave an earlier file unchanged."""
    write_file(path, groups.model_dump_json(indent=1) + "\n")


def read_groups(path: Path) -> FoundGroups:
    """Read the groups that `mule discover` wrote.

    Raises:
        AnnotationError: the file is missing, damaged or of another version.
    """
    try:
        return FoundGroups.model_validate_json(path.read_bytes())
    except OSError as error:
        raise AnnotationError(f"{path}: cannot be read: {os_reason(error)}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise AnnotationError(
            f"{path}: must be what `mule discover` wrote; {place}: {first['msg']}. Discover again."
        ) from None


def summary_lines(groups: FoundGroups) -> list[str]:
    """Return a line for each group, and one for the rest."""
    lines = [_line(group) for group in groups.groups]
    looks = sum(act.num_looks for act in groups.apart)
    return [*lines, f"{len(groups.apart)} acts ({looks} looks) resemble no others"]


def _line(group: FoundGroup) -> str:
    times = f"{len(group.members)} times, {group.num_people} people, {group.num_videos} videos, {group.seconds:.0f} s"
    return f"{group.number}. {_named(group.suggestions, 'like')}; {_named(group.nearest, 'near')}: {times}"


def _named(suggestions: Sequence[Suggestion], word: str) -> str:
    if not suggestions:
        return f"{word} nothing with a name"
    return f"{word} {', '.join(f'{each.name} {each.share:.2f}' for each in suggestions)}"
