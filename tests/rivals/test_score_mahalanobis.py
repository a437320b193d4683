"""Mahalanobis distance against scikit-learn's covariances and scipy's distance."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from scipy.stats import chi2
from sklearn.covariance import EmpiricalCovariance, LedoitWolf

from mule.core.errors import TooFewActors
from mule.rivals.scores.features import Mahalanobis, shrunk_covariance, tied_gaussians
from mule.rivals.scores.outputs import StoredOutputs


def labelled_features(num_actors=120, classes=4, dim=7):
    draw = torch.Generator().manual_seed(2)
    targets = (torch.rand(num_actors, classes, generator=draw) < 0.4).double()
    targets[torch.arange(num_actors), torch.arange(num_actors) % classes] = 1
    mixing = torch.randn(dim, dim, generator=draw, dtype=torch.float64)
    features = torch.randn(num_actors, dim, generator=draw, dtype=torch.float64) @ mixing
    return features + targets @ torch.randn(classes, dim, generator=draw, dtype=torch.float64), targets


def pairs_of(features, targets):
    """One row per actor and action it does, less the mean of that action: the slow way."""
    rows, means = [], []
    for c in range(targets.shape[1]):
        members = features[targets[:, c] > 0]
        means.append(members.mean(dim=0))
        rows.append(members - means[-1])
    return torch.cat(rows).numpy(), torch.stack(means).numpy()


def test_means_and_covariance_are_those_of_all_pairs_of_actor_and_action():
    features, targets = labelled_features()
    rows, expected_means = pairs_of(features, targets)
    means, covariance = tied_gaussians(features, targets)
    np.testing.assert_allclose(means.numpy(), expected_means)
    np.testing.assert_allclose(
        covariance.numpy(), EmpiricalCovariance(assume_centered=True).fit(rows).covariance_
    )


@pytest.mark.parametrize("dim", [1, 7, 300])
def test_shrinkage_is_ledoit_and_wolfs(dim):
    features, targets = labelled_features(dim=dim)
    rows, _ = pairs_of(features, targets)
    means, covariance = tied_gaussians(features, targets)
    expected = LedoitWolf(assume_centered=True).fit(rows).covariance_
    ours = shrunk_covariance(features, means, covariance, does=targets).numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-9 * np.abs(expected).max())


def test_novelty_is_the_distance_to_the_nearest_class():
    features, targets = labelled_features()
    rows, means = pairs_of(features, targets)
    precision = np.linalg.inv(LedoitWolf(assume_centered=True).fit(rows).covariance_)
    score = Mahalanobis()
    score.fit(StoredOutputs(targets, features), targets)
    queries = 3 * features[:10] + 1
    novelty = score(StoredOutputs(targets[:10], queries))
    expected = [min(mahalanobis(query, mean, precision) for mean in means) for query in queries.numpy()]
    np.testing.assert_allclose(novelty.rank.numpy(), expected)
    np.testing.assert_allclose(novelty.value.numpy(), chi2.cdf(np.square(expected), 7), atol=1e-9)


def test_any_invertible_change_of_coordinates_leaves_the_order_when_actors_are_many():
    """Exactly so without shrinkage, whose share vanishes as actors grow in number."""
    features, targets = labelled_features(num_actors=20_000)
    mixing = torch.randn(7, 7, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ranks = []
    for seen in (features, features @ mixing + 3):
        score = Mahalanobis()
        score.fit(StoredOutputs(targets, seen), targets)
        ranks.append(score(StoredOutputs(targets[:200], seen[:200])).rank.numpy())
    assert np.corrcoef(*ranks)[0, 1] > 0.999


def test_classes_nobody_does_are_left_out():
    features, targets = labelled_features()
    wider = torch.cat([targets, torch.zeros(len(targets), 2, dtype=torch.float64)], dim=1)
    plain, with_empty = Mahalanobis(), Mahalanobis()
    plain.fit(StoredOutputs(targets, features), targets)
    with_empty.fit(StoredOutputs(wider, features), wider)
    torch.testing.assert_close(
        with_empty(StoredOutputs(wider, features)).rank, plain(StoredOutputs(targets, features)).rank
    )


def test_actors_without_any_spread_are_refused():
    with pytest.raises(TooFewActors, match="the 2 actors of 2 actions do not"):
        Mahalanobis().fit(StoredOutputs(torch.eye(2), torch.randn(2, 5)), torch.eye(2))
