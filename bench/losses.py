"""Beta loss and belief, compared with the obvious ways to write them."""

import math

import torch
from torch.distributions import Beta, kl_divergence

from bench.timing import Comparison, take_turns
from mule.core.records import Evidence
from mule.novelty.scores import belief_novelty
from mule.objective.beta_loss import beta_loss

ACTORS, CLASSES = 4096, 60


def comparisons() -> list[Comparison]:
    return [*_beta_loss(), _belief()]


def _beta_loss() -> list[Comparison]:
    generator = torch.Generator().manual_seed(0)
    positive = (10 * torch.rand(ACTORS, CLASSES, generator=generator)).requires_grad_()
    negative = (100 * torch.rand(ACTORS, CLASSES, generator=generator)).requires_grad_()
    y = (torch.rand(ACTORS, CLASSES, generator=generator) < 0.1).float()

    def ours():
        beta_loss(Evidence(positive=positive, negative=negative), y).backward()

    def naive():
        alpha, beta = positive + 1, negative + 1
        total = torch.digamma(alpha + beta)
        loss = y * (total - torch.digamma(alpha)) + (1 - y) * (total - torch.digamma(beta))
        loss.sum(dim=1).mean().backward()

    def distributions():
        # E[−log p] under P = Beta(α, β) is KL(P ‖ Beta(2, 1)) + H(P) + log 2; E[−log(1 − p)] with Beta(1, 2)
        p = Beta(positive + 1, negative + 1, validate_args=False)
        loss = kl_divergence(p, Beta(1 + y, 2 - y, validate_args=False)) + p.entropy() + math.log(2)
        loss.sum(dim=1).mean().backward()

    times = take_turns({"ours": ours, "naive": naive, "distributions": distributions})
    what = f"Beta loss, forward + backward, {ACTORS} actors × {CLASSES} classes"
    return [
        Comparison(what, "three digammas, as printed", times["ours"], times["naive"]),
        Comparison(what, "torch.distributions", times["ours"], times["distributions"]),
    ]


def _belief() -> Comparison:
    generator = torch.Generator().manual_seed(0)
    evidence = Evidence(
        positive=10 * torch.rand(256, CLASSES, generator=generator),
        negative=10 * torch.rand(256, CLASSES, generator=generator),
    )

    def fold():
        belief = evidence.positive / (evidence.positive + evidence.negative + 2)
        scores = []
        for row in belief:
            total = 0.0
            for b in row:
                total = total + b - total * b
            scores.append(1 - total)
        return scores

    times = take_turns({"ours": lambda: belief_novelty(evidence), "fold": fold})
    what = f"Belief novelty, 256 actors × {CLASSES} classes"
    return Comparison(what, "per-actor, per-class loop", times["ours"], times["fold"])
