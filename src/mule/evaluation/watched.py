"""Measure what was said of people in videos against the truth: per look, per person and per novel act."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import RangeError
from mule.evaluation.following import (
    NONE,
    MatchedLooks,
    SeenPeople,
    TruePeople,
    act_numbers,
    match_people,
)
from mule.evaluation.mean_ap import multilabel_average_precision
from mule.evaluation.watched_results import (
    LOOK_KINDS,
    WATCHED_CONVENTION,
    Identities,
    KnownActionWatched,
    LookCounts,
    LookKind,
    Naming,
    NovelActionWatched,
    NovelActs,
    PeopleCounts,
    WatchedResult,
)


@dataclass(frozen=True)
class _Looks:
    """The looks of all videos, one after another."""

    is_listed: Bool[np.ndarray, " looks"]
    is_seen: Bool[np.ndarray, " looks"]
    is_flagged: Bool[np.ndarray, " looks"]
    is_switched: Bool[np.ndarray, " looks"]
    labels: Bool[np.ndarray, "looks classes"]
    novel: Bool[np.ndarray, "looks novel"]
    probabilities: Float[np.ndarray, "looks classes"]
    named: Bool[np.ndarray, "looks classes"]
    person: Int[np.ndarray, " looks"]
    """Numbered over all videos; `NONE` for somebody unlisted."""
    track: Int[np.ndarray, " looks"]
    """Numbered over all videos; `NONE` for somebody missed."""
    seconds: Float[np.ndarray, " looks"]

    def of(self, kind: LookKind) -> Bool[np.ndarray, " looks"]:
        """Whether each look is of this kind."""
        is_novel, is_known = np.asarray(self.novel.any(axis=1)), np.asarray(self.labels.any(axis=1))
        match kind:
            case "novel":
                return is_novel
            case "known":
                return is_known & ~is_novel
            case "idle":
                return self.is_listed & ~is_known & ~is_novel
            case "unlisted":
                return ~self.is_listed


def evaluate_watched(
    videos: Sequence[tuple[TruePeople, SeenPeople]],
    *,
    classes: Sequence[str],
    novel_classes: Sequence[str] = (),
    min_probability: float = 0.5,
    min_iou: float = 0.5,
    is_complete: bool = False,
) -> WatchedResult:
    """Measure what was said of the people in some videos against the truth.

    Args:
        videos: the true and the seen people of each video.
        classes: the actions the model knows: the first columns of the labels, and those of the probabilities.
        novel_classes: the other columns of the labels.
        min_probability: an action is shown, so the person is named, from this probability on.
        min_iou: pair people whose boxes overlap at least this much.
        is_complete: whether nobody is there whom the truth does not name; otherwise key times without truth are not judged.

    >>> box = np.array([[0.1, 0.1, 0.5, 0.9]])
    >>> truth = TruePeople(np.zeros(1), box, labels=np.array([[False, True]]), person=np.zeros(1, int))
    >>> seen = SeenPeople(np.zeros(1), 1.0, np.zeros(1, int), np.zeros(1, int), box, np.array([[0.7]]), np.array([True]))
    >>> result = evaluate_watched([(truth, seen)], classes=["walk"], novel_classes=["cartwheel"])
    >>> result.looks["novel"].num_flagged, result.acts.median_delay_s
    (1, 0.0)
    """
    has_ids = all(truth.person is not None for truth, _ in videos)
    matches = [match_people(truth, seen, min_iou=min_iou, is_complete=is_complete) for truth, seen in videos]
    looks = _joined(videos, matches, len(classes), len(novel_classes), min_probability)
    elsewhere = "at other key times nobody is there" if is_complete else "other key times are not judged"
    return WatchedResult(
        num_videos=len(videos),
        num_key_times=sum(len(seen.key_times_s) for _, seen in videos),
        num_judged_times=sum(each.num_times for each in matches),
        looks={kind: _look_counts(looks, looks.of(kind)) for kind in LOOK_KINDS},
        people=_people(looks) if has_ids else None,
        acts=_acts(videos, matches, len(classes)) if has_ids else None,
        naming=_naming(looks, has_ids=has_ids),
        identities=_identities(looks) if has_ids else None,
        known_actions=_known_actions(looks, classes),
        novel_actions={
            name: _novel_action(looks, looks.novel[:, i], has_ids=has_ids)
            for i, name in enumerate(novel_classes)
        },
        convention=WATCHED_CONVENTION.format(
            elsewhere=elsewhere, min_iou=min_iou, min_probability=min_probability
        ),
    )


def _joined(
    videos: Sequence[tuple[TruePeople, SeenPeople]],
    matches: Sequence[MatchedLooks],
    num_known: int,
    num_novel: int,
    min_probability: float,
) -> _Looks:
    parts: list[tuple[np.ndarray, ...]] = [
        (
            *(np.zeros(0, dtype=bool),) * 4,
            np.zeros((0, num_known + num_novel), dtype=bool),
            np.zeros((0, num_known)),
            *(np.zeros(0, dtype=np.int64),) * 2,
            np.zeros(0),
        )
    ]
    num_people = num_tracks = 0
    for (truth, seen), match in zip(videos, matches, strict=True):
        if truth.labels.shape[1] != num_known + num_novel or seen.probabilities.shape[1] != num_known:
            raise RangeError(
                f"labels must have a column for each of {num_known} known and {num_novel} novel actions, and "
                f"probabilities one for each known action; got {truth.labels.shape[1]} and "
                f"{seen.probabilities.shape[1]}."
            )
        ids = np.arange(len(truth.time_s)) if truth.person is None else truth.person
        people, person = np.unique(ids, return_inverse=True)
        tracks, track = np.unique(seen.track_id, return_inverse=True)
        is_listed, is_seen = match.true_row != NONE, match.seen_row != NONE
        parts.append(
            (
                is_listed,
                is_seen,
                _taken(seen.is_flagged, match.seen_row),
                match.is_switched,
                _taken(truth.labels, match.true_row),
                _taken(seen.probabilities, match.seen_row),
                np.where(is_listed, _taken(person + num_people, match.true_row), NONE),
                np.where(is_seen, _taken(track + num_tracks, match.seen_row), NONE),
                np.full(len(match), seen.every_s),
            )
        )
        num_people, num_tracks = num_people + len(people), num_tracks + len(tracks)
    listed, seen_, flagged, switched, labels, probabilities, person, track, seconds = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    named = (probabilities >= min_probability) & (probabilities > 0)
    known, novel = labels[:, :num_known], labels[:, num_known:]
    return _Looks(
        listed, seen_, flagged, switched, known, novel, probabilities, named, person, track, seconds
    )


def _taken(values: np.ndarray, rows: Int[np.ndarray, " looks"]) -> np.ndarray:
    """Return the values of the rows; zeros where there is no row."""
    return np.concatenate([values, np.zeros((1, *values.shape[1:]), dtype=values.dtype)])[rows]


def _look_counts(looks: _Looks, chosen: Bool[np.ndarray, " looks"]) -> LookCounts:
    is_named = looks.named.any(axis=1)
    is_right = (looks.named & looks.labels).any(axis=1)
    return LookCounts(
        num=_count(chosen),
        num_seen=_count(chosen & looks.is_seen),
        num_flagged=_count(chosen & looks.is_flagged),
        num_named=_count(chosen & is_named),
        num_wrongly_named=_count(chosen & is_named & ~is_right),
        seconds=float(looks.seconds[chosen].sum()),
    )


def _people(looks: _Looks) -> dict[LookKind, PeopleCounts]:
    everybody = np.unique(looks.person[looks.is_listed])
    novel, known = (np.unique(looks.person[looks.of(kind)]) for kind in ("novel", "known"))
    known = np.setdiff1d(known, novel)
    members: dict[LookKind, np.ndarray] = {
        "known": known,
        "novel": novel,
        "idle": np.setdiff1d(everybody, np.union1d(known, novel)),
    }
    seen = looks.person[looks.is_listed & looks.is_seen]
    flagged, in_act = looks.person[looks.is_flagged], looks.person[looks.is_flagged & looks.of("novel")]
    return {
        kind: PeopleCounts(
            num=len(who),
            num_seen=_count(np.isin(who, seen)),
            num_flagged=_count(np.isin(who, flagged)),
            num_flagged_in_act=_count(np.isin(who, in_act)),
        )
        for kind, who in members.items()
    }


def _acts(
    videos: Sequence[tuple[TruePeople, SeenPeople]], matches: Sequence[MatchedLooks], num_known: int
) -> NovelActs:
    """Acts that begin after the last key time were not watched; those between two key times were, and not flagged."""
    num_acts = 0
    delays_s: list[float] = []
    for (truth, seen), match in zip(videos, matches, strict=True):
        act, begin_s = act_numbers(np.asarray(truth.labels[:, num_known:].any(axis=1)), truth)
        num_acts += _count(begin_s <= seen.key_times_s.max(initial=-np.inf))
        flagged_s = np.full(len(begin_s), np.inf)
        of_look = np.where(match.true_row == NONE, NONE, _taken(act, match.true_row))
        is_hit = (of_look != NONE) & _taken(seen.is_flagged, match.seen_row)
        np.minimum.at(flagged_s, of_look[is_hit], seen.key_times_s[match.time_index[is_hit]])
        delays_s += (flagged_s - begin_s)[np.isfinite(flagged_s)].clip(0).tolist()
    median_s = float(np.median(delays_s)) if delays_s else None
    return NovelActs(num=num_acts, num_flagged=len(delays_s), median_delay_s=median_s)


def _naming(looks: _Looks, *, has_ids: bool) -> Naming:
    known = looks.of("known") & looks.is_seen
    listed = looks.is_listed
    precision, recall = _precision_recall(looks.named[listed], looks.labels[listed])
    by_person: tuple[float | None, ...] = (None, None, None)
    if has_ids:
        of_known, labels = _most_per_person(looks, known)
        named, done = (
            _largest(each[listed].astype(float), looks.person[listed]) > 0
            for each in (looks.named, looks.labels)
        )
        by_person = (_mean_ap(of_known, labels), *_precision_recall(named, done))
    return Naming(
        mean_ap=_mean_ap(looks.probabilities[known], looks.labels[known]),
        mean_ap_everybody=_mean_ap(looks.probabilities[listed], looks.labels[listed]),
        precision=precision,
        recall=recall,
        mean_ap_by_person=by_person[0],
        precision_by_person=by_person[1],
        recall_by_person=by_person[2],
    )


def _most_per_person(
    looks: _Looks, chosen: Bool[np.ndarray, " looks"]
) -> tuple[Float[np.ndarray, "people classes"], Bool[np.ndarray, "people classes"]]:
    """Return the largest probability and all labels of each person in the chosen looks."""
    person = looks.person[chosen]
    most = _largest(looks.probabilities[chosen], person)
    return most, _largest(looks.labels[chosen].astype(float), person) > 0


def _largest(
    values: Float[np.ndarray, "looks columns"], person: Int[np.ndarray, " looks"]
) -> Float[np.ndarray, "people columns"]:
    people, number = np.unique(person, return_inverse=True)
    largest = np.zeros((len(people), values.shape[1]))
    np.maximum.at(largest, number, values)
    return largest


def _identities(looks: _Looks) -> Identities:
    is_pair = looks.is_listed & looks.is_seen
    pairs, num_looks = np.unique(
        np.stack([looks.track[is_pair], looks.person[is_pair]]), axis=1, return_counts=True
    )
    owner: dict[int, tuple[int, int]] = {}
    for (track, person), count in zip(pairs.T.tolist(), num_looks.tolist(), strict=True):
        if count > owner.get(track, (0, 0))[0]:
            owner[track] = (count, person)
    everybody = np.unique(looks.person[looks.is_listed])
    tracks = np.unique(looks.track[looks.is_seen])
    return Identities(
        num_people=len(everybody),
        num_never_seen=len(np.setdiff1d(everybody, looks.person[is_pair])),
        num_tracks=len(tracks),
        num_tracks_of_nobody=len(tracks) - len(owner),
        num_switches=_count(looks.is_switched),
        num_on_own_track=sum(count for count, _ in owner.values()),
    )


def _known_actions(looks: _Looks, classes: Sequence[str]) -> dict[str, KnownActionWatched]:
    known, listed = looks.of("known") & looks.is_seen, looks.is_listed
    average = multilabel_average_precision(looks.probabilities[known], looks.labels[known]).tolist()
    results: dict[str, KnownActionWatched] = {}
    for i, name in enumerate(classes):
        does, named = looks.labels[listed, i], looks.named[listed, i]
        precision, recall = _precision_recall(named, does)
        results[name] = KnownActionWatched(
            num=_count(does),
            num_seen=_count(does & looks.is_seen[listed]),
            average_precision=None if np.isnan(average[i]) else average[i],
            precision=precision,
            recall=recall,
        )
    return results


def _novel_action(looks: _Looks, does: Bool[np.ndarray, " looks"], *, has_ids: bool) -> NovelActionWatched:
    flagged = does & looks.is_flagged
    return NovelActionWatched(
        num=_count(does),
        num_seen=_count(does & looks.is_seen),
        num_flagged=_count(flagged),
        num_people=len(np.unique(looks.person[does])) if has_ids else None,
        num_people_flagged=len(np.unique(looks.person[flagged])) if has_ids else None,
    )


def _mean_ap(probabilities: np.ndarray, labels: np.ndarray) -> float | None:
    average = multilabel_average_precision(probabilities, labels)
    exists = ~np.isnan(average)
    return float(average[exists].mean()) if exists.any() else None


def _precision_recall(named: np.ndarray, does: np.ndarray) -> tuple[float | None, float | None]:
    hits, num_named, num_done = (named & does).sum(), named.sum(), does.sum()
    return (float(hits / num_named) if num_named else None, float(hits / num_done) if num_done else None)


def _count(flags: Bool[np.ndarray, " any"]) -> int:
    return int(np.count_nonzero(flags))
