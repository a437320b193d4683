"""From numbers to a moment: what people read about each actor, and why."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.printable import printable
from mule.core.records import Evidence
from mule.evidence.head import evidence_of_known, opinion_from
from mule.memory.opinion import Reason
from mule.novelty.scores import NOVELTY_BY_KIND
from mule.video.transforms import unit_from_px
from mule.watching.engine.bundle import Bundle
from mule.watching.engine.finding import Scene
from mule.watching.engine.judging import (
    EVIDENCE_SCORE,
    MEMORY_SCORE,
    Judgements,
)
from mule.watching.engine.kept import Place
from mule.watching.engine.recognising import Contribution
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


@dataclass(frozen=True)
class Told:
    """What a bundle says of actors, one row each, in the order of their places."""

    now: Judgements
    so_far: Judgements
    remembered: Sequence[Sequence[Reason]]
    contributors: Sequence[Contributor | None]


@dataclass(frozen=True)
class Telling:
    """What of a bundle shows in moments."""

    header: Header
    has_memory: bool
    has_thumbnails: bool = False
    agrees: bool = False
    """Whether opinions agree with the decision (`evidence_of_known`)."""

    @classmethod
    def by(cls, bundle: Bundle, header: Header) -> "Telling":
        """Tell as this bundle does."""
        return cls(header, bundle.has_memory, bundle.thumbnails is not None, bundle.judge.seen is not None)

    def moments(self, places: Sequence[Place], told: Told) -> list[Moment]:
        """Return the moment of each place: one record per actor, by track id. Many at once are faster than one by one."""
        header = self.header
        px = torch.cat([place.boxes_xyxy_px.double() for place in places])
        sizes = torch.tensor(
            [(place.cols, place.rows, place.cols, place.rows) for place in places for _ in range(len(place))],
            dtype=torch.float64,
        ).reshape(-1, 4)
        unit = (px / sizes).tolist()
        scores = torch.cat([place.scores.double() for place in places]).clamp(0, 1).tolist()
        shown = {view: self._shown(each) for view, each in (("now", told.now), ("so_far", told.so_far))}
        now, so_far = (
            _judgements(each, shown[view], header, has_memory=self.has_memory)
            for view, each in (("now", told.now), ("so_far", told.so_far))
        )
        # where opinions were changed to agree, reasons list the evidence of the opinion that people read; elsewhere that of this look
        behind = shown[header.threshold.view if self.agrees else "now"]
        evidence_for = _strongest(behind.positive, header.classes)
        evidence_against = _strongest(behind.negative, header.classes)
        num_looks: list[int] = told.so_far.num_looks.tolist()
        numbers = [number for place in places for number in place.track_ids.tolist()]
        actors: list[SeenActor] = []
        for at, (number, box_px, box_unit) in enumerate(zip(numbers, px.tolist(), unit, strict=True)):
            actor = SeenActor(
                track_id=number,
                box_xyxy_px=box_px,
                box_xyxy_unit=box_unit,
                detection_score=scores[at],
                num_looks=num_looks[at],
                now=now[at],
                so_far=so_far[at],
                decision="known",
                reasons=Reasons(
                    evidence_for=evidence_for[at],
                    evidence_against=evidence_against[at],
                    remembered=tuple(_remembered(each, self.has_thumbnails) for each in told.remembered[at]),
                    contributor=told.contributors[at],
                ),
            )
            actors.append(actor.model_copy(update={"decision": decide(actor, header.threshold)}))
        row = iter(actors)
        return [
            Moment(
                video=header.source.video,
                key_time_s=place.key_time_s,
                rows=place.rows,
                cols=place.cols,
                actors=tuple(islice(row, len(place))),
            )
            for place in places
        ]

    def _shown(self, looks: Judgements) -> Evidence:
        """Return the evidence whose opinions people read."""
        return (
            agreeing(looks.together, _p_values(looks), self.header.threshold)
            if self.agrees
            else looks.together
        )


def kept_place(scene: Scene) -> Place:
    """Return who is where in a scene."""
    rows, cols = scene.sight.clip.source_size
    return Place(
        float(scene.sight.key_time_s), rows, cols, scene.track_ids, scene.boxes_xyxy_px, scene.scores
    )


def contributors_in(scene: Scene, contributions: Sequence[Contribution | None]) -> list[Contributor | None]:
    """Return who or what of a scene contributed most to each actor, as it is told."""
    return [_contributor(each, scene) for each in contributions]


def thumbnail_name(video: str, time_s: float | None, box_xyxy_unit: Box) -> str:
    """The name of a remembered actor's picture; it does not depend on what else is remembered."""
    place = f"{video} {time_s} {' '.join(f'{value:.5f}' for value in box_xyxy_unit)}"
    return f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.png"


def _p_values(looks: Judgements) -> Float[Tensor, " actors"]:
    return torch.exp(-looks.rank).clamp(0, 1)


def _judgements(looks: Judgements, shown: Evidence, header: Header, *, has_memory: bool) -> list[Judgement]:
    others = {EVIDENCE_SCORE: NOVELTY_BY_KIND["pe_log"](looks.network).value.clamp(0, 1).tolist()}
    if has_memory:
        others[MEMORY_SCORE] = (-torch.expm1(looks.log_trust)).clamp(0, 1).tolist()
    novelties = novelty_scores(looks.network, _p_values(looks).tolist(), others)
    opinions = action_opinions(shown, header.classes, least=header.min_probability)
    idle = [None] * len(opinions) if looks.idle is None else looks.idle.clamp(0, 1).tolist()
    return [
        Judgement(
            actions=() if does_nothing else of_actor,
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


def action_opinions(
    evidence: Evidence, classes: Sequence[str], *, least: float = 0.0
) -> list[tuple[ActionOpinion, ...]]:
    """The opinion about every action of each actor that is at least so probable, likeliest first."""
    opinion = opinion_from(evidence)
    masses = (opinion.belief, opinion.disbelief, opinion.uncertainty, opinion.probability)
    columns = [each.double().clamp(0, 1) for each in masses]
    columns += [evidence.positive.double(), evidence.negative.double()]
    num_shown = (opinion.probability >= least).sum(dim=1)
    most = int(num_shown.max()) if len(num_shown) else 0
    order = opinion.probability.argsort(dim=1, descending=True, stable=True)[:, :most]
    most_likely: list[list[int]] = order.tolist()
    numbers: list[list[list[float]]] = torch.stack(
        [each.gather(1, order) for each in columns], dim=2
    ).tolist()
    return [
        tuple(_opinion(classes[at], row) for at, row in islice(zip(places, rows, strict=True), count))
        for places, rows, count in zip(most_likely, numbers, num_shown.tolist(), strict=True)
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
