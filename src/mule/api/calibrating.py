"""Calibrate a bundle by watching: people of its own videos, seen as `mule watch` will see them.

videos of training and validation ─▶ detector, key times, tracks ─▶ looks ─▶ matched with the table
    ├─▶ nobody does anything there, and the table is complete ─▶ examples of nothing (`KnownActors.with_idle`)
    ╰─▶ along the track of each known person, by parts fitted without its film ─▶ threshold
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int

from mule.core.errors import DetectorError, MuleError
from mule.core.progress import counted
from mule.core.settings import Experiment, TableData
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.detection.named import detector_place
from mule.evaluation.following import NONE, SeenPeople, TruePeople, match_people
from mule.novelty.calibration import FEWEST_HELD_OUT, promised_threshold
from mule.novelty.crossfit import Inputs
from mule.novelty.known import KnownActors
from mule.novelty.tracks import largest_by_track
from mule.novelty.watched import IDLE_FROM, crossed_looks, said_along_tracks
from mule.runtime.engines import require_runtime
from mule.runtime.exported import kept_graphs, running_model
from mule.training.build import load_run
from mule.training.data import Noted, root_of, table_sides
from mule.video.clips import exact
from mule.video.sources import VideoFile
from mule.watching.engine.bundle import clip_needs, seeing_model
from mule.watching.engine.bundle_card import WatchedFigures
from mule.watching.engine.finding import box_finder
from mule.watching.engine.looking import Looks, Sighting, looks_at
from mule.watching.engine.seen import Eyes, SeenModel

MOST_IDLE = 2000
"""Examples of nothing that are kept: fitting takes the square of their number."""
MOST_VIDEOS = 200
_PROMISED = 0.05


@dataclass(frozen=True)
class WatchedLooks:
    """Looks at people in watched videos, and what the table says of each."""

    inputs: Inputs
    films: tuple[str, ...]
    """The film, or the video, of each look."""
    videos: tuple[str, ...]
    tracks: Int[np.ndarray, " looks"]
    """Numbered over all videos; the looks of a track come in the order of time."""
    people: Int[np.ndarray, " looks"]
    """The true person of each look, numbered over all videos; −1 for somebody unlisted."""
    is_listed: Bool[np.ndarray, " looks"]
    does_known: Bool[np.ndarray, " looks"]
    does_novel: Bool[np.ndarray, " looks"]
    kind: tuple[str, ...]
    """`before` or `after` the acts of its track, or `standing by`, for looks at which nothing is done; else empty."""

    def __len__(self) -> int:
        """Return the number of looks."""
        return len(self.tracks)


def looks_matched(
    looks: Looks, truth: TruePeople, num_known: int, *, every_s: float, is_complete: bool
) -> tuple[Int[np.ndarray, " looks"], Bool[np.ndarray, "looks actions"], list[str]]:
    """Return of each look its row of the truth or −1, what the person does, and what kind of nothing it shows.

    Args:
        looks: at the people of one video.
        truth: its people; known actions come first.
        num_known: how many they are.
        every_s: seconds between key times.
        is_complete: whether people without a row or an action do nothing; otherwise no look shows nothing.
    """
    num, at_s = len(looks), looks.key_times_s.numpy()
    seen = SeenPeople(
        at_s,
        every_s,
        looks.time_index.numpy(),
        looks.track_ids.numpy(),
        looks.boxes_xyxy_unit.numpy(),
        np.zeros((num, num_known)),
        np.zeros(num, dtype=bool),
    )
    match = match_people(truth, seen, is_complete=is_complete)
    row_of, is_judged = np.full(num, NONE), np.zeros(num, dtype=bool)
    is_seen = match.seen_row != NONE
    row_of[match.seen_row[is_seen]] = match.true_row[is_seen]
    is_judged[match.seen_row[is_seen]] = True
    is_listed = row_of != NONE
    does = np.where(is_listed[:, None], truth.labels[row_of], False)
    acts = does.any(axis=1)
    time_s = at_s[seen.time_index]
    kinds = [""] * num
    if is_complete:
        for look in np.flatnonzero(is_judged & ~acts).tolist():
            own = time_s[acts & (seen.track_id == seen.track_id[look])]
            kinds[look] = "standing by" if not len(own) else "before" if time_s[look] < own[0] else "after"
    return row_of, does, kinds


def calibrated_by_watching(  # noqa: PLR0913 - what is watched, with what
    seen: SeenModel,
    run_dir: Path,
    experiment: Experiment,
    *,
    detector: str | Path,
    every_s: float,
    is_complete: bool,
    noted: Noted,
) -> tuple[SeenModel, WatchedFigures | None]:
    """Return the model with examples of nothing and a threshold for watched people; as it was, with a sentence, where that cannot be.

    Args:
        seen: the known actors of a bundle.
        run_dir: its run.
        experiment: where the data lies.
        detector: as in `mule watch`.
        every_s: seconds between key times.
        is_complete: whether the table says what everybody does at its times, so that others do nothing.
        noted: told about progress.
    """
    data = experiment.data
    if not isinstance(data, TableData):
        return seen, None
    try:
        place = detector_place(detector)
        looks = _looks(
            seen.known, run_dir, experiment, place, every_s=every_s, is_complete=is_complete, noted=noted
        )
    except (DetectorError, MuleError) as error:
        noted(f"not calibrated by watching: {error} Thresholds are those of labelled moments.")
        return seen, None
    return with_watched(seen, looks, noted=noted)


def with_watched(
    seen: SeenModel, looks: WatchedLooks, *, noted: Noted = lambda _: None
) -> tuple[SeenModel, WatchedFigures | None]:
    """Add examples of nothing, fit again, and set the threshold on the known people who were watched."""
    known = seen.known
    idle = np.flatnonzero(np.array([bool(kind) for kind in looks.kind], dtype=bool))
    idle = (
        idle[np.linspace(0, len(idle) - 1, min(len(idle), MOST_IDLE)).round().astype(int)]
        if len(idle)
        else idle
    )
    if len(idle):
        known = known.with_idle(
            [looks.kind[row] for row in idle.tolist()],
            {name: each[torch.from_numpy(idle)] for name, each in looks.inputs.items()},
            [looks.videos[row] for row in idle.tolist()],
        )
    fitted = known.fitted()
    number = {name: at for at, name in enumerate(known.group_names)}
    groups = torch.tensor([number.get(film, -1) for film in looks.films], dtype=torch.int64)
    rank, share = crossed_looks(known, fitted, looks.inputs, groups)
    tracks = torch.from_numpy(looks.tracks)
    told = said_along_tracks(rank, share, tracks)
    novel_people = np.unique(looks.people[looks.does_novel])
    ordinary = torch.from_numpy(looks.is_listed & ~np.isin(looks.people, novel_people))
    largest = largest_by_track(told[ordinary], torch.from_numpy(looks.people)[ordinary])
    if len(largest) < FEWEST_HELD_OUT:
        noted(
            f"only {len(largest)} known people were followed in the watched videos, and {FEWEST_HELD_OUT} are needed to set the "
            "threshold on; it is that of labelled moments"
        )
        return SeenModel(known, fitted), None
    limit = promised_threshold(largest, alarm_rate=_PROMISED).novelty
    flagged = (told > limit).numpy()
    is_idle = (share > IDLE_FROM).numpy()
    nothing = np.array([bool(kind) for kind in looks.kind], dtype=bool)
    figures = WatchedFigures(
        num_videos=len(set(looks.videos)),
        num_known_people=len(largest),
        num_novel_people=len(novel_people),
        num_novel_flagged=len(np.unique(looks.people[flagged & looks.does_novel])),
        num_idle_looks=int(nothing.sum()),
        num_idle_recognised=int((nothing & is_idle).sum()),
        num_known_looks=int(looks.does_known.sum()),
        num_known_called_idle=int((looks.does_known & is_idle).sum()),
    )
    return SeenModel(known, replace(fitted, watched=largest)), figures


def _looks(  # noqa: PLR0913 - see calibrated_by_watching
    known: KnownActors,
    run_dir: Path,
    experiment: Experiment,
    detector: Path,
    *,
    every_s: float,
    is_complete: bool,
    noted: Noted,
) -> WatchedLooks:
    """Look at everybody in the videos of training and validation, evenly chosen ones if they are many."""
    data = experiment.data
    assert isinstance(data, TableData)  # noqa: S101 - the caller made sure
    run = load_run(run_dir)._replace(experiment=experiment)
    model = seeing_model(run)
    if experiment.backbone.runtime != "torch":
        model = running_model(
            model, require_runtime(experiment.backbone.runtime), kept_in=kept_graphs(), noted=noted
        )
    sighting = Sighting(clip_needs(experiment), model.backbone, Eyes.of(run))
    table = read_actor_table(root_of(data) / data.actors, allow_unlabelled=True)
    table = table.at(np.flatnonzero(table.has_time & table.has_box))
    videos = table_sides(data).videos
    names = [name for name in sorted(videos) if name in table.videos]
    chosen = [
        names[at] for at in np.linspace(0, len(names) - 1, min(len(names), MOST_VIDEOS)).round().astype(int)
    ]
    parts: list[tuple[str, Looks, TruePeople]] = []
    for name in counted(chosen, "watching the run's own videos"):
        finder = box_finder(detector, Path(name).stem)
        looks = looks_at(VideoFile(videos[name]), sighting, finder, every_s=exact(every_s))
        if len(looks):
            parts.append((name, looks, _truth(table, name, known.actions)))
    return joined_looks(parts, known, every_s=every_s, is_complete=is_complete)


def joined_looks(
    parts: Sequence[tuple[str, Looks, TruePeople]], known: KnownActors, *, every_s: float, is_complete: bool
) -> WatchedLooks:
    """Join the looks at several videos, each with its name and its true people."""
    num_known = len(known.actions)
    columns: dict[str, list[np.ndarray]] = {"people": [], "known": [], "novel": [], "tracks": []}
    kinds: list[str] = []
    videos: list[str] = []
    first = num_people = 0
    for name, looks, truth in parts:
        row_of, does, kind = looks_matched(looks, truth, num_known, every_s=every_s, is_complete=is_complete)
        novel = np.asarray(does[:, num_known:].any(axis=1))
        track = np.unique(looks.track_ids.numpy(), return_inverse=True)[1]
        who = np.arange(len(truth.time_s)) if truth.person is None else truth.person
        columns["people"].append(np.where(row_of == NONE, NONE, np.append(who, 0)[row_of] + num_people))
        num_people += int(who.max(initial=-1)) + 1
        columns["novel"].append(novel)
        columns["known"].append(np.asarray(does[:, :num_known].any(axis=1)) & ~novel)
        columns["tracks"].append(track + first)
        first += int(track.max()) + 1
        kinds += kind
        videos += [name] * len(looks)
    whole = {
        name: np.concatenate(each) if each else np.zeros(0, dtype=bool) for name, each in columns.items()
    }
    return WatchedLooks(
        {
            name: torch.cat([looks.inputs[name] for _, looks, _ in parts])
            for name in (known.inputs if parts else ())
        },
        tuple(known.group_of.get(name, name) for name in videos),
        tuple(videos),
        whole["tracks"].astype(np.int64),
        whole["people"].astype(np.int64),
        whole["people"] != NONE,
        whole["known"].astype(bool),
        whole["novel"].astype(bool),
        tuple(kinds),
    )


def _truth(table: ActorTable, video: str, actions: Sequence[str]) -> TruePeople:
    """Return the true people of a video, known actions first."""
    own = np.flatnonzero(table.video_index == table.videos.index(video))
    names = [name for name in actions if name in table.classes]
    columns: Mapping[str, int] = {name: at for at, name in enumerate(table.classes)}
    labels = np.zeros((len(own), len(actions) + len(table.classes) - len(names)), dtype=bool)
    for at, name in enumerate(actions):
        if name in columns:
            labels[:, at] = table.labels[own, columns[name]]
    others = [columns[name] for name in table.classes if name not in actions]
    labels[:, len(actions) :] = table.labels[own][:, others]
    ids = [table.actor_id[row] for row in own.tolist()]
    person = np.unique(ids, return_inverse=True)[1] if ids and all(ids) else None
    return TruePeople(table.time_s[own], table.boxes_xyxy_unit[own], labels, person)
