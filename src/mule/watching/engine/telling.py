"""What was found of the actors of a scene, put into the words and numbers of a `Moment`."""

import hashlib

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.records import Evidence
from mule.detection.boxes import unit_from_px
from mule.evidence.opinion import opinion_from
from mule.memory.reasons import Reason
from mule.novelty.scores import NOVELTY_BY_KIND
from mule.watching.engine.accumulating import LookRows, SoFar
from mule.watching.engine.contributing import Contribution
from mule.watching.engine.judging import EVIDENCE_SCORE, MEMORY_SCORE
from mule.watching.engine.looking import Scene
from mule.watching.engine.recogniser import Looks
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
