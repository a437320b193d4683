"""Rendered clips of Stage as a data set: frames from the memory-mapped file, actors and objects of the middle frame.

An actor of whom too little is seen in the middle frame is left out, as in the tables Stage writes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from mule.core.errors import RangeError
from mule.data.batches.samples import ClipName, ClipSample
from mule.stage.cache import CachedClips
from mule.stage.classes import ACTIONS
from mule.stage.export import LEAST_VISIBILITY
from mule.stage.plans import FRAME_RATE


class StageClips:
    """A data set of rendered clips, in their order."""

    def __init__(self, rendered: CachedClips, *, classes: Sequence[str] | None = None) -> None:
        """Frames stay on disk until they are looked at.

        Args:
            rendered: the clips.
            classes: the actions that labels speak of; None is those known in the clips' split.

        Raises:
            RangeError: a class is none of Stage's actions.
        """
        self.classes = tuple(rendered.clips.classes.known if classes is None else classes)
        unknown = sorted(set(self.classes) - set(ACTIONS))
        if unknown:
            raise RangeError(
                f"classes must be among Stage's {len(ACTIONS)} actions; got {', '.join(unknown)}."
            )
        table, key_frame = rendered.table, rendered.clips.num_frames // 2
        self._frames = rendered.frames
        self._name, self._size = rendered.clips.name, rendered.clips.size
        self._key_time_s = key_frame / FRAME_RATE
        self._actors = np.flatnonzero(table.visibility[:, key_frame] >= LEAST_VISIBILITY)
        self._actor_clip = table.actor_clip[self._actors]
        self._actor_boxes = table.actor_boxes_xyxy_unit[self._actors, key_frame]
        self._actor_id = table.actor_id[self._actors]
        self._labels = table.labels[self._actors][:, [list(ACTIONS).index(name) for name in self.classes]]
        is_there = table.object_is_there[:, key_frame]
        self._object_clip = table.object_clip[is_there]
        self._object_boxes = table.object_boxes_xyxy_unit[is_there, key_frame]
        self._object_class = table.object_class[is_there]

    def __len__(self) -> int:
        return len(self._frames)

    def name_of(self, position: int) -> ClipName:
        """The set's name with the number of the clip, and the time of the middle frame."""
        return ClipName(f"{self._name}/{position:06d}", self._key_time_s)

    def rows_of(self, position: int) -> Int[np.ndarray, " actors"]:
        """The rows of the rendered clips' table that are the clip's actors."""
        return self._actors[_rows(self._actor_clip, position)]

    def labelled_actors(self) -> tuple[Bool[np.ndarray, "actors classes"], Int[np.ndarray, " actors"]]:
        """What the actors of all clips do, and each one's clip by position."""
        return self._labels, self._actor_clip

    def __getitem__(self, position: int) -> ClipSample:
        """The clip at the position. Its objects are certain: every score is 1."""
        if not 0 <= position < len(self):
            raise IndexError(f"clip must be from 0 to {len(self) - 1}; got {position}.")
        actors, objects = _rows(self._actor_clip, position), _rows(self._object_clip, position)
        frames = torch.from_numpy(np.array(self._frames[position])).permute(0, 3, 1, 2)
        return ClipSample(
            name=self.name_of(position),
            frames=frames,
            actor_boxes_xyxy_unit=torch.from_numpy(self._actor_boxes[actors]),
            labels=torch.from_numpy(self._labels[actors]),
            actor_ids=tuple(str(number) for number in self._actor_id[actors].tolist()),
            object_boxes_xyxy_unit=torch.from_numpy(self._object_boxes[objects]),
            object_class=torch.from_numpy(self._object_class[objects]),
            object_scores=torch.ones(objects.stop - objects.start),
            source_size=self._size,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without the pixels, if they lie in a file: another process opens it anew."""
        state = dict(vars(self))
        if isinstance(self._frames, np.memmap):
            state["_frames"] = self._frames.filename
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if not isinstance(self._frames, np.ndarray):
            self._frames = np.load(self._frames, mmap_mode="r")


def _rows(clip_index: Int[np.ndarray, " rows"], position: int) -> slice:
    """Where a clip's rows are in columns that are sorted by clip."""
    start, end = np.searchsorted(clip_index, [position, position + 1])
    return slice(int(start), int(end))
