"""Results on disk: whole after a kill, the same after a resume, and everything that was promised."""

import errno
import os
import shutil

import numpy as np
import pytest
from tiny_bundles import MadeUpBoxes, grey_video, stays

from mule.core.errors import AnnotationError, FileError, MuleError
from mule.core.locks import FolderInUseError
from mule.video.encode import VideoWriter
from mule.video.reading import frames_at, video_facts
from mule.watching.engine.watch import Watcher, WatchSettings, open_watch
from mule.watching.outputs import moments_file
from mule.watching.outputs.moments_file import MomentsFile
from mule.watching.outputs.results import recorded, write_outputs

BOX = (0.1, 0.2, 0.4, 0.9)


def crosses(time_s):
    return (0.1 + 0.05 * time_s, 0.2, 0.5 + 0.05 * time_s, 0.9)


def length_s(path):
    duration_s = video_facts(path).duration_s
    assert duration_s is not None
    return float(duration_s)


def opened(path, bundle, **finder):
    boxes = MadeUpBoxes(crosses, stays((0.6, 0.1, 0.9, 0.9)), has_ball=True, links_between=True, **finder)
    return open_watch(path, bundle, detector=boxes, settings=WatchSettings(every_s=0.5))


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return grey_video(tmp_path_factory.mktemp("grey") / "grey.mp4", seconds=3.0)


@pytest.fixture(scope="module")
def whole(video, bundle, tmp_path_factory):
    """The file of a watch that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "result"
    assert len(list(recorded(opened(video, bundle), folder))) == 6
    return (folder / "moments.jsonl").read_bytes()


@pytest.mark.parametrize("num_seen", [1, 2, 5, 6])
def test_a_resumed_watch_writes_the_same_file(video, bundle, whole, tmp_path, num_seen):
    moments = recorded(opened(video, bundle), tmp_path / "r")
    for _ in range(num_seen):
        next(moments)
    moments.close()
    list(recorded(opened(video, bundle), tmp_path / "r", resumes=True))
    assert (tmp_path / "r" / "moments.jsonl").read_bytes() == whole


def test_a_folder_that_is_removed_while_it_is_written_ends_in_one_sentence(video, bundle, tmp_path):
    moments = recorded(opened(video, bundle), tmp_path / "r")
    next(moments)
    shutil.rmtree(tmp_path / "r")
    with pytest.raises(FileError, match=r"r: must exist as long as the video is watched; it was removed"):
        list(moments)
    assert not (tmp_path / "r").exists()


def test_a_header_that_does_not_fit_on_the_disk_is_not_left_half_written(
    video, bundle, tmp_path, monkeypatch
):
    def full(file, record):
        file.write(record.model_dump_json().encode()[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(moments_file, "_append", full)
        with pytest.raises(FileError, match="cannot be written: no space left"):
            list(recorded(opened(video, bundle), tmp_path / "r"))
    list(recorded(opened(video, bundle), tmp_path / "r"))


@pytest.mark.parametrize("cut", [1, 40])
def test_a_line_that_was_cut_off_is_watched_again(video, bundle, whole, tmp_path, cut):
    """What a kill leaves: the state after a moment is on the disk, the moment's line is not whole."""
    moments = recorded(opened(video, bundle), tmp_path / "r")
    for _ in range(3):
        next(moments)
    moments.close()
    path = tmp_path / "r" / "moments.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(list(MomentsFile(path))) == 2
    list(recorded(opened(video, bundle), tmp_path / "r", resumes=True))
    assert path.read_bytes() == whole


def test_moments_are_on_the_disk_when_they_are_handed_out(video, bundle, tmp_path):
    moments = recorded(opened(video, bundle), tmp_path / "r")
    assert not (tmp_path / "r").exists()
    for count in range(1, 4):
        moment = next(moments)
        assert list(MomentsFile(tmp_path / "r" / "moments.jsonl"))[-1] == moment
        assert len(list(MomentsFile(tmp_path / "r" / "moments.jsonl"))) == count
    moments.close()


def test_a_result_is_not_overwritten_nor_another_resumed(video, bundle, tmp_path):
    next(moments := recorded(opened(video, bundle), tmp_path / "r"))
    moments.close()
    with pytest.raises(MuleError, match="must not hold a result yet"):
        next(recorded(opened(video, bundle), tmp_path / "r"))
    other = open_watch(video, bundle, detector=MadeUpBoxes(), settings=WatchSettings(every_s=0.25))
    with pytest.raises(AnnotationError, match="every_s differ"):
        next(recorded(other, tmp_path / "r", resumes=True))
    for state in (tmp_path / "r").glob("resume.*"):
        state.unlink()
    with pytest.raises(AnnotationError, match="the state after the last moment"):
        next(recorded(opened(video, bundle), tmp_path / "r", resumes=True))


def test_two_watches_do_not_write_one_result(video, bundle, whole, tmp_path):
    first = recorded(opened(video, bundle), tmp_path / "r")
    next(first)
    for resumes in (False, True):
        with pytest.raises(
            FolderInUseError, match=r"r: only one process may write here at a time; process \d+ on"
        ):
            next(recorded(opened(video, bundle), tmp_path / "r", resumes=resumes))
    list(first)
    assert (tmp_path / "r" / "moments.jsonl").read_bytes() == whole


def test_unfinished_files_of_a_killed_watch_are_removed_by_the_next(video, bundle, tmp_path):
    next(moments := recorded(opened(video, bundle), tmp_path / "r"))
    moments.close()
    left = tmp_path / "r" / ".4711.annotated.mp4"
    left.write_bytes(b"half a video")
    list(recorded(opened(video, bundle), tmp_path / "r", resumes=True))
    assert not left.exists()


def test_nothing_is_written_over_files_of_somebody_else(bundle, tmp_path):
    video = grey_video(tmp_path / "annotated.mp4", seconds=0.5)
    before = video.read_bytes()
    for resumes in (False, True):
        with pytest.raises(MuleError, match=r"that a result would replace; it has annotated\.mp4"):
            next(recorded(opened(video, bundle), tmp_path, resumes=resumes))
    assert [path.name for path in tmp_path.iterdir()] == ["annotated.mp4"]
    assert video.read_bytes() == before


def test_a_folder_that_is_a_file_is_refused(video, bundle, tmp_path):
    (tmp_path / "r").write_text("mine")
    with pytest.raises(FileError, match="cannot be written: file exists"):
        next(recorded(opened(video, bundle), tmp_path / "r"))
    assert (tmp_path / "r").read_text() == "mine"


def test_nothing_is_written_where_the_first_moment_fails(video, bundle, tmp_path):
    failing = opened(video, bundle, fails_at_s=0.0, error=MuleError("no."))
    with pytest.raises(MuleError, match="no"):
        list(recorded(failing, tmp_path / "r"))
    assert not (tmp_path / "r").exists()


def test_all_files_are_made_of_what_was_seen(video, bundle, tmp_path):
    folder = tmp_path / "r"
    watching = opened(video, bundle)
    moments = recorded(watching, folder)
    for _ in range(3):
        next(moments)
    moments.close()
    summary = write_outputs(folder, watching.source, exports=("coco", "viame", "cvat"))
    names = {path.name for path in folder.iterdir()}
    assert names >= {"moments.jsonl", "ava.csv", "ava.pbtxt", "annotated.mp4", "report.html", "summary.txt"}
    assert names >= {"coco.json", "viame.csv", "cvat.xml"}
    assert not any(name.startswith(".") for name in names)
    assert summary.num_moments == 3
    assert length_s(folder / "annotated.mp4") == pytest.approx(1.5, abs=0.13)


def test_of_a_live_source_key_frames_are_kept(tmp_path, bundle):
    path = grey_video(tmp_path / "live.mp4", seconds=1.0)
    watching = open_watch(
        path, bundle, detector=MadeUpBoxes(stays(BOX)), settings=WatchSettings(every_s=0.25, is_live=True)
    )
    seen = list(recorded(watching, tmp_path / "r"))
    kept = tmp_path / "r" / "keyframes.mp4"
    assert video_facts(kept).frame_rate == 4
    assert length_s(kept) == pytest.approx(seen[-1].key_time_s + 0.25, abs=0.01)
    write_outputs(tmp_path / "r", watching.source)
    assert (tmp_path / "r" / "annotated.mp4").exists()


def opened_live(path, bundle):
    settings = WatchSettings(every_s=0.25, is_live=True)
    return open_watch(path, bundle, detector=MadeUpBoxes(stays(BOX)), settings=settings)


def test_key_frames_that_were_kept_before_stay_when_a_live_watch_is_resumed(tmp_path, bundle):
    path = tmp_path / "dawn.mp4"
    with VideoWriter(path, (64, 96), 8) as dawn:
        dawn.write(np.repeat(np.linspace(40, 200, 12, dtype=np.uint8), 64 * 96 * 3).reshape(12, 64, 96, 3))
    moments = recorded(opened_live(path, bundle), tmp_path / "r")
    first = [next(moments), next(moments)]
    moments.close()
    last = list(recorded(opened_live(path, bundle), tmp_path / "r", resumes=True))
    times_s = [moment.key_time_s for moment in (*first, *last)]
    kept = frames_at(tmp_path / "r" / "keyframes.mp4", times_s).float().mean(dim=(1, 2, 3))
    shown = frames_at(path, times_s).float().mean(dim=(1, 2, 3))
    np.testing.assert_allclose(kept, shown, atol=2)


class ComesBackSmaller(Watcher):
    """A stream whose frames are half as large from the second key time on."""

    def __iter__(self):
        for number, moment in enumerate(super().__iter__()):
            if number and self.key_frame is not None:
                self.key_frame = self.key_frame[:, ::2, ::2]
            yield moment


def test_a_stream_that_comes_back_in_another_size_is_recorded_on(tmp_path, bundle):
    watching = opened_live(grey_video(tmp_path / "live.mp4", seconds=1.0), bundle)
    watching.__class__ = ComesBackSmaller
    seen = list(recorded(watching, tmp_path / "r"))
    assert len(seen) > 1
    assert length_s(tmp_path / "r" / "keyframes.mp4") == pytest.approx(seen[-1].key_time_s + 0.25, abs=0.01)
