"""Constrained minimisation by the primal-dual average scheme: descend, average, raise the multiplier."""

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.defaults import DUAL_DAMPING, DUAL_STEP_SIZE, HSIC_TOLERANCE, INNER_STEPS
from mule.core.errors import NotFinite, RangeError
from mule.core.processes import mean_over_ranks

MeasuresWith = Literal["own_pass", "next_batch"]


@dataclass(frozen=True)
class Constraint:
    """g(θ) ≤ γ, and how its multiplier λ ≥ 0 is raised and damped (Eq. 5 and 8).

    At rest λ = (g − γ)/δ: the damping must be far below (g − γ)/λ for the λ you want, or the constraint has no effect.

    >>> Constraint(tolerance=0.1, step_size=10.0, damping=0.0).ascend(multiplier=1.0, value=0.3)
    3.0
    """

    tolerance: float = HSIC_TOLERANCE
    """γ: the largest value of g that counts as met."""
    step_size: float = DUAL_STEP_SIZE
    """η₂: the step of the multiplier's ascent."""
    damping: float = DUAL_DAMPING
    """δ: how strongly the multiplier is drawn back to zero."""
    initial_multiplier: float = 0.0
    """λ⁽⁰⁾; with no inner steps it stays there."""

    def __post_init__(self) -> None:
        if self.step_size < 0 or self.damping < 0 or self.initial_multiplier < 0:
            raise RangeError(f"step_size, damping and initial_multiplier must not be below zero; got {self}.")

    def ascend(self, multiplier: float, value: float) -> float:
        """The next multiplier, max{λ + η₂·(g − γ − δλ), 0} (Eq. 8)."""
        return max(multiplier + self.step_size * (value - self.tolerance - self.damping * multiplier), 0.0)


@dataclass(frozen=True)
class Objective:
    """The result of one forward pass: the loss, and each constraint's value (None: undefined for this batch).

    >>> objective = Objective(torch.tensor(0.7), {"bias": torch.tensor(0.02)})
    >>> sorted(objective.constraints)
    ['bias']
    """

    loss: Float[Tensor, ""]
    constraints: Mapping[str, Float[Tensor, ""] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class StepReport:
    """Loss and constraints of the mini-batch's last forward pass, and the multipliers after it."""

    loss: float
    constraints: Mapping[str, float | None]
    multipliers: Mapping[str, float]


class PrimalDual:
    """Minimise a loss subject to inequality constraints, with any torch optimiser (Eq. 5-8, Algorithm 1).

    For each mini-batch, `inner_steps` (the paper's m) times:

        θ ← one optimiser step on L(θ) + Σ λ·(g(θ) − γ)         (Eq. 7)
        θ ← the mean of this mini-batch's iterates so far        (Eq. 6, Algorithm 1 line 7)
        λ ← max{λ + η₂·(g(θ) − γ − δλ), 0}, g at that mean       (Eq. 8)

    The g that raises λ comes with the next inner step's forward pass, which starts from that mean; only the last
    step needs a forward pass of its own. So m inner steps cost m forward-backward passes and one forward. With
    `measures_with="next_batch"` even that one is saved: the first pass of the next mini-batch, which also starts from the
    mean, measures g on other clips.
    m = 1 is plain descent with dual ascent. m = 0 is one plain step with the multipliers held fixed.

    What is averaged: the parameters the optimiser holds, as a running mean, at the price of one copy of them. The
    optimiser's moments belong to the iterates and are left alone. Buffers (BatchNorm's running statistics) are not
    averaged: they follow the m training passes, and what the extra forward pass writes to them is undone.

    Across processes, each multiplier is raised by the mean of g over ranks, so all ranks hold the same one.

    `backward` fills in the gradients. Where it returns False, they are unusable (they overflowed float16): the optimiser
    takes no step, and the multipliers are not raised for it.

    >>> model = nn.Linear(1, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> train = PrimalDual(model, optimizer, {"size": Constraint(tolerance=0.0)})
    >>> def objective():
    ...     output = model(torch.ones(1, 1)).square().mean()
    ...     return Objective(loss=output, constraints={"size": output})
    >>> report = train.step(objective)
    >>> report.multipliers["size"] > 0
    True
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        constraints: Mapping[str, Constraint],
        *,
        inner_steps: int = INNER_STEPS,
        measures_with: MeasuresWith = "own_pass",
        backward: Callable[[Tensor], bool | None] = torch.Tensor.backward,
    ) -> None:
        if inner_steps < 0:
            raise RangeError(f"inner_steps must be 0 or more; got {inner_steps}.")
        self.model = model
        self.optimizer = optimizer
        self.constraints = dict(constraints)
        self.inner_steps = inner_steps
        self.measures_with: MeasuresWith = measures_with
        self.backward = backward
        self.multipliers = {name: c.initial_multiplier for name, c in self.constraints.items()}
        self.left_out = dict.fromkeys(self.constraints, 0)
        """How often each constraint was undefined when its multiplier was due."""
        self.num_skipped = 0
        """How many optimiser steps were left out because `backward` returned False."""
        self._owes_ascent = False
        self._has_moved = True

    def step(self, objective: Callable[[], Objective]) -> StepReport:
        """One mini-batch. `objective` runs the model forward on it, and may be called m + 1 times."""
        current = objective()
        if self._owes_ascent:
            self._ascend(current)
        found = self._descend(current)
        for count in range(2, self.inner_steps + 1):
            current = objective()
            if self._has_moved:
                self._ascend(current)
            before = [parameter.detach().clone() for parameter in self._parameters()]
            found = self._descend(current)
            self._average(before, weight=1 / count)
        if self.inner_steps and self.constraints:
            self._owes_ascent = self._has_moved and self.measures_with == "next_batch"
            if self._has_moved and not self._owes_ascent:
                with self._measuring():
                    found = objective()
                self._ascend(found)
        return StepReport(
            loss=found.loss.item(),
            constraints={name: _number(found.constraints.get(name)) for name in self.constraints},
            multipliers=dict(self.multipliers),
        )

    def lagrangian(self, found: Objective) -> Float[Tensor, ""]:
        """L + Σ λ·(g − γ) over the constraints this batch defines; the dual's −δλ²/2 has no gradient in θ."""
        total = found.loss
        for name, constraint in self.constraints.items():
            value = found.constraints.get(name)
            if value is not None:
                total = total + self.multipliers[name] * (value - constraint.tolerance)
        return total

    def state_dict(self) -> dict[str, Any]:
        """Return everything a step changes here, except the average: between steps the parameters are it."""
        return {
            "multipliers": dict(self.multipliers),
            "left_out": dict(self.left_out),
            "owes_ascent": self._owes_ascent,
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state that `state_dict` returned, with the same constraints."""
        if set(state["multipliers"]) != set(self.constraints):
            raise RangeError(
                f"the saved multipliers are for {sorted(state['multipliers'])}, the constraints are "
                f"{sorted(self.constraints)}. Resume with the experiment file that was saved beside them."
            )
        self.multipliers = dict(state["multipliers"])
        self.left_out = dict(state["left_out"])
        self._owes_ascent = bool(state["owes_ascent"])
        self.num_skipped = int(state.get("num_skipped", 0))

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _descend(self, found: Objective) -> Objective:
        """One optimiser step (Eq. 7)."""
        total = self.lagrangian(found)
        if not torch.isfinite(total):
            raise NotFinite(
                f"the Lagrangian is {total.item()}: loss {found.loss.item():.6g}, constraints "
                f"{ {name: _number(value) for name, value in found.constraints.items()} }, multipliers "
                f"{self.multipliers}. The parameters are untouched by this step; lower the learning rate or clip."
            )
        self.optimizer.zero_grad(set_to_none=True)
        self._has_moved = self.backward(total) is not False
        if self._has_moved:
            self.optimizer.step()
        else:
            self.num_skipped += 1
        return found

    @torch.no_grad()
    def _average(self, before: list[Tensor], *, weight: float) -> None:
        """θ̃ ← θ̃ + (θ − θ̃)/k: the parameters become the mean of the k iterates so far (Eq. 6)."""
        parameters = self._parameters()
        torch._foreach_lerp_(before, parameters, weight)  # pyright: ignore[reportPrivateUsage] - how torch.optim does it
        torch._foreach_copy_(parameters, before)  # pyright: ignore[reportPrivateUsage]

    def _ascend(self, found: Objective) -> None:
        """Each multiplier's step with the constraint found at the averaged parameters (Eq. 8)."""
        for name, constraint in self.constraints.items():
            value = mean_over_ranks(_number(found.constraints.get(name)), device=found.loss.device)
            if value is None:
                self.left_out[name] += 1
            elif not math.isfinite(value):
                raise NotFinite(
                    f"constraint {name!r} is {value} at the averaged parameters; its multiplier stays "
                    f"{self.multipliers[name]:.6g}. Lower the learning rate or its step_size."
                )
            else:
                self.multipliers[name] = constraint.ascend(self.multipliers[name], value)

    @contextmanager
    def _measuring(self) -> Generator[None]:
        """Run a forward pass without a graph, and restore every buffer afterwards."""
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        with torch.no_grad():
            try:
                yield
            finally:
                for buffer, found in buffers:
                    buffer.copy_(found)


def _number(value: Tensor | None) -> float | None:
    return None if value is None else value.item()
