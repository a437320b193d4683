"""What is in a table: how often each class comes, how many labels an actor has, who shares a clip, what comes together.

A row is one actor at one key time. An actor is a name within a video; a row without a name is an actor of its own.
Rows of one video and key time make a clip.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from mule.data.table.table import ActorTable
from mule.data.table.writing import write_whole

_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class ClassCounts:
    """How often one class comes."""

    name: str
    num_rows: int
    num_actors: int
    num_videos: int


@dataclass(frozen=True)
class ClassPair:
    """Two classes that one actor does at one time."""

    first: str
    second: str
    num_rows: int
    share_of_first: float
    """Of the rows with the first class, the part that has the second too."""
    share_of_second: float


@dataclass(frozen=True)
class TableStats:
    """The counts of one table; classes come in its order."""

    num_rows: int
    num_actors: int
    num_clips: int
    num_videos: int
    num_whole_frame: int
    """Rows without a box."""
    num_whole_video: int
    """Rows without a time."""
    classes: tuple[ClassCounts, ...]
    rows_with_labels: dict[int, int]
    """How many rows have so many labels."""
    clips_with_actors: dict[int, int]
    """How many clips have so many rows."""
    together: Int[np.ndarray, "classes classes"]
    """Rows that have both classes; on the diagonal, rows that have the class."""

    @property
    def labels_per_row(self) -> float:
        """The mean number of labels of an actor at a key time."""
        return _mean(self.rows_with_labels)

    @property
    def actors_per_clip(self) -> float:
        """The mean number of rows of a clip."""
        return _mean(self.clips_with_actors)

    def pairs(self) -> list[ClassPair]:
        """The classes that come together at all, most frequent pair first."""
        names = [each.name for each in self.classes]
        alone = self.together.diagonal()
        found = [
            ClassPair(names[i], names[j], n, n / int(alone[i]), n / int(alone[j]))
            for i, j in combinations(range(len(names)), 2)
            if (n := int(self.together[i, j]))
        ]
        return sorted(found, key=lambda pair: -pair.num_rows)


def table_stats(table: ActorTable) -> TableStats:
    """What is in the table."""
    actor = _actors(table)
    first, clip = table.clips()
    return TableStats(
        num_rows=len(table),
        num_actors=len(np.unique(actor)),
        num_clips=len(first),
        num_videos=len(np.unique(table.video_index)),
        num_whole_frame=int((~table.has_box).sum()),
        num_whole_video=int((~table.has_time).sum()),
        classes=tuple(
            ClassCounts(
                name,
                int(has_class.sum()),
                len(np.unique(actor[has_class])),
                len(np.unique(table.video_index[has_class])),
            )
            for name, has_class in zip(table.classes, table.labels.T, strict=True)
        ),
        rows_with_labels=_histogram(table.labels.sum(axis=1)),
        clips_with_actors=_histogram(np.bincount(clip, minlength=len(first))),
        together=_together(table.labels),
    )


def write_stats(stats: TableStats, folder: Path) -> list[Path]:
    """The counts as files: `stats.json` with all of them, `classes.csv` and `pairs.csv` for a spreadsheet.

    Raises:
        AnnotationError: a file cannot be written.
    """
    return [
        write_whole(folder / "stats.json", lambda path: path.write_text(_json(stats), encoding="utf-8")),
        write_whole(folder / "classes.csv", lambda path: _write_csv(path, ClassCounts, stats.classes)),
        write_whole(folder / "pairs.csv", lambda path: _write_csv(path, ClassPair, stats.pairs())),
    ]


def _actors(table: ActorTable) -> Int[np.ndarray, " rows"]:
    """A number for the actor of each row."""
    numbers: dict[tuple[int, str | int], int] = {}
    rows = enumerate(zip(table.video_index.tolist(), table.actor_id, strict=True))
    keys = ((video, name or row) for row, (video, name) in rows)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _together(labels: Bool[np.ndarray, "rows classes"]) -> Int[np.ndarray, "classes classes"]:
    counts = np.zeros((labels.shape[1], labels.shape[1]))
    for begin in range(0, len(labels), _ROWS_AT_A_TIME):
        part = labels[begin : begin + _ROWS_AT_A_TIME].astype(
            np.float32
        )  # exact: at most 2^16 ones are added
        counts += part.T @ part
    return counts.astype(np.int64)


def _histogram(counts: Int[np.ndarray, " things"]) -> dict[int, int]:
    values, how_many = np.unique(counts, return_counts=True)
    return dict(zip(values.tolist(), how_many.tolist(), strict=True))


def _mean(histogram: dict[int, int]) -> float:
    total = sum(histogram.values())
    return sum(value * count for value, count in histogram.items()) / total if total else 0.0


def _json(stats: TableStats) -> str:
    counts = {name: value for name, value in vars(stats).items() if name not in ("classes", "together")}
    counts |= {"labels_per_row": stats.labels_per_row, "actors_per_clip": stats.actors_per_clip}
    counts["classes"] = [vars(each) for each in stats.classes]
    counts["pairs"] = [vars(each) for each in stats.pairs()]
    return json.dumps(counts, indent=2, ensure_ascii=False) + "\n"


def _write_csv(
    path: Path, kind: type[ClassCounts | ClassPair], rows: Sequence[ClassCounts | ClassPair]
) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(kind))
        writer.writerows(vars(row).values() for row in rows)
