"""`summary.txt`: who did what when, and who was novel, in words; and the same as the rows of a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mule.core.files import write_file
from mule.watching.moments import Header, Moment, SeenActor, novelty_in_words, novelty_of
from mule.watching.outputs.annotating import FURTHEST_STEPS

TABLE_TITLES = ("actor", "seen", "does", "novel", "most novel")
MOST_ROWS = 20
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Span:
    """A stretch of time from one key time to another, both included."""

    begin_s: float
    end_s: float


@dataclass
class ActorSummary:
    """One actor over the whole source."""

    track_id: int
    seen: list[Span] = field(default_factory=list)
    novel: list[Span] = field(default_factory=list)
    actions: dict[str, list[Span]] = field(default_factory=dict)
    num_looks: int = 0
    num_novel: int = 0
    num_idle: int = 0
    num_unsure: int = 0
    most_novel: float = 0.0
    most_novel_at_s: float = 0.0

    @property
    def is_novel(self) -> bool:
        """Whether the actor was novel at any key time."""
        return self.num_novel > 0


@dataclass(frozen=True)
class Summary:
    """All actors of a source, most novel first."""

    header: Header
    actors: tuple[ActorSummary, ...]
    num_moments: int
    end_s: float
    """The last key time; 0 if there is none."""

    @property
    def num_novel(self) -> int:
        """The number of actors who were novel at some key time."""
        return sum(actor.is_novel for actor in self.actors)


def summarise(header: Header, moments: Iterable[Moment]) -> Summary:
    """Summarise the moments, actor by actor. Memory grows with actors and their changes, not with time."""
    actors: dict[int, ActorSummary] = {}
    num_moments, end_s = 0, 0.0
    for moment in moments:
        num_moments, end_s = num_moments + 1, moment.key_time_s
        for seen in moment.actors:
            summary = actors.setdefault(seen.track_id, ActorSummary(seen.track_id))
            _add(summary, seen, moment.key_time_s, header)
    order = sorted(actors.values(), key=lambda each: (not each.is_novel, -each.most_novel, each.track_id))
    return Summary(header, tuple(order), num_moments, end_s)


def _add(summary: ActorSummary, seen: SeenActor, time_s: float, header: Header) -> None:
    _extend(summary.seen, time_s, header.every_s)
    for opinion in seen.judged(header.threshold.view).actions:
        _extend(summary.actions.setdefault(opinion.action, []), time_s, header.every_s)
    novelty = novelty_of(seen, header.threshold)
    if not summary.num_looks or novelty > summary.most_novel:
        summary.most_novel, summary.most_novel_at_s = novelty, time_s
    summary.num_looks += 1
    summary.num_idle += seen.is_idle
    summary.num_unsure += seen.decision == "unsure"
    if seen.is_novel:
        summary.num_novel += 1
        _extend(summary.novel, time_s, header.every_s)


def _extend(spans: list[Span], time_s: float, every_s: float) -> None:
    """Add a key time to the last span if it follows directly, else start a new span."""
    if spans and time_s - spans[-1].end_s <= FURTHEST_STEPS * every_s:
        spans[-1] = Span(spans[-1].begin_s, time_s)
    else:
        spans.append(Span(time_s, time_s))


def summary_rows(summary: Summary, *, most: int = MOST_ROWS) -> list[tuple[str, ...]]:
    """Return a row of `TABLE_TITLES` per actor, most novel first; a last row counts those beyond `most`."""
    rows = [
        (
            f"#{actor.track_id}",
            _spans(actor.seen, most=2),
            ", ".join(_short(name) for name in _by_length(actor)[:3]) or "–",
            f"{actor.num_novel} of {actor.num_looks} looks" if actor.is_novel else "no",
            f"{actor.most_novel:.3f} at {_time(actor.most_novel_at_s)}",
        )
        for actor in summary.actors[:most]
    ]
    more = len(summary.actors) - most
    return [*rows, (f"and {more} more", "", "", "", "")] if more > 0 else rows


def summary_text(summary: Summary) -> str:
    """Return the summary in words."""
    header, threshold = summary.header, summary.header.threshold
    decided = "all looks at an actor so far" if threshold.view == "so_far" else "each look alone"
    lines = [
        f"{_short(header.source.video)}: {_count(summary.num_moments, 'key time')} up to {_time(summary.end_s)}, "
        f"watched with {header.model.name} ({header.model.fingerprint}).",
        f"{_count(len(summary.actors), 'actor')}, {summary.num_novel} of them novel at some time.",
        f"Novel means that {_novelty_name(header)} is above {threshold.value:g} ({threshold.name}: {threshold.meaning}).",
        f"It is judged by {decided}.",
        f"An action is named when its probability is at least {header.min_probability:g}; who is neither novel nor idle and has "
        "none is unsure.",
    ]
    for title, is_novel in (("Novel", True), ("Known", False)):
        chosen = [actor for actor in summary.actors if actor.is_novel == is_novel]
        if chosen:
            lines += ["", title, *(line for actor in chosen for line in _lines(actor, header))]
    return "\n".join(lines) + "\n"


def write_summary(path: Path, summary: Summary) -> None:
    """Write `summary.txt`, whole or not at all."""
    write_file(path, summary_text(summary))


def _lines(actor: ActorSummary, header: Header) -> list[str]:
    lines = [f"  Actor {actor.track_id}, seen {_spans(actor.seen)}"]
    if actor.is_novel:
        lines.append(
            f"    novel {_spans(actor.novel)} ({actor.num_novel} of {_count(actor.num_looks, 'look')}), most at "
            f"{_time(actor.most_novel_at_s)}: {novelty_in_words(actor.most_novel, header.threshold)}"
        )
    for name in _by_length(actor):
        lines.append(f"    {_short(name)} {_spans(actor.actions[name])}")
    if actor.num_idle:
        lines.append(f"    idle at {actor.num_idle} of {_count(actor.num_looks, 'look')}")
    if actor.num_unsure:
        lines.append(
            f"    unsure at {actor.num_unsure} of {_count(actor.num_looks, 'look')}: not strange enough to be novel, and no action "
            "is probable enough to be named"
        )
    elif not actor.actions and not actor.is_novel and not actor.num_idle:
        lines.append("    known, but no action is probable enough to be named")
    return lines


def _novelty_name(header: Header) -> str:
    score = header.threshold.score
    return "the share of known actors who are less novel" if score == "p_value" else f"{score} novelty"


def _by_length(actor: ActorSummary) -> list[str]:
    """The actions, longest first."""
    total = {name: sum(each.end_s - each.begin_s for each in spans) for name, spans in actor.actions.items()}
    return sorted(total, key=lambda name: -total[name])


def _spans(spans: Sequence[Span], *, most: int = 6) -> str:
    shown = [
        f"at {_time(each.begin_s)}"
        if each.begin_s == each.end_s
        else f"{_time(each.begin_s)}–{_time(each.end_s)}"
        for each in spans[:most]
    ]
    more = len(spans) - most
    return ", ".join(shown) + (f" and {_count(more, 'more time')}" if more > 0 else "")


def _time(time_s: float) -> str:
    """Format minutes and seconds, to a tenth.

    >>> _time(75.26)
    '1:15.3'
    """
    tenths = round(10 * time_s)
    return f"{tenths // 600}:{tenths % 600 // 10:02d}.{tenths % 10}"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
