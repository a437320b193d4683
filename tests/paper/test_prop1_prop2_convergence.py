"""Propositions 1 and 2: where they hold, and where as printed they do not.

The bounds of Proposition 2 are those of the dual subgradient method (Nedić and Ozdaglar 2009). They need: convex L
and g; each primal step an exact minimum of the Lagrangian; the multiplier raised with g at that minimum; γ folded
into g (γ = 0) and no damping (δ = 0). `PrimalDual` with one inner step does exactly that here, since one gradient
step of size 1 solves min ½‖θ − c‖² + λ·(aᵀθ − b) from anywhere; the averages are then taken over its iterates.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from projected_quadratic import (
    BOUND,
    CENTRE,
    NORMAL,
    TRUE_MULTIPLIER,
    TRUE_SOLUTION,
    Point,
    quadratic,
    solver,
)

from mule.objective.primal_dual import Constraint, Objective, PrimalDual

BEST_LOSS = ((TRUE_SOLUTION - CENTRE).square().sum() / 2).item()
STEP = 0.05


def trajectory(num_steps=400, start=0.0, **constraint):
    """Averages of the first m exact minima, and the multiplier after m, for m = 1, 2, …"""
    point = Point(9.0, -9.0)
    primal_dual = solver(point, lr=1.0, step_size=STEP, initial_multiplier=start, **constraint)
    iterates, multipliers, values = [], [], []
    for _ in range(num_steps):
        primal_dual.step(lambda: quadratic(point))
        iterates.append(point.theta.detach().clone())
        values.append((NORMAL @ point.theta - BOUND).item())
        multipliers.append(primal_dual.multipliers["line"])
    averages = torch.stack(iterates).cumsum(dim=0) / torch.arange(1, num_steps + 1)[:, None]
    return averages, multipliers, values


@pytest.mark.paper("Proposition 1")
@pytest.mark.parametrize("inner_steps", [1, 3])
def test_averaged_iterates_converge_on_a_convex_problem(inner_steps):
    point = Point(9.0, -9.0)
    primal_dual = solver(point, inner_steps=inner_steps)
    distances = []
    for _ in range(400):
        primal_dual.step(lambda: quadratic(point))
        distances.append((point.theta.detach() - TRUE_SOLUTION).norm().item())
    assert distances[-1] < 1e-3 < distances[0]
    assert max(distances[200:]) < max(distances[100:200]) < max(distances[:100])


@pytest.mark.paper("Proposition 1")
def test_running_averages_of_a_bounded_sequence_need_not_converge():
    """Lemma 1's counter-example: zeros and ones in blocks of doubling length swing between 1/3 and 2/3 for ever."""
    sequence = np.concatenate([np.full(2**k, k % 2) for k in range(16)])
    averages = np.cumsum(sequence) / np.arange(1, len(sequence) + 1)
    ends = averages[[2 ** (k + 1) - 2 for k in range(8, 16)]]
    assert ends[::2] == pytest.approx(1 / 3, abs=0.01)
    assert ends[1::2] == pytest.approx(2 / 3, abs=0.01)


@pytest.mark.paper("Proposition 2")
@pytest.mark.parametrize("start", [0.0, 0.5])
def test_violation_of_the_average_is_bounded_at_every_m(start):
    """2.1: [g(θ̃)]₊ ≤ λ⁽ᵐ⁾/(m·η₂)."""
    averages, multipliers, _ = trajectory(start=start)
    violation = (averages @ NORMAL - BOUND).clamp(min=0)
    for m in range(1, len(averages) + 1):
        assert violation[m - 1] <= multipliers[m - 1] / (m * STEP) + 1e-12


@pytest.mark.paper("Proposition 2")
@pytest.mark.parametrize("start", [0.0, 0.5])
def test_loss_of_the_average_is_bounded_from_above_and_below_at_every_m(start):
    """2.2: L(θ̃) ≤ f* + λ₀²/(2mη₂) + η₂L²/2, and 2.3: L(θ̃) ≥ f* − λ*·[g(θ̃)]₊."""
    averages, _, values = trajectory(start=start)
    steepest = max(abs(value) for value in values)
    losses = (averages - CENTRE).square().sum(dim=1) / 2
    violation = (averages @ NORMAL - BOUND).clamp(min=0)
    for m in range(1, len(averages) + 1):
        assert losses[m - 1] <= BEST_LOSS + start**2 / (2 * m * STEP) + STEP * steepest**2 / 2 + 1e-12
        assert losses[m - 1] >= BEST_LOSS - TRUE_MULTIPLIER * violation[m - 1] - 1e-12


@pytest.mark.paper("Proposition 2")
def test_violation_bound_also_holds_in_the_printed_order_while_the_constraint_falls():
    """With g taken at the average (Eq. 8 as printed), 2.1 needs one thing more: g(θ̃) must not rise with m."""
    point = Point(1.0)
    primal_dual = PrimalDual(
        point,
        torch.optim.SGD(point.parameters(), lr=0.2),
        {"g": Constraint(tolerance=0.0, step_size=STEP, damping=0.0)},
        inner_steps=300,
    )
    values, multipliers = [], []

    def objective():
        value = point.theta.square().sum() / 2
        values.append(value.item())  # at the average θ̃⁽ᵐ⁾, m = 0, 1, …
        multipliers.append(primal_dual.multipliers["g"])  # λ⁽ᵐ⁻¹⁾
        return Objective((point.theta - 1).square().sum() / 2, {"g": value})

    primal_dual.step(objective)
    multipliers = [*multipliers[2:], primal_dual.multipliers["g"]]  # λ⁽ᵐ⁾ for m = 1, 2, …
    values = values[1:]
    assert all(later <= earlier for earlier, later in pairwise(values))
    for m, (value, multiplier) in enumerate(zip(values, multipliers, strict=True), start=1):
        assert value <= multiplier / (m * STEP) + 1e-12


@pytest.mark.paper("Proposition 2")
def test_a_tolerance_breaks_the_printed_violation_bound():
    """g stays between 0 and γ, so λ stays 0, and the printed 2.1 would say g ≤ 0."""
    point = Point(0.5)
    primal_dual = PrimalDual(
        point,
        torch.optim.SGD(point.parameters(), lr=0.0),
        {"g": Constraint(tolerance=1.0, step_size=STEP, damping=0.0)},
    )
    primal_dual.step(lambda: Objective(point.theta.sum() * 0, {"g": point.theta.square().sum()}))
    assert primal_dual.multipliers["g"] == 0
    assert point.theta.square().item() > 0


@pytest.mark.paper("Proposition 2")
def test_damping_breaks_the_printed_violation_bound():
    """A damped multiplier settles at (g − γ)/δ while m·η₂ grows: the printed right-hand side falls to zero."""
    averages, multipliers, _ = trajectory(damping=5.0)
    violation = (averages @ NORMAL - BOUND).clamp(min=0)
    m = len(averages)
    assert violation[-1] > multipliers[-1] / (m * STEP) + 0.5
