"""Composites inside the sides of a split: what stands together, and that the split goes on with it."""

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from clock_videos import clock_video
from made_tables import actors_of, split_of
from typer.testing import CliRunner

from mule.core.errors import RangeError
from mule.data.split.sides import apply_split
from mule.data.split.splits import SIDES, ClassSets, Rules, SideVideos, read_split, table_digest, write_split
from mule.data.table.reading import read_actor_table
from mule.data.table.videos import VideoOnDisk
from mule.data.table.writing import write_actor_table
from studies.compose.__main__ import app
from studies.compose.composites import composite_table, sources_of
from studies.compose.sides import Drawing, draw_in_sides, split_of_composites

CLASSES = ClassSets(("walk",), ("sit",), ("fly",), ("swim",))
ACTIONS = ("walk", "sit", "fly", "swim")


def made(num_videos=72, *, val=(40, 56)):
    """One actor per video, actions in turn; films of two videos; three sides."""
    names = [f"v{at:02d}" for at in range(num_videos)]
    table = actors_of([(name, ACTIONS[at % 4], 1.0, (0.1, 0.1, 0.5, 0.9)) for at, name in enumerate(names)])
    sides = SideVideos(tuple(names[: val[0]]), tuple(names[val[0] : val[1]]), tuple(names[val[1] :]))
    films = {name: f"film{at // 2}" for at, name in enumerate(names)}
    return table, split_of(table, CLASSES, sides, Rules(z1_at_test="known"), groups=films)


def sources(table, split):
    there = {name: VideoOnDisk(name, Path(f"{name}.mp4"), 2.0, Fraction(10), 32, 48) for name in table.videos}
    return sources_of(table, there, group_of=split.groups)


@pytest.mark.parametrize("num_tiles", [2, 3])
def test_tiles_of_a_composite_are_actors_that_one_side_uses_and_of_different_films(num_tiles):
    table, split = made()
    used = apply_split(table, split)
    drawn = draw_in_sides(sources(table, split), used, Drawing(num_tiles, seed=4))
    assert set(drawn) == set(SIDES)
    for side, composites in drawn.items():
        rows = set(getattr(used, side).rows.tolist())
        for each in composites:
            assert len(each.tiles) == num_tiles
            assert {tile.row for tile in each.tiles} <= rows
            assert len({split.groups[tile.video.name] for tile in each.tiles}) == num_tiles
        assert len(composites) >= len(rows) // num_tiles - 1
    names = [each.name for composites in drawn.values() for each in composites]
    assert len(set(names)) == len(names)
    assert drawn == draw_in_sides(sources(table, split), used, Drawing(num_tiles, seed=4))


def test_the_split_of_composites_makes_of_each_actor_what_the_split_makes_of_its_tile(tmp_path):
    table, split = made()
    used = apply_split(table, split)
    drawn = draw_in_sides(sources(table, split), used, Drawing(2))
    composites = [each for side in drawn.values() for each in side]
    write_actor_table(composite_table(table, composites), tmp_path / "labels.csv")
    composed = read_actor_table(tmp_path / "labels.csv")
    found = split_of_composites(split, composed, drawn, num_tiles=2)
    assert found.table_digest == table_digest(composed)
    assert (found.classes, found.seed, found.rules.z1_at_test) == (split.classes, split.seed, "known")
    again = apply_split(composed, found)
    tile_rows = [tile.row for each in composites for tile in each.tiles]
    for side in SIDES:
        theirs, ours = getattr(used, side), getattr(again, side)
        assert sorted(tile_rows[row] for row in ours.rows) == sorted(
            set(tile_rows) & set(theirs.rows.tolist())
        )
    novel = {
        row for row, is_novel in zip(used.test.rows.tolist(), used.test.is_novel, strict=True) if is_novel
    }
    for row, is_novel in zip(again.test.rows.tolist(), again.test.is_novel.tolist(), strict=True):
        assert is_novel == (tile_rows[row] in novel)
    assert any(len({row in novel for row in (t.row for t in each.tiles)}) == 2 for each in drawn["test"])


def test_a_side_with_too_few_actors_is_named_and_one_without_any_has_no_composites():
    table, split = made(val=(40, 41))
    used = apply_split(table, split)
    with pytest.raises(RangeError, match=r"the val side: some composites of 2 tiles .* 1 clips give 0"):
        draw_in_sides(sources(table, split), used, Drawing(2))
    table, split = made(val=(40, 40))
    assert set(draw_in_sides(sources(table, split), apply_split(table, split), Drawing(2))) == {
        "train",
        "test",
    }


def test_a_composite_that_could_not_be_made_is_on_no_side():
    table, split = made()
    drawn = draw_in_sides(sources(table, split), apply_split(table, split), Drawing(2))
    kept = [each for side in drawn.values() for each in side][1:]
    found = split_of_composites(split, composite_table(table, kept), drawn, num_tiles=2)
    assert drawn["train"][0].name not in found.videos.side_of()
    assert set(found.videos.side_of()) == {each.name for each in kept}


def test_the_command_writes_composites_and_their_split(tmp_path):
    names = [f"v{at}" for at in range(6)]
    for at, name in enumerate(names):
        clock_video(tmp_path / "videos" / f"{name}.mp4", level=60 + 25 * at)
    table = actors_of(
        [(name, ("walk", "sit")[at % 2], 1.0, (0.1, 0.1, 0.5, 0.9)) for at, name in enumerate(names)]
    )
    write_actor_table(table, tmp_path / "actors.csv")
    table = read_actor_table(tmp_path / "actors.csv")
    sides = SideVideos(tuple(names[:2]), tuple(names[2:4]), tuple(names[4:]))
    write_split(split_of(table, ClassSets(("walk",), ("sit",), (), ()), sides), tmp_path / "split.toml")
    place = ["--videos", str(tmp_path / "videos"), "--tiles", "2", "--split", str(tmp_path / "split.toml")]
    command = [str(tmp_path / "actors.csv"), *place, "--out", str(tmp_path / "tiles")]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code == 0, outcome.output
    assert "(1 train, 1 val, 1 test)" in " ".join(outcome.stdout.split())
    found = read_split(tmp_path / "tiles" / "split.toml")
    with (tmp_path / "tiles" / "sources.csv").open() as file:
        rows = list(csv.DictReader(file))
    side_of, tile_side_of = found.videos.side_of(), sides.side_of()
    assert [side_of[row["composite"]] for row in rows] == [tile_side_of[row["source_video"]] for row in rows]
    composed = apply_split(read_actor_table(tmp_path / "tiles" / "labels.csv"), found)
    assert [len(composed.train), len(composed.val), len(composed.test)] == [2, 2, 2]
    assert np.all(composed.train.actors.has_box)
    refused = CliRunner().invoke(app, [*command, "--clips", "1"])
    assert refused.exit_code == 2
