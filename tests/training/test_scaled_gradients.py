"""Scaled gradients are those of the loss; a step in which they overflow moves nothing, and is counted."""

import math

import pytest
import torch
from torch import nn

from mule.core.errors import NotFinite
from mule.objective.primal_dual import Constraint, Objective, PrimalDual
from mule.training.step import Backward


class OverflowsAbove(torch.autograd.Function):
    """The identity; its gradient is infinite where it exceeds a limit, as float16's would be."""

    @staticmethod
    def forward(ctx, value, limit):
        ctx.limit = limit
        return value.clone()

    @staticmethod
    def backward(ctx, *gradients):
        (gradient,) = gradients
        return torch.where(gradient.abs() > ctx.limit, torch.full_like(gradient, math.inf), gradient), None


def descent(*, limit, scale=2.0**4, scaler=True, inner_steps=1):
    """A network of one number x, minimising 3x with the constraint x ≤ −10."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    made = torch.amp.GradScaler("cpu", init_scale=scale) if scaler else None
    backward = Backward(optimizer, list(model.parameters()), scaler=made)
    constraints = {"size": Constraint(tolerance=-10.0, step_size=1.0, damping=0.0)}
    primal_dual = PrimalDual(model, optimizer, constraints, inner_steps=inner_steps, backward=backward)

    def objective():
        x = OverflowsAbove.apply(model.weight.sum(), limit)
        return Objective(3 * x, {"size": x.detach()})

    return model, primal_dual, backward, lambda: primal_dual.step(objective)


def test_the_scale_does_not_change_the_step():
    outcomes = []
    for scaler in (False, True):
        model, primal_dual, backward, step = descent(limit=math.inf, scaler=scaler)
        step()
        outcomes.append((model.weight.item(), primal_dual.multipliers["size"], backward.norm))
    assert outcomes[0] == outcomes[1] == (-3.0, 7.0, 3.0)


@pytest.mark.parametrize("inner_steps", [1, 2])
def test_a_step_that_overflows_moves_neither_the_network_nor_the_multiplier(inner_steps):
    model, primal_dual, backward, step = descent(limit=6.0, scale=2.0**4, inner_steps=inner_steps)
    assert backward.scaler is not None
    for halved in range(1, 3):  # the gradient of 3x is 48 at scale 16; at scale 2 it does not overflow
        step()
        assert (model.weight.item(), primal_dual.multipliers["size"]) == (0.0, 0.0)
        assert primal_dual.num_skipped == halved * inner_steps
        if inner_steps == 2:
            break
    if inner_steps == 1:
        assert backward.scaler.get_scale() == 4.0
        step()
    step()
    assert backward.scaler.get_scale() == 2.0
    assert model.weight.item() < 0
    assert primal_dual.multipliers["size"] > 0
    assert primal_dual.num_skipped == 3
    restored = descent(limit=6.0)[1]
    restored.load_state_dict(primal_dual.state_dict())
    assert restored.num_skipped == 3


def test_a_gradient_that_no_scale_makes_finite_ends_the_training():
    model, primal_dual, _, step = descent(limit=0.0, scale=2.0)
    step()
    with pytest.raises(NotFinite, match="norm of the gradient"):
        step()
    assert model.weight.item() == 0.0
    assert primal_dual.num_skipped == 1


def test_without_a_scale_a_gradient_that_is_not_finite_ends_the_training():
    *_, step = descent(limit=0.0, scaler=False)
    with pytest.raises(NotFinite, match="norm of the gradient"):
        step()
