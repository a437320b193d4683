"""What two processes compute together is what one computes alone."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from two_ranks import on_two_ranks

from mule.core.processes import gather_actors, gather_groups, mean_over_ranks
from mule.evidence.head import EvidenceHead
from mule.objective.beta_loss import beta_loss
from mule.objective.hsic import static_bias
from mule.objective.primal_dual import Constraint, Objective, PrimalDual

pytestmark = pytest.mark.distributed

# twelve actors of nine clips; rank 0 holds the first five actors and four clips, rank 1 the rest
CLIP_INDEX = torch.tensor([0, 0, 1, 2, 3, 4, 4, 4, 5, 6, 7, 8])
SHARES = [(slice(0, 5), slice(0, 4)), (slice(5, 12), slice(4, 9))]


def batch():
    generator = torch.Generator().manual_seed(0)
    actors = torch.randn(12, 6, generator=generator, dtype=torch.float64)
    context = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    targets = (torch.rand(12, 4, generator=generator) < 0.4).double()
    return actors, context, targets


def train(actors, context, clip_index, targets, *, distributed):
    torch.manual_seed(1)
    head = EvidenceHead(6, 4).double()
    model = DistributedDataParallel(Logits(head)) if distributed else Logits(head)
    primal_dual = PrimalDual(
        model,
        torch.optim.SGD(model.parameters(), lr=0.5),
        {"static_bias": Constraint(tolerance=0.0, step_size=20.0, initial_multiplier=3.0)},
        inner_steps=3,
    )

    def objective():
        outputs = model(actors)
        losses = beta_loss(head.evidence_from(outputs), targets, reduction="none")
        return Objective(
            gather_actors(losses).mean(), {"static_bias": static_bias(outputs, context, clip_index)}
        )

    reports = [primal_dual.step(objective) for _ in range(4)]
    losses = [report.loss for report in reports]
    biases = [report.constraints["static_bias"] for report in reports]
    multipliers = [report.multipliers["static_bias"] for report in reports]
    weights = torch.cat([p.detach().flatten() for p in head.parameters()]).tolist()
    return {"losses": losses, "biases": biases, "multipliers": multipliers, "weights": weights}


class Logits(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, actors):
        return self.head.outputs(actors)


def train_my_share(rank):
    actors, context, targets = batch()
    mine, clips = SHARES[rank]
    own_clips = CLIP_INDEX[mine] - clips.start
    return train(actors[mine], context[clips], own_clips, targets[mine], distributed=True)


@pytest.mark.slow
def test_training_on_two_ranks_equals_training_on_one(tmp_path):
    actors, context, targets = batch()
    alone = train(actors, context, CLIP_INDEX, targets, distributed=False)
    first, second = on_two_ranks(train_my_share, tmp_path)
    assert first == second  # to the last bit, the multiplier above all
    for name, values in alone.items():
        assert first[name] == pytest.approx(values, rel=1e-9, abs=1e-12), name
    assert len(set(alone["multipliers"])) == 4  # it moved


def gather_ragged(rank):
    rows = torch.arange(3.0)[:, None].requires_grad_() if rank == 0 else torch.zeros(0, 1, requires_grad=True)
    everyone = gather_actors(rows)
    (everyone.squeeze(1) * torch.tensor([1.0, 2.0, 3.0]) * (rank + 1)).sum().backward()
    groups = gather_groups(torch.tensor([0, 0, 1]) if rank == 0 else torch.tensor([0, 5]))
    return everyone.tolist(), rows.grad.tolist() if rows.grad is not None else None, groups.tolist()


def test_ranks_without_actors_take_part_and_gradients_sum_over_ranks(tmp_path):
    (first, gradient, groups), (second, none, same_groups) = on_two_ranks(gather_ragged, tmp_path)
    assert first == second == [[0.0], [1.0], [2.0]]
    assert gradient == [[3.0], [6.0], [9.0]]  # weights 1, 2, 3 seen once by rank 0 and doubled by rank 1
    assert none == []
    assert groups == same_groups
    assert len(set(groups)) == 4  # clip 0 of one rank is not clip 0 of the other


def mean_of_some(rank):
    cpu = torch.device("cpu")
    assert dist.get_world_size() == 2
    both = mean_over_ranks(1.0 + rank, device=cpu)
    one = mean_over_ranks(7.0 if rank else None, device=cpu)
    return both, one, mean_over_ranks(None, device=cpu)


def test_the_mean_is_over_the_ranks_that_have_a_value(tmp_path):
    assert on_two_ranks(mean_of_some, tmp_path) == [(1.5, 7.0, None), (1.5, 7.0, None)]


def test_one_process_needs_no_group():
    rows = torch.ones(2, 3)
    assert gather_actors(rows) is rows
    assert mean_over_ranks(2.0, device=rows.device) == 2.0
