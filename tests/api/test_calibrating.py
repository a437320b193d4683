"""Calibration by watching: what looks show, who is idle, and a threshold that known people keep."""

import numpy as np
import torch

from mule.api.calibrating import joined_looks, looks_matched, with_watched
from mule.evaluation.following import TruePeople
from mule.novelty.known import KnownActors
from mule.watching.engine.bundle_card import WatchedFigures
from mule.watching.engine.looking import Looks
from mule.watching.engine.seen import SeenModel
from mule.watching.engine.usual import usual_of

DIM, NUM_ACTIONS, NOVEL, IDLE = 12, 3, 3, 4
MEANS = 3 * torch.randn(5, DIM, generator=torch.Generator().manual_seed(5))
BOX = np.array([0.1, 0.1, 0.4, 0.9])


def seen_as(does, *, seed):
    draw = torch.Generator().manual_seed(seed)
    return {"roi": MEANS[torch.as_tensor(does)] + torch.randn(len(does), DIM, generator=draw)}


def model(num=90):
    does = torch.arange(num) % NUM_ACTIONS
    groups = torch.arange(num) // NUM_ACTIONS
    return SeenModel.of(
        KnownActors(
            inputs=seen_as(does, seed=0),
            labels=does[:, None] == torch.arange(NUM_ACTIONS),
            actions=("run", "sit", "talk"),
            groups=groups,
            group_names=tuple(f"film {at}" for at in range(num // NUM_ACTIONS)),
            tracks=torch.full((num,), -1),
            is_example=torch.zeros(num, dtype=torch.bool),
        )
    )


def video(does, *, seed):
    """One person on one track, a look a second; `does` is an action, NOVEL or IDLE at each."""
    times = np.arange(len(does), dtype=np.float64)
    labels = np.array(does)[:, None] == np.arange(NUM_ACTIONS + 1)
    boxes = np.tile(BOX, (len(does), 1))
    looks = Looks(
        torch.from_numpy(times),
        torch.arange(len(does)),
        torch.full((len(does),), 7),
        torch.from_numpy(boxes),
        seen_as(does, seed=seed),
    )
    return looks, TruePeople(times, boxes, labels, np.zeros(len(does), dtype=np.int64))


def watched(num=60, *, is_complete=True, first_seed=100):
    parts = []
    for at in range(num):
        act = NOVEL if at % 4 == 3 else at % NUM_ACTIONS
        looks, truth = video([IDLE, IDLE, act, act, act, IDLE, IDLE], seed=first_seed + at)
        parts.append((f"film {at % 30}", looks, truth))
    return joined_looks(parts, model().known, every_s=1.0, is_complete=is_complete)


def test_what_is_done_before_and_after_an_act_is_nothing_only_in_a_complete_table():
    looks, truth = video([IDLE, 1, NOVEL, IDLE], seed=1)
    rows, does, kinds = looks_matched(looks, truth, NUM_ACTIONS, every_s=1.0, is_complete=True)
    assert rows.tolist() == [0, 1, 2, 3]
    assert does.argmax(axis=1)[1:3].tolist() == [1, NOVEL]
    assert kinds == ["before", "", "", "after"]
    assert not any(looks_matched(looks, truth, NUM_ACTIONS, every_s=1.0, is_complete=False)[2])


def test_somebody_whom_a_complete_table_does_not_name_stands_by():
    looks, truth = video([0, 0], seed=2)
    truth = TruePeople(truth.time_s, truth.boxes_xyxy_unit + 0.55, truth.labels, truth.person)
    rows, _, kinds = looks_matched(looks, truth, NUM_ACTIONS, every_s=1.0, is_complete=True)
    assert (rows.tolist(), kinds) == ([-1, -1], ["standing by"] * 2)


def test_a_model_calibrated_by_watching_knows_idle_people_and_keeps_its_promise():
    calibrated, figures = with_watched(model(), watched())
    assert figures is not None
    assert (figures.num_known_people, figures.num_novel_people) == (45, 15)
    assert figures.num_novel_flagged >= 12
    assert figures.num_idle_recognised >= 0.9 * figures.num_idle_looks == 0.9 * 4 * 60
    assert figures.num_known_called_idle <= 0.1 * figures.num_known_looks
    usual = usual_of(calibrated.fitted)
    assert usual.num_held_out == 45
    assert "while they are watched" in usual.threshold("known-95").meaning
    fresh = watched(120, first_seed=900)
    parts, idle = calibrated.fitted.parts, calibrated.fitted.idle(fresh.inputs)
    assert idle is not None
    rank = usual.of_one_look(parts.ranks(fresh.inputs)).rank
    limit = usual.threshold("known-95").value
    flagged = {True: [], False: []}
    for person in np.unique(fresh.people).tolist():
        rows = np.flatnonzero((fresh.people == person) & (idle <= 0.5).numpy())
        p_values = [torch.exp(-usual.so_far([rank[rows[: n + 1]].tolist()])).item() for n in range(len(rows))]
        flagged[bool(fresh.does_novel[rows].any())].append(any(1 - each > limit for each in p_values))
    assert np.mean(flagged[False]) <= 0.12
    assert np.mean(flagged[True]) >= 0.8


def test_too_few_watched_people_leave_the_threshold_of_labelled_moments_with_a_sentence():
    said: list[str] = []
    calibrated, figures = with_watched(model(), watched(12), noted=said.append)
    assert figures is None
    assert calibrated.fitted.watched is None
    assert "only 9 known people were followed" in said[0]


def test_figures_are_kept_as_they_were_written():
    figures = WatchedFigures(num_videos=3, num_known_people=30, num_idle_looks=9, num_idle_recognised=8)
    assert WatchedFigures.model_validate_json(figures.model_dump_json()) == figures
    assert "8 of 9 idle looks" in figures.in_words()
