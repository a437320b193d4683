"""ViM against scikit-learn's covariance, and against recorded numbers of pytorch-ood."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.covariance import EmpiricalCovariance

from mule.core.errors import RangeError, TooFewActors
from mule.rivals.scores.features import ViM, leading_directions, usual_principal_dim
from mule.rivals.scores.outputs import LinearReadout, StoredOutputs


def waves(rows, cols, step):
    return torch.sin(step * torch.arange(rows * cols, dtype=torch.float64)).reshape(rows, cols)


READOUT = LinearReadout(waves(3, 6, 0.7), torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64))
TARGETS = torch.nn.functional.one_hot(torch.arange(60) % 3, 3)


def outputs(features, readout=READOUT):
    return StoredOutputs(readout(features), features, readout)


TRAIN_FEATURES = 3 * TARGETS.double() @ READOUT.weight + waves(60, 6, 1.3)
TEST_FEATURES = 2 * waves(5, 6, 0.9)
TRAIN, TEST = outputs(TRAIN_FEATURES), outputs(TEST_FEATURES)


def fitted(energy, train=TRAIN, principal_dim: int | None = 2):
    score = ViM(energy, principal_dim=principal_dim)
    score.fit(train, TARGETS)
    return score


def test_the_softmax_form_is_pytorch_oods():
    """pytorch-ood 0.4.0's ViM (d = 2, torchvision stubbed, single precision) on the same features."""
    score = fitted("softmax")
    expected = torch.tensor([2.2808304, 3.8699512, 0.1051869, -1.8827157, 4.3854275], dtype=torch.float64)
    torch.testing.assert_close(score(TEST).rank, expected, rtol=0, atol=1e-5)
    assert score.virtual_scale.item() == pytest.approx(6.5512342, abs=1e-5)


def test_the_residual_is_what_the_principal_space_about_the_origin_leaves():
    weight, bias = READOUT.weight.numpy(), READOUT.bias.numpy()
    origin = -np.linalg.pinv(weight) @ bias
    about_origin = EmpiricalCovariance(assume_centered=True).fit(TRAIN_FEATURES.numpy() - origin)
    values, vectors = np.linalg.eigh(about_origin.covariance_)
    principal = vectors[:, np.argsort(-values)[:2]]

    def residual(features):
        moved = features - origin
        return np.linalg.norm(moved - moved @ principal @ principal.T, axis=1)

    logits = TRAIN.logits.numpy()
    energies = np.log1p(np.exp(logits))
    on_test = residual(TEST_FEATURES.numpy())
    for energy, largest, of_test in (
        ("softmax", logits.max(axis=1), logsumexp(TEST.logits.numpy(), axis=1)),
        ("joint", energies.max(axis=1), np.log1p(np.exp(TEST.logits.numpy())).sum(axis=1)),
    ):
        scale = largest.mean() / residual(TRAIN_FEATURES.numpy()).mean()
        novelty = fitted(energy)(TEST)
        np.testing.assert_allclose(novelty.rank.numpy(), scale * on_test - of_test, rtol=1e-7, atol=1e-9)


def test_the_softmax_value_is_the_share_of_the_virtual_class():
    score = fitted("softmax")
    virtual = score(TEST).rank + TEST.logits.logsumexp(dim=1)
    with_virtual = torch.cat([virtual[:, None], TEST.logits], dim=1)
    torch.testing.assert_close(score(TEST).value, with_virtual.softmax(dim=1)[:, 0])


@pytest.mark.parametrize("energy", ["softmax", "joint"])
def test_leaving_the_principal_space_without_moving_a_logit_is_novel(energy):
    """A direction the read-out cannot see: energies stay, the residual grows."""
    unseen = torch.linalg.svd(READOUT.weight).Vh[-1]
    away = outputs(TEST_FEATURES + 5 * unseen)
    torch.testing.assert_close(away.logits, TEST.logits)
    assert (fitted(energy)(away).rank > fitted(energy)(TEST).rank).all()


@pytest.mark.parametrize(("dim", "kept"), [(6, 3), (767, 383), (768, 512), (2047, 512), (2048, 1000)])
def test_the_principal_dimension_follows_the_authors_or_is_half(dim, kept):
    assert usual_principal_dim(dim) == kept


def test_few_training_actors_still_leave_a_residual():
    draw = torch.Generator().manual_seed(0)
    readout = LinearReadout(torch.randn(3, 100, generator=draw), torch.zeros(3))
    score = fitted("joint", outputs(torch.randn(60, 100, generator=draw), readout), principal_dim=None)
    assert score.principal_basis.shape == (100, 30)


def test_a_network_without_positive_logits_has_a_joint_virtual_logit_only():
    sunk = LinearReadout(READOUT.weight, READOUT.bias - 50)
    train = outputs(TRAIN_FEATURES, sunk)
    assert fitted("joint", train).virtual_scale > 0
    with pytest.raises(
        RangeError, match="mean largest logit of training actors, which must be above 0; got -"
    ):
        fitted("softmax", train)


def test_actors_must_leave_a_residual():
    flat = torch.zeros(60, 6, dtype=torch.float64)
    flat[:, 0] = torch.arange(60)
    plain = LinearReadout(READOUT.weight, torch.zeros(3, dtype=torch.float64))
    with pytest.raises(TooFewActors, match="60 actors leave no residual"):
        fitted("joint", outputs(flat, plain))
    with pytest.raises(
        RangeError, match="principal_dim must be at least 0 and below the 6 dimensions; got 6"
    ):
        fitted("joint", principal_dim=6)


@pytest.mark.parametrize("actors", [5, 12])
def test_leading_directions_span_what_the_leading_eigenvectors_do(actors):
    moved = torch.randn(actors, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    basis = leading_directions(moved, 3)
    vectors = np.linalg.eigh((moved.T @ moved).numpy())[1][:, -3:]
    np.testing.assert_allclose((basis @ basis.T).numpy(), vectors @ vectors.T, atol=1e-9)
