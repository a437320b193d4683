"""How well videos were watched: the moments that `mule watch` left, against a table of who did what when.

An action is novel if the model that watched does not know it. Videos are matched by name: that of the table may have a
suffix and folders, which the name of a watched video lacks.
"""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Int

from mule.core.errors import AnnotationError, FileError, RangeError
from mule.core.text_rows import shown
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable, spelling
from mule.evaluation.following import SeenPeople, TruePeople
from mule.evaluation.watched import evaluate_watched
from mule.evaluation.watched_results import WatchedResult
from mule.watching.moments import Header
from mule.watching.outputs.moments_file import MOMENTS, MomentsFile

_MOST_NAMES = 5


def evaluate_watch(
    watched: str | Path | Sequence[str | Path],
    truth: str | Path,
    *,
    nothing: Collection[str] = (),
    min_iou: float = 0.5,
    is_complete: bool = False,
    min_probability: float | None = None,
) -> WatchedResult:
    """Measure what `mule watch` said about people against a table of who did what when.

    Args:
        watched: a folder that `mule watch` left, a folder of such folders, or several; all watched with one model.
        truth: a table of actors over time: `video,time_s,x1,y1,x2,y2,actions,actor_id`. Without `actor_id`, looks are
            measured and people are not. People without an action are idle.
        nothing: actions of the table that mean that nothing is done, such as standing.
        min_iou: pair seen with true people whose boxes overlap at least this much.
        is_complete: whether the table names everybody at all times; otherwise key times away from its times are not judged.
        min_probability: an action counts as shown from this probability on; None takes what was shown.

    Raises:
        MuleError: a file cannot be read, or watched and true videos, actions or people do not fit together.

    >>> import tempfile
    >>> import mule
    >>> folder = Path(tempfile.mkdtemp()) / "hall"
    >>> frames = (np.zeros((96, 128, 3), np.uint8) for _ in range(16))
    >>> moments = list(mule.watch(frames, rate=16, model="stage", out=folder))
    >>> with (folder / "truth.csv").open("w") as file:
    ...     print("video,time_s,x1,y1,x2,y2,actions,actor_id", file=file)
    ...     print(f"{moments[0].video},0,0.1,0.1,0.4,0.9,wave,Ann", file=file)
    >>> result = mule.evaluate_watch(folder, folder / "truth.csv")
    >>> result.looks["known"].num, result.looks["known"].num_seen  # nobody is in the dark
    (1, 0)
    """
    files = [MomentsFile(path) for path in moments_below(watched)]
    headers = [file.header for file in files]
    _require_one_model(files)
    least = headers[0].min_probability
    chosen = least if min_probability is None else min_probability
    if not least <= chosen <= 1:
        raise RangeError(
            f"the probability must lie between {least:g}, from which actions were reported, and 1; got {chosen:g}. Watch "
            "again with a smaller --probability."
        )
    path = Path(truth)
    table = _table_of(path, nothing)
    names = _names_in_table(path, table, headers)
    classes = headers[0].classes
    rows = np.flatnonzero(np.isin(table.video_index, [table.videos.index(name) for name in names]))
    table = _placed(path, table.at(rows))
    novel = _novel_classes(path, table, classes)
    everything = table.with_classes(classes)
    has_ids = all(table.actor_id)
    labels = everything.labels_of([*classes, *novel])
    videos: list[tuple[TruePeople, SeenPeople]] = []
    for file, name in zip(files, names, strict=True):
        own = np.flatnonzero(table.video_index == table.videos.index(name))
        person = _numbered([table.actor_id[row] for row in own.tolist()]) if has_ids else None
        true = TruePeople(table.time_s[own], table.boxes_xyxy_unit[own], labels[own], person)
        videos.append((true, _seen_people(file)))
    result = evaluate_watched(
        videos,
        classes=classes,
        novel_classes=novel,
        min_probability=chosen,
        min_iou=min_iou,
        is_complete=is_complete,
    )
    return result.model_copy(update={"num_not_watched": len(table.videos) - len(names)})


def moments_below(watched: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files of moments in result folders, or in the folders of a folder, by name.

    Raises:
        FileError: a path is no such folder.
    """
    found: list[Path] = []
    for place in [watched] if isinstance(watched, str | Path) else watched:
        folder = Path(place)
        here = [folder / MOMENTS] if (folder / MOMENTS).is_file() else sorted(folder.glob(f"*/{MOMENTS}"))
        if not here:
            what = "has none" if folder.is_dir() else "there is no such folder"
            raise FileError(
                f"{folder}: must be a folder that `mule watch` left, with {MOMENTS}, or a folder of such folders; {what}."
            )
        found += here
    if not found:
        raise FileError("folders that `mule watch` left are needed; got none.")
    return found


def _require_one_model(files: Sequence[MomentsFile]) -> None:
    first = files[0]
    for file in files[1:]:
        for what in ("classes", "threshold", "min_probability", "model"):
            if getattr(file.header, what) != getattr(first.header, what):
                raise AnnotationError(
                    f"{file.path}: all videos must be watched with one model and the same options; the {what} of {first.path} "
                    "differ. Evaluate them one by one."
                )


def _table_of(path: Path, nothing: Collection[str]) -> ActorTable:
    """Read the truth, without the actions that mean nothing."""
    table = read_actor_table(path, allow_unlabelled=True)
    for name in nothing:
        if name not in table.classes:
            near = get_close_matches(name, table.classes, n=1)
            raise RangeError(
                f"{path}: an action that means nothing must be one of the table; {name!r} is not. "
                + (f"Did you mean {near[0]!r}?" if near else f"It has {_some(table.classes)}.")
            )
    kept = [name for name in table.classes if name not in nothing]
    return ActorTable(
        table.videos,
        tuple(kept),
        table.video_index,
        table.time_s,
        table.boxes_xyxy_unit,
        table.labels_of(kept),
        table.actor_id,
    )


def _names_in_table(path: Path, table: ActorTable, headers: Sequence[Header]) -> list[str]:
    """Return the table's name of each watched video.

    Raises:
        AnnotationError: the table does not name a video, or two watched videos are the same one.
    """
    names: list[str] = []
    for header in headers:
        video = header.source.video
        alike = [video] if video in table.videos else [name for name in table.videos if _short(name) == video]
        if len(alike) != 1:
            found = f"it names {_some(table.videos)}" if not alike else f"{_some(alike)} all are called so"
            raise AnnotationError(f"{path}: must name the watched video {shown(video)}; {found}.")
        if alike[0] in names:
            raise AnnotationError(f"{path}: a video must be watched once; {shown(video)} was watched twice.")
        names += alike
    return names


def _short(name: str) -> str:
    return PurePosixPath(name).stem


def _placed(path: Path, table: ActorTable) -> ActorTable:
    """Check that all rows have a time and a box."""
    for what, is_there in (("a time", table.has_time), ("a box", table.has_box)):
        num_missing = int((~is_there).sum())
        if num_missing:
            raise AnnotationError(
                f"{path}: rows must have {what}, so that people can be matched; {num_missing} of {len(table)} have none. "
                "`mule data detect` finds people."
            )
    return table


def _novel_classes(path: Path, table: ActorTable, classes: Sequence[str]) -> list[str]:
    """Return the actions that somebody does and the model does not know."""
    spelt = {spelling(name): name for name in classes}
    done = np.asarray(table.labels.any(axis=0))
    novel = [
        name for name, is_done in zip(table.classes, done, strict=True) if is_done and name not in classes
    ]
    for name in novel:
        if spelling(name) in spelt:
            raise AnnotationError(
                f"{path}: actions must be spelled as the model spells them; got {name!r}, and the model knows "
                f"{spelt[spelling(name)]!r}."
            )
    return novel


def _numbered(actor_ids: Sequence[str]) -> Int[np.ndarray, " rows"]:
    return np.unique(np.array(actor_ids, dtype=str), return_inverse=True)[1]


def _seen_people(file: MomentsFile) -> SeenPeople:
    header = file.header
    column = {name: i for i, name in enumerate(header.classes)}
    times: list[float] = []
    rows: list[tuple[int, int, bool]] = []
    boxes: list[tuple[float, ...]] = []
    probabilities: list[np.ndarray] = []
    for moment in file:
        for actor in moment.actors:
            rows.append((len(times), actor.track_id, actor.is_novel))
            boxes.append(actor.box_xyxy_unit)
            reported = np.zeros(len(column))
            for opinion in actor.judged(header.threshold.view).actions:
                reported[column[opinion.action]] = opinion.probability
            probabilities.append(reported)
        times.append(moment.key_time_s)
    about = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return SeenPeople(
        key_times_s=np.array(times, dtype=np.float64),
        every_s=header.every_s,
        time_index=about[:, 0],
        track_id=about[:, 1],
        boxes_xyxy_unit=np.array(boxes, dtype=np.float64).reshape(-1, 4),
        probabilities=np.array(probabilities, dtype=np.float64).reshape(-1, len(column)),
        is_flagged=about[:, 2].astype(bool),
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(map(shown, names[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
