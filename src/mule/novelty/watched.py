"""Known actors as they are watched: every look judged by parts that were fitted without its film.

looks, their films ─▶ parts without the film ─▶ −log p, idle share ─▶ along tracks ─▶ the largest of each person

A person is watched for many looks and flagged if one of them is strange enough, so the promise must be set on the largest
number of each track, not on single labelled moments.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.novelty.combining import CombinedScore
from mule.novelty.crossfit import Inputs, SeenParts, group_folds, parts_without
from mule.novelty.known import FittedToKnown, KnownActors
from mule.novelty.odds import IDLE_FROM
from mule.novelty.tracks import IDLE_ENDS_ACT, MOST_WINDOW, Accumulator, along_track, best_window


def crossed_looks(
    known: KnownActors, fitted: FittedToKnown, inputs: Inputs, groups: Int[Tensor, " looks"]
) -> tuple[Float[Tensor, " looks"], Float[Tensor, " looks"]]:
    """Return −log p and the idle share of each look, by parts fitted without its film.

    Args:
        known: the known actors, and examples of nothing.
        fitted: what was fitted to all of them.
        inputs: what each look shows.
        groups: the film of each look, a place in `known.group_names`; any other number is a film that nobody was learnt from.
    """
    combined = CombinedScore(fitted.ranks.shape[1])
    combined.fit_crossed(fitted.ranks, fitted.folds)
    rank = torch.empty(len(groups), dtype=torch.float64)
    idle = torch.zeros(len(groups), dtype=torch.float64)

    def judge(parts: SeenParts, rows: Bool[Tensor, " looks"]) -> None:
        some = {name: each[rows] for name, each in inputs.items()}
        rank[rows] = combined(parts.ranks(some)).rank
        share = FittedToKnown(parts, fitted.ranks, fitted.folds, fitted.tracks, fitted.num_idle).idle(some)
        idle[rows] = 0 if share is None else share

    is_left = torch.ones(len(groups), dtype=torch.bool)
    folds = group_folds(known.groups)
    is_learnt_from = bool(torch.isin(groups, known.groups).any())
    for fold, parts in parts_without(known.inputs, known.labels, folds) if is_learnt_from else ():
        rows = torch.isin(groups, known.groups[folds == fold])
        is_left &= ~rows
        if rows.any():
            judge(parts, rows)
    if is_left.any():
        judge(fitted.parts, is_left)
    return rank, idle


def said_along_tracks(
    rank: Float[Tensor, " looks"],
    idle: Float[Tensor, " looks"],
    tracks: Int[Tensor, " looks"],
    *,
    accumulate: Accumulator = best_window,
    most_looks: int = MOST_WINDOW,
) -> Float[Tensor, " looks"]:
    """Return what the looks at each track say up to each look; looks of a track come in the order of time.

    >>> rank = torch.tensor([2.0, 9.0, 3.0]).double()
    >>> said_along_tracks(rank, torch.zeros(3), torch.tensor([4, 1, 4])).tolist()
    [1.0, 8.0, 3.0]
    """
    said = torch.empty_like(rank)
    for number in tracks.unique().tolist():
        rows = torch.nonzero(tracks == number).flatten()
        is_idle: Sequence[bool] = (idle[rows] > IDLE_FROM).tolist()
        said[rows] = torch.tensor(
            along_track(
                rank[rows].tolist(), is_idle, accumulate, most_looks=most_looks, idle_ends_act=IDLE_ENDS_ACT
            ),
            dtype=said.dtype,
        )
    return said
