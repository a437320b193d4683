"""Find the table, the videos and their films in a folder of one's own."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mule.core.errors import AnnotationError
from mule.data.table.table import REQUIRED_ACTOR_COLUMNS

TABLE, VIDEOS, FILMS = "actors.csv", "videos", "videos.csv"
FILM_COLUMNS = ("film", "group")


@dataclass(frozen=True)
class OwnFolder:
    """What a folder of one's own videos holds."""

    table: Path
    videos: Path
    groups: Mapping[str, str]
    """The film of each video, where the folder states it."""


def own_folder(folder: Path) -> OwnFolder:
    """Find the table, the videos and their films in a folder.

    The table is the one .csv or .parquet file with the columns `video` and `actions`, or `actors.csv` if there are several.
    The videos are in `videos/`, or in the folder itself. `videos.csv` may state a `film` for each video.

    Raises:
        AnnotationError: there is no such folder, no such table, or several.
    """
    if not folder.is_dir():
        raise AnnotationError(f"{folder}: must be a folder with videos and a table; there is no such folder.")
    tables = [path for path in sorted(folder.iterdir()) if _is_table(path)]
    named = [path for path in tables if path.name == TABLE]
    if len(named or tables) != 1:
        found = (
            f"it has {len(tables)} ({', '.join(path.name for path in tables)})" if tables else "it has none"
        )
        raise AnnotationError(
            f"{folder}: must hold one table with the columns {' and '.join(REQUIRED_ACTOR_COLUMNS)}, .csv or .parquet; {found}. "
            f"Call the one to use {TABLE}."
        )
    videos = folder / VIDEOS
    return OwnFolder((named or tables)[0], videos if videos.is_dir() else folder, _films(folder / FILMS))


def _is_table(path: Path) -> bool:
    if path.suffix.lower() == ".parquet":
        return True
    return path.suffix.lower() == ".csv" and set(REQUIRED_ACTOR_COLUMNS) <= set(_header(path))


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _films(path: Path) -> dict[str, str]:
    column = next((name for name in FILM_COLUMNS if name in _header(path)), None)
    if column is None:
        return {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        return {row["video"]: row[column] for row in rows if row.get("video") and row.get(column)}
