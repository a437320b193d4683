"""Results of an evaluation, and the open-set evaluation itself: known against novel actors, overall and by group.

Every result states its conventions in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict

from mule.core.errors import AnnotationError, MuleError, RangeError
from mule.core.files import write_file
from mule.core.text_rows import Problems, finite_numbers, numbered, read_named_columns, shown
from mule.evaluation.intervals import ConfidenceInterval, bootstrap_intervals
from mule.metrics import MEASURES, AnyArray, operating_curve


class Result(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OpenSetIntervals(Result):
    """Bootstrap confidence intervals, [low, high], of each open-set metric."""

    level: float
    resamples: int
    seed: int
    auroc: ConfidenceInterval
    aupr_novel: ConfidenceInterval
    aupr_known: ConfidenceInterval
    fpr_at_95_tpr: ConfidenceInterval
    fpr_at_95_tpr_novel: ConfidenceInterval
    detection_error: ConfidenceInterval
    min_detection_error: ConfidenceInterval


class OpenSetMeasures(Result):
    """How well one novelty score tells novel actors from known ones, each number between 0 and 1."""

    auroc: float
    aupr_novel: float
    aupr_known: float
    fpr_at_95_tpr: float
    """Known actors are positive, as in the paper."""
    fpr_at_95_tpr_novel: float
    detection_error: float
    min_detection_error: float
    num_known: int
    num_novel: int
    intervals: OpenSetIntervals | None
    """None if resamples were 0."""


class UndefinedMeasures(Result):
    """A group for which the metrics are undefined, and why."""

    undefined: str
    num_known: int
    num_novel: int


class OpenSetResult(OpenSetMeasures):
    """The measures over all actors and within each group."""

    groups: dict[str, OpenSetMeasures | UndefinedMeasures]
    convention: str


class MeanApResult(Result):
    """Mean average precision over the classes that have ground truth."""

    map: float
    per_class: dict[str, float | None]
    """Average precision by class name; None where the class has no ground truth."""
    num_classes: int
    """Classes that have ground truth; the mean is over these."""
    counts: dict[str, int]
    """How many frames, boxes or videos were evaluated."""
    ignored: dict[str, int]
    """How many rows were left out, by reason."""
    convention: str


class CharadesResult(MeanApResult):
    """Charades mAP, and the mean weighted by how often each class occurs."""

    weighted_map: float


def require_place(path: Path | None) -> None:
    """Check before a long evaluation that its result can be written to `path`; None is no file."""
    if path is None:
        return
    if path.is_dir():
        raise MuleError(f"{path}: the result must go to a file; this is a folder. Name a file in it.")
    if not path.absolute().parent.is_dir():
        raise MuleError(
            f"{path}: the result must go into a folder that exists; {path.parent} does not. Create it."
        )


def write_json(result: Result, path: Path | None) -> None:
    """Write the result as JSON to `path`, completely or not at all; do nothing if `path` is None."""
    if path is None:
        return
    text = result.model_dump_json(indent=2) + "\n"
    if path.exists() and not path.is_file():  # a pipe or a terminal cannot be replaced
        path.write_text(text, encoding="utf-8")
    else:
        write_file(path.resolve(), text)


OPEN_SET_CONVENTION = (
    "Novelty is used as given, larger = more novel; it is never flipped, so AUROC below 0.5 means it points the "
    "wrong way. Equal scores are one threshold. "
    "auroc: chance that a novel actor ranks above a known one, ties count half. "
    "aupr_novel, aupr_known: average precision, the sum of recall step x precision over distinct thresholds "
    "without interpolation, with novel or known actors positive. "
    "fpr_at_95_tpr: known positive; share of novel actors accepted as known (novelty at or below the threshold) "
    "at the first threshold that accepts at least 95 % of known actors, without interpolation. "
    "fpr_at_95_tpr_novel: novel positive; share of known actors flagged as novel (novelty at or above the "
    "threshold) at the first threshold that flags at least 95 % of novel actors, without interpolation. "
    "detection_error: 0.5 x (1 - 0.95) + 0.5 x fpr_at_95_tpr, at the nominal 95 %, known positive. "
    "min_detection_error: least 0.5 x (share of novel accepted) + 0.5 x (share of known flagged) over all "
    "thresholds, flagging nobody and everybody included."
)

_FLAGS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class OpenSetScores:
    """The novelty of each actor, which actors are novel, and the positions of the actors of each group."""

    novelty: Float[np.ndarray, " actors"]
    is_novel: Bool[np.ndarray, " actors"]
    groups: Mapping[str, Int[np.ndarray, " members"]]


def evaluate_open_set(
    novelty: AnyArray,
    is_novel: AnyArray,
    *,
    groups: Mapping[str, Int[np.ndarray, " members"]] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> OpenSetResult:
    """Compute every open-set measure with bootstrap intervals, over all actors and within each group.

    Args:
        novelty: one finite number per actor; larger means more novel.
        is_novel: true (or 1) for novel actors.
        groups: positions of the actors in each group; a group without known or novel actors is reported as
            undefined, with the reason.
        resamples: bootstrap resamples for confidence intervals; 0 disables them.
        level: of the confidence intervals.
        seed: of the bootstrap.

    >>> result = evaluate_open_set(np.array([0.1, 0.3, 0.2, 0.8]), np.array([0, 0, 1, 1]), resamples=0)
    >>> result.auroc, result.fpr_at_95_tpr, result.num_novel
    (0.75, 0.5, 2)
    """
    novelty, is_novel = np.asarray(novelty), np.asarray(is_novel)
    overall = _measures(novelty, is_novel, resamples, level, seed)
    by_group: dict[str, OpenSetMeasures | UndefinedMeasures] = {}
    for name, members in (groups or {}).items():
        labels = is_novel[members]
        num_novel = int(np.count_nonzero(labels))
        if 0 < num_novel < len(members):
            by_group[name] = _measures(novelty[members], labels, resamples, level, seed)
        else:
            by_group[name] = UndefinedMeasures(
                undefined=f"no {'known' if num_novel else 'novel'} actors in this group",
                num_known=len(members) - num_novel,
                num_novel=num_novel,
            )
    convention = OPEN_SET_CONVENTION
    if resamples:
        convention += (
            f" intervals: {100 * level:g} % percentile bootstrap over actors, known and novel resampled separately, "
            f"{resamples} resamples, seed {seed}."
        )
    return OpenSetResult(**dict(overall), groups=by_group, convention=convention)


def evaluate_open_set_file(path: Path, *, resamples: int = 1000, seed: int = 0) -> OpenSetResult:
    """Evaluate the scores in a file; see `read_open_set_scores` for its columns."""
    scores = read_open_set_scores(path)
    try:
        return evaluate_open_set(
            scores.novelty, scores.is_novel, groups=scores.groups, resamples=resamples, seed=seed
        )
    except RangeError as error:
        raise AnnotationError(f"{path}: {error}") from None


def read_open_set_scores(path: Path) -> OpenSetScores:
    """Read scores from a CSV file with the columns `novelty`, `is_novel` and, optionally, `group`.

    `is_novel` is 0, 1, true or false. Other columns are ignored.
    """
    problems = Problems(path)
    novelty: list[np.ndarray] = []
    is_novel: list[np.ndarray] = []
    group: list[np.ndarray] = []
    numbers: dict[str, int] = {}
    for columns in read_named_columns(path, ("novelty", "is_novel"), problems, optional=("group",)):
        novelty.append(finite_numbers(columns.texts["novelty"], "novelty", columns.lines, problems))
        is_novel.append(_flags(columns.texts["is_novel"], columns.lines, problems))
        if "group" in columns.texts:
            group.append(numbered(columns.texts["group"], numbers))
    problems.raise_if_any()
    groups = _members(np.concatenate(group), list(numbers)) if group else {}
    return OpenSetScores(np.concatenate(novelty), np.concatenate(is_novel), groups)


def _measures(
    novelty: AnyArray, is_novel: AnyArray, resamples: int, level: float, seed: int
) -> OpenSetMeasures:
    curve = operating_curve(novelty, is_novel)
    intervals = None
    if resamples:
        ends = bootstrap_intervals(curve, level=level, resamples=resamples, seed=seed)
        intervals = OpenSetIntervals.model_validate(
            {"level": level, "resamples": resamples, "seed": seed, **ends}
        )
    values = {name: float(measure(curve)) for name, measure in MEASURES.items()}
    return OpenSetMeasures.model_validate(
        {**values, "num_known": curve.num_known, "num_novel": curve.num_novel, "intervals": intervals}
    )


def _members(group: Int[np.ndarray, " actors"], names: list[str]) -> dict[str, Int[np.ndarray, " members"]]:
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(1, len(names)))
    return dict(zip(names, np.split(order, starts), strict=True))


def _flags(texts: list[str], lines: list[int], problems: Problems) -> Bool[np.ndarray, " rows"]:
    flags = [_FLAGS.get(text.strip().lower()) for text in texts]
    is_wrong = np.array([flag is None for flag in flags], dtype=bool)
    problems.add_where(
        is_wrong, lines, lambda i: f"is_novel must be 0, 1, true or false; got {shown(texts[i])}"
    )
    return np.array(flags, dtype=bool)
