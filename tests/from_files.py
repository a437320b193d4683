"""What the tests of the converters share: files written as given, tables made row by row, and the command line."""

import numpy as np
import typer
from typer.testing import CliRunner

from mule.cli import data_from, main
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.data.table.writing import write_actor_table

NOWHERE = (np.nan,) * 4


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table_of(*rows):
    """A table from rows (video, time_s, box, actions, actor_id), by slow and obvious loops."""
    videos, classes = [], set()
    for video, _, _, actions, _ in rows:
        if video not in videos:
            videos.append(video)
        classes |= set(filter(None, actions.split(";")))
    ordered = sorted(classes)
    labels = [[name in actions.split(";") for name in ordered] for _, _, _, actions, _ in rows]
    return ActorTable(
        tuple(videos),
        tuple(ordered),
        np.array([videos.index(row[0]) for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.float64),
        np.array([row[2] for row in rows], dtype=np.float64).reshape(-1, 4),
        np.array(labels, dtype=bool).reshape(len(rows), len(ordered)),
        tuple(row[4] for row in rows),
    )


def assert_same(found, expected):
    assert (found.videos, found.classes, found.actor_id) == (
        expected.videos,
        expected.classes,
        expected.actor_id,
    )
    for name in ("video_index", "time_s", "labels"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_allclose(found.boxes_xyxy_unit, expected.boxes_xyxy_unit, rtol=0, atol=1e-12)


def assert_survives_the_file(table, folder, *, allow_unlabelled=False):
    write_actor_table(table, folder / "there_and_back.csv")
    assert_same(read_actor_table(folder / "there_and_back.csv", allow_unlabelled=allow_unlabelled), table)


def run(*arguments):
    app = typer.Typer(cls=main.app.info.cls)
    app.add_typer(data_from.app, name="data")
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env={"COLUMNS": "200"})


def assert_refused(outcome, words, out):
    """Exit code 2, the words on stderr without a traceback, and nothing written, whole or half."""
    assert outcome.exit_code == 2, outcome.output
    assert words in outcome.stderr
    assert "Traceback" not in outcome.output
    assert [path.name for path in out.parent.iterdir() if out.name in path.name] == []
