import math

import pytest
import torch

from mule.objective.contrast import contrast_loss, shared_actions

LABELS = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0]], dtype=torch.bool)


def features(seed=0):
    return torch.randn(len(LABELS), 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_shared_actions_are_counted_as_sets():
    expected = [
        [len(a & b) / len(a | b) if a | b else 0.0 for b in sets]
        for sets in [[{i for i, does in enumerate(row) if does} for row in LABELS.tolist()]]
        for a in sets
    ]
    torch.testing.assert_close(shared_actions(LABELS), torch.tensor(expected))


def test_the_loss_is_the_sum_written_out():
    z = features()
    cosine = torch.nn.functional.cosine_similarity(z[:, None], z[None], dim=2).tolist()
    weights = shared_actions(LABELS).tolist()
    each = []
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i]
        total = sum(math.exp(cosine[i][j] / 0.1) for j in others)
        shared = sum(weights[i][j] for j in others)
        if shared:
            logs = {j: cosine[i][j] / 0.1 - math.log(total) for j in others}
            each.append(-sum(weights[i][j] * logs[j] for j in others) / shared)
    assert len(each) == 4  # the last shares nothing with anybody
    assert contrast_loss(z, LABELS).item() == pytest.approx(sum(each) / 4, rel=1e-5)


def test_actors_who_share_nothing_have_no_loss_and_no_gradient():
    z = features().requires_grad_(True)
    loss = contrast_loss(z, torch.eye(5))
    loss.backward()
    assert loss.item() == 0
    assert z.grad is not None
    assert (z.grad == 0).all()
    assert contrast_loss(torch.zeros(0, 4), torch.zeros(0, 3)).item() == 0


def test_drawing_those_who_do_the_same_together_lowers_it():
    z = features().requires_grad_(True)
    before = contrast_loss(z, LABELS)
    before.backward()
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()
    assert contrast_loss(z.detach() - 0.01 * z.grad, LABELS) < before
