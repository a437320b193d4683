"""Clips side by side: who stands beside whom, where boxes go, and which pixels are shown when."""

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from clock_videos import clock_frames, clock_video, frame_number
from hypothesis import given
from hypothesis import strategies as st
from small_tables import BOX, NAN, table_of

from mule.core.errors import RangeError, VideoError
from mule.data.batches.video_clips import find_videos
from mule.data.table.reading import read_actor_table
from mule.data.table.videos import VideoOnDisk, probe_videos
from mule.video.reading import frames_at, video_facts
from studies.compose.composites import Composite, Source, composite_table, draw_composites, sources_of
from studies.compose.videos import write_composites


def video(name="a", length_s: float | None = 4.0, rate=Fraction(10), size=(32, 48)):
    return VideoOnDisk(name, Path(f"{name}.mp4"), length_s, rate, *size)


def source(row=0, name="a", before: Fraction | int = 1, after: Fraction | int = 1, group=None, **facts):
    return Source(
        row, video(name, **facts), Fraction(before), Fraction(before), Fraction(after), group or name
    )


def test_no_rows_give_no_sources():
    found = sources_of(table_of([]), {})
    assert (found.usable, found.left_out) == ((), {})


def test_a_clip_of_one_actor_in_a_video_that_can_be_read_is_a_source_and_all_others_are_counted():
    rows = [
        (0, 1.0, BOX, [0], "x"),
        (0, 2.0, BOX, [0], "x"),
        (0, 2.0, BOX, [1], "y"),
        (0, 3.9, BOX, [1], "y"),
        (1, 1.0, None, [1], ""),
        (2, 1.0, None, [1], ""),
        (3, NAN, None, [0], ""),
        (4, 1.0, BOX, [0], ""),
    ]
    table = table_of(rows, videos=("a", "gone", "endless", "whole", "other"))
    there = {
        "a": video(),
        "endless": video("endless", None),
        "whole": video("whole", 3.0),
        "other": video("other"),
    }
    found = sources_of(table, there, only=["a", "gone", "endless", "whole"])
    assert [(each.row, each.key_time_s, each.before_s, each.after_s) for each in found.usable] == [
        (0, 1, 1, 3),
        (6, 1.5, 1.5, 1.5),
    ]
    assert found.left_out == {
        "of several actors": 2,
        "with a key time within 0.25 s of an end": 1,
        "of videos that are missing or cannot be read": 1,
        "of videos that do not state their length": 1,
        "of videos that are not in --only": 1,
    }


def test_a_greatest_length_is_shared_between_before_and_after():
    found = sources_of(table_of([(0, 1.0, BOX, [0], "x")]), {"a": video()}, max_length_s=2.4)
    assert [(each.before_s, each.after_s) for each in found.usable] == [(1, Fraction(6, 5))]


def test_videos_to_be_used_must_be_in_the_table_and_have_groups_where_there_are_any():
    table = table_of([(0, 1.0, BOX, [0], "x")])
    with pytest.raises(RangeError, match="'c' are not"):
        sources_of(table, {}, only=["a", "c"])
    with pytest.raises(RangeError, match="'b' have none"):
        sources_of(table, {}, group_of={"a": "film"})


@given(
    names=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30),
    num_tiles=st.integers(2, 3),
    max_uses=st.integers(1, 3),
    seed=st.integers(0, 5),
)
def test_tiles_are_of_different_videos_and_no_clip_is_used_too_often_and_none_twice_alike(
    names, num_tiles, max_uses, seed
):
    sources = [source(row, name) for row, name in enumerate(names)]
    settings = {"num_tiles": num_tiles, "seed": seed, "max_uses": max_uses}
    if len(set(names)) < num_tiles:
        with pytest.raises(RangeError, match="give 0"):
            draw_composites(sources, **settings)
        return
    composites = draw_composites(sources, **settings)
    assert composites == draw_composites(sources, **settings)
    assert all(len({tile.video.name for tile in each.tiles}) == num_tiles for each in composites)
    uses = np.bincount([tile.row for each in composites for tile in each.tiles], minlength=len(names))
    assert uses.max() <= max_uses
    alike = [frozenset(tile.row for tile in each.tiles) for each in composites]
    assert len(set(alike)) == len(alike)
    if max_uses == 1:
        sizes = np.bincount([ord(name) - ord("a") for name in names])
        possible = [n for n in range(len(names)) if np.minimum(sizes, n).sum() >= n * num_tiles]
        assert len(composites) == max(possible)


def test_another_seed_draws_others_and_fewer_are_the_first_ones():
    sources = [source(row, f"v{row}") for row in range(20)]
    drawn = [draw_composites(sources, num_tiles=2, seed=seed) for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    assert [len(each) for each in drawn] == [10, 10]
    fewer = draw_composites(sources, num_tiles=2, seed=0, num_composites=3)
    assert [each.tiles for each in fewer] == [each.tiles for each in drawn[0][:3]]


def test_tiles_of_one_group_do_not_stand_together():
    sources = [source(row, f"v{row}", group="film" if row < 4 else f"g{row}") for row in range(6)]
    composites = draw_composites(sources, num_tiles=2, seed=0)
    assert all(len({tile.group for tile in each.tiles}) == 2 for each in composites)


def test_more_composites_than_there_can_be_are_an_error_that_says_how_many_there_can_be():
    sources = [source(row, f"v{row}") for row in range(5)]
    with pytest.raises(RangeError, match=r"3 composites of 2 tiles .* 5 clips give 2"):
        draw_composites(sources, num_tiles=2, seed=0, num_composites=3)
    assert len(draw_composites(sources, num_tiles=2, seed=0, num_composites=3, max_uses=2)) == 3


def test_a_composite_is_as_long_as_every_tile_goes_at_the_rate_of_the_first():
    composite = Composite(
        "c.mp4", (source(0, "a", 1, 2), source(1, "b", 3, Fraction(1, 2), rate=Fraction(25)))
    )
    assert (composite.key_time_s, composite.length_s, composite.num_frames) == (1, Fraction(3, 2), 15)


def test_tiles_have_the_height_of_the_lowest_and_keep_their_shape():
    tiles = (source(0, "a", size=(48, 64)), source(1, "b", size=(33, 44)), source(2, "c", size=(64, 36)))
    assert Composite("c.mp4", tiles).tile_sizes == ((32, 42), (32, 42), (32, 18))


def test_boxes_move_into_their_tile_and_labels_stay_with_their_actor():
    table = table_of([(0, 1.0, BOX, [0], "x"), (1, 1.0, None, [1], "y")])
    composite = Composite("c.mp4", (source(1, "b", size=(32, 96)), source(0, "a", before=2, size=(32, 32))))
    made = composite_table(table, [composite])
    assert made.video_names == ["c.mp4", "c.mp4"]
    assert made.time_s.tolist() == [1.0, 1.0]
    assert made.actor_id == ("1", "2")
    assert [made.action_names(row) for row in range(2)] == [("walk",), ("sit",)]
    np.testing.assert_allclose(
        made.boxes_xyxy_unit,
        [[0, 0, 0.75, 1], [0.75 + 0.25 * BOX[0], BOX[1], 0.75 + 0.25 * BOX[2], BOX[3]]],
    )
    assert len(composite_table(table, [])) == 0


@pytest.fixture
def scene(tmp_path):
    """Three videos of different rates, sizes and levels, one of them a folder of frames, and a row for each."""
    folder = tmp_path / "videos"
    clock_video(folder / "slow.mp4", 20, rate=10, level=60)
    clock_video(folder / "fast.mp4", 45, rate=20, size=(64, 64), level=140)
    clock_frames(folder / "frames", 15, level=220)
    table = table_of(
        [(0, 1.0, BOX, [0], "x"), (1, 0.8, None, [1], ""), (2, NAN, None, [0, 1], "")],
        videos=("slow", "fast", "frames"),
    )
    probed = probe_videos(find_videos(table.videos, folder).paths, image_rate=Fraction(10))
    return table, probed.readable


def composite_of(scene, *names):
    table, readable = scene
    by_name = {each.video.name: each for each in sources_of(table, readable).usable}
    return Composite("c.mp4", tuple(by_name[name] for name in names))


@pytest.mark.parametrize("names", [("slow", "fast"), ("fast", "slow"), ("frames", "slow", "fast")])
def test_each_tile_shows_its_own_video_with_key_times_together(scene, tmp_path, names):
    composite = composite_of(scene, *names)
    out = tmp_path / "out"
    assert write_composites(scene[0], [composite], out) == {}
    path = out / "videos" / "c.mp4"
    facts = video_facts(path)
    assert facts.frame_rate == composite.frame_rate
    assert (facts.rows, facts.cols) == (32, sum(cols for _, cols in composite.tile_sizes))
    assert float(facts.duration_s or 0) == pytest.approx(
        composite.num_frames / composite.frame_rate, abs=1e-3
    )
    times = [number / composite.frame_rate for number in range(composite.num_frames)]
    frames = frames_at(path, times).permute(0, 2, 3, 1).numpy()
    left = 0
    for tile, (_, cols) in zip(composite.tiles, composite.tile_sizes, strict=True):
        shown = frames[:, :, left : left + cols]
        level = {"slow": 60, "fast": 140, "frames": 220}[tile.video.name]
        np.testing.assert_allclose(shown[:, 4:12, 2:-2].mean(axis=(1, 2, 3)), level, atol=4)
        first = tile.video.name == "frames"  # its images are numbered from 1
        for time_s, image in zip(times, shown, strict=True):
            own_s = tile.key_time_s - composite.key_time_s + time_s
            expected = int((own_s + Fraction(1, 2000)) * tile.video.frame_rate) + first
            assert frame_number(image[:, 2:-2]) == pytest.approx(expected, abs=0.45)
        left += cols


def test_a_data_set_of_composites_reads_back_and_names_its_sources(scene, tmp_path):
    composite = composite_of(scene, "slow", "frames")
    write_composites(scene[0], [composite], tmp_path / "out")
    found = probe_videos(find_videos(["c.mp4"], tmp_path / "out" / "videos").paths)
    table = read_actor_table(tmp_path / "out" / "labels.csv", video_ends_s=lambda _: found.ends_s)
    assert len(table) == 2
    with (tmp_path / "out" / "sources.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["composite"], row["tile"], row["source_video"], row["source_row"]) for row in rows] == [
        ("c.mp4", "1", "slow", "1"),
        ("c.mp4", "2", "frames", "3"),
    ]
    assert [float(row["source_time_s"]) for row in rows] == [1.0, 0.75]
    with pytest.raises(VideoError, match="must be a new or empty folder"):
        write_composites(scene[0], [composite], tmp_path / "out")


def test_the_same_composites_are_the_same_bytes(scene, tmp_path):
    composite = composite_of(scene, "slow", "fast")
    for name in ("one", "two"):
        write_composites(scene[0], [composite], tmp_path / name)
    for file in ("videos/c.mp4", "labels.csv", "sources.csv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_video_that_ends_too_early_spoils_its_composite_and_no_other(scene, tmp_path):
    table, readable = scene
    slow = readable["slow"]
    longer = VideoOnDisk(slow.name, slow.path, 3.0, slow.frame_rate, slow.rows, slow.cols)
    tiles = (
        Source(0, longer, Fraction(1), Fraction(1), Fraction(2), "slow"),
        Source(1, readable["fast"], Fraction(1, 5), Fraction(1, 5), Fraction(2), "fast"),
    )
    spoilt, sound = Composite("spoilt.mp4", tiles), composite_of(scene, "slow", "frames")
    told = []
    failed = write_composites(
        table, [spoilt, sound], tmp_path / "out", on_progress=lambda *counts: told.append(counts)
    )
    assert "slow.mp4: must last at least" in failed["spoilt.mp4"]
    assert [path.name for path in (tmp_path / "out" / "videos").iterdir()] == ["c.mp4"]
    assert read_actor_table(tmp_path / "out" / "labels.csv").videos == ("c.mp4",)
    assert told == [(1, 2), (2, 2)]


def test_real_clips_stand_side_by_side(shared_data, tmp_path):
    folder = shared_data / "videos" / "jhmdb" / "videos"
    names = tuple(sorted(str(path.relative_to(folder)) for path in folder.glob("[cg]*/*_0.mp4")))[:4]
    table = table_of([(at, 0.5, BOX, [0], "") for at in range(4)], videos=names)
    sources = sources_of(table, probe_videos(find_videos(names, folder).paths).readable)
    composites = draw_composites(sources.usable, num_tiles=2, seed=0, num_composites=1)
    assert write_composites(table, composites, tmp_path / "out") == {}
    (composite,) = composites
    shown = frames_at(tmp_path / "out" / "videos" / composite.name, [composite.key_time_s])[0].float()
    for tile, part in zip(
        composite.tiles, shown.split([cols for _, cols in composite.tile_sizes], dim=2), strict=True
    ):
        own = frames_at(tile.video.path, [tile.key_time_s])[0].float()
        assert (own - part).abs().mean() < 4
