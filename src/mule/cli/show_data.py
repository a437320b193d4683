"""Tables of actors, shown to people: their problems, their counts, and composites as they are made."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.cli.count_bar import CountBar
from mule.core.errors import AnnotationError, VideoError
from mule.core.text_rows import RowProblems
from mule.data.table.reading import read_actor_table, read_object_table
from mule.data.table.stats import TableStats
from mule.data.table.table import ActorTable, ObjectTable
from mule.data.table.writing import write_actor_table

if TYPE_CHECKING:  # what opens videos takes a second to import, and only some commands need it
    from mule.data.convert.compose import Composite, Sources
    from mule.data.convert.compose_split import Drawing
    from mule.data.convert.detected import DetectedActors
    from mule.data.split.splits import Split
    from mule.data.table.videos import FoundVideos, ProbedVideos

PROBLEMS_SHOWN = 100

_Read = TypeVar("_Read")


def check(
    table: Path,
    *,
    objects: Path | None,
    videos: Path | None,
    image_rate: Fraction,
    shows_all: bool,
    kept: Path | None,
) -> bool:
    """Print every problem, or a summary; with `kept`, write the rows of the videos there are. Says if all is well."""
    report = _Report(sys.maxsize if shows_all else PROBLEMS_SHOWN)
    named = _NamedVideos(videos, image_rate, report, leaves_out=kept is not None)
    actors = report.read(lambda most: read_actor_table(table, video_ends_s=named.ends_s, most_shown=most))
    if objects is not None:
        things = report.read(
            lambda most: read_object_table(objects, video_ends_s=named.ends_with_others_s, most_shown=most)
        )
        _show_objects(objects, things, named.names)
    if named.num_missing and kept is None:
        typer.echo(
            f"{named.num_missing} of {len(named.names)} videos are missing. --leave-out-missing KEPT.csv writes the "
            "table without them.",
            err=True,
        )
    if report.num_problems or actors is None:
        typer.echo(f"{report.num_problems} problem{'s' * (report.num_problems != 1)}.", err=True)
        return False
    _summarise(table, actors, named.probed)
    if kept is not None:
        _write_kept(actors, named.left_out, kept)
    return True


def stats(counted: TableStats, *, title: str, num_pairs: int) -> None:
    """Print the counts of each class, then those of actors and clips, then the pairs that come most often."""
    console = Console()
    table = Table("class", title=Text(title))
    for name in ("rows", "actors", "videos"):
        table.add_column(name, justify="right")
    for each in sorted(counted.classes, key=lambda each: -each.num_rows):
        table.add_row(Text(each.name), f"{each.num_rows:,}", f"{each.num_actors:,}", f"{each.num_videos:,}")
    table.add_section()
    table.add_row(
        f"{len(counted.classes)} classes",
        f"{counted.num_rows:,}",
        f"{counted.num_actors:,}",
        f"{counted.num_videos:,}",
        style="bold",
    )
    console.print(table)
    console.print(
        _histogram("labels per actor and key time", "rows", counted.rows_with_labels, counted.labels_per_row)
    )
    console.print(_histogram("actors per clip", "clips", counted.clips_with_actors, counted.actors_per_clip))
    if num_pairs and (pairs := counted.pairs()[:num_pairs]):
        shown = Table("together", "and", title="classes of one actor at one time")
        for name in ("rows", "of the first", "of the second"):
            shown.add_column(name, justify="right")
        for pair in pairs:
            shares = (f"{100 * share:.1f} %" for share in (pair.share_of_first, pair.share_of_second))
            shown.add_row(Text(pair.first), Text(pair.second), f"{pair.num_rows:,}", *shares)
        console.print(shown)


def sources(
    table: ActorTable,
    folder: Path,
    *,
    only: Collection[str] | None,
    group_of: Mapping[str, str] | None,
    max_length_s: float | None,
    image_rate: Fraction,
) -> "Sources":
    """The clips that can be tiles; print how many cannot, and why."""
    from mule.data.convert.compose import sources_of

    names = [name for name in table.videos if only is None or name in only]
    found, probed = _opened(names, folder, image_rate)
    for name, reason in [*found.refused.items(), *probed.unreadable.items()]:
        typer.echo(f"not used: {name}: {reason}", err=True)
    usable = sources_of(table, probed.readable, only=only, group_of=group_of, max_length_s=max_length_s)
    for reason, count in usable.left_out.items():
        typer.echo(f"not used: {count} rows {reason}")
    return usable


def compose(
    table: ActorTable,
    usable: "Sources",
    out: Path,
    *,
    num_tiles: int,
    seed: int,
    num_composites: int | None,
    max_uses: int,
) -> bool:
    """Make composites and print what became of them; says if all could be made."""
    from mule.data.convert.compose import draw_composites

    composites = draw_composites(
        usable.usable, num_tiles=num_tiles, seed=seed, num_composites=num_composites, max_uses=max_uses
    )
    made = _composed(table, composites, out)
    length_s = float(sum(composite.length_s for composite in made))
    typer.echo(
        f"{len(made)} composites of {num_tiles} tiles, {length_s:.1f} s, from {len(usable.usable)} clips, each used "
        f"at most {max_uses} times (seed {seed}): {out}"
    )
    return len(made) == len(composites)


def compose_in_sides(
    table: ActorTable, usable: "Sources", out: Path, *, split: "Split", drawing: "Drawing"
) -> bool:
    """Make composites inside each side of a split, and the split of what they make; says if all could be made."""
    from mule.data.convert.compose_split import draw_in_sides, split_of_composites
    from mule.data.split.sides import apply_split
    from mule.data.split.splits import write_split

    drawn = draw_in_sides(usable, apply_split(table, split), drawing)
    composites = [each for side in drawn.values() for each in side]
    made = _composed(table, composites, out)
    composed = read_actor_table(out / "labels.csv")
    found = split_of_composites(split, composed, drawn, num_tiles=drawing.num_tiles)
    write_split(found, out / "split.toml")
    numbers = ", ".join(f"{len(getattr(found.videos, side))} {side}" for side in drawn)
    typer.echo(
        f"{len(made)} composites of {drawing.num_tiles} tiles ({numbers}), each clip used at most {drawing.max_uses} "
        f"times (seed {drawing.seed}), and split.toml: {out}"
    )
    return len(made) == len(composites)


def detect(table: ActorTable, folder: Path, detector: Path, *, actor_score: float | None) -> "DetectedActors":
    """Look for persons in the clips of a table; says how many there are."""
    from mule.data.convert.detected import detected_actors
    from mule.watching.engine.finding import box_finder

    finder = box_finder(detector, "", actor_score=actor_score)
    found, probed = _opened(table.videos, folder, Fraction(30))
    lacking = [*found.missing, *found.refused, *probed.unreadable]
    if lacking:
        raise VideoError(
            f"{folder}: every video of the table must be here; {len(lacking)} are not: {', '.join(lacking[:5])}."
        )
    with CountBar("detecting") as bar:
        detected = detected_actors(
            table,
            found.paths,
            lambda frame: finder(frame, key_time_s=0.0).detections,
            actor_score=finder.actor_score,
            on_progress=bar,
        )
    typer.echo(
        f"{detected.num_clips} clips: {len(detected.actors) - detected.num_without} persons of score "
        f"{finder.actor_score:g} or more; {detected.num_without} clips have none and keep the whole frame"
    )
    return detected


def _composed(table: ActorTable, composites: "Sequence[Composite]", out: Path) -> "list[Composite]":
    """Write composites, say which could not be made, and give those that were."""
    from mule.data.convert.compose_videos import write_composites

    with CountBar("composing") as bar:
        failed = write_composites(table, composites, out, on_progress=bar)
    for name, reason in failed.items():
        typer.echo(f"mule: {name} could not be made: {reason}", err=True)
    return [composite for composite in composites if composite.name not in failed]


class _Report:
    """Prints problems as they are found, up to a number, and counts all."""

    def __init__(self, most_shown: int) -> None:
        self._most_shown = most_shown
        self.num_problems = 0

    def add(self, problems: Sequence[str], *, num_untold: int = 0) -> None:
        for problem in problems[: self._most_shown]:
            typer.echo(problem)
        untold = num_untold + max(len(problems) - self._most_shown, 0)
        if untold:
            typer.echo(f"and {untold} more like these; --all shows them")
        self.num_problems += len(problems) + num_untold

    def read(self, read: Callable[[int], _Read]) -> _Read | None:
        """What is read, or None if it has problems, which are printed."""
        try:
            return read(self._most_shown)
        except RowProblems as problems:
            self.add(problems.each, num_untold=problems.num_more)
            return None


def _opened(names: Sequence[str], folder: Path, image_rate: Fraction) -> "tuple[FoundVideos, ProbedVideos]":
    from mule.data.table.videos import find_videos, probe_videos

    found = find_videos(names, folder)
    with CountBar("opening videos") as bar:
        return found, probe_videos(found.paths, on_progress=bar, image_rate=image_rate)


class _NamedVideos:
    """The videos that a table names, opened once its rows are read, and the problems they have."""

    def __init__(
        self, folder: Path | None, image_rate: Fraction, report: _Report, *, leaves_out: bool
    ) -> None:
        self.names: Sequence[str] = ()
        self.probed: ProbedVideos | None = None
        self.num_missing = 0
        self.left_out: dict[str, str] = {}
        """Videos that cannot be used, and why."""
        self._folder, self._image_rate = folder, image_rate
        self._report, self._leaves_out = report, leaves_out
        self._ends_s: dict[str, float | None] | None = None

    def ends_s(self, names: Sequence[str]) -> dict[str, float | None] | None:
        """Open the videos and report the unusable ones; return the lengths, or None without a folder."""
        self.names = names
        if self._folder is None:
            return None
        found, self.probed = _opened(names, self._folder, self._image_rate)
        self.num_missing = len(found.missing)
        self._report.add([f"video {name!r}: {reason}" for name, reason in found.refused.items()])
        unreadable = self.probed.unreadable
        if self._leaves_out:
            self.left_out = {**dict.fromkeys(found.missing, "missing"), **unreadable}
        else:
            self._report.add([f"{found.paths[name]}: {reason}" for name, reason in unreadable.items()])
        reported = [*found.refused, *unreadable, *self.left_out]
        self._ends_s = {**self.probed.ends_s, **dict.fromkeys(reported)}
        return self._ends_s

    def ends_with_others_s(self, names: Sequence[str]) -> dict[str, float | None] | None:
        """Return the lengths known so far; videos that the table of actors does not name may have any length."""
        if self._ends_s is None:
            return None
        return {**dict.fromkeys(set(names) - set(self.names)), **self._ends_s}


def _show_objects(path: Path, things: ObjectTable | None, actor_videos: Sequence[str]) -> None:
    if things is None:
        return
    num_other_videos = len(set(things.videos) - set(actor_videos))
    typer.echo(f"{path}: {len(things)} objects of {len(things.classes)} classes")
    if num_other_videos:
        typer.echo(
            f"{path}: {num_other_videos} videos are not in the table of actors; their objects are not used"
        )


def _summarise(path: Path, actors: ActorTable, probed: "ProbedVideos | None") -> None:
    text = f"{path}: {len(actors)} rows, {len(actors.videos)} videos, {len(actors.classes)} classes"
    if probed is not None:
        lengths = [length_s for length_s in probed.ends_s.values() if length_s is not None]
        text += f", {sum(lengths) / 3600:.2f} hours"
        if len(lengths) < len(probed.readable):
            text += f" ({len(probed.readable) - len(lengths)} videos do not state their length)"
    typer.echo(text)


def _write_kept(actors: ActorTable, left_out: Mapping[str, str], kept: Path) -> None:
    for name, reason in left_out.items():
        typer.echo(f"left out: {name}: {reason}")
    is_kept = np.array([video not in left_out for video in actors.videos], dtype=bool)[actors.video_index]
    if not is_kept.any():
        raise AnnotationError(f"{kept}: a table must hold rows; all {len(actors)} are of videos left out.")
    write_actor_table(actors.at(is_kept), kept)
    typer.echo(
        f"left out {int((~is_kept).sum())} rows of {len(left_out)} videos; wrote {int(is_kept.sum())} rows to {kept}"
    )


def _histogram(title: str, unit: str, histogram: Mapping[int, int], mean: float) -> Text:
    counts = ", ".join(f"{value}: {count:,}" for value, count in histogram.items())
    return Text(f"{title}: {mean:.2f} on average ({unit} with {counts})")
