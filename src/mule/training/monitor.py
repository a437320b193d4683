"""Signs that a training goes wrong: measures of validation, and warnings for people.

Numbers go to files; each kind of warning is given once. Nothing here changes the training.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.records import Evidence
from mule.evaluation.mean_ap import mean_average_precision
from mule.objective.primal_dual import Constraint, StepReport

LITTLE_EVIDENCE = 0.01
"""Below this, evidence for an action counts as none: belief is below half a percent."""
COLLAPSED_SHARE = 0.95
SAME_FOR_ALL = 1e-3
DEAD_SHARE = 0.2
RUNAWAY_STEPS = 20
LOG10_EDGES = tuple(float(edge) for edge in range(-6, 6))
"""Edges of the histograms of evidence, in powers of ten; values outside count in the outermost bins."""


@dataclass(frozen=True)
class Validation:
    """How well known actions are recognised on held-out actors, and what their evidence looks like."""

    mean_ap: float
    num_actors: int
    dead_share: float
    """Share of raw outputs that are above zero for no actor, so that a ReLU gives them no gradient; 0 without a ReLU."""
    little_evidence_share: float
    """Share of actors without evidence for any action."""
    same_share: float
    """Share of raw outputs that are practically the same for all actors."""
    evidence_histograms: Mapping[str, tuple[int, ...]]
    """Counts between the `LOG10_EDGES`, of evidence for and against, of actions that are done and that are not."""


def probability_order(evidence: Evidence) -> Float[Tensor, "actors classes"]:
    """Return log(α/β), which orders actors as the expected probability does and never saturates."""
    return torch.log1p(evidence.positive) - torch.log1p(evidence.negative)


def validation_of(
    outputs: Float[Tensor, "actors outputs"],
    evidence: Evidence,
    labels: Bool[Tensor, "actors classes"],
    *,
    outputs_can_die: bool = False,
) -> Validation:
    """Return the measures of all validated actors together.

    Raises:
        RangeError: no actor does any of the actions.
    """
    return Validation(
        mean_ap=mean_average_precision(
            probability_order(evidence).double().cpu().numpy(), labels.cpu().numpy()
        ),
        num_actors=len(labels),
        dead_share=(outputs.amax(dim=0) <= 0).float().mean().item() if outputs_can_die else 0.0,
        little_evidence_share=(evidence.positive.amax(dim=1) < LITTLE_EVIDENCE).float().mean().item(),
        same_share=(outputs.std(dim=0) < SAME_FOR_ALL * (1 + outputs.mean(dim=0).abs())).float().mean().item()
        if len(outputs) > 1
        else 0.0,
        evidence_histograms={
            "for_done": _histogram(evidence.positive[labels]),
            "for_not_done": _histogram(evidence.positive[~labels]),
            "against_done": _histogram(evidence.negative[labels]),
            "against_not_done": _histogram(evidence.negative[~labels]),
        },
    )


def _histogram(values: Float[Tensor, " values"]) -> tuple[int, ...]:
    edges = torch.tensor(LOG10_EDGES[1:-1], dtype=values.dtype)
    place = torch.bucketize(values.cpu().clamp(min=1e-30).log10(), edges)
    return tuple(torch.bincount(place, minlength=len(LOG10_EDGES) - 1).tolist())


@dataclass(frozen=True)
class Watched:
    """What a monitor needs to know about a system."""

    constraints: Mapping[str, Constraint]
    learns_evidence: bool = True
    """Whether the loss is about evidence; the evidence of a sigmoid is derived afterwards."""
    outputs_can_die: bool = False
    """Whether outputs below zero get no gradient, because evidence is their ReLU."""


@dataclass
class Monitor:
    """Watches one run; gives each kind of warning once."""

    watched: Watched
    warnings: dict[str, str] = field(default_factory=dict)
    heavy_steps: dict[str, int] = field(default_factory=dict)
    """The number of consecutive steps in which each constraint has outweighed the loss."""

    def after_step(self, report: StepReport) -> list[str]:
        """Return new warnings about a step."""
        for name, constraint in self.watched.constraints.items():
            value, multiplier = report.constraints.get(name), report.multipliers[name]
            weight = 0.0 if value is None else multiplier * max(value - constraint.tolerance, 0.0)
            is_heavy = weight > abs(report.loss)
            self.heavy_steps[name] = self.heavy_steps.get(name, 0) + 1 if is_heavy else 0
            if self.heavy_steps[name] == RUNAWAY_STEPS:
                return self._warn(
                    f"multiplier of {name}",
                    f"the multiplier of {name} runs away: for {RUNAWAY_STEPS} steps its term ({multiplier:.4g} × "
                    f"{(value or 0) - constraint.tolerance:.3g}) has outweighed the loss ({report.loss:.4g}). The "
                    "tolerance may be below what batches of this size can reach: raise objective.dual.tolerance or "
                    "damping, or lower step_size.",
                )
        return []

    def after_validation(self, validation: Validation) -> list[str]:
        """Return new warnings about a validation."""
        warnings: list[str] = []
        if validation.dead_share > DEAD_SHARE:
            warnings += self._warn(
                "dead outputs",
                f"outputs die: {validation.dead_share:.0%} of them are above zero for no actor, so the ReLU gives them no "
                "gradient to recover. These actions can no longer be learned. Use another evidence function (system "
                "'mule' has no dead outputs), or lower optimizer.lr.",
            )
        if self.watched.learns_evidence and validation.little_evidence_share > COLLAPSED_SHARE:
            warnings += self._warn(
                "no evidence",
                f"evidence collapses: {validation.little_evidence_share:.0%} of the actors have no evidence for any action, "
                "so all of them look novel. Lower optimizer.lr or warm up longer.",
            )
        if validation.same_share > COLLAPSED_SHARE:
            warnings += self._warn(
                "same for all",
                f"the network gives the same outputs for every actor: {validation.same_share:.0%} of them do not vary. Lower "
                "optimizer.lr, or the multiplier's step_size if there is a constraint.",
            )
        return warnings

    def state_dict(self) -> dict[str, Any]:
        """Return the warnings given and the counts."""
        return {"said": dict(self.warnings), "heavy_steps": dict(self.heavy_steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from that state."""
        self.warnings, self.heavy_steps = dict(state["said"]), dict(state["heavy_steps"])

    def _warn(self, kind: str, sentence: str) -> list[str]:
        if kind in self.warnings:
            return []
        self.warnings[kind] = sentence
        return [sentence]
