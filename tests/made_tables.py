"""Tables that split tests share: rows by their words, and random ones."""

import numpy as np

from mule.data.split.splits import ClassSets, Rules, SideVideos, Split, table_digest
from mule.data.table.table import ActorTable, ObjectTable

NO_BOX = (np.nan,) * 4


def actors_of(rows, classes=None):
    """Actors from (video, actions) or (video, actions, time, box)."""
    rows = [row if len(row) == 4 else [*row, 0.0, NO_BOX] for row in rows]
    videos = tuple(dict.fromkeys(row[0] for row in rows))
    classes = tuple(classes or sorted({name for row in rows for name in row[1].split()}))
    return ActorTable(
        videos,
        classes,
        np.array([videos.index(row[0]) for row in rows], dtype=np.int64),
        np.array([row[2] for row in rows], dtype=np.float64),
        np.array([row[3] for row in rows], dtype=np.float64).reshape(-1, 4),
        np.array([[name in row[1].split() for name in classes] for row in rows], dtype=bool).reshape(
            len(rows), len(classes)
        ),
        tuple(str(at) for at in range(len(rows))),
    )


def detections_of(rows, classes=("person", "chair")):
    """Detections from (video, time, box, class, score)."""
    videos = tuple(dict.fromkeys(row[0] for row in rows))
    return ObjectTable(
        videos,
        classes,
        np.array([videos.index(row[0]) for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.float64),
        np.array([row[2] for row in rows], dtype=np.float64).reshape(-1, 4),
        np.array([classes.index(row[3]) for row in rows], dtype=np.int64),
        np.array([row[4] for row in rows], dtype=np.float64),
    )


def random_actors(seed, *, num_rows=300, num_videos=40, num_classes=9, density=0.25):
    """Actors with any number of actions, none included."""
    draw = np.random.default_rng(seed)
    return ActorTable(
        tuple(f"v{i}" for i in range(num_videos)),
        tuple(f"a{i}" for i in range(num_classes)),
        draw.integers(0, num_videos, num_rows),
        draw.integers(0, 5, num_rows).astype(np.float64),
        np.full((num_rows, 4), np.nan),
        draw.random((num_rows, num_classes)) < density,
        ("",) * num_rows,
    )


def split_of(table, classes: ClassSets, videos: SideVideos, rules=None, **named):
    """A split of this table with given sides."""
    given = {"name": "made", "policy": "list", "seed": 0, "table_digest": table_digest(table), **named}
    return Split(classes=classes, rules=rules or Rules(), videos=videos, **given)
