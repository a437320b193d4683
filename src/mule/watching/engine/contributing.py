"""Which object or other actor a judgement rests on most: each is left out in turn, and what changes is measured.

*Rule.* The deciding evidence of an actor is that of its likeliest action, as log-odds: log(1 + e⁺) − log(1 + e⁻). Every
object and every other actor of the clip is left out alone; the one whose absence moves that number furthest, either way,
contributed most, and its share is that of all such movements. Where nothing moves, nobody contributed.

All absences go through the part of the network behind the backbone as one batch, a copy of the clip for each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.records import Evidence
from mule.features.pooling import FeatureMaps
from mule.model import SceneBoxes

MOST_LEFT_OUT = 16
"""So many are left out at most, objects first, then actors in their order: a crowd would cost a network each."""
LEAST_CHANGE = 1e-6

Read = Callable[[Sequence[FeatureMaps], SceneBoxes], Evidence]


@dataclass(frozen=True)
class Contribution:
    """What moved the deciding evidence of one actor most."""

    is_actor: bool
    index: int
    """Among the clip's actors, or among its objects."""
    share: float


def log_odds(evidence: Evidence) -> Float[Tensor, "actors classes"]:
    """log(α/β): above 0 where more speaks for an action than against it."""
    return torch.log1p(evidence.positive) - torch.log1p(evidence.negative)


def contributions(
    maps: FeatureMaps, boxes: SceneBoxes, evidence: Evidence, *, read: Read
) -> list[Contribution | None]:
    """What contributed most to each actor of one clip; None where nothing did.

    Args:
        maps: of the one clip.
        boxes: of its actors and objects.
        evidence: what was found with everybody there.
        read: the evidence of the network behind the backbone.
    """
    num_actors, num_objects = len(boxes.actors_xyxy_px), len(boxes.objects_xyxy_px)
    left_out = [(False, index) for index in range(num_objects)]
    left_out += [(True, index) for index in range(num_actors)] if num_actors > 1 else []
    left_out = left_out[:MOST_LEFT_OUT]
    if not num_actors or not left_out:
        return [None] * num_actors
    found = read([_copies(maps, len(left_out))], _without(boxes, left_out))
    deciding = evidence.positive.div(evidence.positive + evidence.negative + 2).argmax(dim=1)
    before = log_odds(evidence)[torch.arange(num_actors), deciding]
    change = torch.zeros(num_actors, len(left_out))
    present = _present(num_actors, left_out)  # (absences, actors)
    row, actor = torch.nonzero(present, as_tuple=True)
    change[actor, row] = (log_odds(found)[torch.arange(len(actor)), deciding[actor]] - before[actor]).abs()
    return [_most(each, left_out) for each in change]


def _most(change: Float[Tensor, " absences"], left_out: list[tuple[bool, int]]) -> Contribution | None:
    most = int(change.argmax())
    if change[most] < LEAST_CHANGE:
        return None
    is_actor, index = left_out[most]
    return Contribution(is_actor, index, float(change[most] / change.sum()))


def _copies(maps: FeatureMaps, count: int) -> FeatureMaps:
    return FeatureMaps(tuple(each.expand(count, *each.shape[1:]) for each in maps.maps), maps.stride)


def _present(num_actors: int, left_out: list[tuple[bool, int]]) -> Tensor:
    present = torch.ones(len(left_out), num_actors, dtype=torch.bool)
    for row, (is_actor, index) in enumerate(left_out):
        if is_actor:
            present[row, index] = False
    return present


def _without(boxes: SceneBoxes, left_out: list[tuple[bool, int]]) -> SceneBoxes:
    """A copy of the clip's boxes for each absence, without the one who is absent."""
    actors = _present(len(boxes.actors_xyxy_px), left_out)
    objects = torch.ones(len(left_out), len(boxes.objects_xyxy_px), dtype=torch.bool)
    for row, (is_actor, index) in enumerate(left_out):
        if not is_actor:
            objects[row, index] = False
    actor_clip, actor = _rows(actors)
    object_clip, thing = _rows(objects)
    return SceneBoxes(boxes.actors_xyxy_px[actor], actor_clip, boxes.objects_xyxy_px[thing], object_clip)


def _rows(present: Tensor) -> tuple[Int[Tensor, " boxes"], Int[Tensor, " boxes"]]:
    clip, row = torch.nonzero(present, as_tuple=True)
    return clip, row
