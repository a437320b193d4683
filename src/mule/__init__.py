"""MULE: recognise what every person in a video does, and notice actions the model was never taught.

>>> import mule
>>> model = mule.Model.load("stage")
>>> "wave" in model.classes
True

Public names are imported when they are first used, so `import mule` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mule.core import __version__

if TYPE_CHECKING:
    from mule import metrics
    from mule.api.model import Model
    from mule.core.errors import MuleError
    from mule.core.heap import keep_freed_memory
    from mule.core.processes import gather_actors
    from mule.core.records import Evidence, Novelty, Opinion
    from mule.detection.detector import YoloxDetector
    from mule.detection.tracks import link_actors
    from mule.evaluation.ava import evaluate_ava
    from mule.evaluation.coverage import coverage
    from mule.evaluation.mean_ap import mean_average_precision
    from mule.evaluation.open_set import evaluate_open_set
    from mule.evidence.fusion import fused_evidence
    from mule.evidence.head import EvidenceHead, combined_belief, opinion_from
    from mule.features.pooling import box_features, context_map
    from mule.features.weights.cards import find_card
    from mule.features.weights.loading import load_backbone
    from mule.metrics import OpenSetMetrics, auroc, threshold_at_false_alarm_rate
    from mule.novelty.calibration import CalibratedScore, threshold_named
    from mule.novelty.combining import CombinedScore
    from mule.novelty.drift import DriftAlarm
    from mule.novelty.scores import (
        NOVELTY_BY_KIND,
        ClassNormalisedEvidence,
        FittedScore,
        belief_novelty,
        combined_evidence_novelty,
        inverse_negative_evidence_novelty,
        negative_evidence_novelty,
        positive_evidence_novelty,
        positive_log_evidence_novelty,
    )
    from mule.objective.beta_loss import beta_loss, expected_cross_entropy
    from mule.objective.hsic import (
        biased_hsic,
        cka,
        debiased_cka,
        rbf_kernel,
        static_bias,
        unbiased_hsic,
    )
    from mule.objective.primal_dual import Constraint, Objective, PrimalDual
    from mule.video.reading import frames_at, read_clips
    from mule.video.sources import video_source
    from mule.watching.measuring import evaluate_watch
    from mule.watching.watch import watch

_MODULE_OF = {
    "Model": "api.model",
    "MuleError": "core.errors",
    "Evidence": "core.records",
    "Opinion": "core.records",
    "Novelty": "core.records",
    "EvidenceHead": "evidence.head",
    "opinion_from": "evidence.head",
    "combined_belief": "evidence.head",
    "beta_loss": "objective.beta_loss",
    "expected_cross_entropy": "objective.beta_loss",
    "rbf_kernel": "objective.hsic",
    "unbiased_hsic": "objective.hsic",
    "biased_hsic": "objective.hsic",
    "cka": "objective.hsic",
    "debiased_cka": "objective.hsic",
    "static_bias": "objective.hsic",
    "Constraint": "objective.primal_dual",
    "Objective": "objective.primal_dual",
    "PrimalDual": "objective.primal_dual",
    "gather_actors": "core.processes",
    "NOVELTY_BY_KIND": "novelty.scores",
    "positive_evidence_novelty": "novelty.scores",
    "positive_log_evidence_novelty": "novelty.scores",
    "negative_evidence_novelty": "novelty.scores",
    "inverse_negative_evidence_novelty": "novelty.scores",
    "combined_evidence_novelty": "novelty.scores",
    "belief_novelty": "novelty.scores",
    "FittedScore": "novelty.scores",
    "ClassNormalisedEvidence": "novelty.scores",
    "CalibratedScore": "novelty.calibration",
    "CombinedScore": "novelty.combining",
    "threshold_named": "novelty.calibration",
    "DriftAlarm": "novelty.drift",
    "fused_evidence": "evidence.fusion",
    "coverage": "evaluation.coverage",
    "keep_freed_memory": "core.heap",
    "OpenSetMetrics": "metrics",
    "auroc": "metrics",
    "threshold_at_false_alarm_rate": "metrics",
    "evaluate_open_set": "evaluation.open_set",
    "evaluate_ava": "evaluation.ava",
    "mean_average_precision": "evaluation.mean_ap",
    "watch": "watching.watch",
    "evaluate_watch": "watching.measuring",
    "video_source": "video.sources",
    "read_clips": "video.reading",
    "frames_at": "video.reading",
    "load_backbone": "features.weights.loading",
    "find_card": "features.weights.cards",
    "box_features": "features.pooling",
    "context_map": "features.pooling",
    "YoloxDetector": "detection.detector",
    "link_actors": "detection.tracks",
}

__all__ = ["__version__", "metrics", *_MODULE_OF]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute can be anything
    if name == "metrics":
        return import_module("mule.metrics")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'mule' has no attribute {name!r}")
    return getattr(import_module(f"mule.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
