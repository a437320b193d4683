"""Folders as `data.root` has them: a table of actors, a film of each of its videos, and a split."""

import numpy as np
from clock_videos import clock_video

from mule.data.split.splits import ClassSets, Rules, SideVideos, Split, table_digest, write_split
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable, ObjectTable
from mule.data.table.writing import write_actor_table

FOUR: tuple[str, ...] = ("film0", "film1", "film2", "film3")
SIDES = SideVideos(("film0", "film1"), ("film2",), ("film3",))
WALK_RUN_FLY = ClassSets(("walk",), ("run",), ("fly",), ())


def two_in_each_film(*, times=(0.5, 1.0)):
    """Two actors at each time of four films: one walks, the other runs or, at the end, flies."""
    rows = [(film, time, actor) for film in range(4) for time in times for actor in (0, 1)]
    labels = np.zeros((len(rows), 3), dtype=bool)
    labels[::2, 0] = True
    labels[1::2, 1] = True
    labels[-1] = [False, False, True]
    left = np.array([0.1, 0.5])[[actor for _, _, actor in rows]]
    return ActorTable(
        FOUR,
        ("walk", "run", "fly"),
        np.array([film for film, _, _ in rows]),
        np.array([time for _, time, _ in rows], dtype=np.float64),
        np.stack([left, left * 0 + 0.2, left + 0.3, left * 0 + 0.9], axis=1),
        labels,
        tuple(str(actor) for _, _, actor in rows),
    )


def persons_of(table, *, moved=0.0, score=0.9):
    """A detection on every box of a table."""
    return ObjectTable(
        table.videos,
        ("person",),
        table.video_index,
        table.time_s,
        table.boxes_xyxy_unit + moved,
        np.zeros(len(table), np.int64),
        np.full(len(table), score),
    )


def write_films(folder, table, *, classes=WALK_RUN_FLY, sides=SIDES, rules=None, frames_of=None):
    """The folder, with films of 20 frames, or of as many as `frames_of` says."""
    write_actor_table(table, folder / "actors.csv")
    for number, film in enumerate(table.videos):
        num_frames = (frames_of or {}).get(film, 20)
        clock_video(folder / "videos" / f"{film}.mp4", num_frames, level=60 + 40 * number)
    split = Split(
        name="made",
        policy="list" if classes.z3 else "closed",
        seed=0,
        table_digest=table_digest(read_actor_table(folder / "actors.csv")),
        classes=classes,
        rules=rules or Rules(),
        videos=sides,
    )
    write_split(split, folder / "split.toml")
    return folder


def settings_on(root, *, num_known=2):
    """`[data]` of an experiment on such a folder."""
    return {"kind": "table", "num_known": num_known, "num_frames": 4, "stride_frames": 1, "root": str(root)}
