"""`mule data detect`: boxes of people and objects in videos. Detectors are imported when the command runs."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mule.cli.data import ImageRate
from mule.cli.ending import Items
from mule.cli.printing import CountBar, positive, require_files
from mule.core.errors import AnnotationError, DetectorError, VideoError
from mule.core.locks import only_writer

if TYPE_CHECKING:
    from mule.data.convert.detected import SearchedVideos
    from mule.data.convert.detecting import Finder, FrameTimes
    from mule.data.convert.partial_boxes import PartialBoxes
    from mule.data.table.table import ActorTable, ObjectTable
    from mule.data.table.videos import VideoOnDisk

app = typer.Typer(no_args_is_help=True)

MOST_NAMED = 5


@app.command()
def detect(
    videos: Annotated[Path, typer.Argument(metavar="VIDEOS", help="A folder of videos, or one video.")],
    detector: Annotated[
        list[str],
        typer.Option(
            metavar="FILE|NAME",
            help="YOLOX (.onnx), Faster R-CNN (.pth), a name from `mule weights list`, builtin, or boxes (.csv, "
            ".parquet, .json). Repeat it to join the boxes of several.",
        ),
    ],
    persons: Annotated[
        Path | None, typer.Option(metavar="PERSONS.csv", help="Write the people here, for data.persons.")
    ] = None,
    objects: Annotated[
        Path | None,
        typer.Option(
            metavar="OBJECTS.csv", help="Write the five best objects of each frame here, for data.objects."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="ACTORS.csv", help="Write the rows of --table here, one for each person in the clip."
        ),
    ] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Look at the key times of this table of actors.")
    ] = None,
    every: Annotated[
        Fraction | None,
        typer.Option(
            parser=positive,
            metavar="SECONDS",
            help="Look at regular times, this many seconds apart. Default: 1, if there is no --table.",
        ),
    ] = None,
    score: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SCORE",
            help="Keep people with at least this score. Default: the detector's own; with a file of boxes, all people.",
        ),
    ] = None,
    object_score: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SCORE",
            help="Keep objects with at least this score; detectors report none below 0.1.",
        ),
    ] = 0.0,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Frames per call of the detector.")] = 8,
    device: Annotated[str, typer.Option(metavar="NAME", help="Torch device that runs Faster R-CNN.")] = "cpu",
    image_rate: ImageRate = Fraction(30),
) -> None:
    """Find people and objects in videos, and write their boxes.

    --persons and --objects write tables of boxes. --out needs a --table whose labels describe whole frames, and gives
    each person in a frame all its labels. Nobody stated who does what, so train on these rows with data.labels_of =
    "clips". A clip without people keeps its row; its actor is the whole frame.

    If the command is interrupted, repeat it: finished videos are kept in a partial file beside the first table. Videos
    that cannot be read and key times after the end of a video are left out and named; the exit code is then 2.
    """
    outputs = _require_outputs(persons, objects, out, table, every)
    require_files(videos, what="a folder of videos or a video")
    require_files(table)
    from mule.data.convert.origin import keep_origin
    from mule.data.convert.partial_boxes import PartialBoxes, partial_path
    from mule.data.table.videos import probe_videos

    clips = _clips(table, is_labelled=out is not None)
    finders, named = _finders(detector, score, object_score, device)
    paths, missing = _paths(videos, clips)
    with CountBar("opening videos") as bar:
        probed = probe_videos(paths, on_progress=bar, image_rate=image_rate)
    times = _times(probed.readable, clips, every)
    scores = ", ".join(f"{finder.actor_score:g}" for finder in finders)
    work = {
        "--detector": named,
        "--score": scores,
        "--object-score": f"{object_score:g}",
        **({"--table": _digest(times)} if clips is not None else {"--every": str(every or 1)}),
        "--image-rate": str(image_rate),
    }
    with only_writer(outputs[0], beside=True):
        partial = PartialBoxes(partial_path(outputs[0]), work)
        found = _searched(probed.readable, times, finders, partial, batch)
        skipped = {**missing, **probed.unreadable, **found.unreadable}
        if not found.videos:
            partial.remove()
        _require_seen(videos, found, skipped)
        _write(found, clips, persons=persons, objects=objects, out=out, scores=scores)
        if table is not None and out is not None:
            keep_origin(table, out)
        is_partial = [_print_skipped(skipped, partial), _print_unseen(found)]
    if len(found.videos) + len(skipped) > 1:
        typer.echo(_statuses(found, skipped).summary())
    if any(is_partial):
        raise typer.Exit(2)


def _require_outputs(
    persons: Path | None, objects: Path | None, out: Path | None, table: Path | None, every: Fraction | None
) -> list[Path]:
    outputs = [path for path in (persons, objects, out) if path is not None]
    if not outputs:
        raise typer.BadParameter("give --persons, --objects or --out: a table to write.")
    if len(set(outputs)) < len(outputs):
        raise typer.BadParameter(
            f"--persons, --objects and --out must be different files; got '{outputs[0]}' twice."
        )
    if out is not None and table is None:
        raise typer.BadParameter("needs --table, whose labels people get.", param_hint="--out")
    if table is not None and every is not None:
        raise typer.BadParameter("give --table or --every, not both.", param_hint="--every")
    from mule.data.table.table import require_table_suffix

    for path in outputs:
        require_table_suffix(path)
    return outputs


def _clips(table: Path | None, *, is_labelled: bool) -> "ActorTable | None":
    """Read the table of key times; its labels must be of whole frames if people are to get them."""
    if table is None:
        return None
    from mule.data.convert.detected import require_whole_frames
    from mule.data.table.reading import read_actor_table

    clips = read_actor_table(table, allow_unlabelled=not is_labelled)
    if is_labelled:
        require_whole_frames(clips)
    return clips


def _finders(
    names: Sequence[str], score: float | None, object_score: float, device: str
) -> tuple["list[Finder]", str]:
    """Return what finds boxes, and the names and checksums of their files."""
    from mule.core.files import sha256_while_unchanged
    from mule.detection.named import detector_place

    places = [detector_place(name) for name in names]
    for path in places:
        if path.is_dir():
            raise DetectorError(
                f"{path}: must be a detector or a file of boxes; it is a folder. Give a table in it, such as objects.csv."
            )
    named = ", ".join(f"{path.name} ({sha256_while_unchanged(path)[:12]})" for path in places)
    return [_finder(path, score, object_score, device) for path in places], named


def _finder(path: Path, score: float | None, object_score: float, device: str) -> "Finder":
    from mule.data.convert.detecting import ListedBoxes, SeenBoxes, read_boxes
    from mule.detection.named import load_detector

    if path.suffix.lower() in (".csv", ".parquet", ".json"):
        return ListedBoxes(read_boxes(path), actor_score=score or 0.0, object_score=object_score)
    loaded = load_detector(path, device=device)
    return SeenBoxes(loaded, loaded.actor_score if score is None else score, object_score)


def _paths(videos: Path, clips: "ActorTable | None") -> tuple[dict[str, Path], dict[str, str]]:
    """Return the path of each video to look at, and why others of the table cannot be."""
    from mule.data.table.videos import find_videos, videos_below

    if clips is None:
        paths = {videos.stem: videos} if videos.is_file() else videos_below(videos)
        if not paths:
            raise VideoError(f"{videos}: must be a video, or a folder of videos; there is no video in it.")
        return paths, {}
    if videos.is_dir():
        files = find_videos(clips.videos, videos)
        return dict(files.paths), {**dict.fromkeys(files.missing, "missing"), **files.refused}
    same = find_videos(clips.videos, videos.parent).paths
    paths = {name: path for name, path in same.items() if path.samefile(videos)}
    if not paths:
        raise AnnotationError(f"{videos}: must be a video that the table names; it names others.")
    return paths, {}


def _times(
    names: "Mapping[str, object]", clips: "ActorTable | None", every: Fraction | None
) -> "dict[str, FrameTimes]":
    from mule.data.convert.detecting import key_times_by_video

    if clips is None:
        return dict.fromkeys(names, every or Fraction(1))
    return dict(key_times_by_video(clips.videos, clips.video_index, clips.time_s))


def _digest(times: "Mapping[str, FrameTimes]") -> str:
    text = json.dumps({name: times[name] for name in sorted(times)}, default=str)
    return f"with the key times {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _print_finished(partial: "PartialBoxes", videos: "Mapping[str, VideoOnDisk]") -> None:
    finished, changed = partial.finished(videos.values())
    if finished:
        typer.echo(f"continuing from {partial.path}: {len(finished)} of {len(videos)} videos are finished")
    if changed:
        typer.echo(
            f"looking again at {_counted(len(changed), 'video')} that changed since: {_first(changed)}"
        )


def _searched(
    videos: "Mapping[str, VideoOnDisk]",
    times: "Mapping[str, FrameTimes]",
    finders: "Sequence[Finder]",
    partial: "PartialBoxes",
    batch: int,
) -> "SearchedVideos":
    from mule.data.convert.detected import detected_boxes

    _print_finished(partial, videos)
    try:
        with CountBar("detecting") as bar:
            return detected_boxes(videos, times, finders, partial, batch_frames=batch, on_progress=bar)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the same command continues from {partial.path}") from None


def _require_seen(videos: Path, found: "SearchedVideos", skipped: Mapping[str, str]) -> None:
    if not found.videos:
        name, why = next(iter(skipped.items()))
        raise VideoError(
            f"{videos}: at least one video must be readable; none of {len(skipped)} is. {name}: {why}."
        )


def _write(
    found: "SearchedVideos",
    clips: "ActorTable | None",
    *,
    persons: Path | None,
    objects: Path | None,
    out: Path | None,
    scores: str,
) -> None:
    """Write the tables and print what they hold."""
    from mule.data.convert.detected import detected_actors, objects_in, persons_in
    from mule.data.table.writing import write_actor_table, write_object_table

    people, things = persons_in(found.videos), objects_in(found.videos)
    actors = detected_actors(clips, found.videos) if out is not None and clips is not None else None
    _print_found(found, people, things, scores)
    for table, path in ((people, persons), (things, objects)):
        if path is not None:
            write_object_table(table, path)
            typer.echo(f"wrote {len(table)} rows to {path}")
    if actors is not None and out is not None:
        write_actor_table(actors.actors, out)
        typer.echo(
            f"wrote {len(actors.actors)} rows to {out}: {actors.num_without} of {actors.num_clips} clips have no person and "
            f"keep the whole frame" + (f"; {actors.num_unseen} are left out" if actors.num_unseen else "")
        )


def _print_found(found: "SearchedVideos", people: "ObjectTable", things: "ObjectTable", scores: str) -> None:
    typer.echo(
        f"{_counted(len(found.videos), 'video')}, {_counted(found.num_frames, 'frame')}: "
        f"{_counted(len(people), 'person')} of score {scores} or more, {_counted(len(things), 'object')} of "
        f"{_counted(len(things.classes), 'class', 'classes')}"
    )
    empty = found.without_persons
    if empty:
        typer.echo(
            f"{_counted(len(empty), 'frame has', 'frames have')} no person: {_first([_moment(*each) for each in empty])}"
        )


def _statuses(found: "SearchedVideos", skipped: Mapping[str, str]) -> Items:
    items = Items([*(video.video for video in found.videos), *skipped])
    for video in found.videos:
        seen = "done" if video.is_person.any() else "no person"
        items.note(video.video, seen if video.stopped_by is None else "damaged")
    for name in skipped:
        items.note(name, "damaged")
    return items


def _print_skipped(skipped: Mapping[str, str], partial: "PartialBoxes") -> bool:
    """Name the videos that could not be read, and keep the others for a later command; return whether there are any."""
    if not skipped:
        partial.remove()
        return False
    shown = _first([f"{name} ({why})" for name, why in skipped.items()])
    typer.echo(
        f"mule: {_counted(len(skipped), 'video is', 'videos are')} left out: {shown}. {partial.path} keeps the others for "
        "when the command is repeated.",
        err=True,
    )
    return True


def _print_unseen(found: "SearchedVideos") -> bool:
    """Print what was not looked at in videos that can be read; return whether there is any."""
    after = found.after_end
    if after:
        shown = _first([_moment(*each) for each in after])
        typer.echo(
            f"mule: {_counted(len(after), 'key time lies', 'key times lie')} after the end of the video: {shown}.",
            err=True,
        )
    broken = [f"{video.video} ({video.stopped_by})" for video in found.videos if video.stopped_by is not None]
    if broken:
        typer.echo(
            f"mule: {_counted(len(broken), 'video')} could be read only in part: {_first(broken)}.", err=True
        )
    return bool(after or broken)


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _moment(video: str, time_s: float) -> str:
    return f"{video} at {time_s:g} s"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
