"""Tables of actors in small videos, row by row, and how their clips are read."""

import numpy as np

from mule.data.batches.video_clips import ClipReading
from mule.data.table.table import ActorTable
from mule.video.clips import ClipShape

SHAPE = ClipShape(num_frames=4, stride_frames=2, num_slow_frames=2)
READING = ClipReading(shape=SHAPE)
CLASSES = ("jump", "run", "sit")
NAN = float("nan")


def video_table(rows):
    """(video, time, box or None, actions, id) per row."""
    names = tuple(dict.fromkeys(row[0] for row in rows))
    boxes = [[NAN] * 4 if row[2] is None else row[2] for row in rows]
    return ActorTable(
        names,
        CLASSES,
        np.array([names.index(row[0]) for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=float),
        np.array(boxes, dtype=float).reshape(-1, 4),
        np.array([[c in row[3] for c in CLASSES] for row in rows], dtype=bool).reshape(-1, 3),
        tuple(row[4] for row in rows),
    )
