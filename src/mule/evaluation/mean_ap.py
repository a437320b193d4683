"""Average precision per class of multi-label scores, and its mean over the classes that occur."""

import numpy as np
from jaxtyping import Bool, Float

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.metrics import AnyArray, Values, array_of

PerClass = Float[np.ndarray, " classes"]
_Scores = Float[np.ndarray, "actors classes"]
_Targets = Bool[np.ndarray, "actors classes"]


def multilabel_average_precision(scores: Values, targets: Values) -> PerClass:
    """Average precision of each class, NaN where the class has no positive.

    Σ (Rₖ − Rₖ₋₁)·Pₖ over the distinct scores of the class, without interpolation: equal scores are one
    threshold, so the order of actors does not matter.

    Args:
        scores: (actors, classes), finite; larger means the class is more likely.
        targets: (actors, classes), true (or 1) where the actor does the class.

    >>> scores = np.array([[0.9, 0.5], [0.8, 0.5], [0.1, 0.5]])
    >>> multilabel_average_precision(scores, np.array([[1, 0], [0, 1], [1, 0]])).round(4).tolist()
    [0.8333, 0.3333]
    """
    numbers, labels = _checked(scores, targets)
    if not np.isfinite(numbers).all():
        raise NotFinite(
            f"scores must be finite; {np.count_nonzero(~np.isfinite(numbers))} of {numbers.size} are not."
        )
    return _average_precision(*_ranked(numbers, labels), share_ties=True)


def ranked_average_precision(scores: Values, targets: Values) -> PerClass:
    """Average precision of each class when equal scores keep their order, NaN where a class has no positive.

    The precision at the rank of each positive, averaged. A score of −∞ puts an actor last.
    """
    numbers, labels = _checked(scores, targets)
    if np.isnan(numbers).any() or np.isposinf(numbers).any():
        raise NotFinite("scores must be finite, or −inf for what was never scored; got NaN or +inf.")
    return _average_precision(*_ranked(numbers, labels), share_ties=False)


def mean_average_precision(scores: Values, targets: Values) -> float:
    """Mean of `multilabel_average_precision` over the classes that have a positive.

    >>> scores = np.array([[0.9, 0.2], [0.8, 0.7], [0.1, 0.5]])
    >>> round(mean_average_precision(scores, np.array([[1, 0], [0, 1], [1, 0]])), 4)
    0.9167
    """
    return mean_over_classes(multilabel_average_precision(scores, targets))


def mean_over_classes(per_class: PerClass) -> float:
    """Mean over the classes whose average precision exists."""
    exists = ~np.isnan(per_class)
    if not exists.any():
        raise RangeError(
            f"mean average precision needs a class with a positive; none of the {len(per_class)} classes has one."
        )
    return float(per_class[exists].mean())


def _ranked(scores: _Scores, targets: _Targets) -> tuple[_Scores, _Targets]:
    order = np.argsort(-scores, axis=0, kind="stable")
    return np.take_along_axis(scores, order, axis=0), np.take_along_axis(targets, order, axis=0)


def _average_precision(scores: _Scores, targets: _Targets, *, share_ties: bool) -> PerClass:
    rank = np.arange(1, len(scores) + 1)[:, None]
    precision = np.cumsum(targets, axis=0) / rank
    if share_ties and len(scores):
        ends_tie = np.append(scores[1:] != scores[:-1], np.ones((1, scores.shape[1]), dtype=bool), axis=0)
        last_of_tie = np.where(ends_tie, rank - 1, len(scores))
        last_of_tie = np.minimum.accumulate(last_of_tie[::-1], axis=0)[::-1]
        precision = np.take_along_axis(precision, last_of_tie, axis=0)
    num_positive = targets.sum(axis=0)
    total = np.where(targets, precision, 0.0).sum(axis=0)
    return np.divide(total, num_positive, out=np.full(len(total), np.nan), where=num_positive > 0)


def _checked(given: Values, wanted: Values) -> tuple[AnyArray, _Targets]:
    """Return scores and targets as arrays; tensors may require gradients."""
    scores, targets = array_of(given), array_of(wanted)
    if scores.ndim != 2 or scores.shape != targets.shape:
        raise ShapeError(
            f"scores and targets must both be (actors, classes); got shapes {scores.shape} and {targets.shape}."
        )
    if scores.dtype.kind != "f":
        raise ShapeError(f"scores must be floating-point numbers; got dtype {scores.dtype}.")
    if not np.isin(targets, (0, 1)).all():
        raise RangeError(f"targets must be 0 or 1; got values from {targets.min()} to {targets.max()}.")
    return scores, targets.astype(bool, copy=False)
