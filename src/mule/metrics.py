"""Open-set metrics of one novelty score: pure numpy, exact on ties, never flipped.

Novelty rises with novelty. An actor is *flagged* as novel at a threshold when its novelty is at or above it,
and *accepted* as known when it is at or below it. Equal scores are one threshold, so no metric depends on the
order of the actors. Scores are sorted once, into an `OperatingCurve`; everything else is counting.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from mule.core.errors import NotFinite, RangeError, ShapeError

AnyArray = Shaped[np.ndarray, "..."]  # what the user gives; `operating_curve` answers a wrong shape in words
PerResample = Float[np.ndarray, "*resamples"] | np.float64
Counts = Int[np.ndarray, "*resamples thresholds"]

NOMINAL_TPR = 0.95


@dataclass(frozen=True)
class OperatingCurve:
    """How many novel and known actors are flagged at each distinct threshold, from the highest down.

    The last entry counts everybody. Leading axes, where there are any, are resamples of the same actors; each
    metric returns one value per resample, or one value where there are none.
    """

    thresholds: Float[np.ndarray, " thresholds"]
    novel_flagged: Counts
    known_flagged: Counts

    @property
    def num_novel(self) -> int:
        """Number of novel actors."""
        return int(self.novel_flagged[..., -1].flat[0])

    @property
    def num_known(self) -> int:
        """Number of known actors."""
        return int(self.known_flagged[..., -1].flat[0])

    @cached_property
    def novel_accepted(self) -> Counts:
        """Novel actors at or below each threshold, from the lowest up."""
        return _accepted(self.novel_flagged)

    @cached_property
    def known_accepted(self) -> Counts:
        """Known actors at or below each threshold, from the lowest up."""
        return _accepted(self.known_flagged)

    def auroc(self) -> PerResample:
        """Chance that a novel actor ranks above a known one; ties count half."""
        novel_here, known_here = _steps(self.novel_flagged), _steps(self.known_flagged)
        twice_won = novel_here * (2 * (self.num_known - self.known_flagged) + known_here)
        return twice_won.sum(axis=-1) / (2 * self.num_known * self.num_novel)

    def average_precision_novel(self) -> PerResample:
        """Precision among flagged actors, averaged over the steps of recall; novel is positive."""
        return _average_precision(self.novel_flagged, self.known_flagged)

    def average_precision_known(self) -> PerResample:
        """Precision among accepted actors, averaged over the steps of recall; known is positive."""
        return _average_precision(self.known_accepted, self.novel_accepted)

    def fpr_at_tpr(self, tpr: float = NOMINAL_TPR) -> PerResample:
        """Share of novel actors accepted when at least `tpr` of the known ones are; known is positive."""
        return _fpr_at_tpr(self.known_accepted, self.novel_accepted, tpr)

    def fpr_at_tpr_novel(self, tpr: float = NOMINAL_TPR) -> PerResample:
        """Share of known actors flagged when at least `tpr` of the novel ones are; novel is positive."""
        return _fpr_at_tpr(self.novel_flagged, self.known_flagged, tpr)

    def detection_error(self, tpr: float = NOMINAL_TPR) -> PerResample:
        """½(1 − tpr) + ½·FPR at the nominal `tpr`; known is positive."""
        missed = round(1 - tpr, 12)  # 1 - 0.95 is 0.05 but for the last bit; so 0.025 + FPR/2 holds exactly
        return np.asarray(0.5 * missed + 0.5 * self.fpr_at_tpr(tpr))

    def min_detection_error(self) -> PerResample:
        """Least ½(share of novel accepted) + ½(share of known flagged) over all thresholds.

        Flagging nobody, or everybody, is a threshold too: the error is never above ½.
        """
        missed = 1 - self.novel_flagged / self.num_novel
        false_alarms = self.known_flagged / self.num_known
        return 0.5 * (missed + false_alarms).min(axis=-1, initial=1.0)


MEASURES: Mapping[str, Callable[[OperatingCurve], PerResample]] = {
    "auroc": OperatingCurve.auroc,
    "aupr_novel": OperatingCurve.average_precision_novel,
    "aupr_known": OperatingCurve.average_precision_known,
    "fpr_at_95_tpr": OperatingCurve.fpr_at_tpr,
    "fpr_at_95_tpr_novel": OperatingCurve.fpr_at_tpr_novel,
    "detection_error": OperatingCurve.detection_error,
    "min_detection_error": OperatingCurve.min_detection_error,
}


def operating_curve(novelty: AnyArray, is_novel: AnyArray) -> OperatingCurve:
    """Counts of novel and known actors at or above each distinct novelty.

    Args:
        novelty: one finite number per actor; larger means more novel.
        is_novel: true (or 1) for novel actors, false (or 0) for known ones.

    Raises:
        ShapeError: the two do not have one entry per actor, or are not numbers and truth values.
        NotFinite: a novelty is NaN or infinite.
        RangeError: there is no novel or no known actor, or a label is neither 0 nor 1.
    """
    novelty = np.asarray(novelty)
    labels = _checked_labels(novelty, np.asarray(is_novel))
    order = np.argsort(novelty)[::-1]
    descending = novelty[order]
    novel_so_far = np.cumsum(labels[order], dtype=np.int64)
    ends = np.append(np.flatnonzero(descending[1:] != descending[:-1]), len(order) - 1)
    novel_flagged = novel_so_far[ends]
    return OperatingCurve(
        thresholds=descending[ends].astype(np.float64, copy=False),
        novel_flagged=novel_flagged,
        known_flagged=ends + 1 - novel_flagged,
    )


def auroc(novelty: AnyArray, is_novel: AnyArray) -> float:
    """Chance that a novel actor ranks above a known one; ties count half.

    Below 0.5 the score points the wrong way. That is reported, not repaired.

    >>> novelty = np.array([0.1, 0.4, 0.4, 0.9])
    >>> auroc(novelty, np.array([False, False, True, True]))
    0.875
    >>> auroc(-novelty, np.array([False, False, True, True]))
    0.125
    """
    return float(operating_curve(novelty, is_novel).auroc())


def average_precision_novel(novelty: AnyArray, is_novel: AnyArray) -> float:
    """Area under the precision-recall steps when novel actors are to be found (AUPR, novel positive).

    Σ (Rₖ − Rₖ₋₁)·Pₖ over the distinct thresholds, without interpolation.
    """
    return float(operating_curve(novelty, is_novel).average_precision_novel())


def average_precision_known(novelty: AnyArray, is_novel: AnyArray) -> float:
    """Area under the precision-recall steps when known actors are to be found (AUPR, known positive)."""
    return float(operating_curve(novelty, is_novel).average_precision_known())


def fpr_at_tpr(novelty: AnyArray, is_novel: AnyArray, *, tpr: float = NOMINAL_TPR) -> float:
    """Share of novel actors accepted as known at the first threshold that accepts `tpr` of the known ones.

    Known is positive, as in the paper. "First" is the lowest novelty at which at least `tpr` of the known
    actors are accepted; nothing is interpolated.

    >>> novelty, is_novel = np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True])
    >>> fpr_at_tpr(novelty, is_novel)
    0.5
    """
    return float(operating_curve(novelty, is_novel).fpr_at_tpr(_checked_tpr(tpr)))


def fpr_at_tpr_novel(novelty: AnyArray, is_novel: AnyArray, *, tpr: float = NOMINAL_TPR) -> float:
    """Share of known actors flagged as novel at the first threshold that flags `tpr` of the novel ones."""
    return float(operating_curve(novelty, is_novel).fpr_at_tpr_novel(_checked_tpr(tpr)))


def detection_error(novelty: AnyArray, is_novel: AnyArray, *, tpr: float = NOMINAL_TPR) -> float:
    """½(1 − tpr) + ½·FPR at the nominal true-positive rate, known positive: 0.025 + FPR/2 at 95 %."""
    return float(operating_curve(novelty, is_novel).detection_error(_checked_tpr(tpr)))


def min_detection_error(novelty: AnyArray, is_novel: AnyArray) -> float:
    """Least ½(share of novel accepted) + ½(share of known flagged) that any threshold reaches."""
    return float(operating_curve(novelty, is_novel).min_detection_error())


def threshold_at_false_alarm_rate(known_novelty: AnyArray, rate: float) -> float:
    """Smallest threshold above which at most `rate` of these known actors lie; flag novelty > threshold.

    >>> threshold_at_false_alarm_rate(np.array([1.0, 2.0, 3.0, 4.0]), 0.25)
    3.0
    """
    if not 0 <= rate < 1:
        raise RangeError(f"the false-alarm rate must be at least 0 and below 1; got {rate}.")
    known_novelty = np.asarray(known_novelty)
    _require_novelty(known_novelty)
    num_known = len(known_novelty)
    if num_known == 0:
        raise RangeError("a threshold needs known actors to be set on; got 0.")
    allowed = int(rate * num_known)
    allowed += (allowed + 1) / num_known <= rate  # 0.29 * 100 is 28.999...
    at = num_known - 1 - allowed
    return float(np.partition(known_novelty, at)[at])


def _steps(cumulative: Counts) -> Counts:
    """Counts at each threshold, from cumulative ones."""
    steps = cumulative.copy()
    steps[..., 1:] -= cumulative[..., :-1]
    return steps


def _accepted(flagged: Counts) -> Counts:
    """Counts at or below each threshold, from the lowest up: everybody but those flagged above it."""
    accepted = np.empty_like(flagged)
    accepted[..., -1] = flagged[..., -1]
    accepted[..., -2::-1] = flagged[..., -1:] - flagged[..., :-1]
    return accepted


def _average_precision(positives: Counts, negatives: Counts) -> PerResample:
    chosen = positives + negatives
    precision = np.divide(positives, chosen, out=np.zeros(chosen.shape), where=chosen > 0)
    return (_steps(positives) * precision).sum(axis=-1) / positives[..., -1]


def _fpr_at_tpr(positives: Counts, negatives: Counts, tpr: float) -> PerResample:
    first = (positives / positives[..., -1:] >= tpr).argmax(axis=-1)[..., None]
    return np.take_along_axis(negatives, first, axis=-1)[..., 0] / negatives[..., -1]


def _checked_labels(novelty: AnyArray, is_novel: AnyArray) -> Bool[np.ndarray, " actors"]:
    if novelty.ndim != 1 or novelty.shape != is_novel.shape:
        raise ShapeError(
            "novelty and is_novel must have one entry per actor; "
            f"got shapes {novelty.shape} and {is_novel.shape}. Rows are matched by position."
        )
    _require_novelty(novelty)
    if is_novel.dtype.kind not in "biu":
        raise ShapeError(
            f"is_novel must hold truth values; got dtype {is_novel.dtype}. Compare with a class first."
        )
    if is_novel.dtype.kind != "b" and not np.isin(is_novel, (0, 1)).all():
        raise RangeError(f"is_novel must be 0 or 1; got values from {is_novel.min()} to {is_novel.max()}.")
    num_novel = np.count_nonzero(is_novel)
    if num_novel in (0, len(is_novel)):
        missing = "known" if num_novel else "novel"
        raise RangeError(
            f"open-set metrics need known and novel actors; got 0 {missing} actors of {len(is_novel)}. "
            "Check which classes the split calls novel."
        )
    return is_novel.astype(bool, copy=False)


def _require_novelty(novelty: AnyArray) -> None:
    if novelty.ndim != 1 or novelty.dtype.kind not in "fiu":
        raise ShapeError(
            f"novelty must be one number per actor; got shape {novelty.shape} and dtype {novelty.dtype}."
        )
    wrong = np.flatnonzero(~np.isfinite(novelty))
    if len(wrong):
        raise NotFinite(
            f"novelty must be finite; {len(wrong)} of {len(novelty)} are not, the first is {novelty[wrong[0]]} at "
            f"position {wrong[0]}. NaN has no rank and infinite scores tie where the actors differ; use a score "
            "that does not overflow (`Novelty.rank`)."
        )


def _checked_tpr(tpr: float) -> float:
    if not 0 < tpr <= 1:
        raise RangeError(f"the true-positive rate must be above 0 and at most 1; got {tpr}.")
    return tpr
