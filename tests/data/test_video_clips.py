"""Clips of videos show the frames of their windows, with the actors, labels and objects of their rows."""

import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from made_video_tables import NAN, READING, SHAPE, video_table
from tiny_extraction import RATE, render, render_images

from mule.core.errors import RangeError, VideoError
from mule.data.batches.samples import ClipName, WholeView, sample_at
from mule.data.batches.video_clips import ClipObjects, ClipReading, VideoClips
from mule.data.table.table import ObjectTable
from mule.video.clips import ClipShape, clip_window, spread_windows
from mule.video.reading import read_clips


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    return {name: render(folder / f"{name}.mp4", 30, seed=seed) for seed, name in enumerate(("a", "b"))}


ROWS = [
    ("b", 1.0, [0.1, 0.2, 0.5, 0.9], ("run", "jump"), "p"),
    ("a", 2.0, [0.3, 0.3, 0.6, 0.7], ("sit",), "q"),
    ("b", 1.0, None, ("sit",), ""),
    ("b", 0.5, [0.0, 0.0, 1.0, 1.0], (), "r"),
]
WHOLE = [("a", NAN, None, ("run",), ""), ("b", NAN, None, ("sit", "jump"), "")]


def made_clips(videos, rows=ROWS, reading=READING, **more):
    return VideoClips(video_table(rows), videos, **({"classes": ("run", "sit"), "reading": reading} | more))


def frames_of(path, window):
    (clip,) = read_clips(path, [window])
    return clip.frames


def test_a_table_without_rows_is_a_data_set_without_clips():
    clips = made_clips({}, rows=[])
    labels, position = clips.labelled_actors()
    assert (len(clips), labels.shape, position.shape) == (0, (0, 2), (0,))


def test_a_clip_holds_the_frames_around_its_time_and_the_rows_of_its_table(videos):
    clips = made_clips(videos)
    assert [clips.name_of(i) for i in range(len(clips))] == [("b", 0.5), ("b", 1.0), ("a", 2.0)]
    sample = clips[1]
    assert torch.equal(sample.frames, frames_of(videos["b"], clip_window(1, SHAPE, RATE)))
    assert sample.actor_boxes_xyxy_unit.numpy() == pytest.approx(np.array([ROWS[0][2], [0, 0, 1, 1]]))
    assert sample.labels.tolist() == [[True, False], [False, True]]
    assert (sample.actor_ids, sample.name) == (("p", ""), ("b", 1.0))
    assert (sample.source_size, sample.num_damaged, len(sample.object_class)) == ((32, 48), 0, 0)
    assert clips.rows_of(1).tolist() == [0, 2]


def test_labels_and_positions_of_all_actors_need_no_pixels():
    clips = made_clips({"a": "not there.mp4", "b": "nor this.mp4"})
    labels, position = clips.labelled_actors()
    assert position.tolist() == [0, 1, 1, 2]
    assert labels.tolist() == [[False, False], [True, False], [False, True], [False, True]]


def test_a_nominal_rate_may_differ_from_the_file(videos):
    sample = made_clips(videos, reading=replace(READING, frame_rate=Fraction(5)))[1]
    assert torch.equal(sample.frames, frames_of(videos["b"], clip_window(1, SHAPE, 5)))


def test_scaled_while_decoding_a_clip_is_what_the_view_would_have_made_of_it(videos):
    view, generator = WholeView(short_side_px=20), torch.Generator()
    plain, scaled = (made_clips(videos, reading=replace(READING, short_side_px=px))[1] for px in (None, 20))
    assert scaled.frames.shape[2:] == (20, 30)
    assert scaled.source_size == (32, 48)
    assert torch.equal(view(scaled, generator).pixels, view(plain, generator).pixels)


def test_a_folder_of_images_is_a_video(tmp_path):
    folder = render_images(tmp_path / "images")
    sample = made_clips({"a": folder}, rows=[("a", 0.2, None, ("run",), "")])[0]
    assert torch.equal(sample.frames, frames_of(folder, clip_window(0.2, SHAPE, 30)))


def test_of_a_whole_video_testing_takes_views_that_cover_it(videos):
    clips = made_clips(videos, [*WHOLE, ROWS[1]], replace(READING, num_views=3))
    assert len(clips) == 7
    windows = spread_windows(30, 3, SHAPE, RATE)
    whole_of_b = [i for i in range(7) if clips.name_of(i).video == "b"]
    for position, window in zip(whole_of_b, windows, strict=True):
        sample = clips.drawn(position, torch.Generator())
        assert torch.equal(sample.frames, frames_of(videos["b"], window))
        assert sample.name == ("b", float(window.key_time_s))
        assert torch.equal(sample.frames, clips[position].frames)


def test_of_a_whole_video_training_draws_a_clip_inside_it_by_the_generator_alone(videos):
    clips = made_clips(videos, WHOLE)
    times = {sample_at(clips, 0, torch.Generator().manual_seed(seed)).name.key_time_s for seed in range(40)}
    starts = {round(time_s * RATE) - 4 for time_s in times}
    assert starts <= set(range(30 - 8 + 1))
    assert len(starts) > 12
    first, again = (clips.drawn(0, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.frames, again.frames)
    assert clips[0].name == ("a", float(spread_windows(30, 1, SHAPE, RATE)[0].key_time_s))


def test_a_video_shorter_than_the_clip_ends_with_its_last_frame(tmp_path):
    short = render(tmp_path / "short.mp4", 3)
    sample = made_clips({"a": short}, WHOLE[:1]).drawn(0, torch.Generator())
    expected = frames_of(short, clip_window(0.2, ClipShape(3, 1, 1), RATE))
    assert torch.equal(sample.frames[1:], sample.frames[1:2].expand_as(sample.frames[1:]))
    assert torch.equal(sample.frames[1], expected[-1])


def objects_table():
    times = [1.0, 1.0, 1.0, 1.0, 0.5, NAN]
    scores = [0.2, 0.9, 0.5, 0.9, 0.7, 0.3]
    boxes = np.array([[0.1 * i, 0.1, 0.1 * i + 0.2, 0.4] for i in range(6)])
    return ObjectTable(
        ("z", "b"),
        ("cup", "dog"),
        np.ones(6, int),
        np.array(times),
        boxes,
        np.arange(6) % 2,
        np.array(scores),
    )


def test_the_best_objects_at_the_key_time_come_first_and_no_more_than_asked_for(videos):
    clips = made_clips(videos, objects=ClipObjects(objects_table(), most=3))
    sample = clips[1]
    assert sample.object_scores.tolist() == pytest.approx([0.9, 0.9, 0.5])
    assert sample.object_boxes_xyxy_unit[:, 0].tolist() == pytest.approx([0.1, 0.3, 0.2])
    assert sample.object_class.tolist() == [1, 1, 0]
    assert [len(clips[i].object_class) for i in (0, 2)] == [1, 0]


def test_objects_of_a_whole_video_go_with_its_clips():
    objects = ClipObjects(objects_table())
    assert objects.at(ClipName("b", NAN))[2].tolist() == pytest.approx([0.3])
    assert objects.at(ClipName("b", 1.0004))[2].tolist() == pytest.approx([0.9, 0.9, 0.5, 0.2])
    assert len(objects.at(ClipName("z", 1.0))[2]) == len(objects.at(ClipName("new", 1.0))[2]) == 0


def test_a_data_set_travels_to_another_process(videos):
    clips = made_clips(videos, objects=ClipObjects(objects_table()))
    first, copy = clips[1], pickle.loads(pickle.dumps(clips))[1]
    assert torch.equal(first.frames, copy.frames)
    assert torch.equal(first.object_boxes_xyxy_unit, copy.object_boxes_xyxy_unit)


def test_videos_without_a_source_are_all_named_at_once():
    with pytest.raises(VideoError, match=r"2 of 2 have none: a, b\. Download them"):
        made_clips({})


def test_a_class_the_table_does_not_have_is_refused(videos):
    with pytest.raises(RangeError, match="'swim'"):
        made_clips(videos, classes=("run", "swim"))


def test_what_cannot_be_read_is_an_error_that_names_the_file(videos, tmp_path):
    (tmp_path / "rubbish.mp4").write_bytes(b"no video" * 100)
    for broken in ("missing.mp4", "rubbish.mp4"):
        with pytest.raises(VideoError, match=broken):
            made_clips(videos | {"b": tmp_path / broken})[0]
    with pytest.raises(
        VideoError, match=r"a\.mp4: a key time must lie before the end \(3 s\); the table has 9 s"
    ):
        made_clips(videos, rows=[("a", 9.0, None, ("run",), "")])[0]


def test_damage_on_the_way_to_a_clip_is_counted(tmp_path):
    path = render(tmp_path / "damaged.mp4", 60)
    held = bytearray(path.read_bytes())
    start = held.find(b"mdat")
    held[start + 1500 : start + 3000 : 7] = bytes(len(range(start + 1500, start + 3000, 7)))
    path.write_bytes(held)
    assert made_clips({"a": path}, rows=[("a", 3.0, None, ("run",), "")])[0].num_damaged > 0


def test_settings_out_of_range_are_refused():
    with pytest.raises(RangeError, match="num_views must be at least 1"):
        ClipReading(num_views=0)
    with pytest.raises(RangeError, match="num_crops must be at least 1"):
        ClipReading(num_crops=0)


def person_in_square(box, size, corner, side):
    """One box of a frame in fractions of a square, coordinate by coordinate; None where no pixel of it is seen."""
    low, high = [], []
    for axis in (0, 1):
        first, last = (box[axis + end] * size[axis] - corner[axis] for end in (0, 2))
        if min(last, side - 1) <= max(first, 0):
            return None
        low.append(max(first, 0) / side)
        high.append(min(last, side) / side)
    return low + high


@pytest.mark.parametrize("num_crops", [1, 2, 3, 4])
@pytest.mark.parametrize("is_tall", [False, True])
def test_each_view_of_a_whole_video_is_seen_in_squares_with_the_persons_in_them(tmp_path, num_crops, is_tall):
    rows, cols = (46, 32) if is_tall else (32, 46)
    path = render(tmp_path / "odd.mp4", 30, size=(rows, cols))
    people = [[0.0, 0.0, 0.2, 0.2], [0.4, 0.4, 0.6, 0.6], [0.85, 0.85, 1.0, 1.0], [0.0, 0.0, 0.01, 0.01]]
    zeros = np.zeros(4, dtype=np.int64)
    table = ObjectTable(("a",), ("person",), zeros, np.full(4, 0.3), np.array(people), zeros, np.ones(4))
    reading = replace(READING, num_views=2, num_crops=num_crops)
    clips = made_clips({"a": path}, WHOLE[:1], reading, persons=ClipObjects(table, most=9))
    windows = spread_windows(30, 2, SHAPE, RATE)
    assert len(clips) == 2 * num_crops
    position, counts = 0, []
    for window in windows:
        whole = frames_of(path, window)
        holds_persons = window is windows[0]  # the later one begins after them
        for number in range(num_crops):
            share = Fraction(1, 2) if num_crops == 1 else Fraction(number, num_crops - 1)
            start = math.ceil(share * 14)
            left, top = (0, start) if is_tall else (start, 0)
            sample = clips.drawn(position, torch.Generator())
            assert torch.equal(sample.frames, whole[:, :, top : top + 32, left : left + 32])
            assert sample.name == ("a", float(window.key_time_s))
            found = [person_in_square(box, (cols, rows), (left, top), 32) for box in people]
            seen = [box for box in found if box is not None and holds_persons] or [[0, 0, 1, 1]]
            counts.append(len(seen) if holds_persons else 0)
            np.testing.assert_allclose(sample.actor_boxes_xyxy_unit, seen, atol=1e-6)
            assert sample.labels.tolist() == [[True, False]] * len(seen)
            assert len(WholeView()(sample, torch.Generator()).actor_boxes_xyxy_px) == len(seen)
            position += 1
    assert max(counts) >= 1 + (num_crops > 1)


def test_clips_around_a_time_are_never_cut_to_squares(videos):
    clips = made_clips(videos, reading=replace(READING, num_crops=3))
    assert len(clips) == 3
    assert clips[1].frames.shape[2:] == (32, 48)


def persons_at(times, video="a"):
    """One person at each time; its left edge tells the time."""
    count = len(times)
    left = np.arange(count) / 100
    boxes = np.stack([left, left * 0, left + 0.5, left * 0 + 1], axis=1)
    zeros = np.zeros(count, dtype=np.int64)
    return ObjectTable((video, "b"), ("person",), zeros, np.array(times), boxes, zeros, np.ones(count))


@pytest.mark.parametrize("seed", range(4))
def test_the_persons_of_a_clip_are_those_of_the_nearest_frame_within_it(seed):
    draw = np.random.default_rng(seed)
    times = np.sort(draw.choice(np.arange(0, 3000, 7), 25, replace=False)) / 1000
    persons = ClipObjects(persons_at(times), most=9)
    for key in draw.random(40) * 3:
        window = clip_window(float(key), ClipShape(8, 1, num_slow_frames=2), Fraction(25))
        first, last = (round(float(time) * 1000) for time in (window.times_s[0], window.times_s[-1]))
        inside = [at for at, time in enumerate(times) if first <= round(time * 1000) <= last]
        boxes, *_ = persons.within("a", window)
        if not inside:
            assert len(boxes) == 0
            continue
        nearest = min(abs(times[at] - key) for at in inside)
        (found,) = (round(float(box[0]) * 100) for box in boxes)
        assert abs(times[found] - key) == pytest.approx(nearest, abs=1e-3)
        assert found in inside
    window = clip_window(1.0, ClipShape(8, 1, num_slow_frames=2), Fraction(25))
    assert len(persons.within("b", window)[0]) == len(persons.within("c", window)[0]) == 0


def test_in_a_clip_of_a_whole_video_its_persons_are_the_actors_or_the_frame(videos):
    views = replace(READING, num_views=2)
    clips = made_clips(videos, WHOLE, views, persons=ClipObjects(persons_at([1.0]), most=9))
    samples = [clips[at] for at in range(4)]
    with_person = [
        sample for sample in samples if tuple(sample.actor_boxes_xyxy_unit[0].tolist()) == (0, 0, 0.5, 1)
    ]
    assert {sample.name.video for sample in with_person} <= {"a"}
    for sample in samples:
        assert sample.labels.tolist() == ([[True, False]] if sample.name.video == "a" else [[False, True]])
    window = spread_windows(30, 2, SHAPE, RATE)
    holds = [float(each.times_s[0]) <= 1.0 <= float(each.times_s[-1]) for each in window]
    assert len(with_person) == sum(holds)
