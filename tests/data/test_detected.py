"""Detected boxes as tables: what a slow loop finds, in any batches, also after an interruption; nothing left out in silence."""

import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from clock_videos import clock_frames, clock_video, frame_number
from made_tables import detections_of
from small_tables import BOX, NAN, table_of

from mule.core.errors import DetectorError, FileError, RangeError
from mule.data.convert.detected import detected_actors, detected_boxes, objects_in, persons_in
from mule.data.convert.detecting import ListedBoxes, SeenBoxes, boxes_in_video, key_times_by_video, read_boxes
from mule.data.convert.partial_boxes import PartialBoxes
from mule.data.table.videos import find_videos, probe_videos, videos_below
from mule.detection.detections import Detections, concatenate, no_detections, split_actors_and_objects
from mule.video.reading import frames_at

FRAME_PX = (32, 48)
TIMES = {"a": [0.0, 0.5, 0.65, 1.9], "b": [0.5], "c": [0.1, 1.0]}
WORK = {"--detector": "made up", "--score": "0.3"}


class ClockDetector:
    """Tells which frame it sees: a person as high as the frame's number, a faint person, and seven objects."""

    class_names = ("person", "cup", "dog")
    actor_score = 0.3

    def __init__(self):
        self.num_frames_by_call = []
        self.fails_at_call: int | None = None
        self.failure: BaseException = DetectorError("the detector broke.")

    def __call__(self, frames):
        self.num_frames_by_call.append(len(frames))
        if len(self.num_frames_by_call) == self.fails_at_call:
            raise self.failure
        return concatenate([self._one(frame) for frame in frames])

    def _one(self, frame):
        assert tuple(frame.shape) == (3, *FRAME_PX)
        if float(frame[:, 4:12].float().mean()) > 210:
            return no_detections(1)
        at = float(round(frame_number(frame.permute(1, 2, 0).numpy())))
        boxes = [[0.0, 0.0, 12.0, at + 1], [24.0, 8.0, 48.0, 32.0], [0.0, 0.0, 7.0, 9.0]]
        boxes += [[0.0, 0.0, 3.0 + kind, 4.0] for kind in range(7)]
        scores = torch.tensor([0.5, 0.9, 0.2, *(0.11 + 0.1 * kind for kind in range(7))])
        kinds = torch.tensor([0, 0, 0, 1, 2, 1, 2, 1, 2, 1])
        return Detections(torch.tensor(boxes), scores, kinds, torch.zeros(10).long(), 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for name, level in (("a", 60), ("b", 220), ("c", 100)):
        clock_video(folder / f"{name}.mp4", level=level)
    return folder


def opened(folder, names=tuple(TIMES)):
    return probe_videos(find_videos(names, folder).paths).readable


def by_hand(folder, times, *, actor_score=0.3, object_score=0.0):
    """Persons and objects from a loop over single frames: (video, time, class, score, box) each."""
    detector, persons, objects = ClockDetector(), [], []
    for video, times_s in times.items():
        for time_s in times_s:
            found = detector(frames_at(folder / f"{video}.mp4", [time_s]))
            for into, part in zip(
                (persons, objects), split_actors_and_objects(found, actor_score=actor_score), strict=True
            ):
                for kind, score, box in zip(part.class_index, part.scores, part.boxes_xyxy_px, strict=True):
                    unit = (box.double() / torch.tensor([48, 32, 48, 32])).tolist()
                    if int(kind) == 0 or float(score) >= object_score:
                        into.append((video, time_s, detector.class_names[int(kind)], float(score), unit))
    return persons, objects


def rows_of(table):
    return [
        (table.videos[video], time_s, table.classes[kind], score, box)
        for video, time_s, kind, score, box in zip(
            *(column.tolist() for column in (table.video_index, table.time_s, table.class_index)),
            table.score.tolist(),
            table.boxes_xyxy_unit.tolist(),
            strict=True,
        )
    ]


def searched(folder, tmp_path, detector, *, times=TIMES, batch_frames=3, work=WORK, **options):
    partial = PartialBoxes(tmp_path / "persons.csv.partial", work)
    finders = [SeenBoxes(detector, 0.3)]
    return detected_boxes(opened(folder), times, finders, partial, batch_frames=batch_frames, **options)


def test_the_tables_hold_what_a_loop_over_single_frames_finds(folder, tmp_path):
    found = searched(folder, tmp_path, ClockDetector()).videos
    persons, objects = by_hand(folder, TIMES)
    assert rows_of(persons_in(found)) == persons
    assert rows_of(objects_in(found)) == objects
    assert persons_in(found).videos == ("a", "c")
    assert persons_in(found).classes == ("person",)


@pytest.mark.parametrize("batch_frames", [2, 3, 100])
def test_a_batch_of_n_is_n_batches_of_one(folder, batch_frames):
    video = opened(folder)["a"]
    single, batched = ClockDetector(), ClockDetector()
    one = boxes_in_video(video, TIMES["a"], [SeenBoxes(single, 0.3)])
    many = boxes_in_video(video, TIMES["a"], [SeenBoxes(batched, 0.3)], batch_frames=batch_frames)
    assert single.num_frames_by_call == [1, 1, 1, 1]
    assert sum(batched.num_frames_by_call) == 4
    assert len(batched.num_frames_by_call) == -(-4 // batch_frames)
    assert rows_of(persons_in([one])) == rows_of(persons_in([many]))
    assert rows_of(objects_in([one])) == rows_of(objects_in([many]))


def test_regular_times_reach_the_end_of_the_video(folder):
    found = boxes_in_video(
        opened(folder)["a"], Fraction(1, 2), [SeenBoxes(ClockDetector(), 0.3)], batch_frames=3
    )
    assert found.times_s.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert found.after_end_s == ()


def test_key_times_after_the_end_are_kept_apart_and_empty_frames_are_known(folder, tmp_path):
    found = searched(folder, tmp_path, ClockDetector(), times={**TIMES, "c": [1.0, 2.0, 7.5]})
    assert found.after_end == [("c", 2.0), ("c", 7.5)]
    assert found.without_persons == [("b", 0.5)]
    assert found.num_frames == 6


@pytest.mark.parametrize("fails_at_call", [1, 2, 3, 4])
def test_interrupted_and_repeated_is_uninterrupted(folder, tmp_path, fails_at_call):
    whole = searched(folder, tmp_path / "whole", ClockDetector()).videos  # 2 + 1 + 1 calls
    broken, repeated = ClockDetector(), ClockDetector()
    broken.fails_at_call, broken.failure = fails_at_call, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        searched(folder, tmp_path, broken)
    found = searched(folder, tmp_path, repeated).videos
    assert rows_of(persons_in(found)) == rows_of(persons_in(whole))
    assert rows_of(objects_in(found)) == rows_of(objects_in(whole))
    num_finished = {1: 0, 2: 0, 3: 4, 4: 5}[fails_at_call]  # frames of videos that were finished
    assert sum(repeated.num_frames_by_call) == 7 - num_finished


@pytest.mark.parametrize(("fails_at_call", "video"), [(1, "a"), (2, "a"), (3, "b"), (4, "c")])
def test_a_video_at_which_the_detector_breaks_is_named_and_tried_again(
    folder, tmp_path, fails_at_call, video
):
    whole = searched(folder, tmp_path / "whole", ClockDetector()).videos
    broken, repeated = ClockDetector(), ClockDetector()
    broken.fails_at_call = fails_at_call
    found = searched(folder, tmp_path, broken)
    assert found.unreadable == {video: "the detector broke."}
    assert {each.video for each in found.videos} == set(TIMES) - {video}
    found = searched(folder, tmp_path, repeated).videos
    assert rows_of(persons_in(found)) == rows_of(persons_in(whole))
    assert rows_of(objects_in(found)) == rows_of(objects_in(whole))
    assert sum(repeated.num_frames_by_call) == len(TIMES[video])


def test_a_line_that_was_cut_off_is_looked_at_again(folder, tmp_path):
    whole = searched(folder, tmp_path, ClockDetector()).videos
    path = tmp_path / "persons.csv.partial"
    content = path.read_bytes()
    for length in range(0, len(content), 389):
        path.write_bytes(content[:length])
        found = searched(folder, tmp_path, ClockDetector()).videos
        assert rows_of(persons_in(found)) == rows_of(persons_in(whole))
        assert path.read_bytes() == content


def test_a_video_that_has_changed_is_looked_at_again(tmp_path):
    own = tmp_path / "videos"
    for name in TIMES:
        clock_video(own / f"{name}.mp4", level=60)
    searched(own, tmp_path, ClockDetector())
    clock_video(own / "c.mp4", level=220)
    partial = PartialBoxes(tmp_path / "persons.csv.partial", WORK)
    assert partial.finished(opened(own).values()) == (["a", "b"], ["c"])
    again = ClockDetector()
    assert persons_in(searched(own, tmp_path, again).videos).videos == ("a", "b")
    assert sum(again.num_frames_by_call) == len(TIMES["c"])


@pytest.mark.parametrize("name", WORK)
def test_other_options_than_those_of_the_partial_file_are_refused_by_name(folder, tmp_path, name):
    path, other = tmp_path / "persons.csv.partial", {**WORK, name: "other"}
    PartialBoxes(path, other)  # nothing is finished yet, so other options are welcome
    searched(folder, tmp_path, ClockDetector())
    content = path.read_bytes()
    with pytest.raises(
        FileError, match=rf"was begun with {name} .*; it is other now\. Repeat .* or delete the file"
    ):
        PartialBoxes(path, other)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"hello\n", b"{}\n{}\n", b'{"work": 3}\n{}\n', b"[1]\n2\n"])
def test_another_file_in_its_place_is_refused(tmp_path, content):
    (tmp_path / "p.partial").write_bytes(content)
    with pytest.raises(FileError, match=r"p\.partial: must hold boxes of finished videos; .*Delete it"):
        PartialBoxes(tmp_path / "p.partial", WORK)


def test_a_video_that_fails_in_the_middle_does_not_stop_the_others(folder, tmp_path):
    videos = dict(opened(folder))
    gone = tmp_path / "gone.mp4"
    clock_video(gone)
    videos["gone"] = probe_videos({"gone": gone}).readable["gone"]
    gone.write_bytes(b"no video any more")
    partial = PartialBoxes(tmp_path / "p.partial", WORK)
    times = {"gone": [0.5], **TIMES}
    found = detected_boxes(videos, times, [SeenBoxes(ClockDetector(), 0.3)], partial)
    assert list(found.unreadable) == ["gone"]
    assert [video.video for video in found.videos] == ["a", "b", "c"]


def test_progress_counts_the_frames_that_are_left(folder, tmp_path):
    told = []
    searched(folder, tmp_path, ClockDetector(), batch_frames=2, on_progress=lambda *at: told.append(at))
    assert told == [(2, 7), (4, 7), (5, 7), (7, 7)]
    told.clear()
    searched(folder, tmp_path, ClockDetector(), on_progress=lambda *at: told.append(at))
    assert told == []


LISTED = [
    ("a", 0.5, (0.1, 0.1, 0.2, 0.9), "person", 0.95),
    ("a", 0.5, (0.1, 0.1, 0.2, 0.8), "person", 0.4),
    ("a", 0.5, (0.3, 0.1, 0.4, 0.8), "chair", 0.05),
    ("a", 0.6, (0.3, 0.1, 0.4, 0.8), "person", 0.99),
    ("c", 1.0, (0.3, 0.1, 0.4, 0.8), "chair", 0.5),
    ("z", 1.0, (0.3, 0.1, 0.4, 0.8), "chair", 0.5),
]


def test_a_table_of_boxes_is_filtered_by_video_time_and_score_without_frames(folder, tmp_path):
    finder = ListedBoxes(detections_of(LISTED), actor_score=0.4, object_score=0.1)
    partial = PartialBoxes(tmp_path / "p.partial", WORK)
    found = detected_boxes(opened(folder), {**TIMES, "b": [0.5, 9.0]}, [finder], partial)
    assert [row[:4] for row in rows_of(persons_in(found.videos))] == [
        ("a", 0.5, "person", 0.95),
        ("a", 0.5, "person", 0.4),
    ]
    assert [row[:4] for row in rows_of(objects_in(found.videos))] == [("c", 1.0, "chair", 0.5)]
    assert found.after_end == [("b", 9.0)]


def test_boxes_of_a_table_and_of_a_detector_are_joined_best_first(folder, tmp_path):
    finders = [
        ListedBoxes(detections_of(LISTED), actor_score=0.9, object_score=0.0),
        SeenBoxes(ClockDetector(), 0.9),
    ]
    partial = PartialBoxes(tmp_path / "p.partial", WORK)
    found = detected_boxes(opened(folder), TIMES, finders, partial).videos
    at = [row for row in rows_of(persons_in(found)) if row[:2] == ("a", 0.5)]
    assert [row[3] for row in at] == pytest.approx([0.95, 0.9])
    scores = [row[3] for row in rows_of(objects_in(found)) if row[:2] == ("a", 0.5)]
    assert scores == pytest.approx([0.71, 0.61, 0.51, 0.41, 0.31])  # five, of the table and of the detector


def test_boxes_are_read_from_every_format(tmp_path):
    (tmp_path / "ava.csv").write_text("v,0902,0.1,0.2,0.3,0.4,,0.995518\n")
    (tmp_path / "labels.csv").write_text(
        "video,timestamp,x1,y1,x2,y2,label,score\nv,902,0.1,0.2,0.3,0.4,cup,0.5\n"
    )
    (tmp_path / "own.csv").write_text(
        "video,time_s,x1,y1,x2,y2,object_class,score\nv,902,0.1,0.2,0.3,0.4,net,0.5\n"
    )
    aia = {
        "images": [{"id": 1, "movie": "v", "timestamp": 902, "width": 100, "height": 100}],
        "annotations": [{"image_id": 1, "bbox": [10, 20, 20, 20], "category_id": 47, "score": 0.5}],
    }
    (tmp_path / "aia.json").write_text(json.dumps(aia))
    for name, kind, score in (
        ("ava.csv", "person", 0.995518),
        ("labels.csv", "cup", 0.5),
        ("own.csv", "net", 0.5),
        ("aia.json", "cup", 0.5),
    ):
        ((video, time_s, found, found_score, box),) = rows_of(read_boxes(tmp_path / name))
        assert (video, time_s, found, found_score) == ("v", 902.0, kind, score)
        np.testing.assert_allclose(box, [0.1, 0.2, 0.3, 0.4], atol=1e-7)


def table():
    return table_of([(0, 0.5, None, [0], ""), (0, 1.0, None, [1], ""), (1, 0.5, None, [0, 1], "")])


def found_for(table, folder, tmp_path):
    times = key_times_by_video(table.videos, table.video_index, table.time_s)
    partial = PartialBoxes(tmp_path / "p.partial", WORK)
    videos = opened(folder, table.videos)
    return detected_boxes(videos, times, [SeenBoxes(ClockDetector(), 0.3)], partial).videos


def test_each_person_has_what_is_done_in_its_clip_and_where_nobody_is_the_frame_acts(folder, tmp_path):
    found = detected_actors(table(), found_for(table(), folder, tmp_path))
    assert (found.num_clips, found.num_without, found.num_unseen) == (3, 1, 0)
    actors = found.actors
    assert actors.video_names == ["a", "a", "a", "a", "b"]
    assert actors.time_s.tolist() == [0.5, 0.5, 1.0, 1.0, 0.5]
    names = [actors.action_names(row) for row in range(5)]
    assert names == [("sit",), ("sit",), ("walk",), ("walk",), ("sit", "walk")]
    assert actors.has_box.tolist() == [True] * 4 + [False]
    boxes = actors.boxes_xyxy_unit[:4] * [48, 32, 48, 32]  # at 0.5 s and 1 s, ten frames a second
    np.testing.assert_allclose(boxes, [[24, 8, 48, 32], [0, 0, 12, 6], [24, 8, 48, 32], [0, 0, 12, 11]])


def test_clips_that_nobody_looked_at_are_left_out_and_counted(folder, tmp_path):
    late = table_of([(0, 0.5, None, [0], ""), (0, 7.0, None, [1], "")])
    found = detected_actors(late, found_for(late, folder, tmp_path))
    assert (len(found.actors), found.num_unseen) == (2, 1)
    with pytest.raises(RangeError, match="none of the 3 clips could be looked at"):
        detected_actors(table(), [])


def test_rows_with_boxes_and_rows_of_whole_videos_are_refused():
    with pytest.raises(RangeError, match="have a box already"):
        detected_actors(table_of([(0, 0.5, BOX, [0], "")]), [])
    whole = table_of([(0, NAN, None, [0], "")])
    with pytest.raises(RangeError, match="describe whole videos"):
        detected_actors(whole, [])
    with pytest.raises(RangeError, match="rows must have a time to look for boxes"):
        key_times_by_video(whole.videos, whole.video_index, whole.time_s)


def test_all_videos_below_a_folder_have_the_names_that_find_them(folder, tmp_path):
    for name in ("a2.mp4", "a10.mp4", "twice.mp4", "twice.avi", "deep/er/b.mp4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((folder / "a.mp4").read_bytes())
    (tmp_path / "notes.txt").write_text("no video")
    clock_frames(tmp_path / "frames.d")
    below = videos_below(tmp_path)
    assert list(below) == ["a2", "a10", "twice.avi", "twice.mp4", "deep/er/b", "frames.d"]
    assert find_videos(below, tmp_path).paths == below
    assert videos_below(tmp_path / "frames.d") == {"frames.d": tmp_path / "frames.d"}
    assert videos_below(tmp_path / "deep" / "er" / "none") == {}
