"""Who is said to be novel in reels: one class split, one way of accumulating, judged like `mule evaluate watch`."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mule.core.text_rows import read_pairs
from mule.data.table.reading import read_actor_table
from mule.evaluation.following import NONE, SeenPeople, TruePeople, match_people
from mule.evaluation.watched import evaluate_watched
from mule.evaluation.watched_results import WatchedResult
from mule.features.weights.classifier import LabelClassifier
from mule.model import with_labels
from mule.novelty.calibration import promised_threshold
from mule.novelty.crossfit import LABELS_INPUT, Inputs
from mule.novelty.known import FittedToKnown, KnownActors
from mule.novelty.tracks import ACCUMULATORS, largest_by_track
from mule.novelty.watched import IDLE_FROM, crossed_looks, said_along_tracks
from mule.novelty.whitened import joined_blocks
from studies.convert.jhmdb import actors_from_jhmdb
from studies.watching.material import EVERY_S, PEOPLE, looks_file, read_looks

PROMISE = 0.05
NUM_NOVEL = 7
WINDOWS = {"mean": 4, "window": 5, "window of 3": 3, "fisher": 5, "e-product": 5, "e-mean": 5}
"""Ways to accumulate, and how many looks each keeps."""


@dataclass(frozen=True)
class Reel:
    """A reel that was looked at: the truth, what was seen, and of whom each look is."""

    truth: TruePeople
    seen: SeenPeople
    inputs: Inputs
    labels: np.ndarray
    """Of each look; all False for idle ones and strangers."""
    is_listed: np.ndarray
    """Whether a look is of a person in the table."""
    film: np.ndarray
    """The film of each look's person; empty where nobody was matched."""
    person: np.ndarray
    """The person of each look; −1 where nobody was matched."""
    kind: np.ndarray
    """`before`, `after` or `standing by` of idle looks."""


def read_reels(jhmdb: Path, folder: Path, part: str, classifier: LabelClassifier) -> list[Reel]:
    """Read the reels of a part that were looked at."""
    film_of = read_pairs(jhmdb / "videos.csv", "video", "source_group")
    with (folder / part / "sources.csv").open(newline="") as file:
        film = {(row["reel"], row["actor_id"]): film_of[row["source_video"]] for row in csv.DictReader(file)}
    table = read_actor_table(folder / part / PEOPLE, allow_unlabelled=True)
    everything, _ = actors_from_jhmdb(jhmdb)
    labels = table.with_classes(everything.classes).labels_of(everything.classes)
    reels: list[Reel] = []
    for at, name in enumerate(table.videos):
        path = looks_file(folder, part, Path(name).stem)
        if not path.exists():
            continue
        looks = read_looks(path)
        own = np.flatnonzero(table.video_index == at)
        who = np.array([table.actor_id[row] for row in own.tolist()])
        person = np.unique(who, return_inverse=True)[1]
        truth = TruePeople(table.time_s[own], table.boxes_xyxy_unit[own], labels[own], person)
        num = len(looks)
        seen = SeenPeople(
            looks.key_times_s.numpy(),
            float(EVERY_S),
            looks.time_index.numpy(),
            looks.track_ids.numpy(),
            looks.boxes_xyxy_unit.numpy(),
            np.zeros((num, labels.shape[1])),
            np.zeros(num, dtype=bool),
        )
        match = match_people(truth, seen)
        row_of = np.full(num, NONE)
        is_pair = (match.true_row != NONE) & (match.seen_row != NONE)
        row_of[match.seen_row[is_pair]] = match.true_row[is_pair]
        is_listed = row_of != NONE
        begins = {
            p: truth.time_s[(person == p) & labels[own].any(axis=1)].min(initial=np.inf)
            for p in set(person.tolist())
        }
        times = looks.key_times_s.numpy()[seen.time_index]
        kind = [
            ("standing by" if not np.isfinite(begin) else "before" if time < begin else "after")
            for time, begin in (
                (time, begins[int(person[row])] if row != NONE else np.inf)
                for time, row in zip(times.tolist(), row_of.tolist(), strict=True)
            )
        ]
        reels.append(
            Reel(
                truth,
                seen,
                with_labels({name: each.float() for name, each in looks.inputs.items()}, classifier),
                np.where(is_listed[:, None], labels[own][row_of], False),
                is_listed,
                np.array([film.get((name, who[row]), "") if row != NONE else "" for row in row_of.tolist()]),
                np.where(is_listed, person[row_of], NONE),
                np.array(kind),
            )
        )
    return reels


@dataclass(frozen=True)
class Acts:
    """Labelled moments of clips."""

    inputs: Inputs
    labels: np.ndarray
    film: np.ndarray


def read_acts(jhmdb: Path, folder: Path, classifier: LabelClassifier) -> Acts:
    """Read the labelled moments that were looked at."""
    table, _ = actors_from_jhmdb(jhmdb)
    film = read_pairs(jhmdb / "videos.csv", "video", "source_group")
    paths = sorted((folder / "acts").glob("*.npz"))
    rows = [int(path.stem) for path in paths]
    stacked = {
        name: torch.stack([torch.from_numpy(np.load(path)[name]).float() for path in paths])
        for name in ("roi", "frame")
    }
    films = np.array([film[table.video_names[row]] for row in rows])
    return Acts(with_labels(stacked, classifier), table.labels[rows], films)


@dataclass(frozen=True)
class ClassSplit:
    """Which actions are known."""

    known: np.ndarray
    """Columns of the known actions."""
    novel: np.ndarray

    @classmethod
    def drawn(cls, seed: int, num_actions: int) -> "ClassSplit":
        """Draw seven novel actions."""
        order = np.random.default_rng(seed).permutation(num_actions)
        return cls(np.sort(order[NUM_NOVEL:]), np.sort(order[:NUM_NOVEL]))


@dataclass(frozen=True)
class Taught:
    """What was learnt from training films under one class split, and the looks of watched training people."""

    known: KnownActors
    fitted: FittedToKnown
    rank: Tensor
    idle: Tensor
    tracks: Tensor
    """Of looks at people who do nothing novel in the training reels."""
    people: Tensor
    """The person of each of these looks."""


def taught(
    acts: Acts, reels: Sequence[Reel], split: ClassSplit, views: Sequence[str], *, has_idle: bool
) -> Taught:
    """Learn from labelled moments, and with `has_idle` from watched looks: known acts, and people who do nothing."""
    rows = np.asarray(acts.labels[:, split.known].any(axis=1))
    names = [str(each) for each in acts.film[rows]]
    inputs, labels = _some(acts.inputs, rows, views), acts.labels[rows][:, split.known]
    watched = _joined(reels, views)
    is_novel = np.asarray(watched.labels[:, split.novel].any(axis=1))
    does_known = np.flatnonzero(watched.labels[:, split.known].any(axis=1) & ~is_novel)
    if has_idle:
        inputs = {name: torch.cat([each, watched.inputs[name][does_known]]) for name, each in inputs.items()}
        labels = np.concatenate([labels, watched.labels[does_known][:, split.known]])
        names += watched.film[does_known].tolist()
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    known = KnownActors(
        inputs,
        torch.from_numpy(labels),
        tuple(f"action {each}" for each in split.known.tolist()),
        torch.tensor([number[name] for name in names]),
        tuple(number),
        torch.full((len(names),), -1),
        torch.zeros(len(names), dtype=torch.bool),
    )
    if has_idle:
        idle = watched.is_listed & ~watched.labels.any(axis=1)
        known = known.with_idle(
            watched.kind[idle].tolist(), _some(watched.inputs, idle, views), watched.film[idle].tolist()
        )
    fitted = known.fitted()
    number = {name: at for at, name in enumerate(known.group_names)}
    ordinary = ~np.isin(watched.people, watched.people[is_novel]) & watched.is_listed
    groups = torch.tensor([number.get(name, -1) for name in watched.film[ordinary].tolist()])
    rank, share = crossed_looks(known, fitted, _some(watched.inputs, ordinary, views), groups)
    return Taught(
        known,
        fitted,
        rank,
        share,
        torch.from_numpy(watched.tracks[ordinary]),
        torch.from_numpy(watched.people[ordinary]),
    )


def said(
    found: Taught,
    reels: Sequence[Reel],
    split: ClassSplit,
    views: Sequence[str],
    way: str,
    *,
    by_watching: bool,
) -> WatchedResult:
    """Watch other reels and measure what was said.

    Args:
        found: what was learnt.
        reels: of other films, or of the same films for choosing: then films are left out in turn.
        split: known and novel actions.
        views: what people are seen by.
        way: how looks accumulate.
        by_watching: whether the threshold is set on watched training people rather than on labelled moments.
    """
    accumulate, most = ACCUMULATORS[way.split(" ")[0]], WINDOWS[way]

    def numbers(rank: Tensor, idle: Tensor, tracks: Tensor) -> Tensor:
        return said_along_tracks(rank, idle, tracks, accumulate=accumulate, most_looks=most)

    if by_watching:
        largest = largest_by_track(numbers(found.rank, found.idle, found.tracks), found.people)
        limit = promised_threshold(largest, alarm_rate=PROMISE).novelty
    else:
        limit = 1 - float(
            np.log(PROMISE)
        )  # the rule for unknown dependence: mean − 1 above −log a; one look alone see below
    number = {name: at for at, name in enumerate(found.known.group_names)}
    watched = _joined(reels, views)
    groups = torch.tensor([number.get(name, -1) for name in watched.film.tolist()])
    rank, idle = crossed_looks(found.known, found.fitted, watched.inputs, groups)
    tracks = torch.from_numpy(watched.tracks)
    told = numbers(rank, idle, tracks)
    if not by_watching:  # the first look decides by itself
        first = torch.from_numpy(
            np.isin(np.arange(len(tracks)), np.unique(watched.tracks, return_index=True)[1])
        )
        told = torch.where(first, told + 1, told)
    is_flagged = (told > limit).numpy()
    is_idle = (idle > IDLE_FROM).numpy()
    probabilities = _named(found, watched.inputs, is_idle)
    order = [*split.known.tolist(), *split.novel.tolist()]
    begin, videos = 0, []
    for reel in reels:
        end = begin + len(reel.is_listed)
        truth = TruePeople(
            reel.truth.time_s, reel.truth.boxes_xyxy_unit, reel.truth.labels[:, order], reel.truth.person
        )
        seen = SeenPeople(
            reel.seen.key_times_s,
            reel.seen.every_s,
            reel.seen.time_index,
            reel.seen.track_id,
            reel.seen.boxes_xyxy_unit,
            probabilities[begin:end],
            is_flagged[begin:end],
        )
        videos.append((truth, seen))
        begin = end
    names = [f"action {each}" for each in order]
    return evaluate_watched(
        videos, classes=names[: len(split.known)], novel_classes=names[len(split.known) :]
    )


def _named(found: Taught, inputs: Inputs, is_idle: np.ndarray) -> np.ndarray:
    """Return a probability of each known action: softmax of the cosines; none for idle people."""
    parts = found.fitted.parts
    cosine = parts.whitened.similarity(joined_blocks([inputs[name] for name in parts.blocks]))
    if parts.prototypes is not None:
        cosine = cosine + parts.prototypes.similarity(inputs[LABELS_INPUT])
    actions = cosine[:, : len(found.known.actions)]
    probability = torch.softmax(actions / 0.05, dim=1).numpy()
    return np.where(is_idle[:, None], 0.0, probability)


@dataclass(frozen=True)
class _Joined:
    inputs: Inputs
    labels: np.ndarray
    is_listed: np.ndarray
    film: np.ndarray
    kind: np.ndarray
    tracks: np.ndarray
    people: np.ndarray


def _joined(reels: Sequence[Reel], views: Sequence[str]) -> _Joined:
    """The looks of all reels, one after another."""
    tracks = [reel.seen.track_id + 100_000 * at for at, reel in enumerate(reels)]
    return _Joined(
        {name: torch.cat([reel.inputs[name] for reel in reels]) for name in views},
        np.concatenate([reel.labels for reel in reels]),
        np.concatenate([reel.is_listed for reel in reels]),
        np.concatenate([reel.film for reel in reels]),
        np.concatenate([reel.kind for reel in reels]),
        np.concatenate(tracks),
        np.concatenate([reel.person + 100_000 * at for at, reel in enumerate(reels)]),
    )


def _some(inputs: Inputs, rows: np.ndarray, views: Sequence[str]) -> dict[str, Tensor]:
    return {name: inputs[name][torch.from_numpy(rows)] for name in views}
