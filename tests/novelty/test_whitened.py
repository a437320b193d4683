"""The whitened cosine against matrices written out, and what must not change it."""

import numpy as np
import pytest
import scipy.linalg
import torch

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.novelty.whitened import (
    WhitenedCosine,
    joined_blocks,
    oracle_shrinkage,
    principal_directions,
    within_set_residuals,
)

ACTIONS = 3


def actors(num: int, dim: int, *, seed: int = 0, most_labels: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Actors with uneven variances around a mean per action; with several labels the means add up."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.zeros(num, ACTIONS, dtype=torch.bool)
    labels[torch.arange(num), torch.arange(num) % ACTIONS] = True
    if most_labels > 1:
        labels |= torch.rand(num, ACTIONS, generator=draw) < 0.3
    means = torch.randn(ACTIONS, dim, generator=draw, dtype=torch.float64)
    spread = torch.linspace(0.2, 2.0, dim, dtype=torch.float64)
    noise = torch.randn(num, dim, generator=draw, dtype=torch.float64) * spread
    return labels.double() @ means * 2 + noise, labels


def written_out(
    features: np.ndarray, labels: np.ndarray, tested: np.ndarray, share: float | None
) -> np.ndarray:
    """The same score as loops and a matrix power."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    mean = unit.mean(axis=0)
    centred = unit - mean
    sets = [tuple(row) for row in labels]
    residuals = np.stack(
        [
            x - np.mean([y for y, s in zip(centred, sets, strict=True) if s == own], axis=0)
            for x, own in zip(centred, sets, strict=True)
        ]
    )
    freedom, dim = len(features) - len(set(sets)), features.shape[1]
    covariance = residuals.T @ residuals / freedom
    if share is None:
        squared, trace = np.trace(covariance @ covariance), np.trace(covariance)
        share = min(
            1.0,
            ((1 - 2 / dim) * squared + trace**2) / ((freedom + 1 - 2 / dim) * (squared - trace**2 / dim)),
        )
    shrunk = (1 - share) * covariance + share * np.trace(covariance) / dim * np.eye(dim)
    whitener = scipy.linalg.fractional_matrix_power(shrunk, -0.5)
    z = (tested / np.linalg.norm(tested, axis=1, keepdims=True) - mean) @ whitener
    means = np.stack([centred[labels[:, k]].mean(axis=0) for k in range(labels.shape[1])]) @ whitener
    cosine = z @ means.T / np.linalg.norm(z, axis=1)[:, None] / np.linalg.norm(means, axis=1)
    return -cosine.max(axis=1)


@pytest.mark.parametrize("most_labels", [1, 3])
@pytest.mark.parametrize("share", [None, 0.5, 0.1])
@pytest.mark.parametrize("dim", [6, 40])  # fewer and more dimensions than degrees of freedom
def test_novelty_equals_the_matrix_power_written_out(most_labels, share, dim):
    features, labels = actors(30, dim, most_labels=most_labels)
    tested, _ = actors(7, dim, seed=1)
    rank = WhitenedCosine.fit(features, labels, shrinkage=share).novelty(tested).rank
    expected = written_out(features.numpy(), labels.numpy(), tested.numpy(), share)
    np.testing.assert_allclose(rank.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("num", [30, 90])  # fewer and more actors than dimensions
def test_directions_are_those_of_a_singular_value_decomposition_over_ten_decades(num):
    draw = torch.Generator().manual_seed(num)
    spread = torch.logspace(0, -5, 40, dtype=torch.float64)  # of variance: ten decades
    residuals = torch.randn(num, 40, generator=draw, dtype=torch.float64) * spread
    sums, directions = principal_directions(residuals)
    _, singular, rows = torch.linalg.svd(residuals, full_matrices=False)
    of_svd = singular.square()[: len(sums)]
    torch.testing.assert_close(sums, of_svd, rtol=1e-4, atol=1e-13 * float(of_svd[0]))
    assert (singular.square()[len(sums) :] < 2e-10 * of_svd[0]).all()
    shrunk = of_svd[0] * 1e-3
    expected = (rows[: len(sums)].T * (of_svd + shrunk).rsqrt()) @ rows[: len(sums)]
    found = (directions * (sums + shrunk).rsqrt()) @ directions.T
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8 * float(expected.abs().max()))


def test_neither_a_rotation_nor_the_length_of_features_changes_novelty():
    features, labels = actors(40, 8)
    tested, _ = actors(9, 8, seed=1)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(2)).double())[0]
    lengths = torch.linspace(0.1, 9, 9).double()[:, None]
    rank = WhitenedCosine.fit(features, labels).novelty(tested).rank
    turned = WhitenedCosine.fit(features @ rotation, labels).novelty(lengths * tested @ rotation).rank
    torch.testing.assert_close(turned, rank)


def test_residuals_are_taken_within_label_sets_and_lone_actors_cost_freedom():
    features = torch.tensor([[0.0], [2.0], [10.0], [5.0]]).double()
    labels = torch.tensor([[True, False], [True, False], [True, True], [False, True]])
    residuals, freedom = within_set_residuals(features, labels)
    assert residuals.flatten().tolist() == [-1, 1, 0, 0]
    assert freedom == 1


def test_an_actor_of_two_actions_counts_in_the_mean_of_both():
    features, labels = actors(30, 6)
    both = torch.cat([labels[:1] | labels[1:2], labels[1:]])
    alone, together = WhitenedCosine.fit(features, labels), WhitenedCosine.fit(features, both)
    moved = (alone.prototypes - together.prototypes).abs().amax(dim=1) > 1e-6
    assert moved[:2].all()


def test_an_action_that_nobody_does_resembles_nobody():
    features, labels = actors(30, 6)
    wider = torch.cat([labels, torch.zeros(30, 1, dtype=torch.bool)], dim=1)
    score, plain = WhitenedCosine.fit(features, wider), WhitenedCosine.fit(features, labels)
    assert (score.similarity(features)[:, 3] == -1).all()
    torch.testing.assert_close(score.novelty(features).rank, plain.novelty(features).rank)


def test_value_and_rank_agree_in_order_and_value_lies_in_the_unit_interval():
    features, labels = actors(30, 6)
    novelty = WhitenedCosine.fit(features, labels).novelty(actors(50, 6, seed=3)[0])
    assert (novelty.value.argsort() == novelty.rank.argsort()).all()
    assert novelty.value.min() >= 0
    assert novelty.value.max() <= 1


@pytest.mark.parametrize("num_samples", [10, 100, 1000])
def test_shrinkage_comes_near_the_best_there_is_for_gaussian_samples(num_samples):
    variances = torch.linspace(0.1, 3, 20).double()
    draw = torch.Generator().manual_seed(num_samples)
    shares = torch.linspace(0, 1, 101).double()
    errors, ours = torch.zeros(101).double(), 0.0
    for _ in range(20):
        samples = torch.randn(num_samples, 20, generator=draw).double() * variances.sqrt()
        covariance = samples.T @ samples / num_samples
        even = covariance.trace() / 20 * torch.eye(20).double()
        share = oracle_shrinkage(torch.linalg.eigvalsh(covariance), dim=20, num_samples=num_samples)
        errors += torch.stack(
            [((1 - s) * covariance + s * even - variances.diag()).square().sum() for s in shares]
        )
        ours += float(((1 - share) * covariance + share * even - variances.diag()).square().sum())
    assert ours <= 1.15 * float(errors.min())
    assert ours < float(errors[0])


def test_blocks_weigh_the_same_whatever_their_length_and_size():
    blocks = [torch.randn(5, 3), 100 * torch.randn(5, 50)]
    joined = joined_blocks(blocks)
    torch.testing.assert_close(joined[:, :3].square().sum(dim=1), torch.full((5,), 0.5).double())
    torch.testing.assert_close(joined.norm(dim=1), torch.ones(5).double())


def test_saved_tensors_give_the_same_score():
    features, labels = actors(30, 6)
    score = WhitenedCosine.fit(features, labels)
    again = WhitenedCosine.of(score.tensors())
    torch.testing.assert_close(again.similarity(features), score.similarity(features), rtol=0, atol=0)


def test_what_cannot_be_fitted_is_refused_in_a_sentence():
    features, labels = actors(3, 6)
    with pytest.raises(TooFewActors, match="do the same"):
        WhitenedCosine.fit(features, labels)
    with pytest.raises(TooFewActors, match="none does"):
        WhitenedCosine.fit(features, torch.zeros_like(labels))
    with pytest.raises(ShapeError, match="one row per actor"):
        WhitenedCosine.fit(features[:2], labels)
    features, labels = actors(30, 6)
    with pytest.raises(RangeError, match="shrinkage"):
        WhitenedCosine.fit(features, labels, shrinkage=0.0)
    with pytest.raises(ShapeError, match="as in fit"):
        WhitenedCosine.fit(features, labels).novelty(features[:, :5])
    with pytest.raises(ShapeError, match="at least one block"):
        joined_blocks([])
