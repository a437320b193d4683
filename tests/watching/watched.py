"""What these tests share: small made-up moments, and a made-up result of watching a rendered take of Stage."""

import math

import numpy as np

from mule.watching.moments import (
    ActionEvidence,
    ActionOpinion,
    Contributor,
    DecisionThreshold,
    Header,
    Judgement,
    ModelFacts,
    Moment,
    NoveltyScores,
    Reasons,
    RememberedActor,
    SeenActor,
    SourceFacts,
    decide,
)

KNOWN_95 = DecisionThreshold(
    name="known-95", score="p_value", value=0.95, meaning="95 % of known actors pass", num_held_out=1000
)


def header(classes=("walk", "talk", "sit"), video="lobby", **changes):
    """A header of a 200 x 100 video with a key time every second."""
    facts = {
        "model": ModelFacts(name="tiny", fingerprint="0123abcd"),
        "classes": tuple(classes),
        "source": SourceFacts(
            video=video, address=f"{video}.mp4", rows=100, cols=200, frame_rate="25", duration_s=4.0
        ),
        "every_s": 1.0,
        "threshold": KNOWN_95,
        "min_probability": 0.5,
    }
    return Header(**(facts | changes))


def opinion(action, evidence_for, evidence_against):
    total = evidence_for + evidence_against + 2
    return ActionOpinion(
        action=action,
        belief=evidence_for / total,
        disbelief=evidence_against / total,
        uncertainty=2 / total,
        probability=(evidence_for + 1) / total,
        evidence_for=evidence_for,
        evidence_against=evidence_against,
    )


def judgement(actions=(), novelty=0.1):
    """Opinions about the actions, and novelty whose p-value is 1 − novelty."""
    scores = NoveltyScores(
        pe=novelty, ne=novelty / 2, pne=min(1.0, novelty / 3 + 0.1), belief=novelty**2, p_value=1 - novelty
    )
    return Judgement(actions=tuple(actions), novelty=scores)


def seen(
    track_id=0,
    box=(0.1, 0.2, 0.3, 0.8),
    actions=(),
    novelty=0.1,
    *,
    size=(100, 200),
    threshold=KNOWN_95,
    **others,
):
    """An actor with this box, in parts of the frame, whose decision follows from the threshold."""
    judged = judgement(actions, novelty)
    facts = {
        "track_id": track_id,
        "box_xyxy_unit": tuple(box),
        "box_xyxy_px": tuple(side * part for side, part in zip(size[::-1] * 2, box, strict=True)),
        "num_looks": 1,
        "now": judged,
        "so_far": judged,
        "decision": "known",
    } | others
    actor = SeenActor(**facts)
    return actor.model_copy(update={"decision": decide(actor, threshold)})


def moment(key_time_s=0.0, *actors, video="lobby", size=(100, 200)):
    return Moment(video=video, key_time_s=key_time_s, rows=size[0], cols=size[1], actors=actors)


def three_moments():
    """Nobody; one known and one novel actor; the same a second later, and a third."""
    walks, sits = opinion("walk", 9.0, 1.0), opinion("sit", 5.0, 3.0)
    return [
        moment(0.0),
        moment(1.0, seen(0, actions=[walks]), seen(4, (0.5, 0.1, 0.9, 0.9), novelty=0.99)),
        moment(
            2.0,
            seen(0, (0.2, 0.2, 0.4, 0.8), [walks, sits]),
            seen(4, (0.5, 0.1, 0.9, 0.9), [sits], novelty=0.98),
            seen(7, (0.0, 0.0, 1.0, 1.0)),
        ),
    ]


def watched_take(plan, *, size, known, video="take", seed=0):
    """Header, moments and key frames of a take: true boxes and actions, made-up opinions; other actions are novel."""
    from mule.stage.plans import FRAME_RATE
    from mule.stage.rendering import render_chunks

    rng = np.random.default_rng(seed)
    rows, cols = size
    top = header(
        known,
        video,
        source=SourceFacts(
            video=video,
            address=f"videos/{video}.mp4",
            rows=rows,
            cols=cols,
            frame_rate=str(FRAME_RATE),
            duration_s=plan.num_frames / FRAME_RATE,
        ),
        model=ModelFacts(name="mule-memory", fingerprint="9f3c1d52"),
    )
    moments, key_frames, so_far = [], {}, {}
    for clip in render_chunks(plan, size):
        for at in range(len(clip.frames)):
            frame = clip.first_frame + at
            if frame % FRAME_RATE or frame + FRAME_RATE // 2 > plan.num_frames:
                continue
            actors = _actors(clip, at, known, rng, so_far, size)
            moments.append(moment(frame / FRAME_RATE, *actors, video=video, size=size))
            key_frames[frame / FRAME_RATE] = clip.frames[at].copy()
    return top, moments, key_frames


def _actors(clip, at, known, rng, so_far, size):
    actors = []
    for row, (number, box) in enumerate(zip(clip.track_ids, clip.actor_boxes_xyxy_unit[at], strict=True)):
        if clip.visibility[at, row] < 0.3 or box[2] <= box[0] or box[3] <= box[1]:
            continue
        actions = clip.labels(at)[row]
        is_new = not any(action in known for action in actions)
        logit = float(rng.normal(5.0 if is_new else -1.2, 0.8))
        sums, looks = so_far.get(number, (0.0, 0))
        kept = min(looks, 2)
        sums, looks = (kept * sums + logit) / (kept + 1), looks + 1
        so_far[number] = (sums, looks)
        opinions = [
            opinion(name, float(rng.gamma(6, 1.5)), float(rng.gamma(2, 0.5)))
            for name in actions
            if name in known
        ]
        opinions.sort(key=lambda each: -each.probability)
        unit = tuple(float(value) for value in box)
        actors.append(
            seen(number, unit, opinions, _squashed(sums), size=size, num_looks=looks,
                 now=judgement(opinions, _squashed(logit)), reasons=_reasons(rng, known, opinions, clip, at))
        )  # fmt: skip
    return actors


def _reasons(rng, known, opinions, clip, at):
    order = rng.permutation(len(known))
    strong = [ActionEvidence(action=each.action, amount=each.evidence_for) for each in opinions]
    faint = [ActionEvidence(action=known[i], amount=float(rng.gamma(1, 0.4))) for i in order[:3]]
    against = [ActionEvidence(action=known[i], amount=float(rng.gamma(4, 1.2))) for i in order[3:7]]
    remembered = [
        RememberedActor(
            video=f"clip_{rng.integers(1000):06d}",
            time_s=float(rng.integers(1, 4)),
            actions=tuple(known[i] for i in order[k : k + 1 + k % 2]),
            distance=float(0.3 + 0.2 * k + rng.random() / 5),
            thumbnail=f"{k}.png",
        )
        for k in range(3)
    ]
    there = np.flatnonzero(clip.object_is_there[at])
    contributor = None
    if len(there):
        chosen = int(there[0])
        contributor = Contributor(
            kind="object",
            name=clip.object_classes[chosen],
            share=float(rng.uniform(0.2, 0.6)),
            found_by="attention",
            box_xyxy_unit=tuple(clip.object_boxes_xyxy_unit[at, chosen].tolist()),
        )
    return Reasons(
        evidence_for=tuple(sorted(strong + faint, key=lambda each: -each.amount)[:4]),
        evidence_against=tuple(sorted(against, key=lambda each: -each.amount)),
        remembered=tuple(remembered),
        contributor=contributor,
    )


def _squashed(logit):
    return 1 / (1 + math.exp(-logit))
