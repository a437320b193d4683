"""`python -m studies.reels`: untrimmed videos with the truth beside them, to watch and to measure what was said."""

import csv
import shutil
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from examples.builtin_scores import takes
from mule.core.errors import RangeError, VideoError
from mule.core.files import write_file
from mule.data.split.sides import apply_split
from mule.data.split.splits import SIDES, read_split
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.data.table.videos import find_videos, probe_videos
from mule.data.table.writing import write_actor_table
from mule.stage.plans import FRAME_RATE
from studies.commands import CountBar, positive, run
from studies.compose.composites import Source, sources_of
from studies.reels.plans import RATE, ReelPlan, draw_reels, true_table
from studies.reels.videos import write_reels

app = typer.Typer(
    help="Make untrimmed videos with a table of who does what when, for `mule evaluate watch`.",
    no_args_is_help=True,
    add_completion=False,
)

PEOPLE, SOURCES = "people.csv", "sources.csv"

TableArgument = Annotated[Path, typer.Argument(metavar="TABLE", help="Actors, .csv or .parquet.")]
VideosOption = Annotated[Path, typer.Option("--videos", metavar="DIR", help="Folder of the videos.")]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help=f"New or empty folder for videos/ and {PEOPLE}.")
]


@app.command("clips")
def reels_of_clips(
    table: TableArgument,
    videos: VideosOption,
    split: Annotated[
        Path, typer.Option(metavar="SPLIT.toml", help="Split of the table, by film; see --side.")
    ],
    out: OutOption,
    side: Annotated[str, typer.Option(metavar="SIDE", help="Use clips of this side: test or val.")] = "test",
    minutes: Annotated[float, typer.Option(metavar="MINUTES", help="Length of all reels.")] = 30.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed: decides who comes when.")] = 0,
    every: Annotated[
        Fraction, typer.Option(parser=positive, metavar="SECONDS", help="Time between labelled times.")
    ] = Fraction(1, 5),
) -> None:
    """Make reels of clips: one to three people side by side who come, idle, act, idle and go.

    Only clips of one side of a split are used, so no film was trained on. The same seed gives the same reels.
    """
    if side not in SIDES:
        raise typer.BadParameter(f"must be one of {', '.join(SIDES)}; got '{side}'.", param_hint="--side")
    actors = read_actor_table(table)
    sources = _sources(actors, videos, split=split, side=side)
    reels = draw_reels(sources, minutes=minutes, seed=seed)
    folder = _new_folder(out)
    truth = true_table(actors, reels, every_s=every)
    with CountBar("writing reels") as bar:
        write_reels(reels, folder, on_progress=bar)
    write_actor_table(truth, out / PEOPLE)
    write_file(out / SOURCES, lambda path: _write_sources(path, reels))
    acting = np.asarray(truth.labels.any(axis=1))
    length_s = float(sum(reel.num_frames for reel in reels) / RATE)
    num_people = sum(1 for reel in reels for _ in reel.visits())
    typer.echo(
        f"{len(reels)} reels, {length_s / 60:.1f} minutes, {num_people} people from {len(sources)} clips of the {side} side "
        f"(seed {seed}), who act in {100 * acting.mean():.0f} % of {len(truth)} rows: {out}"
    )


@app.command("scenes")
def continuous_scenes(
    table: TableArgument,
    videos: VideosOption,
    out: OutOption,
    least: Annotated[
        float, typer.Option(metavar="SECONDS", help="Use scenes with labels over at least this time.")
    ] = 4.0,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="VIDEO", help="Use this video of the table. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Put long enough scenes of a table into a folder, with their people: such as those of CAVIAR.

    `python -m studies.convert from-caviar` makes the table.
    """
    actors = read_actor_table(table, allow_unlabelled=True)
    unknown = sorted(set(only or ()) - set(actors.videos))
    if unknown:
        raise RangeError(f"scenes must be in the table; {', '.join(map(repr, unknown))} are not.")
    chosen = [
        i
        for i, name in enumerate(actors.videos)
        if (not only or name in only) and np.ptp(actors.time_s[actors.video_index == i]) >= least
    ]
    if not chosen:
        raise RangeError(f"some scene must have labels over {least:g} s; none has. Choose a smaller --least.")
    found = find_videos([actors.videos[i] for i in chosen], videos)
    if found.missing or found.refused:
        raise VideoError(
            f"{videos}: must hold the videos of the table; {[*found.missing, *found.refused][0]!r} cannot be found."
        )
    folder = _new_folder(out)
    for path in found.paths.values():
        shutil.copyfile(path, folder / path.name)
    people = actors.at(np.flatnonzero(np.isin(actors.video_index, chosen)))
    write_actor_table(people, out / PEOPLE)
    num_people = len({(i, who) for i, who in zip(people.video_index.tolist(), people.actor_id, strict=True)})
    typer.echo(f"{len(chosen)} scenes, {num_people} people, {len(people)} rows: {out}")


@app.command("takes")
def rendered_takes(
    out: OutOption,
    num_takes: Annotated[int, typer.Option("--takes", min=1, metavar="N", help="Number of takes.")] = 10,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Length of a take.")] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the takes.")] = 700,
) -> None:
    """Render takes in which some people do only what the model `stage` knows, and one or two only what it does not."""
    folder = _new_folder(out)
    lines = ["video,time_s,x1,y1,x2,y2,actions,actor_id"]
    with CountBar("rendering takes") as bar:
        for done, (path, truth) in enumerate(
            takes(folder, seed, range(num_takes), is_novel=True, seconds=seconds), start=1
        ):
            path.with_suffix(".json").unlink()  # the table says the same
            lines += [
                f"{path.name},{frame / FRAME_RATE:.3f},{','.join(f'{each:.6f}' for each in actor.box_xyxy_unit)},"
                f"{';'.join(actor.actions)},{actor.actor_id}"
                for frame, actors in truth.items()
                for actor in actors
            ]
            bar(done, num_takes)
    write_file(out / PEOPLE, "\n".join(lines) + "\n")
    typer.echo(f"{num_takes} takes of {seconds:g} s, {len(lines) - 1} rows: {out}")


def _sources(actors: ActorTable, videos: Path, *, split: Path, side: str) -> list[Source]:
    """The clips of one side with one person and a box."""
    rows = getattr(apply_split(actors, read_split(split)), side).rows
    found = find_videos(sorted({actors.video_names[row] for row in rows.tolist()}), videos)
    with CountBar("opening videos") as bar:
        probed = probe_videos(found.paths, on_progress=bar)
    for name, reason in [*found.refused.items(), *probed.unreadable.items()]:
        typer.echo(f"not used: {name}: {reason}", err=True)
    usable = sources_of(actors, probed.readable).usable
    own = set(rows[actors.has_box[rows]].tolist())
    return [source for source in usable if source.row in own]


def _new_folder(out: Path) -> Path:
    """Make the folder of the videos.

    Raises:
        VideoError: there are files in it.
    """
    if out.is_dir() and any(out.iterdir()):
        raise VideoError(f"{out}: must be a new or empty folder; it has files in it.")
    (out / "videos").mkdir(parents=True)
    return out / "videos"


def _write_sources(path: Path, reels: Sequence[ReelPlan]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("reel", "actor_id", "panel", "from_s", "to_s", "source_video"))
        for reel in reels:
            for number, panel, visit in reel.visits():
                times = (f"{float(frame / RATE):.3f}" for frame in (visit.begin, visit.end))
                writer.writerow((reel.name, f"person-{number}", panel + 1, *times, visit.source.video.name))


if __name__ == "__main__":
    run(app, "studies.reels")
