"""Charades mAP: the official rule, in which a video without labels can do no harm, and the plain one."""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from mule.core.errors import AnnotationError, RangeError, ShapeError
from mule.core.text_rows import Problems, numbers, read_lines, read_named_columns, shown
from mule.data.convert.charades import read_intervals
from mule.evaluation.mean_ap import mean_over_classes, multilabel_average_precision, ranked_average_precision
from mule.evaluation.open_set import CharadesResult
from mule.metrics import AnyArray

_MEAN = (
    "map is the plain mean over the classes that have a positive, weighted_map the mean weighted by their number of "
    "positives. A video shows a class if any interval of its actions names it."
)
OFFICIAL_CONVENTION = (
    "Charades mAP by the rule of the official program: a video without labels ranks last whatever its scores, so it "
    "is never a false alarm; a labelled video that was not submitted ranks last too, and its labels count; equal "
    "scores rank in the order of the ground-truth file. Average precision is the mean of the precision at the rank "
    f"of each positive, without interpolation. {_MEAN}"
)
PLAIN_CONVENTION = (
    "Charades mAP by the plain rule: every submitted video counts as it was scored, unlabelled ones as negatives; "
    "videos that were not submitted are left out. Average precision is the sum of recall step x precision over "
    f"distinct scores, without interpolation; equal scores are one threshold. {_MEAN}"
)


class SubmittedScores(NamedTuple):
    """The scores of a submission, one row per video, and where each video's row is."""

    row_of: dict[str, int]
    scores: Float[np.ndarray, "clips classes"]


class GroundTruth(NamedTuple):
    """The videos of a ground-truth file in its order, and which classes each shows."""

    videos: list[str]
    targets: Bool[np.ndarray, "clips classes"]


def evaluate_charades_official(scores: AnyArray, targets: AnyArray, is_submitted: AnyArray) -> CharadesResult:
    """Charades mAP by the rule of the official program.

    Args:
        scores: (clips, classes), in the order of the ground-truth file; not looked at where not submitted. A class whose
            submitted scores are all NaN was not scored and has no average precision.
        targets: (clips, classes), true where the video shows the class.
        is_submitted: true where the video was scored.
    """
    _require_shapes(scores, targets, is_submitted)
    is_ranked, is_scored = is_submitted & targets.any(axis=1), _is_scored(scores, is_submitted)
    ranked = np.where(is_ranked[:, None], scores[:, is_scored], -np.inf)
    per_class = np.full(len(is_scored), np.nan)
    per_class[is_scored] = ranked_average_precision(ranked, targets[:, is_scored])
    return _result(per_class, targets, is_submitted, targets.sum(axis=0) * is_scored, OFFICIAL_CONVENTION)


def evaluate_charades_plain(scores: AnyArray, targets: AnyArray, is_submitted: AnyArray) -> CharadesResult:
    """Charades mAP over the submitted videos, unlabelled ones as negatives.

    Arguments as for the official rule.
    """
    _require_shapes(scores, targets, is_submitted)
    is_scored, shown = _is_scored(scores, is_submitted), targets[is_submitted]
    per_class = np.full(len(is_scored), np.nan)
    per_class[is_scored] = multilabel_average_precision(
        scores[is_submitted][:, is_scored], shown[:, is_scored]
    )
    return _result(per_class, targets, is_submitted, shown.sum(axis=0) * is_scored, PLAIN_CONVENTION)


def _is_scored(scores: AnyArray, is_submitted: AnyArray) -> Bool[np.ndarray, " classes"]:
    """Return which classes have scores; all of them if nothing was submitted."""
    return np.asarray(~np.isnan(scores[is_submitted]).all(axis=0) | ~is_submitted.any())


def evaluate_charades_files(
    ground_truth: Path, scores: Path, *, rule: Literal["official", "plain"] = "official"
) -> CharadesResult:
    """Charades mAP of a file of scores against a ground-truth file."""
    evaluate = {"official": evaluate_charades_official, "plain": evaluate_charades_plain}[rule]
    submitted = read_scores(scores)
    truth = read_charades_ground_truth(ground_truth, num_classes=submitted.scores.shape[1])
    rows = np.array([submitted.row_of.get(video, -1) for video in truth.videos])
    is_submitted = rows >= 0
    try:
        result = evaluate(submitted.scores[rows], truth.targets, is_submitted)
    except RangeError as error:
        raise AnnotationError(f"{ground_truth}: no ground truth is left to evaluate; {error}") from None
    num_unknown = len(submitted.row_of) - int(is_submitted.sum())
    return result.model_copy(update={"ignored": {"scores_video_not_in_ground_truth": num_unknown}})


def read_scores(path: Path) -> SubmittedScores:
    """Scores from lines `id s0 s1 …`, separated by spaces or tabs.

    As many scores on each line as on the first. `nan` on every line means that a class was not scored.
    """
    problems = Problems(path)
    row_of: dict[str, int] = {}
    rows: list[np.ndarray] = []
    for line, text in enumerate(read_lines(path), start=1):
        video, *cells = text.split() or [""]
        if not video:
            continue
        values = numbers(cells)
        is_left_out = np.array([cell.lower() == "nan" for cell in cells], dtype=bool)
        wrong = np.flatnonzero(~np.isfinite(values) & ~is_left_out)
        if not cells or (rows and len(cells) != len(rows[0])):
            wanted = f"the {len(rows[0])} scores of the first" if rows else "one score per class"
            problems.add(line, f"a line must hold a video and {wanted}; got {len(cells)} scores")
        elif video in row_of:
            problems.add(line, f"a video must be scored once; got {shown(video)} again")
        elif len(wrong):
            problems.add(line, f"score {wrong[0] + 1} must be a finite number; got {shown(cells[wrong[0]])}")
        elif rows and (is_left_out != np.isnan(rows[0])).any():
            problems.add(
                line, "a class must be scored on every line, or on none (nan); the first line scores others"
            )
        else:
            row_of[video] = len(rows)
            rows.append(values)
    problems.raise_if_any()
    if not rows:
        raise AnnotationError(
            f"{path}, line 1: must hold the scores of at least one video; the file is empty."
        )
    return SubmittedScores(row_of, np.stack(rows))


def read_charades_ground_truth(path: Path, *, num_classes: int) -> GroundTruth:
    """Which classes each video shows, from the columns `id` and `actions` of a Charades file."""
    problems = Problems(path)
    shows: dict[str, list[int]] = {}
    for columns in read_named_columns(path, ("id", "actions"), problems):
        for video, actions, line in zip(
            columns.texts["id"], columns.texts["actions"], columns.lines, strict=True
        ):
            if video in shows or not video.strip():
                problems.add(line, f"the id must name a video that has no row yet; got {shown(video)}")
            shows[video] = _classes(actions, num_classes, line, problems)
    problems.raise_if_any()
    targets = np.zeros((len(shows), num_classes), dtype=bool)
    for row, classes in enumerate(shows.values()):
        targets[row, classes] = True
    return GroundTruth(list(shows), targets)


def _classes(actions: str, num_classes: int, line: int, problems: Problems) -> list[int]:
    intervals = read_intervals(actions, line, problems)
    for each in intervals:
        if each.class_number >= num_classes:
            problems.add(
                line, f"a class must have a score, c000 to c{num_classes - 1:03d}; got {shown(each.text)}"
            )
    return [each.class_number for each in intervals if each.class_number < num_classes]


def _result(
    per_class: Float[np.ndarray, " classes"],
    targets: AnyArray,
    is_submitted: AnyArray,
    num_positive: AnyArray,
    convention: str,
) -> CharadesResult:
    mean = mean_over_classes(per_class)
    return CharadesResult(
        map=mean,
        weighted_map=float(np.nansum(per_class * num_positive) / num_positive.sum()),
        per_class={f"c{at:03d}": None if np.isnan(ap) else float(ap) for at, ap in enumerate(per_class)},
        num_classes=int(np.count_nonzero(num_positive)),
        counts={
            "videos": len(targets),
            "videos_without_labels": int(np.count_nonzero(~targets.any(axis=1))),
            "videos_not_submitted": int(np.count_nonzero(~is_submitted)),
        },
        ignored={},
        convention=convention,
    )


def _require_shapes(scores: AnyArray, targets: AnyArray, is_submitted: AnyArray) -> None:
    if scores.ndim != 2 or targets.shape != scores.shape or is_submitted.shape != scores.shape[:1]:
        raise ShapeError(
            "scores and targets must be (clips, classes) and is_submitted (clips,); "
            f"got shapes {scores.shape}, {targets.shape} and {is_submitted.shape}."
        )
    if targets.dtype.kind != "b" or is_submitted.dtype.kind != "b":
        raise ShapeError(
            f"targets and is_submitted must hold truth values; got {targets.dtype} and {is_submitted.dtype}."
        )
