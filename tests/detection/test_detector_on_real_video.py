"""YOLOX-nano on real pictures: persons found where people see them, and followed."""

import av
import pytest
import torch

from mule.detection.boxes import iou_matrix, xyxy_from_xywh
from mule.detection.cards import YOLOX_CARDS
from mule.detection.detections import concatenate, split_actors_and_objects
from mule.detection.detector import YoloxDetector
from mule.detection.tracks import NO_TRACK, best_pairs, link_actors

NANO = YOLOX_CARDS["yolox_nano"]

WALKERS_AT_FRAME_300 = [  # of OpenCV's vtest.avi, by eye, to about 3 px
    [188, 158, 217, 235],
    [242, 156, 264, 221],
    [298, 161, 326, 232],
    [316, 211, 346, 295],
    [581, 159, 612, 234],
    [617, 163, 643, 231],
]


@pytest.fixture(scope="module")
def nano(shared_data):
    return YoloxDetector(
        shared_data / "detectors" / "yolox_nano_coco_416.onnx", actor_score=NANO.actor_score, threads=1
    )


def decoded(path, first, last=None, every=1):
    with av.open(str(path)) as container:
        frames = [
            frame.to_ndarray(format="rgb24")
            for index, frame in zip(range((last or first) + 1), container.decode(video=0), strict=False)
            if index >= first and (index - first) % every == 0
        ]
    return torch.stack([torch.from_numpy(frame).permute(2, 0, 1) for frame in frames])


def test_every_walker_in_view_is_an_actor(nano, shared_data):
    found = nano(decoded(shared_data / "videos/samples/opencv_vtest.avi", 300))
    actors, objects = split_actors_and_objects(found, actor_score=nano.actor_score)
    seen, _ = best_pairs(
        iou_matrix(torch.tensor(WALKERS_AT_FRAME_300).float(), actors.boxes_xyxy_px), min_iou=0.7
    )
    assert len(seen) == len(WALKERS_AT_FRAME_300)
    assert len(actors) <= len(WALKERS_AT_FRAME_300) + 2  # two road signs look like people
    assert {nano.class_names[i] for i in objects.class_index.tolist()} >= {"car", "truck"}


@pytest.mark.parametrize("frame", [10, 60])
def test_three_people_in_a_room_are_three_actors(nano, shared_data, frame):
    found = nano(decoded(shared_data / "videos/pose2sim_multiperson/cam01.mp4", frame))
    actors, _ = split_actors_and_objects(found, actor_score=nano.actor_score)
    assert len(actors) == 3


def test_a_small_detector_needs_the_score_on_its_card_not_the_paper_s(nano, shared_data):
    found_by_score = {nano.actor_score: 0, 0.85: 0}
    folder = shared_data / "videos/volleyball/39"
    for line in (folder / "annotations.txt").read_text().splitlines():
        name, _, *fields = line.split()
        players = [[float(value) for value in fields[i : i + 4]] for i in range(0, len(fields), 5)]
        found = nano(decoded(folder / name.removesuffix(".jpg") / name, 0))
        for score in found_by_score:
            actors, _ = split_actors_and_objects(found, actor_score=score)
            overlap = iou_matrix(xyxy_from_xywh(torch.tensor(players)), actors.boxes_xyxy_px)
            found_by_score[score] += len(best_pairs(overlap, min_iou=0.5)[0])
    assert found_by_score[nano.actor_score] >= 13  # of 24 players; 15 when measured
    assert found_by_score[0.85] == 0


@pytest.mark.slow
def test_people_in_a_room_are_followed_through_the_whole_video(nano, shared_data):
    frames = decoded(shared_data / "videos/pose2sim_multiperson/cam01.mp4", 0, 99, every=2)
    found = concatenate([nano(frame[None]) for frame in frames])
    track_id = link_actors(found, actor_score=nano.actor_score)
    length = torch.bincount(track_id[track_id != NO_TRACK])
    assert (length >= len(frames) // 2).sum() == 3


@pytest.mark.slow
def test_walkers_who_pass_in_front_of_each_other_keep_their_ids(nano, shared_data):
    first = 260
    frames = decoded(shared_data / "videos/samples/opencv_vtest.avi", first, 320)
    found = concatenate([nano(frame[None]) for frame in frames])
    track_id = link_actors(found, actor_score=nano.actor_score)

    def who_is_at(frame: int, box: list[float]) -> int:
        rows = torch.nonzero(found.image_index == frame - first)[:, 0]
        overlap = iou_matrix(torch.tensor([box]).float(), found.boxes_xyxy_px[rows])[0]
        assert overlap.max() > 0.5
        return int(track_id[rows[overlap.argmax()]])

    in_jeans, in_coat = who_is_at(300, [188, 158, 217, 235]), who_is_at(300, [242, 156, 264, 221])
    assert NO_TRACK not in (in_jeans, in_coat)
    assert who_is_at(320, [302, 169, 335, 252]) == in_jeans
    assert who_is_at(320, [201, 174, 227, 242]) == in_coat
