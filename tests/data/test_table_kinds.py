"""Parquet as other programs write it, and what may be written at all."""

import numpy as np
import pytest

from mule.core.errors import AnnotationError, FileError
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ACTOR_COLUMNS, ActorTable
from mule.data.table.writing import write_actor_table

pytest.importorskip("pyarrow")

HEADER = ",".join(ACTOR_COLUMNS)


def columns_of(tmp_path, **changed):
    """A Parquet file as other programs write it."""
    import pyarrow
    import pyarrow.parquet

    columns = {"video": ["a", "b"], "time_s": [1, 2], "x1": [0.1, None], "y1": [0.1, None], "x2": [0.5, None]}
    columns |= {"y2": [0.5, None], "actions": ["sit", "walk"], "actor_id": [1, 2]} | changed
    path = tmp_path / "foreign.parquet"
    pyarrow.parquet.write_table(pyarrow.table({k: v for k, v in columns.items() if v is not None}), path)
    return path


def test_parquet_of_other_programs_reads_numbers_of_any_kind(tmp_path):
    table = read_actor_table(
        columns_of(
            tmp_path, x1=np.array([0.1, 0.2], dtype=np.float32), y1=[0.1, 0.1], x2=[0.5, 0.5], y2=[0.5, 0.5]
        )
    )
    assert table.boxes_xyxy_unit[:, 0].tolist() == [0.1, 0.2]
    assert (table.actor_id, table.time_s.tolist()) == (("1", "2"), [1.0, 2.0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x1": [0.7, None]}, "row 1: a box must have"),
        ({"actions": ["sit", None]}, "row 2: actions must name at least one"),
        ({"time_s": [1.0, float("nan")]}, "row 2: time_s must be 0 or later"),
        ({"actions": None}, "must hold rows and the columns video, .* got 2 rows and video, time_s"),
        ({"actions": [["sit"], ["walk"]]}, "cells are text or numbers"),
    ],
)
def test_problems_of_parquet_are_named_by_row(tmp_path, changed, words):
    with pytest.raises(AnnotationError, match=words):
        read_actor_table(columns_of(tmp_path, **changed))


def test_what_is_no_parquet_is_an_error(tmp_path):
    path = tmp_path / "table.parquet"
    path.write_text(HEADER)
    with pytest.raises(AnnotationError, match="must be a Parquet file"):
        read_actor_table(path)


def small_table(**changed):
    columns = {
        "videos": ("film",),
        "classes": ("sit",),
        "video_index": np.zeros(1, dtype=np.int64),
        "time_s": np.zeros(1),
        "boxes_xyxy_unit": np.full((1, 4), np.nan),
        "labels": np.ones((1, 1), dtype=bool),
        "actor_id": ("",),
    }
    return ActorTable(**(columns | changed))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"classes": ("sit; down",)},
            "name of a class must be text without ';', line breaks .* got 'sit; down'",
        ),
        ({"classes": ("",)}, "name of a class"),
        ({"videos": (" film",)}, "name of a video must .* got ' film'"),
        ({"videos": ("a\nb",)}, "name of a video"),
        ({"videos": ("\ud800",)}, "name of a video"),
        ({"actor_id": ("x ",)}, "name of an actor_id"),
        (
            {"classes": ("sit down", "Sit-Down"), "labels": np.ones((1, 2), dtype=bool)},
            "a class must be spelled one way; got 'sit down' and 'Sit-Down'",
        ),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, changed, words):
    path = tmp_path / "out" / "table.csv"
    with pytest.raises(AnnotationError, match=words):
        write_actor_table(small_table(**changed), path)
    assert not path.exists()


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mule.core.text_rows.csv.writer", full)
    with pytest.raises(FileError, match=r"table\.csv: cannot be written: no space left"):
        write_actor_table(small_table(), path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]
