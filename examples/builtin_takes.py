"""Rendered takes with a known cast and a novel one, written as videos, and what is true at their key times."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mule.core.files import write_file
from mule.detection.boxes import iou_matrix
from mule.stage.classes import SCENE_KINDS, SceneKind, stage_split
from mule.stage.export import LEAST_VISIBILITY
from mule.stage.plans import FRAME_RATE, Plan
from mule.stage.rendering import Size, StageClip, render_chunks
from mule.stage.takes import TakeRecipe, plan_take
from mule.video.encode import VideoWriter
from mule.watching.moments import Moment, SeenActor

SPLIT = stage_split("A")
SAME_IOU = 0.5


@dataclass(frozen=True)
class Cast:
    """Who plays: so many known actors, so many novel ones, for so long."""

    seed: int
    num_known: int = 3
    num_novel: int = 1
    seconds: float = 12.0
    scene: SceneKind | None = None
    aspect: float = 4 / 3


def mixed_take(cast: Cast, index: int = 0) -> Plan:
    """A take in which some actors do known actions only and the others novel ones only."""
    parts = [
        plan_take(
            TakeRecipe(
                seconds=cast.seconds,
                num_actors=count,
                classes=classes,
                seed=cast.seed,
                scene=cast.scene or SCENE_KINDS[index % len(SCENE_KINDS)],
                aspect=cast.aspect,
            ),
            index,
        )
        for count, classes in ((cast.num_known, SPLIT.known), (cast.num_novel, SPLIT.novel))
        if count
    ]
    return parts[0] if len(parts) == 1 else joined(*parts)


def joined(first: Plan, second: Plan) -> Plan:
    """The first take with the actors of the second among its own."""
    offset = len(first.actors)
    others = [
        replace(
            actor,
            actor_id=actor.actor_id + offset,
            segments=tuple(
                replace(part, partner=None if part.partner is None else part.partner + offset)
                for part in actor.segments
            ),
        )
        for actor in second.actors
    ]
    return replace(first, actors=(*first.actors, *others))


@dataclass(frozen=True)
class TrueActor:
    """One actor at one time."""

    actor_id: int
    box_xyxy_unit: tuple[float, float, float, float]
    actions: tuple[str, ...]

    @property
    def is_novel(self) -> bool:
        """Whether nothing that it does was taught."""
        return not set(self.actions) & set(SPLIT.known)


Truth = dict[int, list[TrueActor]]
"""By frame."""


def write_take(plan: Plan, path: Path, size: Size, *, every_frames: int = FRAME_RATE) -> Truth:
    """Renders a take into a video and says who was seen doing what at every so many frames."""
    truth: Truth = {}
    with VideoWriter(path, size, FRAME_RATE) as video:
        for chunk in render_chunks(plan, size):
            video.write(chunk.frames)
            for at in range(-chunk.first_frame % every_frames, len(chunk.frames), every_frames):
                truth[chunk.first_frame + at] = _seen(chunk, at)
    return truth


def write_truth(path: Path, truth: Truth) -> None:
    """What is true of a take, beside it; the file says that the video is whole."""
    plain = {frame: [asdict(actor) for actor in actors] for frame, actors in truth.items()}
    write_file(path, json.dumps(plain))


def read_truth(path: Path) -> Truth:
    """What `write_truth` wrote."""
    return {
        int(frame): [
            TrueActor(each["actor_id"], tuple(each["box_xyxy_unit"]), tuple(each["actions"]))
            for each in actors
        ]
        for frame, actors in json.loads(path.read_text()).items()
    }


def _seen(chunk: StageClip, at: int) -> list[TrueActor]:
    rows = zip(
        chunk.track_ids,
        chunk.actor_boxes_xyxy_unit[at].tolist(),
        chunk.visibility[at],
        chunk.labels(at),
        strict=True,
    )
    return [
        TrueActor(actor_id, (box[0], box[1], box[2], box[3]), actions)
        for actor_id, box, share, actions in rows
        if share >= LEAST_VISIBILITY and actions
    ]


def matched(moment: Moment, truth: Truth) -> list[tuple[SeenActor, TrueActor]]:
    """The actors of a moment with who they really are, where boxes overlap by half; each has one partner at most."""
    there = truth.get(round(moment.key_time_s * FRAME_RATE), [])
    pairs = pairs_of(
        torch.tensor([list(actor.box_xyxy_unit) for actor in moment.actors]).reshape(-1, 4),
        torch.tensor([list(actor.box_xyxy_unit) for actor in there]).reshape(-1, 4),
    )
    return [(moment.actors[first], there[second]) for first, second in pairs]


def pairs_of(first: Tensor, second: Tensor) -> list[tuple[int, int]]:
    """Pairs of boxes that overlap by half, those that overlap most first."""
    iou = iou_matrix(first.double(), second.double()).numpy().copy()
    pairs: list[tuple[int, int]] = []
    while iou.size and iou.max() >= SAME_IOU:
        row, col = (int(at) for at in np.unravel_index(int(iou.argmax()), iou.shape))
        pairs.append((row, col))
        iou[row], iou[:, col] = 0, 0
    return pairs
