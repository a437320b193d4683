"""Tables of actors and objects as files: what reads them and what writes them, in one place."""

from mule.data.table.checks import AFTER_THE_END_S, VideoEnds, spelled_twice, spelling
from mule.data.table.reading import (
    MAX_OVERHANG_UNIT,
    read_actor_table,
    read_object_table,
    read_video_names,
)
from mule.data.table.writing import write_actor_table, write_object_table

__all__ = [
    "AFTER_THE_END_S",
    "MAX_OVERHANG_UNIT",
    "VideoEnds",
    "read_actor_table",
    "read_object_table",
    "read_video_names",
    "spelled_twice",
    "spelling",
    "write_actor_table",
    "write_object_table",
]
