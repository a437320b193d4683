"""What is true of many clips, as flat arrays: actors and objects of all clips, each with the number of its clip."""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.stage.classes import ACTIONS
from mule.stage.rendering import StageClip

OBJECT_CLASSES = ("ball", "box")


@dataclass(frozen=True)
class ClipTable:
    """Actors and objects of clips of equal length. Labels are those of the middle frame, in the order of ACTIONS."""

    actor_clip: Int[np.ndarray, " actors"]
    actor_id: Int[np.ndarray, " actors"]
    actor_boxes_xyxy_unit: Float[np.ndarray, "actors frames 4"]
    visibility: Float[np.ndarray, "actors frames"]
    labels: Bool[np.ndarray, "actors classes"]
    object_clip: Int[np.ndarray, " objects"]
    object_class: Int[np.ndarray, " objects"]
    """Index into OBJECT_CLASSES."""
    object_boxes_xyxy_unit: Float[np.ndarray, "objects frames 4"]
    object_is_there: Bool[np.ndarray, "objects frames"]

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def table_of(clip: StageClip, number: int) -> ClipTable:
    """One clip's rows."""
    labels = clip.labels(len(clip.frames) // 2)
    num_actors, num_objects = len(clip.track_ids), len(clip.object_classes)
    return ClipTable(
        actor_clip=np.full(num_actors, number, dtype=np.int64),
        actor_id=np.array(clip.track_ids, dtype=np.int64),
        actor_boxes_xyxy_unit=clip.actor_boxes_xyxy_unit.transpose(1, 0, 2).astype(np.float32),
        visibility=clip.visibility.T.astype(np.float32),
        labels=np.array([[name in names for name in ACTIONS] for names in labels], dtype=bool).reshape(
            num_actors, len(ACTIONS)
        ),
        object_clip=np.full(num_objects, number, dtype=np.int64),
        object_class=np.array([OBJECT_CLASSES.index(kind) for kind in clip.object_classes], dtype=np.int64),
        object_boxes_xyxy_unit=clip.object_boxes_xyxy_unit.transpose(1, 0, 2).astype(np.float32),
        object_is_there=clip.object_is_there.T,
    )


def joined(tables: list[ClipTable], num_frames: int) -> ClipTable:
    """The rows of all tables, in order; no tables give a table without rows."""
    empty = ClipTable(
        actor_clip=np.zeros(0, dtype=np.int64),
        actor_id=np.zeros(0, dtype=np.int64),
        actor_boxes_xyxy_unit=np.zeros((0, num_frames, 4), dtype=np.float32),
        visibility=np.zeros((0, num_frames), dtype=np.float32),
        labels=np.zeros((0, len(ACTIONS)), dtype=bool),
        object_clip=np.zeros(0, dtype=np.int64),
        object_class=np.zeros(0, dtype=np.int64),
        object_boxes_xyxy_unit=np.zeros((0, num_frames, 4), dtype=np.float32),
        object_is_there=np.zeros((0, num_frames), dtype=bool),
    )
    columns = [table.arrays() for table in (empty, *tables)]
    return ClipTable(**{name: np.concatenate([part[name] for part in columns]) for name in columns[0]})
