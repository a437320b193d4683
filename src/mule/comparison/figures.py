"""Figures of a comparison: curves, scores, reliability, novelty per class, and the frames methods disagree on most.

Each method appears by the one score it is compared by.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from mule.comparison.rows import file_stem
from mule.comparison.sheets import OURS, Findings, FinishedRow
from mule.comparison.tested import DEFAULT
from mule.core.errors import RangeError
from mule.evaluation.class_figures import (
    ClassScores,
    Reliability,
    class_novelty_figure,
    reliability,
    reliability_figure,
)
from mule.evaluation.drawing import method_styles, write_figure
from mule.evaluation.figures import (
    MethodCurves,
    ScoredActors,
    precision_recall_figure,
    roc_figure,
    score_figure,
)
from mule.evaluation.pictures import Calls, FrameDecisions, KeyFrame, most_disputed, picture_grid
from mule.inference.outputs import SideOutputs
from mule.inference.results import kept_outputs, read_novelties
from mule.inference.sides import key_frame
from mule.metrics import operating_curve

CAPTIONS: Mapping[str, str] = {
    "roc": "ROC: novel actors flagged against known actors flagged.",
    "precision_recall": "Precision and recall of novel actors.",
    "scores": "Novelty of known and novel actors. The dashed line is the threshold that flags 5 % of the known actors of "
    "validation.",
    "reliability": "Observed frequency of actions against their predicted probability, known actors.",
    "novelty_per_class": "Novelty of the actors of each action, as a percentile of all actors.",
    "disputed": "The key frames on which methods disagree most. Cyan: called known; yellow: called novel; tick: correct.",
}
TRUTH = "truth"
LIKELY = 0.5


def write_figures(findings: Findings, side: str, folder: Path) -> list[Path]:
    """Write every figure as a PNG file. Curves show all trials, the other figures the first."""
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
                f"novelty_per_class_{file_stem(each.method)}": class_novelty_figure(
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
    """The reference method, and the default or else the first method."""
    default = DEFAULT if DEFAULT in findings.methods else findings.methods[0]
    return {findings.reference, default}


def _curves(findings: Findings, method: str, side: str, area: str) -> MethodCurves:
    score, rows = findings.judged_by[method], findings.of(method)
    areas = [getattr(each.results[side].scores[score].measures, area) for each in rows]
    curves = [
        operating_curve(
            read_novelties(each.row.folder, side)[score],
            kept_outputs(each.row.folder, side).truth.is_novel,
        )
        for each in rows
    ]
    return MethodCurves(method, tuple(curves), float(np.mean(areas)))


def _scored(findings: Findings, each: FinishedRow, side: str) -> ScoredActors:
    score = findings.judged_by[each.method]
    novelty = read_novelties(each.row.folder, side)[score]
    is_novel = kept_outputs(each.row.folder, side).truth.is_novel
    return ScoredActors(
        f"{each.method}, {score}",
        known=novelty[~is_novel],
        novel=novelty[is_novel],
        threshold=_threshold(each, side, score),
    )


def _reliability(each: FinishedRow, side: str) -> Reliability:
    outputs = kept_outputs(each.row.folder, side)
    is_known = np.logical_not(outputs.truth.is_novel)
    return reliability(outputs.probability[is_known], outputs.labels[is_known])


def _by_class(findings: Findings, each: FinishedRow, side: str) -> ClassScores:
    """Novelty by action, without actions that nobody does here."""
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


def write_pictures(findings: Findings, side: str, path: Path, *, count: int = 4) -> list[str]:
    """Draw the key frames on which methods disagree most, beside the truth; return the names of the frames.

    All methods of the first trial take part. A method calls an actor novel when its score is above the
    threshold that flags 5 % of the known actors of validation. Actions beside a box have a probability above
    one half.

    Raises:
        RangeError: the methods were not evaluated on the same actors, or agree on every frame.
    """
    rows = [findings.of(method)[0] for method in findings.methods]
    outputs = [kept_outputs(each.row.folder, side) for each in rows]
    first = outputs[0]
    if any(not np.array_equal(each.clip_index, first.clip_index) for each in outputs):
        raise RangeError("--pictures needs methods evaluated on the same actors; these were not.")
    calls = np.stack([_called_novel(findings, each, side) for each in rows])
    members = [np.flatnonzero(first.clip_index == clip) for clip in range(len(first.clip_names))]
    decisions = [
        FrameDecisions(name.video, calls[:, actors])
        for name, actors in zip(first.clip_names, members, strict=True)
    ]
    chosen = most_disputed(decisions, count)
    if not chosen:
        raise RangeError("--pictures needs key frames on which methods disagree; there are none.")
    row = rows[0].row
    frames: list[KeyFrame] = []
    for clip in chosen:
        name, actors = first.clip_names[clip], members[clip]
        shown = {TRUTH: _truth(first, actors)}
        for each, its, is_novel in zip(rows, outputs, calls[:, actors], strict=True):
            shown[each.method] = _calls(its, actors, is_novel)
        pixels = key_frame(row.experiment, side, (clip, name), test_clips=row.judging.test_clips)
        frames.append(KeyFrame(Path(name.video).name, name.key_time_s, pixels, shown))
    write_figure(picture_grid(frames, [TRUTH, *findings.methods]), path)
    return [str(first.clip_names[clip]) for clip in chosen]


def _called_novel(findings: Findings, each: FinishedRow, side: str) -> Bool[np.ndarray, " actors"]:
    score = findings.judged_by[each.method]
    return read_novelties(each.row.folder, side)[score] > _threshold(each, side, score)


def _threshold(each: FinishedRow, side: str, score: str) -> float:
    """The threshold of validation; rows of a comparison always look at validation."""
    threshold = each.results[side].scores[score].threshold
    return np.inf if threshold is None else threshold


def _truth(outputs: SideOutputs, actors: np.ndarray) -> Calls:
    truth = outputs.truth
    return Calls(
        truth.boxes_xyxy_unit[actors].clip(0, 1),
        tuple(
            tuple(truth.classes[at] for at in np.flatnonzero(truth.labels[actor]))
            for actor in actors.tolist()
        ),
        truth.is_novel[actors],
    )


def _calls(outputs: SideOutputs, actors: np.ndarray, is_called_novel: Bool[np.ndarray, " actors"]) -> Calls:
    likely = outputs.probability[actors] > LIKELY
    labels = [
        () if is_novel else tuple(outputs.classes[at] for at in np.flatnonzero(does))
        for does, is_novel in zip(likely, is_called_novel.tolist(), strict=True)
    ]
    return Calls(
        outputs.truth.boxes_xyxy_unit[actors].clip(0, 1),
        tuple(labels),
        is_called_novel,
        is_right=is_called_novel == outputs.truth.is_novel[actors],
    )
