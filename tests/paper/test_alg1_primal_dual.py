"""Algorithm 1 and its parts, Eq. 5 to 8, on problems whose answer is known."""

import copy
import math

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
from torch import nn

from mule.core.errors import NotFinite, RangeError
from mule.objective.primal_dual import Constraint, Objective, PrimalDual


@pytest.mark.paper("Eq. 5")
@pytest.mark.parametrize("measures_with", ["own_pass", "next_batch"])
@pytest.mark.parametrize("inner_steps", [1, 2, 5])
def test_a_convex_problem_is_solved_with_its_true_multiplier(inner_steps, measures_with):
    point = Point(0.0, 0.0)
    primal_dual = solver(point, inner_steps=inner_steps, measures_with=measures_with)
    report = [primal_dual.step(lambda: quadratic(point)) for _ in range(600)][-1]
    torch.testing.assert_close(point.theta.detach(), TRUE_SOLUTION, rtol=1e-4, atol=1e-4)
    assert report.multipliers["line"] == pytest.approx(TRUE_MULTIPLIER, rel=1e-3)
    assert report.constraints["line"] == pytest.approx(0.0, abs=1e-3)


@pytest.mark.slow
@pytest.mark.paper("Eq. 5")
def test_a_quadratic_constraint_and_any_optimiser():
    """min ½‖θ − c‖² subject to ½‖θ‖² ≤ ½: the solution is c/‖c‖, the multiplier ‖c‖ − 1."""
    point = Point(0.5, 0.5)
    primal_dual = PrimalDual(
        point,
        torch.optim.Adam(point.parameters(), lr=0.01),
        {"ball": Constraint(tolerance=0.5, step_size=0.05, damping=0.0)},
        inner_steps=2,
    )
    for _ in range(3000):
        primal_dual.step(
            lambda: Objective(
                (point.theta - CENTRE).square().sum() / 2, {"ball": point.theta.square().sum() / 2}
            )
        )
    torch.testing.assert_close(point.theta.detach(), CENTRE / CENTRE.norm(), rtol=1e-2, atol=1e-2)
    assert primal_dual.multipliers["ball"] == pytest.approx(CENTRE.norm().item() - 1, rel=2e-2)


@pytest.mark.paper("Eq. 5")
def test_several_constraints_and_an_inactive_one():
    """min ½‖θ − c‖² with θ₀ ≤ 1 (active, multiplier 2) and θ₁ ≤ 5 (inactive, multiplier 0)."""
    point = Point(0.0, 0.0)
    settings = Constraint(tolerance=0.0, step_size=0.2, damping=0.0, initial_multiplier=0.5)
    primal_dual = PrimalDual(
        point, torch.optim.SGD(point.parameters(), lr=0.1), {"left": settings, "right": settings}
    )
    for _ in range(500):
        primal_dual.step(
            lambda: Objective(
                (point.theta - CENTRE).square().sum() / 2,
                {"left": point.theta[0] - 1, "right": point.theta[1] - 5},
            )
        )
    assert point.theta.tolist() == pytest.approx([1.0, 1.0], abs=1e-4)
    assert primal_dual.multipliers == pytest.approx({"left": 2.0, "right": 0.0}, abs=1e-3)


@pytest.mark.paper("Eq. 6")
@pytest.mark.parametrize("inner_steps", [1, 2, 3, 6])
def test_the_average_is_the_plain_mean_of_the_iterates_of_one_mini_batch(inner_steps):
    """Against Algorithm 1 written out with a buffer; the multiplier is held at zero by a zero step."""
    point, mirror = Point(5.0, -4.0), torch.tensor([5.0, -4.0], dtype=torch.float64)
    primal_dual = solver(point, lr=0.3, inner_steps=inner_steps, step_size=0.0)
    for _ in range(3):
        primal_dual.step(lambda: quadratic(point))
        buffer = []
        for _ in range(inner_steps):
            buffer.append(mirror - 0.3 * (mirror - CENTRE))
            mirror = torch.stack(buffer).mean(dim=0)
        torch.testing.assert_close(point.theta.detach(), mirror, rtol=1e-12, atol=1e-12)


@pytest.mark.paper("Eq. 6")
def test_the_printed_sum_would_set_the_first_average_to_zero():
    """(1/m)·Σ_{i=1}^{m−1} at m = 1 is an empty sum: all weights zero. Ours leaves a single iterate as it is."""
    point = Point(5.0, -4.0)
    solver(point, lr=0.3, step_size=0.0).step(lambda: quadratic(point))
    one_plain_step = torch.tensor([5.0, -4.0], dtype=torch.float64)
    one_plain_step -= 0.3 * (one_plain_step - CENTRE)
    torch.testing.assert_close(point.theta.detach(), one_plain_step)


@pytest.mark.paper("Eq. 7")
def test_the_primal_step_is_one_optimiser_step_on_the_lagrangian():
    point = Point(0.0, 0.0)
    primal_dual = solver(point, lr=0.1, initial_multiplier=0.7)
    primal_dual.step(lambda: quadratic(point))
    expected = 0.1 * (CENTRE - 0.7 * NORMAL)
    torch.testing.assert_close(point.theta.detach(), expected)


@pytest.mark.paper("Eq. 8")
@pytest.mark.parametrize(
    ("multiplier", "value", "expected"),
    [(0.0, 0.3, 0.05), (2.0, 0.3, 2.0 + 0.5 * (0.3 - 0.2 - 0.04)), (0.1, -9.0, 0.0)],
)
def test_the_dual_step_ascends_is_damped_and_never_goes_below_zero(multiplier, value, expected):
    constraint = Constraint(tolerance=0.2, step_size=0.5, damping=0.02)
    assert constraint.ascend(multiplier, value) == pytest.approx(expected)


@pytest.mark.paper("Eq. 8")
def test_the_damped_multiplier_approaches_the_true_one_as_damping_vanishes():
    """At rest g = γ + δλ, so λ = (aᵀc − b)/(‖a‖² + δ)."""
    errors = []
    for damping in (1.0, 0.1, 0.01, 0.0):
        point = Point(0.0, 0.0)
        primal_dual = solver(point, damping=damping)
        for _ in range(800):
            primal_dual.step(lambda point=point: quadratic(point))
        found = primal_dual.multipliers["line"]
        expected = ((NORMAL @ CENTRE - BOUND) / (NORMAL.square().sum() + damping)).item()
        assert found == pytest.approx(expected, rel=1e-4)
        errors.append(abs(found - TRUE_MULTIPLIER))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4


@pytest.mark.paper("Algorithm 1")
@pytest.mark.parametrize("inner_steps", [1, 2, 4])
def test_every_inner_step_raises_the_multiplier_with_the_constraint_at_the_average(inner_steps):
    """Algorithm 1 line by line, in plain arithmetic."""
    point = Point(0.0, 0.0)
    primal_dual = solver(point, inner_steps=inner_steps, tolerance=0.1, damping=0.05, initial_multiplier=0.3)
    theta, multiplier = torch.zeros(2, dtype=torch.float64), 0.3
    for _ in range(4):
        primal_dual.step(lambda: quadratic(point))
        buffer = []
        for _ in range(inner_steps):
            buffer.append(theta - 0.1 * (theta - CENTRE + multiplier * NORMAL))
            theta = torch.stack(buffer).mean(dim=0)
            value = (NORMAL @ theta - BOUND).item()
            multiplier = max(multiplier + 0.1 * (value - 0.1 - 0.05 * multiplier), 0.0)
        torch.testing.assert_close(point.theta.detach(), theta)
        assert primal_dual.multipliers["line"] == pytest.approx(multiplier, rel=1e-9)


@pytest.mark.parametrize(("inner_steps", "forwards"), [(0, 1), (1, 2), (2, 3), (5, 6)])
def test_inner_steps_cost_as_many_passes_and_one_more_forward(inner_steps, forwards):
    point, calls = Point(0.0, 0.0), []
    primal_dual = solver(point, inner_steps=inner_steps)

    def counted():
        calls.append(torch.is_grad_enabled())
        return quadratic(point)

    primal_dual.step(counted)
    assert len(calls) == forwards
    assert calls.count(True) == max(inner_steps, 1)  # the extra one keeps no graph


def test_no_inner_steps_hold_the_multiplier_fixed():
    point = Point(0.0, 0.0)
    primal_dual = solver(point, inner_steps=0, initial_multiplier=0.7)
    report = primal_dual.step(lambda: quadratic(point))
    assert report.multipliers == {"line": 0.7}
    torch.testing.assert_close(point.theta.detach(), 0.1 * (CENTRE - 0.7 * NORMAL))


def test_an_undefined_constraint_is_left_out_and_counted():
    point = Point(0.0, 0.0)
    primal_dual = solver(point, initial_multiplier=5.0)
    report = primal_dual.step(lambda: Objective(quadratic(point).loss, {"line": None}))
    assert report.constraints == {"line": None}
    assert report.multipliers == {"line": 5.0}
    assert primal_dual.left_out == {"line": 1}
    torch.testing.assert_close(point.theta.detach(), 0.1 * CENTRE)  # no pull from the constraint


@pytest.mark.parametrize("inner_steps", [1, 3])
def test_measuring_with_the_next_batch_takes_the_same_way_with_one_pass_less(inner_steps):
    """Where all batches are the same, g at the mean is the same whenever it is measured."""
    ways = {}
    for measures_with in ("own_pass", "next_batch"):
        point, passes = Point(5.0, -4.0), 0
        primal_dual = solver(point, inner_steps=inner_steps, measures_with=measures_with)

        def objective(point=point):
            nonlocal passes
            passes += 1
            return quadratic(point)

        way = []
        for _ in range(20):
            primal_dual.step(objective)
            way.append(point.theta.detach().clone())
        ways[measures_with] = torch.stack(way)
        assert passes == 20 * (inner_steps + (measures_with == "own_pass"))
    assert torch.equal(ways["own_pass"], ways["next_batch"])


def test_no_multiplier_moves_that_is_held():
    point = Point(5.0, -4.0)
    primal_dual = solver(point, inner_steps=0, measures_with="next_batch", initial_multiplier=0.5)
    for _ in range(3):
        primal_dual.step(lambda: quadratic(point))
    assert primal_dual.multipliers == {"line": 0.5}


@pytest.mark.parametrize("inner_steps", [1, 3])
def test_batch_statistics_follow_the_training_passes_only(inner_steps):
    """BatchNorm sees exactly `inner_steps` batches: what the measuring pass writes is undone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    batch = torch.randn(8, 3)
    primal_dual = PrimalDual(
        model, torch.optim.SGD(model.parameters(), lr=0.1), {"g": Constraint()}, inner_steps=inner_steps
    )

    def objective():
        out = model(batch)
        return Objective(out.square().mean(), {"g": out.mean()})

    primal_dual.step(objective)
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == inner_steps


@pytest.mark.parametrize("measures_with", ["own_pass", "next_batch"])
def test_resuming_from_saved_state_lands_on_the_same_weights_to_the_last_bit(tmp_path, measures_with):
    def start():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        constraints = {"g": Constraint(damping=0.1)}
        primal_dual = PrimalDual(model, optimizer, constraints, inner_steps=3, measures_with=measures_with)
        return model, optimizer, primal_dual

    batches = [torch.randn(8, 3, generator=torch.Generator().manual_seed(i)) for i in range(6)]

    def train(model, primal_dual, some):
        for batch in some:
            primal_dual.step(
                lambda batch=batch: Objective(model(batch).square().mean(), {"g": model[0](batch).std()})
            )

    model, optimizer, primal_dual = start()
    train(model, primal_dual, batches[:3])
    saved = {"model": model, "optimizer": optimizer, "primal_dual": primal_dual}
    torch.save({name: part.state_dict() for name, part in saved.items()}, tmp_path / "half.pt")
    train(model, primal_dual, batches[3:])

    again, optimizer, resumed = start()
    state = torch.load(tmp_path / "half.pt", weights_only=True)
    again.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    resumed.load_state_dict(state["primal_dual"])
    train(again, resumed, batches[3:])
    assert resumed.multipliers == primal_dual.multipliers
    for one, other in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_a_loss_that_is_not_finite_stops_before_it_touches_the_parameters():
    point = Point(1.0, 1.0)
    before = copy.deepcopy(point.state_dict())
    primal_dual = solver(point)
    with pytest.raises(NotFinite, match=r"Lagrangian is nan.*parameters are untouched"):
        primal_dual.step(lambda: Objective(point.theta.sum() * math.nan, {"line": point.theta[0]}))
    assert torch.equal(point.theta, before["theta"])


def test_wrong_settings_and_foreign_state_are_refused():
    point = Point(0.0, 0.0)
    with pytest.raises(RangeError, match="inner_steps must be 0 or more; got -1"):
        solver(point, inner_steps=-1)
    with pytest.raises(RangeError, match="must not be below zero"):
        Constraint(damping=-1.0)
    with pytest.raises(
        RangeError, match=r"saved multipliers are for \['hsic'\], the constraints are \['line'\]"
    ):
        solver(point).load_state_dict({"multipliers": {"hsic": 1.0}, "left_out": {"hsic": 0}})
