"""From numbers to a moment: what people read about each actor, and why."""

import hashlib
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.printable import printable
from mule.core.records import Evidence
from mule.evidence.head import evidence_of_known, opinion_from
from mule.memory.opinion import Reason
from mule.novelty.scores import NOVELTY_BY_KIND
from mule.video.transforms import unit_from_px
from mule.watching.engine.finding import Scene
from mule.watching.engine.judging import (
    EVIDENCE_SCORE,
    MEMORY_SCORE,
    Judgements,
)
from mule.watching.engine.recognising import Contribution, Recognised
from mule.watching.moments import (
    ActionEvidence,
    ActionOpinion,
    Box,
    Contributor,
    DecisionThreshold,
    Header,
    Judgement,
    Moment,
    NoveltyScores,
    Reasons,
    RememberedActor,
    SeenActor,
    decide,
)

MOST_EVIDENCE = 3


def moment_of(
    recognised: Recognised,
    so_far: Judgements,
    header: Header,
    *,
    has_memory: bool,
    has_thumbnails: bool = False,
    agrees: bool = False,
) -> Moment:
    """The moment of a scene: one record per actor, by track id.

    With `agrees`, opinions agree with the decision (`evidence_of_known`).
    """
    scene, now = recognised.scene, recognised.now
    rows, cols = scene.sight.clip.source_size
    px = scene.boxes_xyxy_px.double()
    unit = unit_from_px(px, width_px=cols, height_px=rows)
    judged_now, judged_so_far = (
        _judgements(each, header, has_memory=has_memory, agrees=agrees) for each in (now, so_far)
    )
    evidence_for = _strongest(now.together.positive, header.classes)
    evidence_against = _strongest(now.together.negative, header.classes)
    scores = scene.scores.double().clamp(0, 1)
    actors: list[SeenActor] = []
    for at, number in enumerate(scene.track_ids.tolist()):
        actor = SeenActor(
            track_id=number,
            box_xyxy_px=box_of(px[at]),
            box_xyxy_unit=box_of(unit[at]),
            detection_score=float(scores[at]),
            num_looks=int(so_far.num_looks[at]),
            now=judged_now[at],
            so_far=judged_so_far[at],
            decision="known",
            reasons=Reasons(
                evidence_for=evidence_for[at],
                evidence_against=evidence_against[at],
                remembered=tuple(_remembered(each, has_thumbnails) for each in recognised.remembered[at]),
                contributor=_contributor(recognised.contributions[at], scene),
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
    """The name of a remembered actor's picture; it does not depend on what else is remembered."""
    place = f"{video} {time_s} {' '.join(f'{value:.5f}' for value in box_xyxy_unit)}"
    return f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.png"


def _judgements(looks: Judgements, header: Header, *, has_memory: bool, agrees: bool) -> list[Judgement]:
    others = {EVIDENCE_SCORE: NOVELTY_BY_KIND["pe_log"](looks.network).value.clamp(0, 1).tolist()}
    if has_memory:
        others[MEMORY_SCORE] = (-torch.expm1(looks.log_trust)).clamp(0, 1).tolist()
    p_values = torch.exp(-looks.rank).clamp(0, 1)
    novelties = novelty_scores(looks.network, p_values.tolist(), others)
    shown = agreeing(looks.together, p_values, header.threshold) if agrees else looks.together
    opinions = action_opinions(shown, header.classes)
    idle = [None] * len(opinions) if looks.idle is None else looks.idle.clamp(0, 1).tolist()
    return [
        Judgement(
            actions=tuple(
                each for each in of_actor if each.probability >= header.min_probability and not does_nothing
            ),
            novelty=novelty,
            idle=share,
        )
        for of_actor, novelty, share, does_nothing in zip(
            opinions, novelties, idle, looks.is_idle.tolist(), strict=True
        )
    ]


def agreeing(
    evidence: Evidence, p_values: Float[Tensor, " actors"], threshold: DecisionThreshold
) -> Evidence:
    """The evidence whose opinion agrees with what a threshold decides from these p-values."""
    return evidence_of_known(evidence, p_values, alarm_rate=1 - threshold.value)


def novelty_scores(
    network: Evidence, p_values: Sequence[float], others: Mapping[str, Sequence[float]]
) -> list[NoveltyScores]:
    """The novelty of each actor by the paper's scores, by its p-value, and by other scores of the model."""
    pe, ne, pne, belief = (
        NOVELTY_BY_KIND[kind](network).value.clamp(0, 1).tolist() for kind in ("pe", "ne", "pne", "belief")
    )
    return [
        NoveltyScores(
            pe=pe[at],
            ne=ne[at],
            pne=pne[at],
            belief=belief[at],
            p_value=p_value,
            others={name: values[at] for name, values in others.items()},
        )
        for at, p_value in enumerate(p_values)
    ]


def action_opinions(evidence: Evidence, classes: Sequence[str]) -> list[tuple[ActionOpinion, ...]]:
    """The opinion about every action of each actor, likeliest first."""
    opinion = opinion_from(evidence)
    masses = (opinion.belief, opinion.disbelief, opinion.uncertainty, opinion.probability)
    columns = [each.double().clamp(0, 1) for each in masses]
    columns += [evidence.positive.double(), evidence.negative.double()]
    order: list[list[int]] = opinion.probability.argsort(dim=1, descending=True, stable=True).tolist()
    return [
        tuple(_opinion(classes[at], row[at]) for at in places)
        for row, places in zip(torch.stack(columns, dim=2).tolist(), order, strict=True)
    ]


def _opinion(action: str, values: list[float]) -> ActionOpinion:
    belief, disbelief, uncertainty, probability, evidence_for, evidence_against = values
    return ActionOpinion(
        action=action,
        belief=belief,
        disbelief=disbelief,
        uncertainty=uncertainty,
        probability=probability,
        evidence_for=evidence_for,
        evidence_against=evidence_against,
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
        video=printable(reason.video),
        time_s=reason.time_s or 0.0,
        actions=tuple(reason.actions),
        distance=reason.distance,
        thumbnail=name,
    )


def _contributor(contribution: Contribution | None, scene: Scene) -> Contributor | None:
    if contribution is None:
        return None
    rows, cols = scene.sight.clip.source_size
    boxes = scene.boxes_xyxy_px if contribution.is_actor else scene.objects_xyxy_px
    box_xyxy_px = boxes[contribution.index].double()
    unit = unit_from_px(box_xyxy_px[None], width_px=cols, height_px=rows)[0].clamp(0, 1)
    return Contributor(
        kind="actor" if contribution.is_actor else "object",
        name="actor" if contribution.is_actor else printable(scene.object_names[contribution.index]),
        share=min(contribution.share, 1.0),
        found_by="leave_one_out",
        track_id=int(scene.track_ids[contribution.index]) if contribution.is_actor else None,
        box_xyxy_unit=box_of(unit),
    )


def box_of(values: Float[Tensor, " 4"]) -> Box:
    """The corners as plain numbers."""
    x1, y1, x2, y2 = values.tolist()
    return x1, y1, x2, y2
