"""`mule data`: check, count and convert tables of actors. Heavy modules are imported when a command runs."""

import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.cli.printing import CountBar, TableArgument, positive, require_files, require_folders
from mule.core.errors import AnnotationError

if TYPE_CHECKING:
    from mule.data.table.stats import TableStats
    from mule.data.table.table import ActorTable, ObjectTable
    from mule.data.table.videos import FoundVideos, ProbedVideos

app = typer.Typer(help="Check, count, convert and split data sets.", no_args_is_help=True)

MOST_PROBLEMS_SHOWN = 100

_Read = TypeVar("_Read")

ImageRate = Annotated[
    Fraction, typer.Option(parser=positive, metavar="FPS", help="Frame rate of folders of frames.")
]


@app.command("check")
def check_table(
    table: TableArgument,
    objects: Annotated[
        Path | None,
        typer.Option(metavar="OBJECTS", help="Table of objects in the same videos, .csv or .parquet."),
    ] = None,
    videos: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the videos; each is opened, and missing ones are reported."
        ),
    ] = None,
    leave_out_missing: Annotated[
        Path | None,
        typer.Option(
            metavar="KEPT.csv", help="Write the rows of all readable videos here, and count the others."
        ),
    ] = None,
    image_rate: ImageRate = Fraction(30),
    shows_all: Annotated[bool, typer.Option("--all", help="Show every problem, however many.")] = False,
) -> None:
    """Report every problem of a table, one per line.

    Each line names the file, the line and what must hold. With --videos, it also reports videos that are missing or
    cannot be read, and times beyond the end of a video. An action name that may be misspelt is a warning. The exit code
    is 2 if there is a problem; with --leave-out-missing, missing and unreadable videos are not.
    """
    if leave_out_missing is not None and videos is None:
        raise typer.BadParameter("needs --videos, to know what is missing.", param_hint="--leave-out-missing")
    require_files(table, objects)
    require_folders(videos)
    from mule.data.table.reading import read_actor_table, read_object_table

    report = _Report(sys.maxsize if shows_all else MOST_PROBLEMS_SHOWN)
    named = _NamedVideos(videos, image_rate, report, leaves_out=leave_out_missing is not None)
    actors = report.read(lambda most: read_actor_table(table, video_ends_s=named.ends_s, most_shown=most))
    if objects is not None:
        things = report.read(
            lambda most: read_object_table(objects, video_ends_s=named.ends_with_others_s, most_shown=most)
        )
        _print_objects(objects, things, named.names)
    if named.num_missing and leave_out_missing is None:
        typer.echo(
            f"{named.num_missing} of {len(named.names)} videos are missing. --leave-out-missing KEPT.csv writes the "
            "table without them.",
            err=True,
        )
    if report.num_problems or actors is None:
        typer.echo(f"{report.num_problems} problem{'s' * (report.num_problems != 1)}.", err=True)
        raise typer.Exit(2)
    if leave_out_missing is None:
        _print_counts(table, actors, named.probed)
        return
    from mule.data.convert.origin import keep_origin

    told = _write_kept(actors, named.left_out, leave_out_missing)
    keep_origin(table, leave_out_missing)
    _print_counts(
        table, actors, named.probed
    )  # printed last: a pipe that closes early must not lose the table
    typer.echo("\n".join(told))


@app.command()
def stats(
    table: TableArgument,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write stats.json, classes.csv, pairs.csv and stats.png here."),
    ] = None,
    pairs: Annotated[int, typer.Option(min=0, metavar="N", help="Pairs of classes to show.")] = 10,
) -> None:
    """Count classes, labels per actor, actors per clip and pairs of classes."""
    require_files(table)
    from mule.data.table.reading import read_actor_table
    from mule.data.table.stats import table_stats, write_stats

    counted = table_stats(read_actor_table(table))
    _print_stats(counted, title=table.name, num_pairs=pairs)
    if out is not None:
        from mule.data.table.stats import draw_stats

        written = write_stats(counted, out)
        draw_stats(counted, out / "stats.png", title=table.name)
        typer.echo(f"wrote {', '.join(path.name for path in written)} and stats.png to {out}")


@app.command()
def join(
    tables: Annotated[
        list[Path],
        typer.Argument(metavar="TABLE...", help="Tables of actors, or of objects, .csv or .parquet."),
    ],
    out: Annotated[Path, typer.Option(metavar="TABLE", help="Table to write, .csv or .parquet.")],
) -> None:
    """Join tables of the same kind, such as those of training and test.

    Rows keep their order. No video may be in two tables.
    """
    require_files(*tables)
    from mule.data.table.writing import join_files

    num_rows = join_files(tables, out)
    typer.echo(f"wrote {num_rows} rows of {len(tables)} tables to {out}")


class _Report:
    """Print problems as they are found, up to a number, and count all."""

    def __init__(self, most_shown: int) -> None:
        self._most_shown = most_shown
        self.num_problems = 0

    def add(self, problems: Sequence[str], *, num_more: int = 0) -> None:
        for problem in problems[: self._most_shown]:
            typer.echo(problem)
        num_hidden = num_more + max(len(problems) - self._most_shown, 0)
        if num_hidden:
            typer.echo(f"and {num_hidden} more like these; --all shows them")
        self.num_problems += len(problems) + num_more

    def read(self, read: Callable[[int], _Read]) -> _Read | None:
        """Return what is read, or None if it has problems, which are printed."""
        from mule.core.text_rows import RowProblems

        try:
            return read(self._most_shown)
        except RowProblems as problems:
            self.add(problems.each, num_more=problems.num_more)
            return None


def opened_videos(
    names: Sequence[str], folder: Path, image_rate: Fraction
) -> "tuple[FoundVideos, ProbedVideos]":
    """Find and open every video under a progress bar."""
    from mule.data.table.videos import find_videos, probe_videos

    files = find_videos(names, folder)
    with CountBar("opening videos") as bar:
        return files, probe_videos(files.paths, on_progress=bar, image_rate=image_rate)


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
        found, self.probed = opened_videos(names, self._folder, self._image_rate)
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


def _print_objects(path: Path, things: "ObjectTable | None", actor_videos: Sequence[str]) -> None:
    if things is None:
        return
    num_other_videos = len(set(things.videos) - set(actor_videos))
    typer.echo(f"{path}: {len(things)} objects of {len(things.classes)} classes")
    if num_other_videos:
        typer.echo(
            f"{path}: {num_other_videos} videos are not in the table of actors; their objects are not used"
        )


def _print_counts(path: Path, actors: "ActorTable", probed: "ProbedVideos | None") -> None:
    """Print warnings and the counts of a table without problems."""
    from mule.data.table.stats import training_needs
    from mule.data.table.table import likely_misspellings

    num_rows = dict(zip(actors.classes, actors.labels.sum(axis=0).tolist(), strict=True))
    for warning in likely_misspellings(num_rows):
        typer.echo(f"{path}: warning: {warning}", err=True)
    text = f"{path}: {len(actors)} rows, {len(actors.videos)} videos, {len(actors.classes)} classes"
    if probed is not None:
        lengths = [length_s for length_s in probed.ends_s.values() if length_s is not None]
        text += f", {sum(lengths) / 3600:.2f} hours"
        if len(lengths) < len(probed.readable):
            text += f" ({len(probed.readable) - len(lengths)} videos do not state their length)"
    typer.echo("\n".join([text, *training_needs(actors)]))


def _write_kept(actors: "ActorTable", left_out: Mapping[str, str], kept: Path) -> list[str]:
    """Write the rows of the videos that can be used; return what was left out."""
    import numpy as np

    from mule.data.table.writing import write_actor_table

    is_kept = np.array([video not in left_out for video in actors.videos], dtype=bool)[actors.video_index]
    if not is_kept.any():
        raise AnnotationError(f"{kept}: a table must hold rows; all {len(actors)} are of videos left out.")
    write_actor_table(actors.at(is_kept), kept)
    return [
        *(f"left out: {name}: {reason}" for name, reason in left_out.items()),
        f"left out {int((~is_kept).sum())} rows of {len(left_out)} videos; wrote {int(is_kept.sum())} rows to {kept}",
    ]


def _histogram(title: str, unit: str, histogram: Mapping[int, int], mean: float) -> Text:
    counts = ", ".join(f"{value}: {count:,}" for value, count in histogram.items())
    return Text(f"{title}: {mean:.2f} on average ({unit} with {counts})")


def _print_stats(counted: "TableStats", *, title: str, num_pairs: int) -> None:
    """Print the counts of each class, those of actors and clips, and the most frequent pairs of classes."""
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
        shown = Table("class", "other class", title="classes of one actor at the same time")
        for name in ("rows", "share of class", "share of other"):
            shown.add_column(name, justify="right")
        for pair in pairs:
            shares = (f"{100 * share:.1f} %" for share in (pair.share_of_first, pair.share_of_second))
            shown.add_row(Text(pair.first), Text(pair.second), f"{pair.num_rows:,}", *shares)
        console.print(shown)
