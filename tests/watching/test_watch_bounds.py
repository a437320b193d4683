"""Watching is bounded: gaps in time are skipped and reported, a crowd is judged in parts, and a limit is a sentence."""

import time
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from tiny_bundles import MadeUpBoxes, stays

from mule.core.errors import DetectorError
from mule.detection.detections import Detections
from mule.video.encode import VideoWriter
from mule.watching.engine import finding, recognising
from mule.watching.engine.bundle import read_bundle
from mule.watching.engine.finding import FoundBoxes
from mule.watching.engine.watch import WatchSettings, open_watch
from mule.watching.outputs.results import recorded, write_outputs

SAVED = Path(__file__).parents[1] / "saved" / "bundle"
LEFT = (0.05, 0.2, 0.4, 0.9)
TWO_HOURS, THIRTY_DAYS = 2 * 3600, 30 * 24 * 3600


@pytest.fixture(scope="module")
def bundle():
    return read_bundle(SAVED)


def gapped_video(path: Path, gap_s: int, *, rate: int = 8) -> Path:
    """Two seconds of frames, a jump in time, and two more seconds."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=rate)
        stream.pix_fmt = "yuvj420p"
        stream.height, stream.width = 48, 64
        for number in range(4 * rate):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 40 + number, np.uint8), format="rgb24")
            frame.pts = number + (gap_s * rate if number >= 2 * rate else 0)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("gap_s", [TWO_HOURS, THIRTY_DAYS])
@pytest.mark.parametrize("links", [False, True])
def test_a_jump_in_time_is_skipped_and_reported(tmp_path, bundle, gap_s, links):
    path = gapped_video(tmp_path / "gap.mkv", gap_s)
    finder = MadeUpBoxes(stays(LEFT), links_between=links)
    watching = open_watch(path, bundle, detector=finder, settings=WatchSettings(explains=False))
    began = time.process_time()
    times = [moment.key_time_s for moment in watching]
    assert times[0] == 0
    assert len(times) <= 8
    assert any(time_s > gap_s for time_s in times)
    assert all(time_s < 5 or time_s > gap_s - 5 for time_s in times)
    assert watching.report.num_gaps == 1
    assert watching.report.gaps_s > gap_s - 1
    assert f"gaps in time skipped: 1, {float(watching.report.gaps_s):g} s in all" in watching.report.summary()
    assert time.process_time() - began < 20


def test_frames_that_last_a_thousand_seconds_each_are_not_watched_second_by_second(tmp_path, bundle):
    take = Path(__file__).parents[1] / "saved" / "take" / "videos" / "clip_000000.mp4"
    content = bytearray(take.read_bytes())
    timescale = content.index(b"mdhd") + 16
    content[timescale : timescale + 4] = bytes(4)
    (tmp_path / "slow.mp4").write_bytes(content)
    settings = WatchSettings(explains=False)
    watching = open_watch(tmp_path / "slow.mp4", bundle, detector=MadeUpBoxes(), settings=settings)
    count = sum(1 for _ in watching)
    assert 1 <= count <= 4 * watching.report.num_decoded
    assert watching.report.num_gaps >= 1


def test_times_without_a_gap_are_all_watched(tmp_path, bundle):
    path = gapped_video(tmp_path / "whole.mp4", 50)
    watching = open_watch(path, bundle, detector=MadeUpBoxes(), settings=WatchSettings(every_s=5.0))
    assert [moment.key_time_s for moment in watching] == [5.0 * number for number in range(11)]
    assert watching.report.num_gaps == 0


def test_the_annotated_video_leaves_a_gap_where_the_source_has_one(tmp_path, bundle):
    path = gapped_video(tmp_path / "gap.mkv", TWO_HOURS)
    watching = open_watch(
        path, bundle, detector=MadeUpBoxes(stays(LEFT)), settings=WatchSettings(explains=False)
    )
    for _ in recorded(watching, tmp_path / "out"):
        pass
    write_outputs(tmp_path / "out", watching.source)
    with av.open(str(tmp_path / "out" / "annotated.mp4")) as video:
        times = [frame.time for frame in video.decode(video=0)]
    assert len(times) < 100
    assert max(times) == pytest.approx(TWO_HOURS + 3, abs=2)


def test_a_frame_may_stay_for_days_in_a_written_video(tmp_path):
    with VideoWriter(tmp_path / "a.mp4", (48, 64), 25) as video:
        for first in (0, 1, 25 * THIRTY_DAYS):
            video.write(np.zeros((1, 48, 64, 3), np.uint8), first=first)
    with av.open(str(tmp_path / "a.mp4")) as container:
        times = [frame.time for frame in container.decode(video=0)]
    assert times[:2] == [0, 0.04]
    assert times[-1] == THIRTY_DAYS
    assert len(times) < 24 * 30 + 5


class Crowd:
    class_names = ("person", "ball")
    actor_score = 0.5
    links_between = False

    def __init__(self, people):
        self.people = people

    def __call__(self, frame, *, key_time_s):
        del frame, key_time_s
        draw = torch.Generator().manual_seed(3)
        corner = torch.rand(self.people, 2, generator=draw) * 20
        boxes = torch.cat([corner, corner + 4 + torch.rand(self.people, 2, generator=draw) * 10], dim=1)
        kinds = torch.zeros(self.people, dtype=torch.int64)
        kinds[0] = 1
        return FoundBoxes(
            Detections(boxes, torch.full((self.people,), 0.9), kinds, torch.zeros_like(kinds), num_images=1)
        )


def test_a_crowd_judged_in_parts_is_judged_as_at_once(tmp_path, bundle, monkeypatch):
    path = gapped_video(tmp_path / "crowd.mp4", 0)
    seen = {}
    for at_once in (1, 20, 100_000):
        monkeypatch.setattr(recognising, "MOST_ACTORS_AT_ONCE", at_once)
        seen[at_once] = next(iter(open_watch(path, bundle, detector=Crowd(9))))
    for at_once in (1, 20):
        for part, whole in zip(seen[at_once].actors, seen[100_000].actors, strict=True):
            assert part.now == whole.now
            first, second = part.reasons.contributor, whole.reasons.contributor
            assert first is not None
            assert second is not None
            assert (first.kind, first.track_id) == (second.kind, second.track_id)
            assert first.share == pytest.approx(second.share, rel=1e-3)


def test_more_actors_than_the_limit_are_refused(tmp_path, bundle, monkeypatch):
    monkeypatch.setattr(finding, "MOST_ACTORS", 5)
    path = gapped_video(tmp_path / "crowd.mp4", 0)
    with pytest.raises(DetectorError, match="a moment must have at most 5 actors; at 0 s there are 8"):
        next(iter(open_watch(path, bundle, detector=Crowd(9))))


def test_frames_of_a_program_may_jump_too(bundle):
    from mule.watching.watch import watch

    def frames():
        for number in range(32):
            yield (
                number / 8 + (THIRTY_DAYS if number >= 16 else 0),
                np.full((48, 64, 3), number, np.uint8),
            )

    times = [
        moment.key_time_s for moment in watch(frames(), model=bundle, detector=MadeUpBoxes(), reasons=False)
    ]
    assert len(times) <= 8
    assert max(times) > THIRTY_DAYS
