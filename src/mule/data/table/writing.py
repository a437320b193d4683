"""Write tables of actors and objects as CSV or Parquet, and join files. Names that could not be read back are refused."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from mule.core.errors import AnnotationError
from mule.core.files import write_file
from mule.core.text_rows import write_csv
from mule.data.convert.origin import keep_origin, read_origin
from mule.data.table.reading import holds_objects, read_actor_table, read_object_table
from mule.data.table.table import (
    ACTION_SEPARATOR,
    ACTOR_COLUMNS,
    BOX_COLUMNS,
    OBJECT_COLUMNS,
    ActorTable,
    ObjectTable,
    joined_objects,
    joined_tables,
    pyarrow_modules,
    require_table_suffix,
    spelled_twice,
)

Columns = Mapping[str, Sequence[str] | Shaped[np.ndarray, " rows"]]


def write_actor_table(table: ActorTable, path: Path) -> None:
    """Write a table of actors to a `.csv` or `.parquet` file.

    Raises:
        AnnotationError: a name could not be read back.
        FileError: the file cannot be written.
    """
    _require_names(path, "a class", table.classes, also_without=ACTION_SEPARATOR)
    _require_one_spelling(path, "a class", table.classes)
    _require_names(path, "an actor_id", [name for name in set(table.actor_id) if name])
    last = (_action_texts(table), table.actor_id)
    _write(path, {**_places(path, table), **dict(zip(ACTOR_COLUMNS[-2:], last, strict=True))})


def write_object_table(table: ObjectTable, path: Path) -> None:
    """Write a table of objects to a `.csv` or `.parquet` file; errors as for actors."""
    _require_names(path, "an object class", table.classes)
    _require_one_spelling(path, "an object class", table.classes)
    last = ([table.classes[kind] for kind in table.class_index.tolist()], table.score)
    _write(path, {**_places(path, table), **dict(zip(OBJECT_COLUMNS[-2:], last, strict=True))})


def _places(path: Path, table: ActorTable | ObjectTable) -> dict[str, Sequence[str] | np.ndarray]:
    _require_names(path, "a video", table.videos)
    corners = dict(zip(BOX_COLUMNS, table.boxes_xyxy_unit.T, strict=True))
    videos = [table.videos[i] for i in table.video_index.tolist()]
    return {"video": videos, "time_s": table.time_s, **corners}


def _action_texts(table: ActorTable) -> list[str]:
    """Return the actions cell of each row; equal sets of labels are joined only once."""
    packed = np.packbits(table.labels, axis=1)
    texts: dict[bytes, str] = {}
    cells: list[str] = []
    for row, key in enumerate(packed[i].tobytes() for i in range(len(packed))):
        text = texts.get(key)
        if text is None:
            text = texts[key] = ACTION_SEPARATOR.join(table.action_names(row))
        cells.append(text)
    return cells


def _require_names(path: Path, what: str, names: Iterable[str], *, also_without: str = "") -> None:
    refused = [name for name in names if not _reads_back(name) or (also_without and also_without in name)]
    if refused:
        without = f"{also_without!r}, " if also_without else ""
        raise AnnotationError(
            f"{path}: the name of {what} must be text without {without}line breaks or spaces around it; "
            f"got {', '.join(map(repr, refused[:5]))}."
        )


def _require_one_spelling(path: Path, what: str, names: Sequence[str]) -> None:
    for earlier, name in spelled_twice(names)[:1]:
        raise AnnotationError(f"{path}: {what} must be spelled one way; got {earlier!r} and {name!r}.")


def _reads_back(name: str) -> bool:
    is_one_line = not any(character in name for character in "\n\r\0")
    is_unicode = name.encode("utf-8", errors="replace").decode() == name
    return bool(name) and name == name.strip() and is_one_line and is_unicode


def _write(path: Path, columns: Columns) -> None:
    require_table_suffix(path)
    if path.suffix.lower() == ".parquet":
        write_file(path, lambda growing: _write_parquet(growing, columns))
        return
    texts = [_number_texts(cells) if isinstance(cells, np.ndarray) else cells for cells in columns.values()]
    write_csv(path, columns, zip(*texts, strict=True))


def _write_parquet(path: Path, columns: Columns) -> None:
    """Write numbers as numbers; NaN becomes an empty cell."""
    arrow = pyarrow_modules()
    arrays = [
        arrow.array(cells, arrow.float64(), from_pandas=True)
        if isinstance(cells, np.ndarray)
        else arrow.array(cells, arrow.string())
        for cells in columns.values()
    ]
    arrow.parquet.write_table(arrow.table(arrays, names=list(columns)), path)


def _number_texts(numbers: Shaped[np.ndarray, " rows"]) -> list[str]:
    cells = np.asarray(numbers, dtype=np.float64).tolist()
    # repr is the shortest text that reads back as the same number
    return ["" if math.isnan(cell) else repr(cell) for cell in cells]


def join_files(tables: Sequence[Path], out: Path) -> int:
    """Write the rows of all tables, of actors or of objects, to one; return how many there are.

    Raises:
        AnnotationError: a table cannot be read, is of another kind than the first, or names a video of another one.
    """
    holds = [holds_objects(path) for path in tables]
    if len(set(holds)) > 1:
        other = tables[holds.index(not holds[0])]
        kinds = {True: "objects", False: "actors"}
        raise AnnotationError(
            f"{other}: tables must be of one kind to be joined; this one holds {kinds[not holds[0]]}, and {tables[0]} "
            f"holds {kinds[holds[0]]}."
        )
    if holds[0]:
        objects = [read_object_table(path) for path in tables]
        _require_own_videos(tables, objects)
        joined = joined_objects(objects)
        write_object_table(joined, out)
        return len(joined)
    actors = [read_actor_table(path, allow_unlabelled=True) for path in tables]
    _require_own_videos(tables, actors)
    table = joined_tables(actors)
    write_actor_table(table, out)
    if len({origin.model_dump_json() if origin else "" for origin in map(read_origin, tables)}) == 1:
        keep_origin(tables[0], out)
    return len(table)


def _require_own_videos(paths: Sequence[Path], tables: Sequence[ActorTable | ObjectTable]) -> None:
    """A video in two tables would be on two sides of a split, or have its rows twice."""
    path_of: dict[str, Path] = {}
    for path, table in zip(paths, tables, strict=True):
        for video in table.videos:
            first = path_of.setdefault(video, path)
            if first != path:
                raise AnnotationError(
                    f"{path}: a video must be in one of the tables; {video!r} is in {first} too. Remove its rows from one."
                )
