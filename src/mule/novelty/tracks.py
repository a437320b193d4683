"""Evidence along a track: what several looks at one person say together, so that no look dilutes another.

Every look has a rank r = −log p. Looks at one act, oldest first, become one number, larger for stranger people:

    mean_rank       Σ r / n                             a strange look is diluted by ordinary ones
    best_window     max over k of the last k: Σ (r − 1)   only looks that are stranger than usual add up
    fisher_rank     −log P(Gamma(n) ≥ Σ r)              exact if looks are independent
    log_e_product   Σ log e, e = κ·p^(κ−1)              independent looks: P(ever ≥ log 1/a) ≤ a (Ville)
    log_e_mean      log of the mean of e                P(≥ log 1/a) ≤ a however looks depend (Markov)

For a known person p is uniform, so r has mean 1 and E[e] = 1: an *e-value*, which may be multiplied from look to look and
averaged always. Looks half a second apart are alike, so none of the laws of independent looks holds of a video;
there the largest number of each watched track is calibrated on those of known people (`largest_by_track`), and then any of
these can serve.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Ranks = Sequence[float]
"""−log p of the looks at one act up to now, oldest first; at least one."""

KAPPA = 0.5
"""Of the calibrator p ↦ κ·p^(κ−1), whose mean over uniform p is 1 for any κ from 0 to 1."""
MOST_WINDOW = 5
"""Looks that the best window has at most."""
IDLE_ENDS_ACT = 2
"""Idle looks in a row after which an act is over."""


def mean_rank(ranks: Ranks) -> float:
    """Return the mean of −log p.

    >>> mean_rank([3.5, 0.5])
    2.0
    """
    return sum(ranks) / len(ranks)


def best_window(ranks: Ranks, *, most: int = MOST_WINDOW) -> float:
    """Return the largest sum of r − 1 over the last 1, 2, …, `most` looks.

    A known person has r = 1 in the mean, so ordinary looks before the strange ones are left out and those after them count
    against them: the act is over when it is over.

    >>> best_window([0.1, 3.0, 4.0]), best_window([3.0, 4.0, 0.0, 0.0]), best_window([9.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    (5.0, 3.0, -1.0)
    """
    best, total = -math.inf, 0.0
    for rank in reversed(ranks[-most:]):
        total += rank - 1
        best = max(best, total)
    return best


def fisher_rank(ranks: Ranks) -> float:
    """Return −log of Fisher's p-value, P(Gamma(n) ≥ Σ r): the p-value of n independent looks together.

    >>> round(fisher_rank([2.5]), 6), round(math.exp(-fisher_rank([3.0, 3.0])), 4)
    (2.5, 0.0174)
    """
    total, term, tail = sum(ranks), 1.0, 1.0
    for count in range(1, len(ranks)):
        term *= total / count
        tail += term
    return total - math.log(tail)


def log_e_value(rank: float) -> float:
    """Return log e of one look, e = κ·p^(κ−1)."""
    return math.log(KAPPA) + (1 - KAPPA) * rank


def log_e_product(ranks: Ranks) -> float:
    """Return the logarithm of the product of e-values: the wealth of a bet against an ordinary person."""
    return sum(map(log_e_value, ranks))


def log_e_mean(ranks: Ranks) -> float:
    """Return the logarithm of the mean of e-values, which is an e-value however the looks depend on each other."""
    largest = max(map(log_e_value, ranks))
    return largest + math.log(sum(math.exp(log_e_value(rank) - largest) for rank in ranks) / len(ranks))


Accumulator = Callable[[Ranks], float]
ACCUMULATORS: Mapping[str, Accumulator] = {
    "mean": mean_rank,
    "window": best_window,
    "fisher": fisher_rank,
    "e-product": log_e_product,
    "e-mean": log_e_mean,
}


def along_track(
    ranks: Ranks, is_idle: Sequence[bool], accumulate: Accumulator, *, most_looks: int, idle_ends_act: int
) -> list[float]:
    """Return what the looks at one track say up to each of them; −∞ at idle looks, which say nothing.

    Args:
        ranks: −log p of each look, oldest first.
        is_idle: whether each look shows somebody idle.
        accumulate: how the looks at one act become a number.
        most_looks: older ones of them are forgotten.
        idle_ends_act: idle looks in a row after which an act is over.

    >>> along_track([4.0, 0.0, 2.0, 0.0, 0.0, 2.0], [False, True, False, True, True, False], mean_rank, most_looks=4, idle_ends_act=2)
    [4.0, -inf, 3.0, -inf, -inf, 2.0]
    """
    kept: list[float] = []
    numbers: list[float] = []
    num_idle = 0
    for rank, idles in zip(ranks, is_idle, strict=True):
        num_idle = num_idle + 1 if idles else 0
        if num_idle >= idle_ends_act:
            kept.clear()
        if not idles:
            kept = [*kept, rank][-most_looks:]
        numbers.append(-math.inf if idles else accumulate(kept))
    return numbers


def largest_by_track(
    numbers: Float[Tensor, " looks"], track_index: Int[Tensor, " looks"]
) -> Float[Tensor, " tracks"]:
    """Return the largest number of each track, or person, in order; those who were never more than idle are left out.

    >>> numbers = torch.tensor([1.0, 5.0, -torch.inf, 2.0])
    >>> largest_by_track(numbers, torch.tensor([0, 0, 1, 7])).tolist()
    [5.0, 2.0]
    """
    tracks, number = track_index.unique(return_inverse=True)
    largest = numbers.new_full((len(tracks),), -torch.inf).scatter_reduce(0, number, numbers, reduce="amax")
    is_said: Bool[Tensor, " tracks"] = torch.isfinite(largest)
    return largest[is_said]
