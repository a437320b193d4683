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
from studies.watching.material import EVERY_S, PEOPLE, acts_folder, looks_file, read_looks

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


def read_acts(jhmdb: Path, folder: Path, part: str, classifier: LabelClassifier) -> Acts:
    """Read the labelled moments of a part that were looked at."""
    table, _ = actors_from_jhmdb(jhmdb)
    film = read_pairs(jhmdb / "videos.csv", "video", "source_group")
    paths = sorted(acts_folder(folder, part).glob("*.npz"))
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
class Looked:
    """The looks at several reels, one after another; those of a track in the order of time."""

    inputs: Inputs
    labels: np.ndarray
    is_listed: np.ndarray
    film: np.ndarray
    kind: np.ndarray
    tracks: np.ndarray
    people: np.ndarray


@dataclass(frozen=True)
class Judged:
    """What one way of scoring says of every look at some reels, films that it learnt from left out."""

    rank: Tensor
    """−log p of each look."""
    idle: Tensor
    """How much each looks idle; above `IDLE_FROM` it is."""
    probabilities: np.ndarray
    """Of each known action; none for idle looks."""


@dataclass(frozen=True)
class Taught:
    """What was learnt from training films under one class split, and what it says of the training reels."""

    known: KnownActors
    fitted: FittedToKnown
    watched: Judged
    ordinary: np.ndarray
    """Whether each look at the training reels is of a listed person who does nothing novel there."""

    def groups(self, looks: Looked) -> Tensor:
        """Return the film of each look as a number of a known film; −1 for a film that nothing was learnt from."""
        number = {name: at for at, name in enumerate(self.known.group_names)}
        return torch.tensor([number.get(name, -1) for name in looks.film.tolist()])

    def judged(self, looks: Looked) -> Judged:
        """Judge other looks."""
        return _judged(self.known, self.fitted, looks, self.groups(looks))


def learnt_from(
    acts: Acts, watched: Looked, split: ClassSplit, views: Sequence[str], *, has_idle: bool
) -> KnownActors:
    """Return who is known: labelled moments, and with `has_idle` watched known acts and people who do nothing."""
    rows = np.asarray(acts.labels[:, split.known].any(axis=1))
    names = [str(each) for each in acts.film[np.flatnonzero(rows)]]
    inputs, labels = some_of(acts.inputs, rows, views), acts.labels[rows][:, split.known]
    is_novel = np.asarray(watched.labels[:, split.novel].any(axis=1))
    does_known = np.asarray(watched.labels[:, split.known].any(axis=1)) & ~is_novel
    if has_idle:
        more = some_of(watched.inputs, does_known, views)
        inputs = {name: torch.cat([each, more[name]]) for name, each in inputs.items()}
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
    if not has_idle:
        return known
    idle = watched.is_listed & ~watched.labels.any(axis=1)
    return known.with_idle(
        watched.kind[np.flatnonzero(idle)].tolist(),
        some_of(watched.inputs, idle, views),
        watched.film[idle].tolist(),
    )


def taught(acts: Acts, watched: Looked, split: ClassSplit, views: Sequence[str], *, has_idle: bool) -> Taught:
    """Learn from labelled moments, and with `has_idle` from watched looks too."""
    known = learnt_from(acts, watched, split, views, has_idle=has_idle)
    fitted = known.fitted()
    number = {name: at for at, name in enumerate(known.group_names)}
    groups = torch.tensor([number.get(name, -1) for name in watched.film.tolist()])
    return Taught(known, fitted, _judged(known, fitted, watched, groups), ordinary(watched, split))


def ordinary(watched: Looked, split: ClassSplit) -> np.ndarray:
    """Return which looks are of listed people who do nothing novel at any look."""
    is_novel = np.asarray(watched.labels[:, split.novel].any(axis=1))
    return watched.is_listed & ~np.isin(watched.people, watched.people[is_novel])


def limit_of(watched: Judged, looks: Looked, rows: np.ndarray, way: str) -> float:
    """Return the threshold that the promised share of these watched people passes."""
    at = torch.from_numpy(rows)
    told = along(watched.rank[at], watched.idle[at], torch.from_numpy(looks.tracks)[at], way)
    largest = largest_by_track(told, torch.from_numpy(looks.people)[at])
    return promised_threshold(largest, alarm_rate=PROMISE).novelty


def along(rank: Tensor, idle: Tensor, tracks: Tensor, way: str) -> Tensor:
    """Return what the looks at each track say up to each look."""
    return said_along_tracks(
        rank, idle, tracks, accumulate=ACCUMULATORS[way.split(" ")[0]], most_looks=WINDOWS[way]
    )


def flagged(at: Judged, looks: Looked, way: str, *, limit: float | None) -> np.ndarray:
    """Return which looks are flagged; without a limit by the rule for any dependence, as bundles without watching do."""
    tracks = torch.from_numpy(looks.tracks)
    told = along(at.rank, at.idle, tracks, way)
    if limit is None:  # e times the geometric mean of p-values; the first look decides by itself
        first = np.isin(np.arange(len(tracks)), np.unique(looks.tracks, return_index=True)[1])
        told = torch.where(torch.from_numpy(first), told + 1, told)
        limit = 1 - float(np.log(PROMISE))
    return (told > limit).numpy()


def said(at: Judged, is_flagged: np.ndarray, reels: Sequence[Reel], split: ClassSplit) -> WatchedResult:
    """Measure what was said of people in reels, as `mule evaluate watch` does."""
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
            at.probabilities[begin:end],
            is_flagged[begin:end],
        )
        videos.append((truth, seen))
        begin = end
    names = [f"action {each}" for each in order]
    return evaluate_watched(
        videos, classes=names[: len(split.known)], novel_classes=names[len(split.known) :]
    )


def flagged_after(is_flagged: np.ndarray, looks: Looked, does: np.ndarray, most: int) -> float:
    """Return the percentage of people flagged within the first looks at which they do something of a kind.

    Args:
        is_flagged: of each look.
        looks: at the reels, in the order of time.
        does: whether the person of each look does it.
        most: how many looks.
    """
    people = np.unique(looks.people[does & looks.is_listed])
    hits = [is_flagged[np.flatnonzero(does & (looks.people == who))[:most]].any() for who in people.tolist()]
    return 100 * float(np.mean(hits)) if hits else float("nan")


def _judged(known: KnownActors, fitted: FittedToKnown, looks: Looked, groups: Tensor) -> Judged:
    rank, idle = crossed_looks(known, fitted, looks.inputs, groups)
    probabilities = named(fitted, looks.inputs, len(known.actions))
    return Judged(rank, idle, np.where((idle > IDLE_FROM).numpy()[:, None], 0.0, probabilities))


def named(fitted: FittedToKnown, inputs: Inputs, num_actions: int) -> np.ndarray:
    """Return a probability of each known action: softmax of the cosines."""
    parts = fitted.parts
    cosine = parts.whitened.similarity(joined_blocks([inputs[name] for name in parts.blocks]))
    if parts.prototypes is not None:
        cosine = cosine + parts.prototypes.similarity(inputs[LABELS_INPUT])
    return torch.softmax(cosine[:, :num_actions] / 0.05, dim=1).numpy()


def joined(reels: Sequence[Reel], views: Sequence[str]) -> Looked:
    """Return the looks of all reels, one after another."""
    return Looked(
        {name: torch.cat([reel.inputs[name] for reel in reels]) for name in views},
        np.concatenate([reel.labels for reel in reels]),
        np.concatenate([reel.is_listed for reel in reels]),
        np.concatenate([reel.film for reel in reels]),
        np.concatenate([reel.kind for reel in reels]),
        np.concatenate([reel.seen.track_id + 100_000 * at for at, reel in enumerate(reels)]),
        np.concatenate(
            [np.where(reel.is_listed, reel.person + 100_000 * at, NONE) for at, reel in enumerate(reels)]
        ),
    )


def some_of(inputs: Inputs, rows: np.ndarray, views: Sequence[str]) -> dict[str, Tensor]:
    """Return some rows of some inputs."""
    return {name: inputs[name][torch.from_numpy(rows)] for name in views}
