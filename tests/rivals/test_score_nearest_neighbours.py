"""Nearest neighbours against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from mule.core.errors import RangeError, TooFewActors
from mule.rivals.scores.features import NearestNeighbours
from mule.rivals.scores.outputs import StoredOutputs


def random_features(num_actors, seed, dim=9):
    return torch.randn(num_actors, dim, generator=torch.Generator().manual_seed(seed))


def outputs(features):
    return StoredOutputs(torch.zeros(len(features), 2), features)


def fitted(train, k=10):
    score = NearestNeighbours(k)
    score.fit(train, torch.ones(train.num_actors, 2))
    return score


@pytest.mark.parametrize("k", [1, 10, 300])
def test_novelty_is_scikit_learns_distance_to_the_kth_neighbour(k):
    train, test = random_features(300, 0), random_features(1500, 1)
    oracle = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(normalize(train.double().numpy()))
    expected = oracle.kneighbors(normalize(test.double().numpy()))[0][:, -1]
    novelty = fitted(outputs(train), k)(outputs(test))
    np.testing.assert_allclose(novelty.rank.numpy(), expected, atol=2e-6)
    np.testing.assert_allclose(novelty.value.numpy(), expected / 2, atol=2e-6)


def test_the_length_of_a_feature_does_not_matter():
    train, test = random_features(100, 0), random_features(50, 1)
    rank = fitted(outputs(train))(outputs(test)).rank
    for scale in (1e-30, 3.0, 1e30):
        longer = fitted(outputs(scale * train))(outputs(scale * test)).rank
        torch.testing.assert_close(longer, rank, rtol=1e-5, atol=1e-6)


def test_near_neighbours_keep_their_digits():
    """2 − 2·cosine is 0 for both in single precision."""
    known = StoredOutputs(torch.zeros(1, 2), torch.tensor([[1.0, 0.0, 0.0]]))
    near = StoredOutputs(torch.zeros(2, 2), torch.tensor([[1.0, 1e-5, 0.0], [1.0, 2e-5, 0.0]]))
    np.testing.assert_allclose(fitted(known, 1)(near).rank.numpy(), [1e-5, 2e-5], rtol=1e-5)


def test_a_feature_of_zeros_is_equally_far_from_everybody():
    train = outputs(random_features(20, 0))
    nothing = StoredOutputs(torch.zeros(1, 2), torch.zeros(1, 9))
    assert fitted(train)(nothing).rank.item() == pytest.approx(1.0)


def test_neighbours_must_exist():
    with pytest.raises(TooFewActors, match="k nearest actors need at least k = 10 training actors; got 9"):
        fitted(outputs(random_features(9, 0)))
    with pytest.raises(RangeError, match="k must be at least 1; got 0"):
        NearestNeighbours(0)
