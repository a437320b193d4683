"""Tables of actors, row by row."""

import numpy as np

from mule.data.table.table import ActorTable

NAN = float("nan")
BOX = [0.1, 0.2, 0.3, 0.4]


def table_of(rows, videos=("a", "b"), classes=("sit", "walk")):
    """Rows are (video number, time, box or None, class numbers, actor)."""
    labels = np.zeros((len(rows), len(classes)), dtype=bool)
    for at, row in enumerate(rows):
        labels[at, list(row[3])] = True
    return ActorTable(
        videos,
        classes,
        np.array([row[0] for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.float64),
        np.array([row[2] or [NAN] * 4 for row in rows], dtype=np.float64).reshape(-1, 4),
        labels,
        tuple(row[4] for row in rows),
    )
