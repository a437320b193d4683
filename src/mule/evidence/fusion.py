"""Looks at one actor along its track become one opinion: a long look is surer than a glance.

The actors of a clip speak for it: where labels are of whole clips, as in Charades, nobody said who does what.

    actor 1   h = ( 2.1  −3.0   0.4)   walk run sit        An action is done in a clip if somebody does it, so of each
    actor 2   h = (−1.0   0.7  −2.2)                       action the actor who does it most surely speaks (the maximum of
    the clip  h = ( 2.1   0.7   0.4)                       multiple-instance learning), for it and against it.

One actor speaks for itself. The order of actors does not matter. Only who speaks of an action learns from it.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.core.records import Evidence, at_least_single
from mule.evidence.head import opinion_from

LOOK_CORRELATION = 0.5
"""Default where no correlation was measured: two looks are worth 4/3 of one, and any number at most two."""


@dataclass(frozen=True)
class LookSums:
    """Everything to remember of the looks at each actor so far; `+` adds further looks.

    Four sums per actor and class, for any number of looks. The order of looks does not matter, sums may be added in any
    grouping, and a vacuous look (no evidence) adds nothing.
    """

    positive: Float[Tensor, "actors classes"]
    negative: Float[Tensor, "actors classes"]
    confidence: Float[Tensor, "actors classes"]
    squared_confidence: Float[Tensor, "actors classes"]

    def __add__(self, other: "LookSums") -> "LookSums":
        return LookSums(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(LookSums))
        )

    @property
    def num_looks(self) -> Float[Tensor, "actors classes"]:
        """The effective number of looks, N = (Σc)² / Σc² with the confidence c = 1 − u of each; at least one.

        n equally confident looks count n, vacuous ones nothing.
        """
        is_vacuous = self.squared_confidence == 0
        looks = self.confidence.square() / torch.where(is_vacuous, 1.0, self.squared_confidence)
        return looks.clamp(min=1)


def look_sums(evidence: Evidence) -> LookSums:
    """Return the sums of one look at each actor."""
    opinion = opinion_from(evidence)
    confidence = opinion.belief + opinion.disbelief
    positive, negative = at_least_single(evidence.positive), at_least_single(evidence.negative)
    return LookSums(positive, negative, confidence, confidence.square())


def fused_evidence(sums: LookSums, *, correlation: float = LOOK_CORRELATION) -> Evidence:
    """Evidence adds, divided by how much the looks repeat each other (discounted cumulative fusion).

        e = Σᵢ eᵢ / (1 + ρ·(N − 1))          N = (Σc)² / Σc²,  c = 1 − u

    ρ is `correlation`, of the errors of two looks at one actor, and the one parameter. ρ = 0 is the cumulative fusion of
    subjective logic, right for independent looks; ρ = 1 is averaging fusion for equally confident looks, right when
    every look is the same one. In between, n equal looks are worth n / (1 + (n − 1)·ρ) independent ones (the design effect
    of repeated measurements), at most 1/ρ: key times a second apart show the same pose, person and light, so looking
    for an hour must not make an opinion certain. Choosing cumulative fusion would; averaging would learn nothing
    from a second look. Counting looks by their confidence keeps a vacuous look without effect, for every ρ.
    One look is itself.

    >>> evidence = Evidence(torch.tensor([[4.0]]), torch.tensor([[0.0]]))
    >>> twice = look_sums(evidence) + look_sums(evidence)
    >>> round(fused_evidence(twice).positive.item(), 4)
    5.3333
    """
    if not 0 <= correlation <= 1:
        raise RangeError(f"the correlation of looks must lie between 0 and 1; got {correlation}.")
    discount = 1 + correlation * (sums.num_looks - 1)
    return Evidence(positive=sums.positive / discount, negative=sums.negative / discount)


def sums_along_tracks(evidence: Evidence, track_index: Int[Tensor, " looks"], *, num_tracks: int) -> LookSums:
    """Sum all looks of a batch by track: the same as adding them one after another."""
    _require_tracks(track_index, num_looks=evidence.num_actors, num_tracks=num_tracks)
    one_by_one = look_sums(evidence)
    return LookSums(
        *(_summed(getattr(one_by_one, field.name), track_index, num_tracks) for field in fields(LookSums))
    )


def along_tracks(
    values: Float[Tensor, "looks ..."], track_index: Int[Tensor, " looks"], *, num_tracks: int
) -> Float[Tensor, "tracks ..."]:
    """Return the mean of the looks at each track: of logits, features or novelty ranks, where there is no evidence.

    So rivals use the same looks. A mean over several looks varies less than one look: calibrate it on held-out tracks
    with as many looks.
    """
    _require_tracks(track_index, num_looks=len(values), num_tracks=num_tracks)
    num_looks = torch.bincount(track_index, minlength=num_tracks)
    if (num_looks == 0).any():
        raise TooFewActors(
            f"every track needs at least one look; track {int((num_looks == 0).int().argmax())} of {num_tracks} has none. "
            "Number tracks without gaps (`torch.unique(..., return_inverse=True)`)."
        )
    return _summed(values, track_index, num_tracks) / num_looks.reshape(-1, *[1] * (values.ndim - 1))


def is_among_first_looks(track_index: Int[Tensor, " looks"], num_looks: int) -> Bool[Tensor, " looks"]:
    """Return which looks are among the first `num_looks` of their track; looks are ordered by time.

    >>> is_among_first_looks(torch.tensor([0, 1, 0, 0, 1]), 2).tolist()
    [True, True, True, False, True]
    """
    if num_looks < 1:
        raise RangeError(f"num_looks must be at least 1; got {num_looks}.")
    by_track = torch.argsort(track_index, stable=True)
    ordered = track_index[by_track]
    place = torch.arange(len(ordered), device=ordered.device) - torch.searchsorted(ordered, ordered)
    is_first = torch.empty_like(ordered, dtype=torch.bool)
    is_first[by_track] = place < num_looks
    return is_first


def _summed(
    values: Float[Tensor, "looks ..."], track_index: Int[Tensor, " looks"], num_tracks: int
) -> Float[Tensor, "tracks ..."]:
    return values.new_zeros(num_tracks, *values.shape[1:]).index_add(0, track_index, values)


def _require_tracks(track_index: Int[Tensor, " looks"], *, num_looks: int, num_tracks: int) -> None:
    if len(track_index) != num_looks:
        raise ShapeError(f"track_index must have one entry per look, {num_looks}; got {len(track_index)}.")
    is_outside = (track_index < 0) | (track_index >= num_tracks)
    if is_outside.any():
        look = int(is_outside.int().argmax())
        raise RangeError(
            f"track_index must lie between 0 and num_tracks - 1 = {num_tracks - 1}; look {look} has "
            f"{int(track_index[look])}. Leave out looks that belong to no track."
        )


def strongest_actors(
    outputs: Float[Tensor, "actors outputs"], clip_index: Int[Tensor, " actors"], *, num_classes: int
) -> Int[Tensor, "clips classes"]:
    """Return, for each clip and action, the row of the actor with the largest output.

    Where an action has two outputs, for and against, their difference counts. Only clips with actors have a row, in the
    order of their numbers. NaN counts as the largest value, so that it is never hidden.
    """
    if outputs.shape[1] not in (num_classes, 2 * num_classes):
        raise ShapeError(f"{num_classes} actions must have one output or two; got {outputs.shape[1]}.")
    logits = outputs.detach()[:, :num_classes] - (
        0 if outputs.shape[1] == num_classes else outputs.detach()[:, num_classes:]
    )
    logits = logits.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    clips, clip = clip_index.unique(return_inverse=True)
    to_clip = clip[:, None].expand_as(logits)
    most = logits.new_full((len(clips), num_classes), -torch.inf).scatter_reduce(0, to_clip, logits, "amax")
    row = torch.arange(len(logits), device=logits.device)[:, None].expand_as(logits)
    candidates = torch.where(logits == most[clip], row, len(logits))
    nobody = row.new_full((len(clips), num_classes), len(logits))
    return nobody.scatter_reduce(0, to_clip, candidates, "amin")


def of_strongest(
    values: Float[Tensor, "actors values"], strongest: Int[Tensor, "clips classes"]
) -> Float[Tensor, "clips values"]:
    """Return, for each clip and action, the value or values of the strongest actor."""
    num_classes = strongest.shape[1]
    parts = [part.gather(0, strongest) for part in values.split(num_classes, dim=1)]
    return torch.cat(parts, dim=1)
