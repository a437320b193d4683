"""Moments made by hand, with answers known beforehand; matching and time against slow loops and MOT's own program."""

from collections import Counter
from itertools import permutations

import motmetrics
import numpy as np
import pytest

from mule.core.errors import RangeError
from mule.evaluation.following import (
    NONE,
    SeenPeople,
    TruePeople,
    act_numbers,
    labelled_time_at,
    match_people,
    overlaps,
)
from mule.evaluation.watched import evaluate_watched
from mule.evaluation.watched_results import watched_in_words

KNOWN, NOVEL = ("walk", "sit"), ("kick",)
LEFT, MIDDLE, RIGHT = (0.1, 0.1, 0.3, 0.9), (0.4, 0.1, 0.6, 0.9), (0.7, 0.1, 0.9, 0.9)


def true_people(*rows, has_ids=True):
    """Rows of time, box, person and actions."""
    names = [*KNOWN, *NOVEL]
    labels = np.array([[name in row[3] for name in names] for row in rows], dtype=bool).reshape(
        -1, len(names)
    )
    return TruePeople(
        np.array([row[0] for row in rows], dtype=float),
        np.array([row[1] for row in rows], dtype=float).reshape(-1, 4),
        labels,
        np.array([row[2] for row in rows], dtype=int) if has_ids else None,
    )


def seen_people(key_times_s, *rows):
    """Rows of key time, box, track, probabilities by action, and whether the person is flagged."""
    return SeenPeople(
        key_times_s=np.array(key_times_s, dtype=float),
        every_s=1.0,
        time_index=np.array([key_times_s.index(row[0]) for row in rows], dtype=int),
        track_id=np.array([row[2] for row in rows], dtype=int),
        boxes_xyxy_unit=np.array([row[1] for row in rows], dtype=float).reshape(-1, 4),
        probabilities=np.array(
            [[row[3].get(name, 0.0) for name in KNOWN] for row in rows], dtype=float
        ).reshape(-1, 2),
        is_flagged=np.array([row[4] for row in rows], dtype=bool),
    )


def measured(truth, seen, **options):
    return evaluate_watched([(truth, seen)], classes=KNOWN, novel_classes=NOVEL, **options)


def test_no_videos_have_nothing_to_measure():
    result = evaluate_watched([], classes=KNOWN)
    assert all(looks.num == 0 for looks in result.looks.values())
    assert result.naming.mean_ap is None
    assert result.acts is not None
    assert (result.acts.num, result.acts.median_delay_s) == (0, None)
    assert watched_in_words(result).startswith(
        "Nobody was seen who did something. – of the looks at people of the table were missed"
    )


def test_a_video_without_people_has_key_times_that_only_a_complete_table_judges():
    nobody = (true_people(), seen_people([0.0, 1.0]))
    assert measured(*nobody).num_judged_times == 0
    complete = measured(*nobody, is_complete=True)
    assert (complete.num_judged_times, complete.num_key_times) == (2, 2)
    assert all(looks.num == 0 for looks in complete.looks.values())


def test_whoever_is_seen_where_the_table_has_nobody_is_unlisted_if_it_is_complete():
    seen = seen_people([0.0], (0.0, LEFT, 1, {"walk": 0.9}, True))
    assert measured(true_people(), seen).looks["unlisted"].num == 0
    unlisted = measured(true_people(), seen, is_complete=True).looks["unlisted"]
    assert (unlisted.num, unlisted.num_flagged, unlisted.num_wrongly_named) == (1, 1, 1)


def test_people_who_are_never_seen_are_missed_and_count_against_recall():
    truth = true_people((0, LEFT, 1, ["walk"]), (0, RIGHT, 2, ["kick"]))
    result = measured(truth, seen_people([0.0]))
    assert (result.looks["known"].num, result.looks["known"].num_seen) == (1, 0)
    assert result.identities is not None
    assert result.identities.num_never_seen == 2
    assert (result.naming.precision, result.naming.recall) == (None, 0.0)
    assert result.naming.mean_ap is None
    assert result.naming.mean_ap_everybody is not None
    assert result.acts is not None
    assert (result.acts.num, result.acts.num_flagged) == (1, 0)


def test_exact_answers_are_perfect():
    truth = true_people(
        *((t, LEFT, 1, ["walk"]) for t in (0, 1)), *((t, RIGHT, 2, ["walk", "sit"]) for t in (0, 1))
    )
    rows = [(t, LEFT, 8, {"walk": 0.9}, False) for t in (0.0, 1.0)]
    rows += [(t, RIGHT, 9, {"walk": 0.8, "sit": 0.7}, False) for t in (0.0, 1.0)]
    result = measured(truth, seen_people([0.0, 1.0], *rows))
    naming, identities = result.naming, result.identities
    assert {naming.mean_ap, naming.mean_ap_everybody, naming.precision, naming.recall} == {1.0}
    assert {naming.mean_ap_by_person, naming.precision_by_person, naming.recall_by_person} == {1.0}
    assert identities is not None
    assert (identities.num_switches, identities.num_on_own_track, identities.num_tracks_of_nobody) == (
        0,
        4,
        0,
    )
    assert result.looks["known"].seconds == 4.0


def test_a_miss_an_invention_and_a_switch_are_each_counted_once():
    truth = true_people(*((t, LEFT, 1, ["walk"]) for t in range(5)))
    seen = seen_people(
        [0.0, 1.0, 2.0, 3.0, 4.0],
        (0.0, LEFT, 1, {}, False),
        (1.0, LEFT, 1, {}, False),
        (1.0, RIGHT, 2, {}, False),  # nobody is there
        (3.0, LEFT, 3, {}, False),  # after a miss, as another track
        (4.0, LEFT, 3, {}, False),
    )
    result = measured(truth, seen)
    assert (result.looks["known"].num, result.looks["known"].num_seen) == (5, 4)
    assert result.looks["unlisted"].num == 1
    identities = result.identities
    assert identities is not None
    assert (identities.num_tracks, identities.num_tracks_of_nobody, identities.num_switches) == (3, 1, 1)
    assert identities.num_on_own_track == 4  # both tracks are mostly this person's


def test_a_track_belongs_to_the_person_it_shows_most_often():
    truth = true_people(*((t, LEFT, 1, []) for t in (0, 1, 2)), *((t, RIGHT, 2, []) for t in (3, 4)))
    rows = [(float(t), LEFT if t < 3 else RIGHT, 7, {}, False) for t in range(5)]
    identities = measured(truth, seen_people([0.0, 1.0, 2.0, 3.0, 4.0], *rows)).identities
    assert identities is not None
    assert (identities.num_switches, identities.num_on_own_track) == (0, 3)


def test_of_two_people_side_by_side_each_gets_what_was_said_of_them():
    overlapping = (0.18, 0.1, 0.38, 0.9)
    truth = true_people((0, LEFT, 1, ["walk"]), (0, overlapping, 2, ["sit"]))
    seen = seen_people([0.0], (0.0, overlapping, 5, {"sit": 0.9}, False), (0.0, LEFT, 4, {"walk": 0.9}, True))
    result = measured(truth, seen, min_iou=0.3)
    assert result.naming.precision == 1.0
    assert result.looks["known"].num_flagged == 1


def test_a_person_keeps_their_track_while_it_overlaps_even_if_another_fits_better():
    apart = (0.11, 0.1, 0.31, 0.9)
    truth = true_people((0, LEFT, 1, []), (1, LEFT, 1, []))
    seen = seen_people(
        [0.0, 1.0],
        (0.0, LEFT, 4, {}, False),
        (1.0, LEFT, 5, {}, False),
        (1.0, apart, 4, {}, False),
    )
    assert match_people(truth, seen).seen_row.tolist() == [0, 2, 1]


def test_a_novel_act_flagged_late_takes_that_long_and_one_flagged_afterwards_never_was():
    late = [(t, LEFT, 1, ["kick"] if t < 4 else []) for t in range(6)]
    too_late = [(t, RIGHT, 2, ["kick"] if t < 4 else []) for t in range(6)]
    times = [float(t) for t in range(6)]
    rows = [(t, LEFT, 1, {}, t in (2, 3)) for t in times] + [(t, RIGHT, 2, {}, t == 5) for t in times]
    result = measured(true_people(*late, *too_late), seen_people(times, *rows))
    assert result.acts is not None
    assert (result.acts.num, result.acts.num_flagged, result.acts.median_delay_s) == (2, 1, 2.0)
    assert result.people is not None
    novel = result.people["novel"]
    assert (novel.num_flagged, novel.num_flagged_in_act) == (2, 1)
    assert (result.looks["novel"].num, result.looks["novel"].num_flagged) == (8, 2)
    assert (result.looks["idle"].num, result.looks["idle"].num_flagged) == (4, 1)
    assert result.novel_actions["kick"].num_people_flagged == 1
    assert "50 % of novel people were flagged while they did something novel (1 of 2)" in watched_in_words(
        result
    )
    assert "half of these within 2.0 s" in watched_in_words(result)


def test_an_act_between_two_key_times_is_never_flagged_and_one_after_the_last_was_not_watched():
    rows = [(0.4, LEFT, 1, ["kick"]), (5.0, LEFT, 1, ["kick"])]
    acts = measured(true_people(*rows), seen_people([0.0, 1.0])).acts
    assert acts is not None
    assert (acts.num, acts.num_flagged) == (1, 0)


def test_idle_people_who_are_named_are_wrongly_named():
    truth = true_people((0, LEFT, 1, []), (0, RIGHT, 2, []))
    seen = seen_people([0.0], (0.0, LEFT, 1, {"walk": 0.9}, False), (0.0, RIGHT, 2, {"sit": 0.4}, False))
    result = measured(truth, seen)
    idle = result.looks["idle"]
    assert (idle.num_seen, idle.num_named, idle.num_wrongly_named) == (2, 1, 1)
    assert "Idle people were named with an action in 50 % of looks." in watched_in_words(result)
    assert measured(truth, seen, min_probability=0.3).looks["idle"].num_named == 2


def test_mean_ap_ranks_known_people_seen_and_that_of_everybody_also_the_others():
    truth = true_people((0, LEFT, 1, ["walk"]), (0, MIDDLE, 2, ["sit"]), (0, RIGHT, 3, []))
    seen = seen_people(
        [0.0],
        (0.0, LEFT, 1, {"walk": 0.8}, False),
        (0.0, MIDDLE, 2, {"sit": 0.8}, False),
        (0.0, RIGHT, 3, {"walk": 0.9}, False),
    )
    result = measured(truth, seen)
    assert result.naming.mean_ap == 1.0
    assert result.naming.mean_ap_everybody == 0.75  # the idle person ranks before the one who walks
    assert result.known_actions["walk"].precision == 0.5


def test_without_ids_looks_are_measured_and_people_are_not():
    truth = true_people((0, LEFT, 0, ["kick"]), (1, LEFT, 0, ["kick"]), has_ids=False)
    seen = seen_people([0.0, 1.0], (0.0, LEFT, 1, {}, True), (1.0, LEFT, 2, {}, False))
    result = measured(truth, seen)
    assert (result.people, result.acts, result.identities) == (None, None, None)
    assert (result.looks["novel"].num, result.looks["novel"].num_flagged) == (2, 1)
    assert "50 % of novel" in watched_in_words(result)


def test_videos_are_counted_together_and_their_people_apart():
    truth = true_people((0, LEFT, 1, ["walk"]))
    seen = seen_people([0.0], (0.0, LEFT, 1, {"walk": 0.9}, False))
    result = evaluate_watched([(truth, seen)] * 3, classes=KNOWN, novel_classes=NOVEL)
    assert result.identities is not None
    assert (result.identities.num_people, result.identities.num_tracks) == (3, 3)
    assert result.looks["known"].num == 3


def test_an_act_ends_where_the_person_stops_leaves_or_is_not_labelled_for_more_than_a_second():
    truth = true_people(
        *((t, LEFT, 1, ["kick"]) for t in (0, 1)),
        (2, LEFT, 1, []),
        (3, LEFT, 1, ["kick"]),
        (4, RIGHT, 2, ["kick"]),  # person 1 is not there
        (5, LEFT, 1, ["kick"]),
        (7, LEFT, 1, ["kick"]),
    )
    number, begin_s = act_numbers(truth.labels[:, 2], truth)
    assert begin_s[number[number != NONE]].tolist() == [0, 0, 3, 4, 5, 7]


def test_a_labelled_time_reaches_half_the_way_to_its_neighbours_and_at_most_half_a_second():
    rng = np.random.default_rng(0)
    for _ in range(50):
        labelled = np.unique(rng.choice(np.arange(60), size=rng.integers(1, 8))) / 10
        keys = np.arange(-10, 80) / 10 + 0.013
        expected = []
        for key in keys:
            best = min(range(len(labelled)), key=lambda i: abs(labelled[i] - key))
            side = 1 if key > labelled[best] else -1
            ends = [i for i in (best + side, best - side) if 0 <= i < len(labelled)]
            reach = min([0.5, *(abs(labelled[i] - labelled[best]) / 2 for i in ends[:1])])
            expected.append(best if abs(labelled[best] - key) <= reach + 1e-6 else NONE)
        assert labelled_time_at(keys, labelled).tolist() == expected


def crowd(rng, num_times=12):
    """People who walk about, as they are and as somebody saw them: moved, lost, invented, and renamed."""
    truth, seen = [], []
    centres = rng.uniform(0.1, 0.9, (4, 2))
    track_of = list(range(10, 14))
    for t in range(num_times):
        centres = centres + rng.normal(0, 0.02, (4, 2))
        for i in np.flatnonzero(rng.random(4) < 0.1).tolist():
            track_of[i] = 100 + 4 * t + i
        for i in np.flatnonzero(rng.random(4) < 0.1).tolist():
            track_of[i], track_of[i - 1] = track_of[i - 1], track_of[i]
        for i, (x, y) in enumerate(centres):
            box = (x - 0.1, y - 0.2, x + 0.1, y + 0.2)
            if rng.random() < 0.9:
                truth.append((t, box, i, []))
            if rng.random() < 0.85:
                dx, dy = rng.normal(0, 0.015, 2)
                seen.append(
                    (float(t), np.add(box, (dx, dy, dx, dy)), track_of[i], {}, False),
                )
    return true_people(*truth), seen_people([float(t) for t in range(num_times)], *seen)


@pytest.mark.parametrize("seed", range(12))
def test_misses_inventions_and_switches_are_those_of_the_program_of_mot(seed):
    truth, seen = crowd(np.random.default_rng(seed))
    looks = match_people(truth, seen)
    theirs = motmetrics.MOTAccumulator()
    assert truth.person is not None
    for at, time_s in enumerate(seen.key_times_s.tolist()):
        here, there = np.flatnonzero(truth.time_s == time_s), np.flatnonzero(seen.time_index == at)
        if not len(here):
            continue
        iou = overlaps(truth.boxes_xyxy_unit[here], seen.boxes_xyxy_unit[there])
        distance = np.where(iou >= 0.5, 1 - iou, np.nan)
        theirs.update(truth.person[here].tolist(), seen.track_id[there].tolist(), distance, frameid=at)
    kinds = Counter(theirs.mot_events["Type"])
    ours = (looks.seen_row == NONE).sum(), (looks.true_row == NONE).sum(), looks.is_switched.sum()
    assert ours == tuple(kinds[kind] for kind in ("MISS", "FP", "SWITCH"))
    assert looks.is_switched.any()


@pytest.mark.parametrize("seed", range(6))
def test_without_a_past_no_other_pairs_have_a_larger_total_overlap(seed):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 0.5, (9, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.2, 0.5, (9, 2))], axis=1)
    truth = true_people(*((0, box, i, []) for i, box in enumerate(boxes[:4])), has_ids=False)
    seen = seen_people([0.0], *((0.0, box, i, {}, False) for i, box in enumerate(boxes[4:])))
    iou = overlaps(boxes[:4], boxes[4:])
    iou[iou < 0.2] = 0
    looks = match_people(truth, seen, min_iou=0.2)
    pairs = (looks.true_row != NONE) & (looks.seen_row != NONE)
    total = iou[looks.true_row[pairs], looks.seen_row[pairs]]
    best = max(sum(iou[i, j] for i, j in enumerate(order)) for order in permutations(range(5), 4))
    assert total.sum() == pytest.approx(best)
    assert (total > 0).all()
    assert len(looks) == 4 + 5 - pairs.sum()


def test_what_does_not_fit_together_is_refused():
    truth, seen = true_people((0, LEFT, 1, [])), seen_people([0.0])
    with pytest.raises(RangeError, match=r"least IoU must lie above 0 and be at most 1; got 0\."):
        match_people(truth, seen, min_iou=0.0)
    with pytest.raises(RangeError, match="3 known and 0 novel actions"):
        evaluate_watched([(truth, seen)], classes=["walk", "sit", "run"])
    with pytest.raises(RangeError, match="key times must rise"):
        seen_people([1.0, 0.0])
    with pytest.raises(RangeError, match="these have no ids"):
        act_numbers(np.zeros(0, bool), true_people(has_ids=False))
