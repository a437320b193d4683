"""The Hilbert-Schmidt independence criterion: how far two views of the same actors depend on each other.

An estimate needs only sums over the two kernel matrices, so the matrices can be visited a few rows at a time
and are never whole in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mule.core.errors import NotFinite, RangeError, ShapeError, TooFewActors
from mule.core.processes import gather_actors, gather_groups

Estimator = Literal["unbiased", "biased", "cka", "debiased_cka"]
Bandwidth = float | Literal["median", "root_dim"]
"""σ of both kernels: a number, `median_bandwidth` of each view, or the root of each view's dimension (the released code)."""
Groups = Int[Tensor, " actors"]
Scalar = Float[Tensor, ""]

LABEL_RIDGE = 1.0
"""Ridge penalty, in actors, of the regression on labels that `beside_labels` removes."""
MEDIAN_OF_AT_MOST = 2048
ROWS_AT_ONCE = 1024


def squared_distances(
    first: Float[Tensor, "rows dim"], second: Float[Tensor, "actors dim"]
) -> Float[Tensor, "rows actors"]:
    """‖xᵢ − xⱼ‖² for every pair; never below zero."""
    squares = first.square().sum(dim=1)[:, None] + second.square().sum(dim=1)[None, :]
    return torch.addmm(squares, first, second.T, alpha=-2).clamp(min=0)


@torch.no_grad()
def median_bandwidth(samples: Float[Tensor, "actors dim"], groups: Groups | None = None) -> float:
    """Return the σ for which 2σ² is the median squared distance between two actors of different groups.

    Of more than 2048 actors, every n-th is used. Where most distances are zero, the mean of the others replaces
    the median; where all are zero, every σ gives the same kernel, and this returns 1.
    """
    every = -(-len(samples) // MEDIAN_OF_AT_MOST)
    some = samples[::every].float()
    some = some - some.mean(dim=0)
    number = torch.arange(len(some), device=some.device) if groups is None else groups[::every]
    distances = squared_distances(some, some)[number[:, None] != number[None, :]]
    rounding = 1e-6 * some.square().sum(dim=1).amax()
    positive = distances[distances > rounding]
    if len(positive) == 0:
        return 1.0
    middle = distances.median()
    return ((middle if middle > rounding else positive.mean()) / 2).sqrt().item()


@dataclass(frozen=True)
class RbfKernel:
    """exp(−‖xᵢ − xⱼ‖² / 2σ²) between actors, computed a few rows at a time on demand."""

    samples: Float[Tensor, "actors dim"]
    bandwidth: float

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, rows: slice) -> Float[Tensor, "rows actors"]:
        centred = self.samples - self.samples.detach().mean(dim=0)  # distances stay, rounding shrinks
        return torch.exp(squared_distances(centred[rows], centred) / (-2 * self.bandwidth**2))


def rbf_kernel(
    samples: Float[Tensor, "actors dim"], *, bandwidth: float | None = None, groups: Groups | None = None
) -> RbfKernel:
    """Return the RBF kernel of some actors; the default bandwidth is `median_bandwidth` (a constant: no gradient).

    >>> kernel = rbf_kernel(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), bandwidth=1.0)
    >>> float(unbiased_hsic(kernel, kernel)) > 0
    True
    """
    samples = samples.float() if samples.dtype in (torch.float16, torch.bfloat16) else samples
    return RbfKernel(samples, median_bandwidth(samples, groups) if bandwidth is None else bandwidth)


Kernel = RbfKernel | Float[Tensor, "actors actors"]


@dataclass(frozen=True)
class _Sums:
    """The sums an estimate needs of two kernels K and L over n actors.

    Sums run over pairs (i, j) in different groups, or over all pairs for the biased estimate.
    """

    together: Tensor  # Σ K_ij L_ij
    rows_x: Tensor  # Σ_j K_ij, per actor
    rows_y: Tensor  # Σ_j L_ij, per actor
    same_group: Tensor  # Σ_i Σ_h K_ih L_ih, K_ih being the sum over actors j of group h
    group_pairs: Tensor  # Σ_g Σ_h K_gh L_gh, summed over the actors of both groups


def _block_sums(x: Tensor, y: Tensor, rows: slice, groups: Tensor | None) -> tuple[Tensor, ...]:
    """The sums over a block of rows of both kernels; without groups every pair counts."""
    if groups is None:
        together = (x * y).sum()
        return together, x.sum(dim=1), y.sum(dim=1), together, together
    own = groups[rows]
    apart = own[:, None] != groups[None, :]
    x, y = x * apart, y * apart
    together = (x * y).sum()
    num_groups = int(groups[-1]) + 1
    if num_groups == len(groups):  # one actor per group: a group's sum is the actor's
        return together, x.sum(dim=1), y.sum(dim=1), together, together
    by_group_x = x.new_zeros(len(x), num_groups).index_add(1, groups, x)
    by_group_y = y.new_zeros(len(y), num_groups).index_add(1, groups, y)
    num_own = int(own[-1] - own[0]) + 1
    pairs_x = x.new_zeros(num_own, num_groups).index_add(0, own - own[0], by_group_x)
    pairs_y = y.new_zeros(num_own, num_groups).index_add(0, own - own[0], by_group_y)
    return together, x.sum(dim=1), y.sum(dim=1), (by_group_x * by_group_y).sum(), (pairs_x * pairs_y).sum()


def _sums_of_rows(
    kernel_x: Kernel, kernel_y: Kernel, rows: slice, groups: Tensor | None
) -> tuple[Tensor, ...]:
    return _block_sums(kernel_x[rows], kernel_y[rows], rows, groups)


def _blocks(groups: Tensor | None, num_actors: int) -> list[slice]:
    """Consecutive rows, about `ROWS_AT_ONCE` of them, that never cut a group in two (groups are sorted)."""
    if groups is None or num_actors <= ROWS_AT_ONCE:
        return [slice(i, min(i + ROWS_AT_ONCE, num_actors)) for i in range(0, num_actors, ROWS_AT_ONCE)]
    starts = [0, *(torch.nonzero(groups[1:] != groups[:-1]).flatten() + 1).tolist(), num_actors]
    cuts = [0]
    for start, end in pairwise(starts):
        if end - cuts[-1] > ROWS_AT_ONCE and start > cuts[-1]:
            cuts.append(start)
    return [slice(a, b) for a, b in zip(cuts, [*cuts[1:], num_actors], strict=True)]


def _sums(kernel_x: Kernel, kernel_y: Kernel, groups: Tensor | None) -> _Sums:
    """The sums over all rows, block by block; with several blocks, the backward pass recomputes them."""
    blocks = _blocks(groups, len(kernel_x))
    if len(blocks) == 1:
        rows = blocks[0]
        return _Sums(*_block_sums(kernel_x[rows], kernel_y[rows], rows, groups))
    parts = [
        checkpoint(_sums_of_rows, kernel_x, kernel_y, rows, groups, use_reentrant=False) for rows in blocks
    ]
    together, rows_x, rows_y, same_group, group_pairs = zip(*parts, strict=True)
    same_group, group_pairs = torch.stack(same_group).sum(), torch.stack(group_pairs).sum()
    return _Sums(torch.stack(together).sum(), torch.cat(rows_x), torch.cat(rows_y), same_group, group_pairs)


def _reordered(kernel: Kernel, order: Tensor) -> Kernel:
    if isinstance(kernel, RbfKernel):
        return RbfKernel(kernel.samples[order], kernel.bandwidth)
    return kernel[order][:, order]


def unbiased_hsic(kernel_x: Kernel, kernel_y: Kernel, *, groups: Groups | None = None) -> Scalar:
    """Dependence between two views of the same actors; 0 on average if they are independent (Song et al. 2012).

    With K and L the two kernels, the mean of K_ij·L_ij over pairs, plus that of K_ij·L_kl over quadruples, minus
    twice that of K_ij·L_ik over triples, all indices different. It may be below zero.

    `groups` numbers what the actors share (the clip whose context several of them see). Actors of one group are
    not independent samples, so pairs, triples and quadruples are then taken from different groups only; with one
    actor per group the result is the same. Several actors to a clip would otherwise look like dependence.

    Raises:
        TooFewActors: the estimate needs at least four actors, of four groups.

    >>> samples = torch.arange(8.0)[:, None]
    >>> same, flat = rbf_kernel(samples, bandwidth=1.0), rbf_kernel(samples, bandwidth=1e6)
    >>> bool(unbiased_hsic(same, same) > unbiased_hsic(same, flat))
    True
    """
    _require_same_actors(kernel_x, kernel_y)
    n, device = len(kernel_x), kernel_x[0:0].device
    if groups is None:
        number = torch.arange(n, device=device)
    else:
        number = torch.unique(groups, return_inverse=True)[1]
        order = number.argsort(stable=True)
        kernel_x, kernel_y = _reordered(kernel_x, order), _reordered(kernel_y, order)
        number = number[order]
    sizes = number.bincount().tolist()
    if len(sizes) < 4:
        raise TooFewActors(
            f"unbiased HSIC needs at least 4 independent samples; got {n} actors in {len(sizes)} clips. "
            "Gather across clips or ranks, or leave the constraint out of this step and count it."
        )
    sums = _sums(kernel_x, kernel_y, number)
    by_group_x = sums.rows_x.new_zeros(len(sizes)).index_add(0, number, sums.rows_x)
    by_group_y = sums.rows_y.new_zeros(len(sizes)).index_add(0, number, sums.rows_y)
    triples = sums.rows_x @ sums.rows_y - sums.same_group
    quadruples = sums.rows_x.sum() * sums.rows_y.sum() - 4 * (by_group_x @ by_group_y) + 2 * sums.group_pairs
    num_pairs, num_triples, num_quadruples = _tuples_of_different_groups(sizes)
    return sums.together / num_pairs + quadruples / num_quadruples - 2 * triples / num_triples


def _tuples_of_different_groups(sizes: list[int]) -> tuple[int, int, int]:
    """How many ordered pairs, triples and quadruples of actors come from all different groups."""
    n, squares = sum(sizes), sum(s**2 for s in sizes)
    pairs = n**2 - squares
    triples = sum(s * ((n - s) ** 2 - (squares - s**2)) for s in sizes)
    shared = sum((s * (n - s)) ** 2 for s in sizes)
    quadruples = pairs**2 - 4 * shared + 2 * (squares**2 - sum(s**4 for s in sizes))
    return pairs, triples, quadruples


def biased_hsic(kernel_x: Kernel, kernel_y: Kernel) -> Scalar:
    """tr(KHLH)/(n − 1)², H = I − 1/n (Gretton et al. 2005). Never below zero; about 0.33/n if independent.

    Raises:
        TooFewActors: the estimate needs at least two actors.

    >>> kernel = rbf_kernel(torch.arange(8.0)[:, None])
    >>> bool(biased_hsic(kernel, kernel) > 0)
    True
    """
    _require_same_actors(kernel_x, kernel_y)
    n = len(kernel_x)
    if n < 2:
        raise TooFewActors(f"biased HSIC needs at least 2 actors; got {n}. Gather across clips or ranks.")
    sums = _sums(kernel_x, kernel_y, None)
    centred = sums.together - 2 / n * (sums.rows_x @ sums.rows_y)
    return (centred + sums.rows_x.sum() * sums.rows_y.sum() / n**2) / (n - 1) ** 2


def cka(kernel_x: Kernel, kernel_y: Kernel) -> Scalar:
    """Centred kernel alignment: biased HSIC over the geometric mean of each view's HSIC with itself, in [0, 1].

    >>> kernel = rbf_kernel(torch.arange(8.0)[:, None])
    >>> round(cka(kernel, kernel).item(), 4)
    1.0
    """
    return _normalised(biased_hsic, kernel_x, kernel_y)


def debiased_cka(kernel_x: Kernel, kernel_y: Kernel, *, groups: Groups | None = None) -> Scalar:
    """The same ratio of unbiased estimates: near 0 for independent views at any number of actors.

    >>> kernel = rbf_kernel(torch.arange(8.0)[:, None])
    >>> round(debiased_cka(kernel, kernel).item(), 4)
    1.0
    """
    return _normalised(lambda x, y: unbiased_hsic(x, y, groups=groups), kernel_x, kernel_y)


def _normalised(estimate: Callable[[Kernel, Kernel], Tensor], kernel_x: Kernel, kernel_y: Kernel) -> Tensor:
    scale = estimate(kernel_x, kernel_x) * estimate(kernel_y, kernel_y)
    if not scale > 0:
        raise NotFinite(
            "CKA needs both views to vary; one of them is the same for all actors. Use another batch, or an "
            "estimator that is defined there: 'unbiased' or 'biased'."
        )
    return estimate(kernel_x, kernel_y) / scale.sqrt()


def _require_same_actors(kernel_x: Kernel, kernel_y: Kernel) -> None:
    if len(kernel_x) != len(kernel_y):
        raise ShapeError(f"both views must be of the same actors; got {len(kernel_x)} and {len(kernel_y)}.")


OF_CLIPS = {"unbiased": unbiased_hsic, "debiased_cka": debiased_cka}
"""Estimates over actors of different clips."""
OF_ALL_PAIRS = {"biased": biased_hsic, "cka": cka}
"""Estimates over all pairs of actors."""
FEWEST_CLIPS, FEWEST_ACTORS = 4, 2
"""The fewest independent samples for which these are defined."""


def beside_labels(
    view: Float[Tensor, "actors dim"], labels: Float[Tensor, "actors classes"]
) -> Float[Tensor, "actors dim"]:
    """Return a view of actors without what their labels explain linearly: the residual of ridge regression."""
    centred = labels - labels.mean(dim=0)
    ridge = LABEL_RIDGE * torch.eye(labels.shape[1], dtype=labels.dtype, device=labels.device)
    explained = torch.linalg.solve(centred.T @ centred + ridge, centred.T @ view)
    return view - centred @ explained


def static_bias(
    outputs: Float[Tensor, "actors outputs"],
    context: Float[Tensor, "clips channels *cells"],
    clip_index: Int[Tensor, " actors"],
    *,
    given: Shaped[Tensor, "actors classes"] | None = None,
    estimator: Estimator = "unbiased",
    bandwidth: Bandwidth = "median",
) -> Scalar | None:
    """Return how far the outputs for an actor depend on the scene behind it: g(θ) = HSIC(h, σ(X)) (Eq. 4).

    σ averages the context map over its cells; X carries no gradient, so the network cannot lower g by degrading its
    features. Actors of all ranks are gathered first: the constraint is about the whole batch, and every rank gets the
    same value.

    Where scenes correlate with actions in training, correct outputs depend on the scene, and g = 0 forbids them. With
    `given`, the labels, `beside_labels` removes what they explain from outputs and scene alike, and only the rest must be
    independent: an actor doing the same elsewhere must get the same output.

    Returns None when the batch holds fewer independent samples than the estimator needs (clips for "unbiased" and
    "debiased_cka", actors for the others). `PrimalDual` then leaves the constraint out of the step and counts it.

    >>> draw = torch.Generator().manual_seed(0)
    >>> outputs, context = torch.randn(8, 3, generator=draw), torch.randn(8, 4, 2, 2, generator=draw)
    >>> bias = static_bias(outputs, context, torch.arange(8))
    >>> bias is not None and bias.ndim == 0
    True
    """
    if estimator not in get_args(Estimator):
        raise RangeError(f"estimator must be one of {', '.join(get_args(Estimator))}; got {estimator!r}.")
    scene = context.detach().flatten(start_dim=2).mean(dim=2) if context.ndim > 2 else context.detach()
    outputs, scene = gather_actors(outputs), gather_actors(scene[clip_index])
    groups = gather_groups(clip_index)
    if given is not None:
        labels = gather_actors(given.to(outputs))
        outputs, scene = beside_labels(outputs, labels), beside_labels(scene.to(outputs), labels)
    is_of_clips = estimator in OF_CLIPS
    if (len(groups.unique()) < FEWEST_CLIPS) if is_of_clips else (len(groups) < FEWEST_ACTORS):
        return None
    kernel_outputs = rbf_kernel(outputs, bandwidth=_sigma(bandwidth, outputs), groups=groups)
    kernel_scene = rbf_kernel(scene, bandwidth=_sigma(bandwidth, scene), groups=groups)
    if is_of_clips:
        return OF_CLIPS[estimator](kernel_outputs, kernel_scene, groups=groups)
    return OF_ALL_PAIRS[estimator](kernel_outputs, kernel_scene)


def _sigma(bandwidth: Bandwidth, view: Float[Tensor, "actors dim"]) -> float | None:
    """σ of the kernel of a view; None for the median."""
    if isinstance(bandwidth, str):
        return view.shape[1] ** 0.5 if bandwidth == "root_dim" else None
    return bandwidth
