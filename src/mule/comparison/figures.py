"""Figures of a comparison, each method by the score it is judged by: curves, scores, reliability, novelty per class."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mule.comparison.rows import plain_name
from mule.comparison.sheets import OURS, Findings, FinishedRow
from mule.comparison.tested import DEFAULT
from mule.evaluation.class_figures import (
    ClassScores,
    Reliability,
    class_novelty_figure,
    reliability,
    reliability_figure,
)
from mule.evaluation.drawing import method_styles, write_figure
from mule.evaluation.figures import (
    FlaggedCounts,
    MethodCurves,
    ScoredActors,
    precision_recall_figure,
    roc_figure,
    score_figure,
)
from mule.inference.results import kept_outputs, read_novelties
from mule.metrics import operating_curve

CAPTIONS: Mapping[str, str] = {
    "roc": "ROC: novel actors flagged against known actors flagged.",
    "precision_recall": "Precision and recall of novel actors.",
    "scores": "Novelty of known and of novel actors; the dashed line is the threshold that flags 5 % of the known actors "
    "of validation.",
    "reliability": "How often an action holds against its probability, known actors.",
    "novelty_per_class": "Where the actors of each action stand among all, by novelty.",
    "disputed": "The most disputed key frames: cyan is called known, yellow novel; a tick is a right call.",
}


def write_figures(findings: Findings, side: str, folder: Path) -> list[Path]:
    """Every figure as a PNG file in the folder; curves are of all trials, the others of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    methods, ours = findings.methods, [each for each in findings.methods if each.startswith(OURS)]
    styles = method_styles(methods, ours=ours)
    firsts = [findings.of(method)[0] for method in methods]
    figures = {
        "reliability": reliability_figure(
            [(each.method, _reliability(each, side)) for each in firsts], styles=styles
        )
    }
    if findings.tells_apart(side):
        figures = {
            "roc": roc_figure([_curves(findings, each, side, "auroc") for each in methods], styles=styles),
            "precision_recall": precision_recall_figure(
                [_curves(findings, each, side, "aupr_novel") for each in methods], styles=styles
            ),
            "scores": score_figure([_scored(findings, each, side) for each in firsts]),
            **figures,
            **{
                f"novelty_per_class_{plain_name(each.method)}": class_novelty_figure(
                    _by_class(findings, each, side)
                )
                for each in firsts
                if each.method in _shown_by_class(findings)
            },
        }
    for name, figure in figures.items():
        write_figure(figure, folder / f"{name}.png")
    return [folder / f"{name}.png" for name in figures]


def _shown_by_class(findings: Findings) -> set[str]:
    """The method that others are compared with, and the default; without it, the first."""
    default = DEFAULT if DEFAULT in findings.methods else findings.methods[0]
    return {findings.reference, default}


def _curves(findings: Findings, method: str, side: str, area: str) -> MethodCurves:
    score, rows = findings.judged_by[method], findings.of(method)
    areas = [getattr(each.results[side].scores[score].measures, area) for each in rows]
    return MethodCurves(method, tuple(_counts(each, side, score) for each in rows), float(np.mean(areas)))


def _counts(each: FinishedRow, side: str, score: str) -> FlaggedCounts:
    novelty = read_novelties(each.row.folder, side)[score]
    curve = operating_curve(novelty, kept_outputs(each.row.folder, side).truth.is_novel)
    return FlaggedCounts(curve.novel_flagged, curve.known_flagged)


def _scored(findings: Findings, each: FinishedRow, side: str) -> ScoredActors:
    score = findings.judged_by[each.method]
    novelty = read_novelties(each.row.folder, side)[score]
    is_novel = kept_outputs(each.row.folder, side).truth.is_novel
    return ScoredActors(
        f"{each.method}, {score}",
        known=novelty[~is_novel],
        novel=novelty[is_novel],
        threshold=each.results[side].scores[score].threshold,
    )


def _reliability(each: FinishedRow, side: str) -> Reliability:
    outputs = kept_outputs(each.row.folder, side)
    is_known = np.logical_not(outputs.truth.is_novel)
    return reliability(outputs.probability[is_known], outputs.labels[is_known])


def _by_class(findings: Findings, each: FinishedRow, side: str) -> ClassScores:
    """Actions that nobody does on this side are left out."""
    truth = kept_outputs(each.row.folder, side).truth
    score = findings.judged_by[each.method]
    done = np.flatnonzero(truth.labels.any(axis=0))
    labels = truth.labels[:, done]
    return ClassScores(
        f"{each.method}, {score}",
        tuple(truth.classes[at] for at in done.tolist()),
        is_novel_class=np.array([bool(truth.is_novel[does].all()) for does in labels.T], dtype=bool),
        novelty=read_novelties(each.row.folder, side)[score],
        labels=labels,
    )
