"""Frames in memory as a source, results on disk from Python, and moments as plain data."""

import builtins

import numpy as np
import pandas
import pytest
import torch
from tiny_bundles import SIZE, MadeUpBoxes, grey_video, leaves, stays

import mule
from mule.core.errors import MuleError, RangeError, ShapeError, VideoError
from mule.video.arrays import frame_stream
from mule.video.reading import frames_at
from mule.watching.exchange import moments_to_pandas
from mule.watching.moments import Moment
from mule.watching.watch import watch

LEFT, RIGHT = (0.05, 0.2, 0.4, 0.9), (0.55, 0.2, 0.95, 0.9)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return grey_video(tmp_path_factory.mktemp("frames") / "grey.mp4", seconds=3.0)


@pytest.fixture(scope="module")
def frames(video):
    """The frames of the video as the decoder gives them: 8 per second."""
    return frames_at(video, [number / 8 for number in range(24)]).permute(0, 2, 3, 1).numpy()


def people():
    return MadeUpBoxes(stays(LEFT), leaves(RIGHT, 1.5), has_ball=True)


def actors(moments):
    return [(moment.key_time_s, moment.actors) for moment in moments]


def test_frames_in_memory_give_the_moments_of_the_file_they_come_from(video, frames, bundle):
    """Up to the last clip, which a file moves inwards because it knows where it ends."""
    of_file = actors(watch(video, model=bundle, detector=people()))
    assert len(of_file) == 3
    pairs = (
        (100.0 + number / 8, frame) for number, frame in enumerate(frames)
    )  # a clock that started long ago
    tensors = [torch.from_numpy(frame).permute(2, 0, 1) for frame in frames]
    for source, rate in ((pairs, None), (list(frames), 8), (tensors, 8.0)):
        of_frames = actors(watch(source, model=bundle, detector=people(), rate=rate))
        assert [time_s for time_s, _ in of_frames] == [0, 1, 2]
        assert of_frames[:2] == of_file[:2]


def test_frames_that_are_no_pictures_are_refused(bundle):
    good = np.zeros((*SIZE, 3), np.uint8)
    with pytest.raises(VideoError, match="has none"):
        watch([], model=bundle, rate=8)
    with pytest.raises(RangeError, match=r"\(time_s, frame\) pairs, or with rate="):
        watch([good], model=bundle)
    with pytest.raises(RangeError, match="rate must be above 0"):
        watch([good], model=bundle, rate=0)
    with pytest.raises(RangeError, match="times must rise"):
        watch([(1.0, good), (1.0, good)], model=bundle)
    with pytest.raises(ShapeError, match=r"frame 0: .* got float64"):
        watch([good / 2], model=bundle, rate=8)
    with pytest.raises(ShapeError, match=r"frame 2: .* got str"):
        list(watch([good, good, "frame"], model=bundle, rate=8, detector=MadeUpBoxes()))
    with pytest.raises(RangeError, match="rate of its own"):
        watch("video.mp4", model=bundle, rate=8)


def test_a_frame_out_of_order_is_left_out_and_counted():
    picture = np.zeros((2, 2, 3), np.uint8)
    stream = frame_stream([(time_s, picture) for time_s in (0.0, 0.5, 0.25, 1.0)])
    report = mule.video.sources.DecodeReport()
    with mule.video.reading.open_frames(stream, report) as opened:
        times = [float(each.time_s) for each in iter(opened.next_picture, None)]
    assert times == [0.0, 0.5, 1.0]
    assert (report.num_out_of_order, report.num_decoded, report.end_s) == (1, 3, 1.5)


def test_results_are_written_from_python_and_a_result_is_resumed(frames, bundle, tmp_path):
    def seen(source, **more):
        return watch(source, model=bundle, detector=people(), rate=8, **more)

    whole = list(seen(list(frames), out=tmp_path / "whole"))
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {"moments.jsonl", "report.html", "annotated.mp4", "summary.txt", "keyframes.mp4"} <= names
    stopped = seen(list(frames), out=tmp_path / "r")
    first = next(stopped)
    stopped.close()
    rest = list(seen(list(frames), out=tmp_path / "r", resume=True))
    assert [first, *rest] == whole
    moments = [(tmp_path / name / "moments.jsonl").read_bytes() for name in ("whole", "r")]
    assert moments[0] == moments[1]
    with pytest.raises(RangeError, match="give the folder as out"):
        seen(list(frames), resume=True)


def test_python_has_what_the_command_has(video, bundle):
    found = list(
        watch(video, model=bundle, detector=people(), looks=1, reasons=False, threshold=0.0, every_s=1)
    )
    assert {actor.num_looks for moment in found for actor in moment.actors} == {1}
    assert all(actor.reasons.contributor is None for moment in found for actor in moment.actors)
    assert any(actor.is_novel for moment in found for actor in moment.actors)
    live = list(watch(video, model=bundle, detector=people(), every_s=0.25, live=True))
    assert 1 <= len(live) <= 12


def test_moments_become_dictionaries_and_data_frames(video, bundle, monkeypatch):
    found = list(watch(video, model=bundle, detector=people(), min_probability=0.0))
    assert [Moment.model_validate(moment.to_dict()) for moment in found] == found
    table = moments_to_pandas(found)
    assert len(table) == sum(len(moment.actors) for moment in found) == 5
    pandas.testing.assert_frame_equal(
        pandas.concat([moment.to_pandas() for moment in found], ignore_index=True), table
    )
    first, actor = table.iloc[0], found[0].actors[0]
    assert (first.key_time_s, first.track_id, first.decision) == (0.0, actor.track_id, actor.decision)
    assert first.actions == [each.action for each in actor.so_far.actions]
    assert tuple(table[["x1", "y1", "x2", "y2"]].iloc[0]) == actor.box_xyxy_px
    assert list(moments_to_pandas([]).columns) == list(table.columns)
    importing = builtins.__import__

    def without_pandas(name, *more, **named):
        if name == "pandas":
            raise ImportError("no pandas")
        return importing(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(MuleError, match=r"pip install 'mule-actions\[pandas\]'"):
        found[0].to_pandas()


def test_completion_shows_our_names_only(video, bundle):
    moment = next(iter(watch(video, model=bundle, detector=people())))
    assert dir(moment) == [
        "actors",
        "cols",
        "key_time_s",
        "rows",
        "to_dict",
        "to_pandas",
        "to_supervision",
        "video",
    ]
    assert "is_novel" in dir(moment.actors[0])
    assert not {"copy", "json", "dict", "parse_obj", "model_dump"} & set(dir(moment.actors[0]))
