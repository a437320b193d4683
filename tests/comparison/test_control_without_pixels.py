"""The control without pixels: chance where clips are alike, certain where their size gives them away."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from mule.comparison.checks import control_without_pixels
from mule.core.errors import NotFinite, TooFewActors
from mule.metrics import auroc

CLIP = [1.3, 320.0, 240.0]


def test_clips_that_are_all_alike_say_nothing():
    is_novel = np.array([True, False, False, True])
    control = control_without_pixels(np.array([CLIP] * 4), np.array([CLIP] * 4), is_novel)
    assert control.tolist() == [0, 0, 0, 0]
    assert auroc(control, is_novel) == 0.5


def test_novel_clips_of_another_size_give_themselves_away():
    tested = np.array([CLIP, CLIP, [1.3, 456.0, 256.0]])
    is_novel = np.array([False, False, True])
    control = control_without_pixels(np.array([CLIP] * 3), tested, is_novel)
    assert control.tolist() == pytest.approx([0, 0, np.hypot(136, 16)])  # nothing varies: plain pixels
    assert auroc(control, is_novel) == 1


def test_distances_are_those_of_a_slow_search_in_standard_deviations():
    rng = np.random.default_rng(3)
    training, tested = rng.normal(size=(30, 3)) * [1, 100, 1e-3], rng.normal(size=(20, 3)) * [1, 100, 1e-3]
    is_novel = rng.random(20) < 0.4
    slow = [
        min(np.sqrt(sum(((a - b) / s) ** 2 for a, b, s in zip(x, y, training.std(0), strict=True))) for y in training)
        for x in tested
    ]  # fmt: skip
    control = control_without_pixels(training, tested, is_novel)
    np.testing.assert_allclose(control, slow, rtol=1e-12)
    assert auroc(control, is_novel) == pytest.approx(roc_auc_score(is_novel, slow))


def test_units_do_not_matter():
    rng = np.random.default_rng(4)
    training, tested, is_novel = rng.random((9, 2)), rng.random((8, 2)), np.arange(8) % 2 == 0
    plain = control_without_pixels(training, tested, is_novel)
    scaled = control_without_pixels(training * [7, 0.1] + 2, tested * [7, 0.1] + 2, is_novel)
    np.testing.assert_allclose(scaled, plain)


@pytest.mark.parametrize(
    ("num_training", "is_novel"),
    [(0, [True, False]), (2, [True, True]), (2, [False, False]), (2, [])],
)
def test_without_training_known_or_novel_clips_there_is_no_control(num_training, is_novel):
    with pytest.raises(TooFewActors, match="a control needs training clips, and both known and novel clips"):
        control_without_pixels(
            np.ones((num_training, 3)), np.ones((len(is_novel), 3)), np.array(is_novel, dtype=bool)
        )


def test_facts_are_finite():
    with pytest.raises(NotFinite, match="finite"):
        control_without_pixels(np.ones((2, 1)), np.array([[1.0], [np.nan]]), np.array([True, False]))
