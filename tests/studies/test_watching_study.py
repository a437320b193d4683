"""The study of watching: what is learnt, flagged and measured in made-up reels, and its page."""

import numpy as np
import pytest
import torch

from mule.evaluation.following import NONE, SeenPeople, TruePeople
from studies.watching import running
from studies.watching.judging import Acts, ClassSplit, Looked, Reel, flagged_after, joined, ordinary
from studies.watching.page import bars, read_rows, whole_page
from studies.watching.running import BEFORE, CHOSEN, MEASURES, of_split

pytestmark = pytest.mark.slow  # everything is fitted eleven times, for three ways of scoring

ACTIONS, DIM, LOOKS_EACH, PEOPLE_EACH = 21, 24, 6, 9
SEED = 0


def looks_like(does, draw):
    """An action is a direction, idleness another one."""
    direction = np.full(len(does), ACTIONS)
    direction[does.any(axis=1)] = does.argmax(axis=1)[does.any(axis=1)]
    seen = np.eye(DIM)[direction] + 0.15 * draw.standard_normal((len(does), DIM))
    return {name: torch.from_numpy(seen).float() for name in ("roi", "labels")}


def reels(count, *, films, seed):
    """People side by side who idle, act for four looks, and idle; each of a film of its own."""
    draw = np.random.default_rng(seed)
    times = np.arange(LOOKS_EACH, dtype=float)
    found = []
    for reel in range(count):
        person = np.tile(np.arange(PEOPLE_EACH), LOOKS_EACH)
        at = np.repeat(np.arange(LOOKS_EACH), PEOPLE_EACH)
        action = draw.integers(ACTIONS, size=PEOPLE_EACH)
        labels = np.eye(ACTIONS, dtype=bool)[action[person]] & ((at > 0) & (at < 5))[:, None]
        x = person / PEOPLE_EACH
        boxes = np.stack([x, 0 * x, x + 0.05, 0 * x + 1], axis=1)
        truth = TruePeople(times[at], boxes, labels, person)
        seen = SeenPeople(
            times, 1.0, at, person, boxes, np.zeros((len(at), ACTIONS)), np.zeros(len(at), dtype=bool)
        )
        film = np.array([f"{films}-{reel}-{who}" for who in person])
        kind = np.where(at == 0, "before", "after")
        found.append(
            Reel(
                truth,
                seen,
                looks_like(labels, draw),
                labels,
                np.ones(len(at), dtype=bool),
                film,
                person,
                kind,
            )
        )
    return found


def acts(per_action, *, seed):
    does = np.tile(np.eye(ACTIONS, dtype=bool), (per_action, 1))
    films = np.array([f"act-{number}" for number in range(len(does))])
    return Acts(looks_like(does, np.random.default_rng(seed)), does, films)


@pytest.fixture(scope="module")
def found():
    return of_split(
        SEED,
        acts(4, seed=1),
        reels(4, films="train", seed=2),
        reels(3, films="other", seed=3),
        acts(2, seed=4),
    )


def test_where_actions_are_plain_novel_people_are_flagged_and_idle_ones_are_named_idle(found):
    chosen = found[CHOSEN]
    assert chosen["novel_people_flagged"] > 80
    assert chosen["known_people_flagged"] < 20
    assert chosen["idle_looks_named"] < 10 < found[BEFORE]["idle_looks_named"]
    assert found[BEFORE]["mean_ap_labelled"] > 90


def test_every_way_and_rival_has_every_measure_and_more_looks_flag_no_fewer(found):
    assert {"kNN, watched, idle, window", "JointEnergy, watched, idle, window"} < set(found)
    for row in found.values():
        assert set(MEASURES) - set(row) <= {"mean_ap_labelled"}
        assert row["novel_after_1"] <= row["novel_after_2"] <= row["novel_after_4"] <= row["novel_after_8"]


def test_ordinary_people_do_nothing_novel_at_any_look_and_are_listed():
    (reel,) = reels(1, films="film", seed=0)
    looks = joined([reel], ("roi",))
    split = ClassSplit.drawn(SEED, ACTIONS)
    does_novel = {who for who, row in zip(reel.person, reel.labels, strict=True) if row[split.novel].any()}
    assert set(looks.people[ordinary(looks, split)].tolist()) == set(reel.person.tolist()) - does_novel


def test_people_are_flagged_after_some_looks_at_an_act_not_before_it():
    looks = Looked(
        {},
        np.zeros((5, 1)),
        np.ones(5, dtype=bool),
        np.array(["a"] * 5),
        np.array([""] * 5),
        np.zeros(5),
        np.array([1, 1, 1, 2, NONE]),
    )
    does = np.array([False, True, True, True, False])
    is_flagged = np.array([True, False, True, False, True])
    assert [flagged_after(is_flagged, looks, does, most) for most in (1, 2)] == [0, 50]


def test_the_page_reports_a_missed_bar_as_missed(found, tmp_path):
    path = tmp_path / "watching.csv"
    running._write_mean(path, [found, found])  # pyright: ignore[reportPrivateUsage] - as `compare` does
    rows = read_rows(path)
    rows[0]["mean_ap_labelled"] = str(float(rows[0]["mean_ap_labelled"]) + 100)
    assert [is_met for _, _, is_met in bars(rows)][-1] is False
    page = whole_page(rows, [], [])
    assert "**missed**" in page
    assert "kNN, watched, idle, window" in page
