import numpy as np
import pytest
import torch
import torchmetrics.functional.classification as torchmetrics
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.evaluation.mean_ap import (
    mean_average_precision,
    multilabel_average_precision,
    ranked_average_precision,
)


@st.composite
def scored_labels(draw):
    num_actors, num_classes = draw(st.integers(1, 25)), draw(st.integers(1, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = generator.integers(0, draw(st.sampled_from([2, 5, 1000])), (num_actors, num_classes)) / 7
    return scores, generator.random((num_actors, num_classes)) < 0.4


@pytest.mark.parametrize("shape", [(0, 3), (4, 3)], ids=["no actors", "no positives"])
def test_classes_without_positives_have_no_average_precision(shape):
    assert np.isnan(multilabel_average_precision(np.zeros(shape), np.zeros(shape, dtype=bool))).all()
    assert np.isnan(ranked_average_precision(np.zeros(shape), np.zeros(shape, dtype=bool))).all()
    with pytest.raises(RangeError, match="none of the 3 classes has one"):
        mean_average_precision(np.zeros(shape), np.zeros(shape, dtype=bool))


@given(scored_labels())
def test_average_precision_of_each_class_equals_scikit_learn(labelled):
    scores, targets = labelled
    ours = multilabel_average_precision(scores, targets)
    for at in range(scores.shape[1]):
        if targets[:, at].any():
            assert ours[at] == pytest.approx(
                average_precision_score(targets[:, at], scores[:, at]), abs=1e-12
            )
        else:
            assert np.isnan(ours[at])


def test_mean_average_precision_equals_torchmetrics():
    generator = np.random.default_rng(0)
    scores, targets = generator.random((200, 12)).round(2), generator.random((200, 12)) < 0.2
    theirs = torchmetrics.multilabel_average_precision(
        torch.from_numpy(scores), torch.from_numpy(targets.astype(np.int64)), num_labels=12
    )
    assert mean_average_precision(scores, targets) == pytest.approx(theirs.item(), abs=1e-6)


@given(scored_labels())
def test_ranked_average_precision_is_the_mean_precision_at_each_positive(labelled):
    scores, targets = labelled
    ours = ranked_average_precision(scores, targets)
    for at in range(scores.shape[1]):
        order = sorted(range(len(scores)), key=lambda row: -scores[row, at])
        found, precisions = 0, []
        for rank, row in enumerate(order, start=1):
            if targets[row, at]:
                found += 1
                precisions.append(found / rank)
        expected = np.mean(precisions) if precisions else np.nan
        np.testing.assert_allclose(ours[at], expected, atol=1e-12)


@given(scored_labels())
def test_the_order_of_actors_does_not_change_average_precision(labelled):
    scores, targets = labelled
    backwards = multilabel_average_precision(scores[::-1], targets[::-1])
    np.testing.assert_allclose(backwards, multilabel_average_precision(scores, targets), atol=1e-12)


def test_classes_without_positives_are_left_out_of_the_mean():
    scores = np.array([[0.9, 0.2, 0.5], [0.1, 0.8, 0.5]])
    targets = np.array([[True, True, False], [False, False, False]])
    assert mean_average_precision(scores, targets) == pytest.approx((1.0 + 0.5) / 2)


@pytest.mark.parametrize(
    ("scores", "targets", "error", "words"),
    [
        (np.zeros((2, 3)), np.zeros((2, 2), dtype=bool), ShapeError, r"got shapes \(2, 3\) and \(2, 2\)"),
        (np.zeros(3), np.zeros(3, dtype=bool), ShapeError, "both be"),
        (np.zeros((2, 3), dtype=int), np.zeros((2, 3), dtype=bool), ShapeError, "floating-point"),
        (np.zeros((2, 3)), np.full((2, 3), 2), RangeError, "must be 0 or 1"),
        (np.full((2, 3), np.nan), np.ones((2, 3), dtype=bool), NotFinite, "6 of 6"),
        (np.full((2, 3), -np.inf), np.ones((2, 3), dtype=bool), NotFinite, "6 of 6"),
    ],
)
def test_wrong_arrays_are_answered_in_words(scores, targets, error, words):
    with pytest.raises(error, match=words):
        multilabel_average_precision(scores, targets)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_ranking_refuses_what_has_no_rank(value):
    with pytest.raises(NotFinite, match="NaN or"):
        ranked_average_precision(np.full((2, 1), value), np.ones((2, 1), dtype=bool))


def test_tensors_lists_and_arrays_are_the_same():
    scores, targets = np.array([[0.9, 0.2], [0.8, 0.7], [0.1, 0.5]]), np.array([[1, 0], [0, 1], [1, 0]])
    expected = mean_average_precision(scores, targets)
    tensor = torch.tensor(scores, requires_grad=True)
    assert mean_average_precision(tensor, torch.tensor(targets)) == expected
    assert mean_average_precision(tensor.sigmoid(), torch.tensor(targets, dtype=torch.float32)) == expected
    assert mean_average_precision(scores.tolist(), targets.tolist()) == expected
