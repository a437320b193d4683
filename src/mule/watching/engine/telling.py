"""A clip and the boxes in it become, for every actor: evidence, trust, calibrated novelty and reasons.

What was found of the actors of a scene, put into the words and numbers of a `Moment`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.records import Evidence
from mule.detection.boxes import px_from_unit, unit_from_px
from mule.evidence.head import opinion_from
from mule.features.pooling import FeatureMaps
from mule.memory.memory import whole_features
from mule.memory.opinion import Reason
from mule.memory.opinion import reasons as remembered_reasons
from mule.model import SceneBoxes, looks_of
from mule.novelty.calibration import CalibratedNovelty
from mule.novelty.scores import NOVELTY_BY_KIND
from mule.video.transforms import clip_boxes
from mule.watching.engine.accumulating import LookRows, SoFar
from mule.watching.engine.bundle import Bundle
from mule.watching.engine.contributing import Contribution, contributions
from mule.watching.engine.judging import EVIDENCE_SCORE, MEMORY_SCORE, Judged
from mule.watching.engine.looking import Scene
from mule.watching.moments import (
    ActionEvidence,
    ActionOpinion,
    Box,
    Contributor,
    Header,
    Judgement,
    Moment,
    NoveltyScores,
    Reasons,
    RememberedActor,
    SeenActor,
    decide,
    plain_name,
)

MOST_REMEMBERED = 3


@dataclass(frozen=True)
class Looks:
    """One look at each actor that the network could see."""

    is_seen: Bool[Tensor, " actors"]
    """Of the scene's actors: false for a sliver that covers no pixel of what the network sees; it has no row below."""
    outputs: Float[Tensor, "seen outputs"]
    """As the network gave them: what calibration keeps of held-out actors, with the features below."""
    features: Float[Tensor, "seen whole"]
    """What a memory keeps of each."""
    judged: Judged
    calibrated: CalibratedNovelty
    statistic: Float[Tensor, " seen"]
    remembered: list[list[Reason]]
    contributions: list[Contribution | None]
    """Indices are those of the scene's actors and objects."""


class Recogniser:
    """A bundle at work."""

    def __init__(self, bundle: Bundle, *, explains: bool = True) -> None:
        """Nothing is computed yet; without `explains` nobody is left out to see what contributed."""
        self._bundle = bundle
        self._explains = explains

    @torch.inference_mode()
    def __call__(self, scene: Scene) -> Looks:
        """What is to be said of each actor of the scene by this look alone."""
        judge, usual = self._bundle.judge, self._bundle.usual
        pixels = self._bundle.needs.pixels(scene.sight.clip.frames)
        boxes, is_seen, objects = _network_boxes(scene, (pixels.shape[3], pixels.shape[4]))
        maps = self._bundle.model.backbone(pixels)
        outputs, features = self._said([maps], boxes)
        judged = judge(outputs, features)
        found: list[Contribution | None] = [None] * len(boxes.actors_xyxy_px)
        if self._explains:
            found = contributions(
                maps, boxes, judged.network, read=lambda *each: judge(*self._said(*each)).network
            )
        return Looks(
            is_seen=is_seen,
            outputs=outputs,
            features=features,
            judged=judged,
            calibrated=usual.of_one_look(judged.ranks),
            statistic=usual.statistic(judged.ranks),
            remembered=self._remembered(judged),
            contributions=[_in_scene(each, is_seen, objects) for each in found],
        )

    def _said(self, maps: Sequence[FeatureMaps], boxes: SceneBoxes) -> tuple[Tensor, Tensor]:
        """The raw outputs for each actor, and what a memory keeps of it."""
        output = self._bundle.model.decide(maps, boxes)
        return output.outputs, whole_features(output.features, looks_of(maps, boxes))

    def _remembered(self, judged: Judged) -> list[list[Reason]]:
        remembered = self._bundle.judge.remembered
        if remembered is None or judged.weighed is None:
            return [[] for _ in range(judged.network.num_actors)]
        return remembered_reasons(remembered.memory, judged.weighed, at_most=MOST_REMEMBERED)


def _network_boxes(
    scene: Scene, size: tuple[int, int]
) -> tuple[SceneBoxes, Bool[Tensor, " actors"], Bool[Tensor, " objects"]]:
    """Boxes in pixels of what the network sees, and which of the scene's are among them."""
    (rows, cols), (source_rows, source_cols) = size, scene.sight.clip.source_size

    def moved(boxes_xyxy_px: Float[Tensor, "boxes 4"]) -> tuple[Tensor, Tensor]:
        unit = unit_from_px(boxes_xyxy_px, width_px=source_cols, height_px=source_rows)
        return clip_boxes(px_from_unit(unit, width_px=cols, height_px=rows), rows, cols)

    actors, is_seen = moved(scene.boxes_xyxy_px)
    objects, is_there = moved(scene.objects_xyxy_px)
    actors, objects = actors[is_seen], objects[is_there]
    boxes = SceneBoxes(
        actors,
        torch.zeros(len(actors), dtype=torch.int64),
        objects,
        torch.zeros(len(objects), dtype=torch.int64),
    )
    return boxes, is_seen, is_there


def _in_scene(
    found: Contribution | None, is_seen: Bool[Tensor, " actors"], is_there: Bool[Tensor, " objects"]
) -> Contribution | None:
    if found is None:
        return None
    places = torch.nonzero(is_seen if found.is_actor else is_there)[:, 0]
    return Contribution(found.is_actor, int(places[found.index]), found.share)


MOST_EVIDENCE = 3


def moment_of(
    scene: Scene, looks: Looks, now: LookRows, so_far: SoFar, *, header: Header, has_thumbnails: bool = False
) -> Moment:
    """The moment: a row of each actor that the network could see, by track id."""
    rows, cols = scene.sight.clip.source_size
    px = scene.boxes_xyxy_px[looks.is_seen].double()
    unit = unit_from_px(px, width_px=cols, height_px=rows)
    judgements = _judgements(now, header, has_memory=looks.judged.log_trust is not None)
    fused = _judgements(so_far, header, has_memory=looks.judged.log_trust is not None)
    strongest = [_strongest(side, header.classes) for side in (now.together.positive, now.together.negative)]
    ids, scores = scene.track_ids[looks.is_seen].tolist(), scene.scores[looks.is_seen].double().clamp(0, 1)
    actors: list[SeenActor] = []
    for at, number in enumerate(ids):
        actor = SeenActor(
            track_id=number,
            box_xyxy_px=_box(px[at]),
            box_xyxy_unit=_box(unit[at]),
            detection_score=float(scores[at]),
            num_looks=int(so_far.num_looks[at]),
            now=judgements[at],
            so_far=fused[at],
            decision="known",
            reasons=Reasons(
                evidence_for=strongest[0][at],
                evidence_against=strongest[1][at],
                remembered=tuple(_remembered(each, has_thumbnails) for each in looks.remembered[at]),
                contributor=_contributor(looks.contributions[at], scene),
            ),
        )
        actors.append(actor.model_copy(update={"decision": decide(actor, header.threshold)}))
    return Moment(
        video=header.source.video,
        key_time_s=float(scene.sight.key_time_s),
        rows=rows,
        cols=cols,
        actors=tuple(actors),
    )


def thumbnail_name(video: str, time_s: float | None, box_xyxy_unit: Box) -> str:
    """The file of a remembered actor's picture, whatever else is remembered or forgotten."""
    place = f"{video} {time_s} {' '.join(f'{value:.5f}' for value in box_xyxy_unit)}"
    return f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.png"


def _judgements(looks: LookRows | SoFar, header: Header, *, has_memory: bool) -> list[Judgement]:
    by_kind = {
        kind: NOVELTY_BY_KIND[kind](looks.network).value.tolist() for kind in ("pe", "ne", "pne", "belief")
    }
    log_evidence = NOVELTY_BY_KIND["pe_log"](looks.network).value.clamp(0, 1).tolist()
    vacuity = (-torch.expm1(looks.log_trust)).clamp(0, 1).tolist()
    p_values = torch.exp(-looks.rank).clamp(0, 1).tolist()
    actions = _actions(looks.together, header)
    return [
        Judgement(
            actions=actions[at],
            novelty=NoveltyScores(
                **{kind: min(max(values[at], 0.0), 1.0) for kind, values in by_kind.items()},
                p_value=p_values[at],
                others={
                    EVIDENCE_SCORE: log_evidence[at],
                    **({MEMORY_SCORE: vacuity[at]} if has_memory else {}),
                },
            ),
        )
        for at in range(len(p_values))
    ]


def _actions(evidence: Evidence, header: Header) -> list[tuple[ActionOpinion, ...]]:
    """The actions of each actor from the least probability on, likeliest first."""
    opinion = opinion_from(evidence)
    probability = opinion.probability.double()
    masses = [each.double() for each in (opinion.belief, opinion.disbelief, opinion.uncertainty)]
    columns = torch.stack(
        [*masses, probability, evidence.positive.double(), evidence.negative.double()], dim=2
    )
    order = probability.argsort(dim=1, descending=True, stable=True).tolist()
    told: list[tuple[ActionOpinion, ...]] = []
    for row, places in zip(columns.tolist(), order, strict=True):
        likely = [at for at in places if row[at][3] >= header.min_probability]
        told.append(tuple(_opinion(header.classes[at], row[at]) for at in likely))
    return told


def _opinion(action: str, values: list[float]) -> ActionOpinion:
    belief, disbelief, uncertainty, probability = (min(max(value, 0.0), 1.0) for value in values[:4])
    return ActionOpinion(
        action=action,
        belief=belief,
        disbelief=disbelief,
        uncertainty=uncertainty,
        probability=probability,
        evidence_for=values[4],
        evidence_against=values[5],
    )


def _strongest(
    amounts: Float[Tensor, "actors classes"], classes: tuple[str, ...]
) -> list[tuple[ActionEvidence, ...]]:
    most = amounts.topk(min(MOST_EVIDENCE, amounts.shape[1]), dim=1)
    return [
        tuple(
            ActionEvidence(action=classes[at], amount=value) for at, value in zip(places, values, strict=True)
        )
        for places, values in zip(most.indices.tolist(), most.values.tolist(), strict=True)
    ]


def _remembered(reason: Reason, has_thumbnails: bool) -> RememberedActor:
    name = thumbnail_name(reason.video, reason.time_s, reason.box_xyxy_unit) if has_thumbnails else None
    return RememberedActor(
        video=plain_name(reason.video),
        time_s=reason.time_s or 0.0,
        actions=tuple(reason.actions),
        distance=reason.distance,
        thumbnail=name,
    )


def _contributor(found: Contribution | None, scene: Scene) -> Contributor | None:
    if found is None:
        return None
    rows, cols = scene.sight.clip.source_size
    boxes = scene.boxes_xyxy_px if found.is_actor else scene.objects_xyxy_px
    unit = unit_from_px(boxes[found.index][None].double(), width_px=cols, height_px=rows)[0].clamp(0, 1)
    number = int(scene.track_ids[found.index]) if found.is_actor else None
    return Contributor(
        kind="actor" if found.is_actor else "object",
        name="actor" if found.is_actor else plain_name(scene.object_names[found.index]),
        share=min(found.share, 1.0),
        found_by="leave_one_out",
        track_id=number,
        box_xyxy_unit=_box(unit),
    )


def _box(values: Float[Tensor, " 4"]) -> Box:
    x1, y1, x2, y2 = values.tolist()
    return x1, y1, x2, y2
