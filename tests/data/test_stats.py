"""Counts of a table, against a slow loop over its rows; the files and the picture they become."""

import csv
import json
from itertools import combinations

import numpy as np
import pytest
from small_tables import BOX, NAN, table_of

from mule.core.errors import FileError, MuleError
from mule.data.table.stats import table_stats, write_stats

pytest.importorskip("matplotlib")


def random_table(seed, num_rows=60, num_classes=4):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num_rows):
        classes = np.flatnonzero(rng.random(num_classes) < 0.4).tolist()
        box, time_s = (BOX, float(rng.integers(3))) if rng.random() < 0.8 else (None, NAN)
        rows.append((int(rng.integers(3)), time_s, box, classes, "xyz"[rng.integers(3)] * rng.integers(2)))
    return table_of(rows, videos=("a", "b", "c"), classes=tuple(f"class {i}" for i in range(num_classes)))


def test_an_empty_table_counts_nothing():
    stats = table_stats(table_of([]))
    assert (stats.num_rows, stats.num_actors, stats.num_clips, stats.num_videos) == (0, 0, 0, 0)
    assert (stats.labels_per_row, stats.actors_per_clip, stats.pairs()) == (0, 0, [])
    assert [each.num_rows for each in stats.classes] == [0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_those_of_a_loop_over_the_rows(seed):
    table = random_table(seed)
    stats = table_stats(table)
    actors, clips = {}, {}
    for row in range(len(table)):
        video = table.video_names[row]
        actors.setdefault((video, table.actor_id[row] or row), set()).update(table.action_names(row))
        time_s = None if np.isnan(table.time_s[row]) else table.time_s[row]
        clips.setdefault((video, time_s), []).append(row)
    assert stats.num_actors == len(actors)
    assert stats.num_clips == len(clips)
    assert sum(n * k for k, n in stats.clips_with_actors.items()) == stats.num_rows == len(table)
    assert stats.actors_per_clip == pytest.approx(np.mean([len(rows) for rows in clips.values()]))
    assert stats.labels_per_row == pytest.approx(table.labels.sum() / len(table))
    assert stats.num_whole_video == sum(np.isnan(table.time_s))
    for at, each in enumerate(stats.classes):
        rows = [row for row in range(len(table)) if each.name in table.action_names(row)]
        assert each.num_rows == len(rows) == stats.together[at, at]
        assert each.num_videos == len({table.video_names[row] for row in rows})
        assert each.num_actors == sum(each.name in done for done in actors.values())


@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_the_rows_that_have_both(seed, monkeypatch):
    monkeypatch.setattr("mule.data.table.stats._ROWS_AT_A_TIME", 7)
    table = random_table(seed)
    expected = {}
    for row in range(len(table)):
        for pair in combinations(table.action_names(row), 2):
            expected[pair] = expected.get(pair, 0) + 1
    pairs = table_stats(table).pairs()
    assert {(pair.first, pair.second): pair.num_rows for pair in pairs} == expected
    assert [pair.num_rows for pair in pairs] == sorted(expected.values(), reverse=True)
    num_rows = {each.name: each.num_rows for each in table_stats(table).classes}
    assert all(pair.share_of_first == pair.num_rows / num_rows[pair.first] for pair in pairs)


def test_files_say_what_was_counted(tmp_path):
    stats = table_stats(random_table(0))
    paths = write_stats(stats, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["stats.json", "classes.csv", "pairs.csv"]
    whole = json.loads(paths[0].read_text())
    assert whole["num_rows"] == 60
    assert len(whole["classes"]) == 4
    with paths[1].open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["num_rows"]) for row in rows] == [each.num_rows for each in stats.classes]
    with paths[2].open() as file:
        assert len(list(csv.DictReader(file))) == len(stats.pairs())
    with pytest.raises(FileError, match="cannot be written"):
        write_stats(stats, paths[0])


@pytest.mark.parametrize("num_classes", [0, 1, 30])
def test_the_picture_has_a_line_for_each_class_and_no_text_hangs_over_the_edge(
    tmp_path, num_classes, monkeypatch
):
    from matplotlib.figure import Figure

    from mule.data.table.stats import draw_stats

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *a, **k: (drawn.append(figure), save(figure, *a, **k))
    )
    table = random_table(0, num_rows=300 * bool(num_classes), num_classes=num_classes)
    draw_stats(table_stats(table), tmp_path / "stats.png", title="a table")
    assert (tmp_path / "stats.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = drawn
    width, height = figure.bbox.size
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height
    lines = [
        len(axes.get_yticklabels())
        for axes in figure.axes
        if axes.get_title(loc="left").startswith("rows and videos")
    ]
    assert lines == ([num_classes] if num_classes else [])


def test_drawing_without_matplotlib_names_the_extra(tmp_path, monkeypatch):
    from mule.data.table.stats import draw_stats

    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MuleError, match=r"pip install 'mule-actions\[plots\]'"):
        draw_stats(table_stats(random_table(0)), tmp_path / "stats.png", title="a table")
