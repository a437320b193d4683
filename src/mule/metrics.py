"""Open-set metrics of one novelty score: pure numpy, exact on ties, never flipped.

Larger scores mean more novel. An actor is *flagged* as novel at a threshold when its novelty is at or above
it, and *accepted* as known when it is at or below it. Equal scores share a threshold, so no metric depends on
the order of the actors. Scores are sorted once, into an `OperatingCurve`; everything else is counting.

Functions take one value per actor: a numpy array, a list, or a torch tensor, which may require gradients.
`OpenSetMetrics` collects batches. `TorchOpenSetMetrics` is the same as a torchmetrics `Metric`, for a
`MetricCollection` or a Lightning module; it needs torchmetrics.

>>> from mule import metrics
>>> metrics.auroc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
0.875
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from mule.core.errors import NotFinite, RangeError, ShapeError

if TYPE_CHECKING:
    from torchmetrics import Metric

    TorchOpenSetMetrics: type[Metric]

Values = object
"""One value per actor: an array, a tensor or a list. A wrong shape or type is refused in words."""
AnyArray = Shaped[np.ndarray, "..."]
PerResample = Float[np.ndarray, "*resamples"] | np.float64
Counts = Int[np.ndarray, "*resamples thresholds"] | Float[np.ndarray, "*resamples thresholds"]
"""Numbers of actors, or sums of their weights."""

NOMINAL_TPR = 0.95


@dataclass(frozen=True)
class OperatingCurve:
    """The number of novel and known actors flagged at each distinct threshold, from the highest down.

    The last entry counts everybody. Leading axes, if any, are resamples of the same actors, perhaps with weights;
    each metric then returns one value per resample.
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
        """Return the chance that a novel actor ranks above a known one; ties count half."""
        num_known, num_novel = self.known_flagged[..., -1:], self.novel_flagged[..., -1:]
        twice_won = _steps(self.novel_flagged) * (
            2 * (num_known - self.known_flagged) + _steps(self.known_flagged)
        )
        return twice_won.sum(axis=-1) / (2 * num_known * num_novel)[..., 0]

    def average_precision_novel(self) -> PerResample:
        """Return the precision among flagged actors, averaged over the steps of recall; novel is positive."""
        return _average_precision(self.novel_flagged, self.known_flagged)

    def average_precision_known(self) -> PerResample:
        """Return the precision among accepted actors, averaged over the steps of recall; known is positive."""
        return _average_precision(self.known_accepted, self.novel_accepted)

    def fpr_at_tpr(self, tpr: float = NOMINAL_TPR) -> PerResample:
        """Return the share of novel actors accepted when at least `tpr` of the known ones are; known is positive."""
        return _fpr_at_tpr(self.known_accepted, self.novel_accepted, tpr)

    def fpr_at_tpr_novel(self, tpr: float = NOMINAL_TPR) -> PerResample:
        """Return the share of known actors flagged when at least `tpr` of the novel ones are; novel is positive."""
        return _fpr_at_tpr(self.novel_flagged, self.known_flagged, tpr)

    def detection_error(self, tpr: float = NOMINAL_TPR) -> PerResample:
        """Return ½(1 − tpr) + ½·FPR at the nominal `tpr`; known is positive."""
        missed = round(1 - tpr, 12)  # 1 - 0.95 differs from 0.05 in the last bit
        return np.asarray(0.5 * missed + 0.5 * self.fpr_at_tpr(tpr))

    def min_detection_error(self) -> PerResample:
        """Return the least ½(share of novel accepted) + ½(share of known flagged) over all thresholds.

        Flagging nobody and flagging everybody count as thresholds, so the error is never above ½.
        """
        missed = 1 - self.novel_flagged / self.novel_flagged[..., -1:]
        false_alarms = self.known_flagged / self.known_flagged[..., -1:]
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


def operating_curve(novelty: Values, is_novel: Values) -> OperatingCurve:
    """Count novel and known actors at or above each distinct novelty.

    Args:
        novelty: one finite number per actor; larger means more novel.
        is_novel: true (or 1) for novel actors, false (or 0) for known ones.

    Raises:
        ShapeError: an argument does not hold one number or truth value per actor.
        NotFinite: a novelty is NaN or infinite.
        RangeError: there is no novel or no known actor, or a label is neither 0 nor 1.
    """
    values = array_of(novelty)
    labels = _checked_labels(values, array_of(is_novel))
    order = np.argsort(values)[::-1]
    descending = values[order]
    novel_so_far = np.cumsum(labels[order], dtype=np.int64)
    ends = np.append(np.flatnonzero(descending[1:] != descending[:-1]), len(order) - 1)
    novel_flagged = novel_so_far[ends]
    return OperatingCurve(
        thresholds=descending[ends].astype(np.float64, copy=False),
        novel_flagged=novel_flagged,
        known_flagged=ends + 1 - novel_flagged,
    )


def auroc(novelty: Values, is_novel: Values) -> float:
    """Return the chance that a novel actor ranks above a known one; ties count half.

    A value below 0.5 means that the score points the wrong way; it is not flipped.

    >>> novelty = np.array([0.1, 0.4, 0.4, 0.9])
    >>> auroc(novelty, np.array([False, False, True, True]))
    0.875
    >>> auroc(-novelty, np.array([False, False, True, True]))
    0.125
    """
    return float(operating_curve(novelty, is_novel).auroc())


def average_precision_novel(novelty: Values, is_novel: Values) -> float:
    """Return the area under the precision-recall steps with novel actors as positives (AUPR).

    Σ (Rₖ − Rₖ₋₁)·Pₖ over the distinct thresholds, without interpolation.
    """
    return float(operating_curve(novelty, is_novel).average_precision_novel())


def average_precision_known(novelty: Values, is_novel: Values) -> float:
    """Return the area under the precision-recall steps with known actors as positives (AUPR)."""
    return float(operating_curve(novelty, is_novel).average_precision_known())


def fpr_at_tpr(novelty: Values, is_novel: Values, *, tpr: float = NOMINAL_TPR) -> float:
    """Return the share of novel actors accepted as known at the first threshold that accepts `tpr` of the known ones.

    Known is positive, as in the paper. "First" is the lowest novelty at which at least `tpr` of the known
    actors are accepted; nothing is interpolated.

    >>> novelty, is_novel = np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True])
    >>> fpr_at_tpr(novelty, is_novel)
    0.5
    """
    return float(operating_curve(novelty, is_novel).fpr_at_tpr(_checked_tpr(tpr)))


def fpr_at_tpr_novel(novelty: Values, is_novel: Values, *, tpr: float = NOMINAL_TPR) -> float:
    """Return the share of known actors flagged as novel at the first threshold that flags `tpr` of the novel ones."""
    return float(operating_curve(novelty, is_novel).fpr_at_tpr_novel(_checked_tpr(tpr)))


def detection_error(novelty: Values, is_novel: Values, *, tpr: float = NOMINAL_TPR) -> float:
    """Return ½(1 − tpr) + ½·FPR at the nominal true-positive rate, known positive: 0.025 + FPR/2 at 95 %."""
    return float(operating_curve(novelty, is_novel).detection_error(_checked_tpr(tpr)))


def min_detection_error(novelty: Values, is_novel: Values) -> float:
    """Return the least ½(share of novel accepted) + ½(share of known flagged) of any threshold."""
    return float(operating_curve(novelty, is_novel).min_detection_error())


def threshold_at_false_alarm_rate(known_novelty: Values, rate: float) -> float:
    """Return the smallest threshold that at most `rate` of these known actors exceed; flag novelty > threshold.

    >>> threshold_at_false_alarm_rate(np.array([1.0, 2.0, 3.0, 4.0]), 0.25)
    3.0
    """
    if not 0 <= rate < 1:
        raise RangeError(f"the false-alarm rate must be at least 0 and below 1; got {rate}.")
    values = array_of(known_novelty)
    _require_novelty(values)
    num_known = len(values)
    if num_known == 0:
        raise RangeError("a threshold must be set on known actors; got 0.")
    allowed = int(rate * num_known)
    allowed += (allowed + 1) / num_known <= rate  # 0.29 * 100 is 28.999...
    at = num_known - 1 - allowed
    return float(np.partition(values, at)[at])


class OpenSetMetrics:
    """Collect novelty scores batch by batch, and compute every open-set metric of all of them.

    >>> collected = OpenSetMetrics()
    >>> collected.update([0.1, 0.4], [False, False])
    >>> collected.update([0.4, 0.9], [True, True])
    >>> collected.compute()["auroc"]
    0.875
    >>> collected.reset()
    >>> len(collected)
    0
    """

    def __init__(self) -> None:
        self._novelty: list[AnyArray] = []
        self._is_novel: list[AnyArray] = []

    def __len__(self) -> int:
        """Return the number of actors collected."""
        return sum(map(len, self._novelty))

    def update(self, novelty: Values, is_novel: Values) -> None:
        """Add a batch; it may hold known actors alone, or nobody.

        Args:
            novelty: one finite number per actor; larger means more novel.
            is_novel: true (or 1) for novel actors, false (or 0) for known ones.
        """
        values, labels = np.atleast_1d(array_of(novelty)), np.atleast_1d(array_of(is_novel))
        if not values.size and not labels.size:
            return
        _require_labels(values, labels)
        self._novelty.append(values.astype(np.float64))
        self._is_novel.append(labels.astype(bool))

    def compute(self) -> dict[str, float]:
        """Return every metric of `MEASURES` by name.

        Raises:
            RangeError: no known or no novel actor was collected.
        """
        if not self._novelty:
            raise RangeError("open-set metrics need known and novel actors; got none. Call update first.")
        curve = operating_curve(np.concatenate(self._novelty), np.concatenate(self._is_novel))
        return {name: float(measure(curve)) for name, measure in MEASURES.items()}

    def reset(self) -> None:
        """Forget all batches."""
        self._novelty.clear()
        self._is_novel.clear()


def _torch_open_set_metrics() -> "type[Metric]":
    """Make the class only when it is used: torchmetrics is optional, and imports torch."""
    try:
        from torchmetrics import Metric
        from torchmetrics.utilities import dim_zero_cat
    except ImportError as error:
        raise ImportError("TorchOpenSetMetrics needs torchmetrics: pip install torchmetrics.") from error

    class TorchOpenSetMetrics(Metric):
        """`OpenSetMetrics` as a torchmetrics `Metric`; `compute` returns a scalar tensor for each metric.

        Scores of all processes are gathered before they are ranked, so distributed results equal those of one
        process.
        """

        is_differentiable = False
        higher_is_better = None
        full_state_update = False

        def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of torchmetrics
            super().__init__(**options)
            self.add_state("novelty", default=[], dist_reduce_fx="cat")
            self.add_state("is_novel", default=[], dist_reduce_fx="cat")

        def update(self, novelty: Any, is_novel: Any) -> None:  # noqa: ANN401 - tensors
            _require_labels(array_of(novelty), array_of(is_novel))
            getattr(self, "novelty").append(novelty.detach().double())  # noqa: B009 - states are no declared attributes
            getattr(self, "is_novel").append(is_novel.detach().bool())  # noqa: B009 - states are no declared attributes

        def compute(self) -> dict[str, Any]:
            novelty, is_novel = (dim_zero_cat(getattr(self, name)) for name in ("novelty", "is_novel"))
            curve = operating_curve(novelty, is_novel)
            return {name: novelty.new_tensor(float(measure(curve))) for name, measure in MEASURES.items()}

    TorchOpenSetMetrics.__qualname__ = "TorchOpenSetMetrics"  # so that pickle finds the class by its name
    return TorchOpenSetMetrics


def __getattr__(name: str) -> object:
    if name != "TorchOpenSetMetrics":
        raise AttributeError(f"module 'mule.metrics' has no attribute {name!r}")
    made = _torch_open_set_metrics()
    globals()[name] = made
    return made


def array_of(values: Values) -> AnyArray:
    """Return an array, list or tensor as an array; tensors may be on any device, require gradients, or be bfloat16."""
    if hasattr(values, "detach"):
        tensor: Any = values
        tensor = tensor.detach().cpu()
        values = tensor.double() if tensor.is_floating_point() else tensor
    return np.asarray(values)


def _steps(cumulative: Counts) -> Counts:
    """Return the counts at each threshold from cumulative counts."""
    steps = cumulative.copy()
    steps[..., 1:] -= cumulative[..., :-1]
    return steps


def _accepted(flagged: Counts) -> Counts:
    """Return the counts at or below each threshold, from the lowest up: all actors not flagged above it."""
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


def _require_labels(novelty: AnyArray, is_novel: AnyArray) -> None:
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


def _checked_labels(novelty: AnyArray, is_novel: AnyArray) -> Bool[np.ndarray, " actors"]:
    _require_labels(novelty, is_novel)
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
            f"position {wrong[0]}. NaN has no rank, and infinite scores tie. Use a score that does "
            "not overflow (`Novelty.rank`)."
        )


def _checked_tpr(tpr: float) -> float:
    if not 0 < tpr <= 1:
        raise RangeError(f"the true-positive rate must be above 0 and at most 1; got {tpr}.")
    return tpr
