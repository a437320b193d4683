import math

import pytest
import torch
from scenes import generator

from mule.core.records import Evidence
from mule.model import ModelOutput
from mule.rivals.networks.enn import DirichletHead, dirichlet_vacuity_novelty, enn_loss


def output_of(evidence):
    return ModelOutput(
        outputs=evidence,
        evidence=Evidence(positive=evidence, negative=torch.zeros_like(evidence)),
        features=evidence,
        context=evidence.new_zeros(1, 1),
        actor_clip_index=torch.zeros(len(evidence), dtype=torch.int64),
    )


def test_the_loss_of_one_actor_by_hand():
    # evidence 3 and 0 makes alpha 4 of 5; the digamma of 5 is that of 4 and a quarter more
    output = output_of(torch.tensor([[3.0, 0.0]]))
    assert enn_loss(output, torch.tensor([[1.0, 0.0]]), progress=0.0).item() == pytest.approx(0.25, rel=1e-6)
    # no evidence misleads, so the KL is zero, whatever its weight
    assert enn_loss(output, torch.tensor([[1.0, 0.0]]), progress=1.0).item() == pytest.approx(0.25, rel=1e-6)


def test_misleading_evidence_costs_its_kl_once_annealing_is_over():
    output, target = output_of(torch.tensor([[3.0, 0.0]])), torch.tensor([[0.0, 1.0]])
    alpha = torch.distributions.Dirichlet(torch.tensor([4.0, 1.0]))
    kl = torch.distributions.kl_divergence(alpha, torch.distributions.Dirichlet(torch.ones(2)))
    early, half, late = (enn_loss(output, target, progress=p).item() for p in (0.0, 0.1, 0.2))
    assert late - early == pytest.approx(kl.item(), rel=1e-5)
    assert half - early == pytest.approx(kl.item() / 2, rel=1e-5)


def test_vacuity_is_one_without_evidence_and_falls_with_it():
    novelty = dirichlet_vacuity_novelty(
        Evidence(positive=torch.tensor([[0.0, 0.0], [1.0, 1.0], [1e6, 0.0]]), negative=torch.zeros(3, 2))
    )
    torch.testing.assert_close(novelty.value[:2], torch.tensor([1.0, 0.5]))
    assert novelty.rank.diff().max() < 0
    assert novelty.rank[2].item() == pytest.approx(-math.log((1e6 + 2) / 2), rel=1e-6)


def test_evidence_is_never_against_an_action():
    torch.manual_seed(0)
    head = DirichletHead(4, 3)
    evidence = head.evidence_from(head.outputs(torch.randn(5, 4, generator=generator())))
    assert (evidence.negative == 0).all()
    assert (evidence.positive >= 0).all()
