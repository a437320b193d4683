"""A quadratic problem with one linear constraint, whose solution and multiplier are known in closed form."""

import torch
from torch import nn

from mule.objective.primal_dual import Constraint, MeasuresWith, Objective, PrimalDual


class Point(nn.Module):
    """θ itself."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(values, dtype=torch.float64))


CENTRE = torch.tensor([3.0, 1.0], dtype=torch.float64)
NORMAL = torch.tensor([1.0, 2.0], dtype=torch.float64)
BOUND = 2.0
TRUE_MULTIPLIER = ((NORMAL @ CENTRE - BOUND) / NORMAL.square().sum()).item()
TRUE_SOLUTION = CENTRE - TRUE_MULTIPLIER * NORMAL


def quadratic(point):
    """min ½‖θ − c‖² subject to aᵀθ ≤ b: solved by projection, with multiplier (aᵀc − b)/‖a‖²."""
    return Objective(
        loss=(point.theta - CENTRE).square().sum() / 2, constraints={"line": NORMAL @ point.theta - BOUND}
    )


def solver(point, *, lr=0.1, inner_steps=1, measures_with: MeasuresWith = "own_pass", **constraint):
    settings = {"tolerance": 0.0, "step_size": 0.1, "damping": 0.0} | constraint
    return PrimalDual(
        point,
        torch.optim.SGD(point.parameters(), lr=lr),
        {"line": Constraint(**settings)},
        inner_steps=inner_steps,
        measures_with=measures_with,
    )
