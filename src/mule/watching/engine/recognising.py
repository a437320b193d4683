"""From a clip and the boxes in it to evidence, trust, calibrated novelty and reasons for every actor.

scene ─▶ pixels ─▶ backbone ─▶ maps ─▶ relations, evidence ─▶ `KeptLooks` ─▶ `Judge` ─▶ `Recognised`
                                  ╰─▶ the same without each object and other actor ─▶ who contributed most

*Contributions.* The deciding evidence of an actor is that of its likeliest action, as log-odds: log(1 + e⁺) − log(1 + e⁻).
Every object and every other actor is left out in turn; the one whose absence moves that number furthest, either way,
contributed most, and its share is that of all such movements. Where nothing moves, nobody contributed. Absences go
through the part of the network behind the backbone in batches, with a copy of the clip for each; a crowd has smaller
batches, so that memory grows with the actors of one clip, not with those of all copies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.records import Evidence
from mule.features.pooling import FeatureMaps
from mule.memory.memory import whole_features
from mule.memory.opinion import Reason
from mule.memory.opinion import reasons as remembered_reasons
from mule.model import SceneBoxes, looks_of
from mule.video.transforms import clip_boxes, px_from_unit, unit_from_px
from mule.watching.engine.bundle import Bundle
from mule.watching.engine.finding import Scene
from mule.watching.engine.judging import Judgements
from mule.watching.engine.kept import KeptLooks, in_half, likeliest_action
from mule.watching.engine.showing import in_shares, maps_shown

MOST_REMEMBERED = 3
MOST_LEFT_OUT = 16
"""Leave out at most this many, objects first, then actors in their order: a crowd would need a network pass each."""
LEAST_CHANGE = 1e-6
MOST_ACTORS_AT_ONCE = 128
"""Actors in the copies of a clip that go through the network together; a clip of more goes alone."""


@dataclass(frozen=True)
class Absence:
    """An actor or object of a clip that is left out."""

    is_actor: bool
    index: int
    """Among the clip's actors, or among its objects."""


@dataclass(frozen=True)
class Contribution:
    """The actor or object that moved the deciding evidence of one actor most."""

    is_actor: bool
    index: int
    share: float


@dataclass(frozen=True)
class Recognised:
    """What one look tells of each actor, one row each."""

    scene: Scene
    """Only the actors and objects that cover a pixel of the network's input; a sliver at the edge does not."""
    kept: KeptLooks
    """What everything else follows from: `judged_looks` judges these."""
    looks: "JudgedLooks"
    contributions: list[Contribution | None]
    """Indices are those of the scene's actors and objects."""


@dataclass(frozen=True)
class JudgedLooks:
    """What a bundle says of looks, one row each."""

    features: Float[Tensor, "actors whole"]
    """What a memory keeps of each actor."""
    now: Judgements
    statistic: Float[Tensor, " actors"]
    """What the drift alarm watches."""
    remembered: list[list[Reason]]
    likeliest: Int[Tensor, " actors"]
    """The action that the network's evidence is most for."""


@torch.inference_mode()
def judged_looks(bundle: Bundle, kept: KeptLooks) -> JudgedLooks:
    """Judge each actor by one look alone, from what is kept of it."""
    judge, usual, eyes = bundle.judge, bundle.usual, bundle.eyes
    features = kept.features
    if eyes is not None and eyes.show_looks:
        features = whole_features(features, eyes.looks(kept.seen))
    judged = judge(kept.outputs, features, None if eyes is None else eyes.with_labels(kept.seen))
    rank = usual.of_one_look(judged.ranks).rank
    memory = judge.remembered
    return JudgedLooks(
        features,
        Judgements(
            judged.network,
            judged.together,
            rank,
            torch.zeros_like(rank) if judged.log_trust is None else judged.log_trust,
            torch.ones(len(rank), dtype=torch.int64),
            judged.idle,
        ),
        usual.statistic(judged.ranks),
        [[] for _ in range(len(kept))]
        if memory is None or judged.weighed is None
        else remembered_reasons(memory.memory, judged.weighed, at_most=MOST_REMEMBERED),
        likeliest_action(judged.network),
    )


class Recogniser:
    """A bundle's network, memory and calibration, applied to one scene at a time."""

    def __init__(self, bundle: Bundle, *, explains: bool = True) -> None:
        """With `explains`, objects and other actors are left out in turn to see who contributed."""
        self._bundle = bundle
        self._explains = explains

    @torch.inference_mode()
    def __call__(self, scene: Scene) -> Recognised:
        """Judge each actor of the scene by this look alone."""
        model, eyes = self._bundle.model, self._bundle.eyes
        size = scene.sight.clip.source_size
        actors, objects = (in_shares(each, size) for each in (scene.boxes_xyxy_px, scene.objects_xyxy_px))
        maps, boxes, is_actor, is_object = maps_shown(self._bundle, scene.sight.clip.frames, actors, objects)
        scene = scene.only(is_actor, is_object)
        output = model.decide([maps], boxes)
        looks = looks_of([maps], boxes)
        follows = eyes is not None and eyes.show_looks
        kept = KeptLooks.of(
            output.outputs,
            output.features if follows else whole_features(output.features, looks),
            {} if eyes is None else eyes(maps, boxes),
        )
        judged = judged_looks(self._bundle, kept)
        contributions: list[Contribution | None] = [None] * len(boxes.actors_xyxy_px)
        is_together = self._bundle.card.sees == "frame"  # who is seen alone depends on nobody
        left_out = absences_in(boxes) if self._explains and is_together else []
        if left_out:
            if follows and eyes is not None:
                looks = eyes.looks(kept.seen)
            contributions = most_contributing(
                judged.now.network, self._evidence_without(maps, boxes, looks, left_out), left_out
            )
        return Recognised(scene, kept, judged, contributions)

    def _evidence_without(
        self,
        maps: FeatureMaps,
        boxes: SceneBoxes,
        looks: Float[Tensor, "actors channels"],
        left_out: Sequence[Absence],
    ) -> Evidence:
        """Return the evidence of the actors of `without(boxes, left_out)`, a few copies of the clip at a time.

        An actor's `looks` are its own, whoever is absent.
        """
        model, judge = self._bundle.model, self._bundle.judge
        parts: list[Evidence] = []
        at_once = max(1, MOST_ACTORS_AT_ONCE // len(boxes.actors_xyxy_px))
        for first in range(0, len(left_out), at_once):
            some = left_out[first : first + at_once]
            output = model.decide([_copies(maps, len(some))], without(boxes, some))
            _, present = torch.nonzero(_is_present(len(looks), some, are_actors=True), as_tuple=True)
            features = self._rounded(output.features, looks[present])
            parts.append(judge.network(in_half(output.outputs), features))
        return Evidence(
            torch.cat([each.positive for each in parts]), torch.cat([each.negative for each in parts])
        )

    def _rounded(
        self, related: Float[Tensor, "actors dim"], looks: Float[Tensor, "actors channels"]
    ) -> Float[Tensor, "actors whole"]:
        """Return what a memory keeps of actors, rounded as `KeptLooks` rounds it: an absence that changes nothing stays so."""
        eyes = self._bundle.eyes
        if eyes is not None and eyes.show_looks:
            return whole_features(in_half(related), looks)
        return in_half(whole_features(related, looks))


def visible(scene: Scene, *, rows: int, cols: int) -> tuple[Scene, SceneBoxes]:
    """What of the scene covers a pixel of the network's input, and its boxes in pixels of that input."""
    source_rows, source_cols = scene.sight.clip.source_size
    parts: list[tuple[Tensor, Bool[Tensor, " boxes"]]] = []
    for boxes_xyxy_px in (scene.boxes_xyxy_px, scene.objects_xyxy_px):
        unit = unit_from_px(boxes_xyxy_px, width_px=source_cols, height_px=source_rows)
        parts.append(clip_boxes(px_from_unit(unit, width_px=cols, height_px=rows), rows, cols))
    (actors, is_actor_visible), (objects, is_object_visible) = parts
    actors, objects = actors[is_actor_visible], objects[is_object_visible]
    boxes = SceneBoxes(
        actors,
        torch.zeros(len(actors), dtype=torch.int64),
        objects,
        torch.zeros(len(objects), dtype=torch.int64),
    )
    return scene.only(is_actor_visible, is_object_visible), boxes


def log_odds(evidence: Evidence) -> Float[Tensor, "actors classes"]:
    """log(α/β): above 0 where more evidence is for an action than against it."""
    return torch.log1p(evidence.positive) - torch.log1p(evidence.negative)


def absences_in(boxes: SceneBoxes) -> list[Absence]:
    """Who and what of one clip to leave out, one at a time; nobody where an actor is alone."""
    num_actors, num_objects = len(boxes.actors_xyxy_px), len(boxes.objects_xyxy_px)
    if not num_actors:
        return []
    left_out = [Absence(False, index) for index in range(num_objects)]
    left_out += [Absence(True, index) for index in range(num_actors)] if num_actors > 1 else []
    return left_out[:MOST_LEFT_OUT]


def without(boxes: SceneBoxes, left_out: Sequence[Absence]) -> SceneBoxes:
    """A copy of the clip's boxes for each absence, without the absent one."""
    is_actor = _is_present(len(boxes.actors_xyxy_px), left_out, are_actors=True)
    is_object = _is_present(len(boxes.objects_xyxy_px), left_out, are_actors=False)
    actor_clip, actor = torch.nonzero(is_actor, as_tuple=True)
    object_clip, thing = torch.nonzero(is_object, as_tuple=True)
    return SceneBoxes(boxes.actors_xyxy_px[actor], actor_clip, boxes.objects_xyxy_px[thing], object_clip)


def most_contributing(
    evidence: Evidence, evidence_without: Evidence, left_out: Sequence[Absence]
) -> list[Contribution | None]:
    """Return who or what contributed most to each actor of a clip; None where nothing did.

    Args:
        evidence: with everybody there.
        evidence_without: of the actors of `without(boxes, left_out)`.
        left_out: the absences.
    """
    num_actors = evidence.num_actors
    deciding = likeliest_action(evidence)
    before = log_odds(evidence)[torch.arange(num_actors), deciding]
    change = torch.zeros(num_actors, len(left_out))
    row, actor = torch.nonzero(_is_present(num_actors, left_out, are_actors=True), as_tuple=True)
    after = log_odds(evidence_without)[torch.arange(len(actor)), deciding[actor]]
    change[actor, row] = (after - before[actor]).abs()
    return [_largest(each, left_out) for each in change]


def _largest(change: Float[Tensor, " absences"], left_out: Sequence[Absence]) -> Contribution | None:
    largest = int(change.argmax())
    if change[largest] < LEAST_CHANGE:
        return None
    most = left_out[largest]
    return Contribution(most.is_actor, most.index, float(change[largest] / change.sum()))


def _copies(maps: FeatureMaps, count: int) -> FeatureMaps:
    return FeatureMaps(tuple(each.expand(count, *each.shape[1:]) for each in maps.maps), maps.stride)


def _is_present(
    count: int, left_out: Sequence[Absence], *, are_actors: bool
) -> Bool[Tensor, "absences boxes"]:
    is_present = torch.ones(len(left_out), count, dtype=torch.bool)
    for row, absent in enumerate(left_out):
        if absent.is_actor == are_actors:
            is_present[row, absent.index] = False
    return is_present
