import math

import numpy as np
import pytest
import torch
from hypothesis import given
from strategies import evidences

from mule.core.records import Evidence
from mule.novelty.scores import (
    NOVELTY_BY_KIND,
    combined_evidence_novelty,
    inverse_negative_evidence_novelty,
    negative_evidence_novelty,
    positive_evidence_novelty,
    positive_log_evidence_novelty,
)

pytestmark = pytest.mark.paper("Eq. 9")


def evidence_of(positive, negative, dtype=torch.float64):
    return Evidence(
        positive=torch.tensor(positive, dtype=dtype), negative=torch.tensor(negative, dtype=dtype)
    )


def test_values_equal_the_printed_formulas_in_alpha_and_beta():
    evidence = evidence_of([[0.3, 1.2, 0.0]], [[0.1, 0.4, 2.0]])
    alpha, beta, K = np.array([1.3, 2.2, 1.0]), np.array([1.1, 1.4, 3.0]), 3
    pe = 2 / (1 + math.exp(alpha.sum() - K))
    ne = 2 / (1 + math.exp(K - beta.sum())) - 1
    pne = 2 * K / (alpha + beta).sum()
    assert positive_evidence_novelty(evidence).value.item() == pytest.approx(pe)
    assert negative_evidence_novelty(evidence).value.item() == pytest.approx(ne)
    assert inverse_negative_evidence_novelty(evidence).value.item() == pytest.approx(1 - ne)
    assert combined_evidence_novelty(evidence).value.item() == pytest.approx(pne)
    assert positive_log_evidence_novelty(evidence).value.item() == pytest.approx(1 / alpha.prod())


def test_temperature_scales_the_exponent():
    evidence = evidence_of([[0.3, 1.2]], [[0.0, 0.0]])
    found = positive_evidence_novelty(evidence, temperature=0.5).value.item()
    assert found == pytest.approx(2 / (1 + math.exp(0.75)))


@pytest.mark.parametrize("kind", NOVELTY_BY_KIND)
@given(evidence=evidences(max_actors=6, max_classes=3))
def test_value_lies_in_the_unit_interval_and_never_contradicts_rank(kind, evidence):
    novelty = NOVELTY_BY_KIND[kind](evidence)
    assert novelty.value.shape == novelty.rank.shape == (evidence.num_actors,)
    assert ((novelty.value >= 0) & (novelty.value <= 1)).all()
    order = novelty.rank.argsort()
    assert (novelty.value[order].diff() >= -1e-12).all()


@pytest.mark.parametrize("kind", NOVELTY_BY_KIND)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_ranks_of_10_100_and_10000_never_tie_where_values_do(kind, dtype):
    sizes = torch.tensor([[10.0], [100.0], [10_000.0]])
    positive = torch.full((3, 40), 0.5) if kind.startswith("ne") else sizes.expand(3, 40)
    negative = sizes.expand(3, 40) if kind.startswith("ne") else torch.full((3, 40), 0.5)
    evidence = Evidence(positive=positive.to(dtype), negative=negative.to(dtype))
    novelty = NOVELTY_BY_KIND[kind](evidence)
    assert novelty.rank.dtype == torch.float32
    assert torch.isfinite(novelty.rank).all()
    assert len(novelty.rank.unique()) == 3
    if kind in ("pe", "ne", "ne_inverse"):
        assert len(novelty.value.unique()) < 3  # the printed formula cannot tell them apart


@given(evidence=evidences(max_actors=4))
def test_more_evidence_for_makes_less_novel(evidence):
    more = Evidence(positive=evidence.positive + 1, negative=evidence.negative)
    for kind in ("pe", "pe_log", "pne", "belief"):
        assert (NOVELTY_BY_KIND[kind](more).rank < NOVELTY_BY_KIND[kind](evidence).rank).all()


@given(evidence=evidences(max_actors=4))
def test_more_evidence_against_makes_more_novel_as_printed_and_less_when_inverted(evidence):
    more = Evidence(positive=evidence.positive, negative=evidence.negative + 1)
    assert (negative_evidence_novelty(more).rank > negative_evidence_novelty(evidence).rank).all()
    inverse = inverse_negative_evidence_novelty
    assert (inverse(more).rank < inverse(evidence).rank).all()


def test_log_evidence_of_the_tied_exponential_head_is_joint_energy():
    h = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    evidence = Evidence(positive=h.exp(), negative=(-h).exp())
    energy = torch.nn.functional.softplus(h).sum(dim=1)
    torch.testing.assert_close(positive_log_evidence_novelty(evidence).rank, -energy)
