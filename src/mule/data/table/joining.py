"""Tables put one below the other."""

from collections.abc import Sequence

import numpy as np

from mule.data.table.table import ActorTable


def joined_tables(tables: Sequence[ActorTable]) -> ActorTable:
    """The rows of all tables in their order. Videos and classes are told by their names, and numbered anew."""
    videos = tuple(dict.fromkeys(video for table in tables for video in table.videos))
    classes = tuple(sorted({name for table in tables for name in table.classes}))
    video_at = {video: at for at, video in enumerate(videos)}
    class_at = {name: at for at, name in enumerate(classes)}
    labels = np.zeros((sum(map(len, tables)), len(classes)), dtype=bool)
    video_index, start = [np.zeros(0, dtype=np.int64)], 0
    for table in tables:
        labels[start : start + len(table), [class_at[name] for name in table.classes]] = table.labels
        start += len(table)
        number = np.array([video_at[video] for video in table.videos], dtype=np.int64)
        video_index.append(number[table.video_index])
    return ActorTable(
        videos,
        classes,
        np.concatenate(video_index),
        np.concatenate([np.zeros(0), *(table.time_s for table in tables)]),
        np.concatenate([np.zeros((0, 4)), *(table.boxes_xyxy_unit for table in tables)]),
        labels,
        tuple(actor_id for table in tables for actor_id in table.actor_id),
    )
