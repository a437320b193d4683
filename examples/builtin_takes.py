"""Rendered takes with known and novel actors, written as videos, and the truth at their key times."""

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
    """How many known and novel actors play, and for how long."""

    seed: int
    num_known: int = 3
    num_novel: int = 1
    seconds: float = 12.0
    scene: SceneKind | None = None
    aspect: float = 4 / 3


def mixed_take(cast: Cast, index: int = 0) -> Plan:
    """Return a take in which some actors do known actions only and the others novel ones only."""
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
    """Return the first take with the actors of the second added."""
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
        """Whether the model was taught none of its actions."""
        return not set(self.actions) & set(SPLIT.known)


Truth = dict[int, list[TrueActor]]
"""By frame."""


def write_take(plan: Plan, path: Path, size: Size, *, every_frames: int = FRAME_RATE) -> Truth:
    """Render a take as a video and return who does what at every n-th frame."""
    truth: Truth = {}
    with VideoWriter(path, size, FRAME_RATE) as video:
        for chunk in render_chunks(plan, size):
            video.write(chunk.frames)
            for at in range(-chunk.first_frame % every_frames, len(chunk.frames), every_frames):
                truth[chunk.first_frame + at] = _seen(chunk, at)
    return truth


def write_truth(path: Path, truth: Truth) -> None:
    """Write the truth beside a take; the file also marks the video as complete."""
    plain = {frame: [asdict(actor) for actor in actors] for frame, actors in truth.items()}
    write_file(path, json.dumps(plain))


def read_truth(path: Path) -> Truth:
    """Read what `write_truth` wrote."""
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
    """Pair the actors of a moment with the true actors whose boxes overlap by half; each has at most one partner."""
    there = truth.get(round(moment.key_time_s * FRAME_RATE), [])
    pairs = pairs_of(
        torch.tensor([list(actor.box_xyxy_unit) for actor in moment.actors]).reshape(-1, 4),
        torch.tensor([list(actor.box_xyxy_unit) for actor in there]).reshape(-1, 4),
    )
    return [(moment.actors[first], there[second]) for first, second in pairs]


def pairs_of(first: Tensor, second: Tensor) -> list[tuple[int, int]]:
    """Return pairs of boxes that overlap by half, largest overlap first."""
    iou = iou_matrix(first.double(), second.double()).numpy().copy()
    pairs: list[tuple[int, int]] = []
    while iou.size and iou.max() >= SAME_IOU:
        row, col = (int(at) for at in np.unravel_index(int(iou.argmax()), iou.shape))
        pairs.append((row, col))
        iou[row], iou[:, col] = 0, 0
    return pairs
