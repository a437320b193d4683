"""The learning rate of every step."""

import math

import pytest

from mule.core.errors import RangeError
from mule.training.step import Schedule


def rates(**settings):
    schedule = Schedule(lr=0.4, num_steps=10, **settings)
    return [schedule.rate(step) for step in range(10)]


def test_without_a_rise_or_a_fall_the_rate_stays():
    assert rates() == [0.4] * 10


def test_the_rise_is_linear_and_ends_at_the_rate():
    assert rates(warmup_steps=4, warmup_lr=0.2)[:6] == pytest.approx([0.2, 0.25, 0.3, 0.35, 0.4, 0.4])


def test_each_milestone_multiplies_once():
    found = rates(kind="step", milestones=(3, 7), factor=0.1)
    assert found == pytest.approx([0.4] * 3 + [0.04] * 4 + [0.004] * 3)


def test_a_cosine_falls_from_the_rate_after_the_rise_to_the_final_share():
    schedule = Schedule(lr=0.4, num_steps=10, kind="cosine", warmup_steps=2, final_share=0.25)
    assert schedule.rate(2) == pytest.approx(0.4)
    assert schedule.rate(6) == pytest.approx(0.4 * (0.25 + 0.75 / 2))
    assert schedule.rate(10) == pytest.approx(0.1)
    assert schedule.rate(99) == pytest.approx(0.1)
    expected = [0.4 * (0.25 + 0.75 * (1 + math.cos(math.pi * k / 8)) / 2) for k in range(8)]
    assert [schedule.rate(2 + k) for k in range(8)] == pytest.approx(expected)


def test_a_rise_longer_than_the_training_is_refused():
    with pytest.raises(RangeError, match=r"takes 11 of 10 steps.*warmup_epochs"):
        Schedule(lr=0.1, num_steps=10, warmup_steps=11)
