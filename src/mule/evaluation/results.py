"""What an evaluation found: frozen, with its convention in words, and written whole or not at all."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from mule.core.errors import MuleError
from mule.evaluation.intervals import Interval


class Result(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OpenSetIntervals(Result):
    """Bootstrap confidence intervals, [low, high], of each open-set metric."""

    level: float
    resamples: int
    seed: int
    auroc: Interval
    aupr_novel: Interval
    aupr_known: Interval
    fpr_at_95_tpr: Interval
    fpr_at_95_tpr_novel: Interval
    detection_error: Interval
    min_detection_error: Interval


class OpenSetMeasures(Result):
    """How well one novelty score tells novel actors from known ones, each number between 0 and 1."""

    auroc: float
    aupr_novel: float
    aupr_known: float
    fpr_at_95_tpr: float
    """Known positive, as in the paper."""
    fpr_at_95_tpr_novel: float
    detection_error: float
    min_detection_error: float
    num_known: int
    num_novel: int
    intervals: OpenSetIntervals | None
    """None when no resamples were asked for."""


class UndefinedMeasures(Result):
    """A group on which the metrics do not exist, and why."""

    undefined: str
    num_known: int
    num_novel: int


class OpenSetResult(OpenSetMeasures):
    """The measures over all actors and, where groups were given, within each."""

    groups: dict[str, OpenSetMeasures | UndefinedMeasures]
    convention: str


class MeanApResult(Result):
    """Mean average precision over the classes that have ground truth."""

    map: float
    per_class: dict[str, float | None]
    """Average precision by class name; None where the class has no ground truth."""
    num_classes: int
    """Classes that have ground truth, over which the mean is taken."""
    counts: dict[str, int]
    """What the number rests on."""
    ignored: dict[str, int]
    """Rows left out, by reason."""
    convention: str


class CharadesResult(MeanApResult):
    """Charades mAP, and the mean weighted by how often each class occurs."""

    weighted_map: float


def require_place(path: Path | None) -> None:
    """Stop before the work if a result could not be written to `path` after it; None is no place to check."""
    if path is None:
        return
    if path.is_dir():
        raise MuleError(f"{path}: the result must go to a file; this is a directory.")
    if not path.absolute().parent.is_dir():
        raise MuleError(f"{path}: the result must go into a folder that exists; {path.parent} does not.")


def write_json(result: Result, path: Path | None) -> None:
    """The result as JSON at `path`, the whole of it or what was there before; nothing where `path` is None."""
    if path is None:
        return
    text = result.model_dump_json(indent=2) + "\n"
    try:
        if path.exists() and not path.is_file():  # a pipe or a terminal cannot be replaced
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise MuleError(
            f"{path}: the result cannot be written; {(error.strerror or str(error)).lower()}."
        ) from None


def _replace(target: Path, text: str) -> None:
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
