"""Who was watched: people seen at key times, matched with the true people of a table by overlap in time and space.

Time: a labelled time speaks for the key times around it, half the way to the labelled times before and after it and at
most `LONGEST_REACH_S`. At other key times the truth is unknown.

Space: at each key time, true and seen people are paired one to one. As in CLEAR MOT (Bernardin and Stiefelhagen 2008), a
person first keeps the track they had, if it still overlaps; the others are paired for the largest total IoU. A person who
is paired with another track than the last time has switched identity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment

from mule.core.errors import RangeError

LONGEST_REACH_S = 0.5
_SAME_TIME_S = 1e-6
NONE = -1
"""In place of a position: nobody, no track or no time."""


@dataclass(frozen=True)
class TruePeople:
    """The true people of one video: a row per person and labelled time."""

    time_s: Float[np.ndarray, " rows"]
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    labels: Bool[np.ndarray, "rows actions"]
    """Known actions first, then novel ones; a person without any is idle."""
    person: Int[np.ndarray, " rows"] | None
    """Who it is; None if nobody is followed over time."""


@dataclass(frozen=True)
class SeenPeople:
    """What was said of the people in one video: a row per person and key time."""

    key_times_s: Float[np.ndarray, " times"]
    """All key times, rising, also those with nobody."""
    every_s: float
    """Seconds from one key time to the next."""
    time_index: Int[np.ndarray, " rows"]
    """The position of each row's key time."""
    track_id: Int[np.ndarray, " rows"]
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    probabilities: Float[np.ndarray, "rows classes"]
    """Of each known action; 0 where it was not reported."""
    is_flagged: Bool[np.ndarray, " rows"]

    def __post_init__(self) -> None:
        if (np.diff(self.key_times_s) <= 0).any():
            raise RangeError("key times must rise; these do not.")


@dataclass(frozen=True)
class MatchedLooks:
    """Every look to be judged: a true person who was seen or missed, or somebody whom the truth does not name."""

    time_index: Int[np.ndarray, " looks"]
    """The position of the key time."""
    true_row: Int[np.ndarray, " looks"]
    """The row of `TruePeople`; `NONE` for somebody whom the truth does not name."""
    seen_row: Int[np.ndarray, " looks"]
    """The row of `SeenPeople`; `NONE` for somebody who was missed."""
    is_switched: Bool[np.ndarray, " looks"]
    """Whether the person was last seen as another track."""
    num_times: int
    """The number of key times at which the truth is known."""

    def __len__(self) -> int:
        return len(self.time_index)


def labelled_time_at(
    key_times_s: Float[np.ndarray, " times"], labelled_s: Float[np.ndarray, " labelled"]
) -> Int[np.ndarray, " times"]:
    """Return the position of the labelled time that speaks for each key time, or `NONE`.

    The first and the last labelled time reach as far outwards as inwards. Between two, the earlier one wins a tie.

    Args:
        key_times_s: any times.
        labelled_s: the labelled times, rising.

    >>> labelled_time_at(np.array([0.0, 0.1, 0.6, 1.4, 2.5]), np.array([0.0, 0.2, 2.0])).tolist()
    [0, 0, 1, -1, 2]
    """
    if not len(labelled_s):
        return np.full(len(key_times_s), NONE)
    half = np.diff(labelled_s) / 2
    inner = half if len(half) else np.array([LONGEST_REACH_S])
    before = np.concatenate([inner[:1], half])
    after = np.concatenate([half, inner[-1:]])
    nearest = np.searchsorted(labelled_s[:-1] + half, key_times_s - _SAME_TIME_S)
    away_s = key_times_s - labelled_s[nearest]
    reach_s = np.minimum(np.where(away_s < 0, before[nearest], after[nearest]), LONGEST_REACH_S)
    return np.where(np.abs(away_s) <= reach_s + _SAME_TIME_S, nearest, NONE)


def match_people(
    truth: TruePeople, seen: SeenPeople, *, min_iou: float = 0.5, is_complete: bool = False
) -> MatchedLooks:
    """Match the seen people of a video with its true people.

    Args:
        truth: the true people.
        seen: the seen people.
        min_iou: pair people whose boxes overlap at least this much.
        is_complete: whether nobody is there whom the truth does not name, so that all key times can be judged.

    >>> truth = TruePeople(np.array([0.0, 1.0]), np.tile([0.1, 0.1, 0.5, 0.9], (2, 1)), np.eye(2) > 0, np.array([7, 7]))
    >>> seen = SeenPeople(
    ...     key_times_s=np.array([0.0, 1.0]), every_s=1.0, time_index=np.array([0, 1, 1]), track_id=np.array([3, 4, 5]),
    ...     boxes_xyxy_unit=np.array([[0.1, 0.1, 0.5, 0.9], [0.1, 0.1, 0.5, 0.8], [0.6, 0.1, 0.9, 0.9]]),
    ...     probabilities=np.zeros((3, 2)), is_flagged=np.zeros(3, bool))
    >>> looks = match_people(truth, seen)
    >>> looks.true_row.tolist(), looks.seen_row.tolist(), looks.is_switched.tolist()
    ([0, 1, -1], [0, 1, 2], [False, True, False])
    """
    if not 0 < min_iou <= 1:
        raise RangeError(f"the least IoU must lie above 0 and be at most 1; got {min_iou:g}.")
    times, number = np.unique(truth.time_s, return_inverse=True)
    true_rows = _rows_of(number, len(times))
    seen_rows = _rows_of(seen.time_index, len(seen.key_times_s))
    people = np.arange(len(truth.time_s)) if truth.person is None else truth.person
    track_of: dict[int, int] = {}
    looks: list[tuple[int, int, int, bool]] = []
    labelled = labelled_time_at(seen.key_times_s, times)
    for at, labelled_at in enumerate(labelled.tolist()):
        if labelled_at == NONE and not is_complete:
            continue
        here = true_rows[labelled_at] if labelled_at != NONE else np.zeros(0, dtype=np.int64)
        there = seen_rows[at]
        overlap = overlaps(truth.boxes_xyxy_unit[here], seen.boxes_xyxy_unit[there])
        overlap = np.where(overlap >= min_iou, overlap, 0.0)
        persons, tracks = people[here].tolist(), seen.track_id[there].tolist()
        pairs = _paired(overlap, [track_of.get(person) for person in persons], tracks)
        for i, (row, person) in enumerate(zip(here.tolist(), persons, strict=True)):
            j = pairs.get(i)
            if j is None:
                looks.append((at, row, NONE, False))
                continue
            looks.append((at, row, int(there[j]), track_of.get(person, tracks[j]) != tracks[j]))
            track_of[person] = tracks[j]
        taken = set(pairs.values())
        looks += [(at, NONE, row, False) for j, row in enumerate(there.tolist()) if j not in taken]
    columns = np.array(looks, dtype=np.int64).reshape(-1, 4).T
    num_times = len(labelled) if is_complete else int((labelled != NONE).sum())
    return MatchedLooks(columns[0], columns[1], columns[2], columns[3].astype(bool), num_times)


def overlaps(
    boxes: Float[np.ndarray, "boxes 4"], others: Float[np.ndarray, "others 4"]
) -> Float[np.ndarray, "boxes others"]:
    """Return the IoU of every box with every other one; corners x1, y1, x2, y2.

    >>> overlaps(np.array([[0.0, 0.0, 1.0, 1.0]]), np.array([[0.0, 0.0, 0.5, 1.0], [2.0, 0.0, 3.0, 1.0]])).tolist()
    [[0.5, 0.0]]
    """
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    both = np.prod((high - low).clip(0), axis=2)
    area, other_area = (np.prod(each[:, 2:] - each[:, :2], axis=1) for each in (boxes, others))
    return both / (area[:, None] + other_area[None] - both)


def act_numbers(
    is_acting: Bool[np.ndarray, " rows"], truth: TruePeople
) -> tuple[Int[np.ndarray, " rows"], Float[np.ndarray, " acts"]]:
    """Number the acts of each person, and return when each begins; `NONE` for rows without an act.

    An act goes on as long as the person does it at every labelled time, and labelled times lie at most twice
    `LONGEST_REACH_S` apart.

    Args:
        is_acting: for each row of the truth, whether the person does what counts as an act.
        truth: the people, who must be followed over time.
    """
    if truth.person is None:
        raise RangeError("acts need people who are followed over time; these have no ids.")
    time_number = np.unique(truth.time_s, return_inverse=True)[1]
    number = np.full(len(is_acting), NONE)
    begins_s: list[float] = []
    previous: int | None = None
    for row in np.lexsort([truth.time_s, truth.person]).tolist():
        if is_acting[row]:
            goes_on = (
                previous is not None
                and truth.person[previous] == truth.person[row]
                and time_number[row] - time_number[previous] == 1
                and truth.time_s[row] - truth.time_s[previous] <= 2 * LONGEST_REACH_S + _SAME_TIME_S
            )
            if not goes_on:
                begins_s.append(float(truth.time_s[row]))
            number[row] = len(begins_s) - 1
        previous = row if is_acting[row] else None
    return number, np.array(begins_s, dtype=np.float64)


def _paired(
    overlap: Float[np.ndarray, "people tracks"], last_tracks: Sequence[int | None], tracks: Sequence[int]
) -> dict[int, int]:
    """Pair positions of people and of tracks; overlaps of 0 are not allowed."""
    pairs: dict[int, int] = {}
    free = dict(zip(tracks, range(len(tracks)), strict=True))
    for i, last in enumerate(last_tracks):
        j = None if last is None else free.get(last)
        if j is not None and overlap[i, j] > 0:
            pairs[i] = j
            del free[tracks[j]]
    rest, left = [i for i in range(len(last_tracks)) if i not in pairs], list(free.values())
    among = overlap[np.ix_(rest, left)]
    for a, b in zip(*linear_sum_assignment(among, maximize=True), strict=True):
        if among[a, b] > 0:
            pairs[rest[a]] = left[b]
    return pairs


def _rows_of(number: Int[np.ndarray, " rows"], count: int) -> list[Int[np.ndarray, " some"]]:
    """Return the rows of each number, in order."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.searchsorted(number[order], np.arange(1, count))) if count else []
