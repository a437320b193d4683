"""Train the detector of the built-in model on key frames of rendered takes: persons, balls and boxes.

Centres are learnt by the focal loss of CornerNet (Law and Deng 2018), boxes by their overlap (GIoU).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mule.data.table.reading import read_actor_table, read_object_table
from mule.detection.boxes import iou_matrix
from mule.detection.centres import CENTRES_STRIDE, CentreDetector, CentreNetwork
from mule.detection.detections import PERSON, Detections
from mule.video.clips import ClipShape, clip_window
from mule.video.reading import read_clips
from mule.video.sources import video_source

CLASSES = ("person", "ball", "box")
SHORT_SIDE_PX = 96
BATCH, LEARNING_RATE = 16, 3e-3
SAME_IOU = 0.5


@dataclass(frozen=True)
class Frame:
    """An image and the boxes in it, in its pixels."""

    picture: Tensor
    boxes_xyxy_px: Tensor
    class_index: Tensor


def read_frames(folder: Path, videos: Sequence[str] | None = None) -> list[Frame]:
    """Read the key frames of takes that `mule stage render` wrote to a folder, or of some of them."""
    found: dict[tuple[str, int], list[tuple[int, np.ndarray]]] = defaultdict(list)
    actors, objects = read_actor_table(folder / "actors.csv"), read_object_table(folder / "objects.csv")
    for video, time_s, box in zip(actors.video_names, actors.time_s, actors.boxes_xyxy_unit, strict=True):
        found[video, round(1000 * time_s)].append((PERSON, box))
    for at, number in enumerate(objects.class_index.tolist()):
        key = objects.videos[objects.video_index[at]], round(1000 * objects.time_s[at])
        found[key].append((CLASSES.index(objects.classes[number]), objects.boxes_xyxy_unit[at]))
    frames: list[Frame] = []
    for video in sorted({name for name, _ in found}) if videos is None else videos:
        times = sorted(tick for name, tick in found if name == video)
        windows = [clip_window(tick / 1000, ClipShape(1, 1, num_slow_frames=1), 16) for tick in times]
        clips = read_clips(video_source(folder / "videos" / f"{video}.mp4"), windows)
        for tick, clip in zip(times, clips, strict=True):
            frames.append(_frame(clip.frames[0], found[video, tick]))
    return frames


def _frame(picture: Tensor, things: list[tuple[int, np.ndarray]]) -> Frame:
    rows, cols = picture.shape[1:]
    boxes = torch.tensor(np.stack([box for _, box in things]), dtype=torch.float32)
    return Frame(
        picture,
        boxes * torch.tensor([cols, rows, cols, rows]),
        torch.tensor([number for number, _ in things]),
    )


def train_detector(frames: Sequence[Frame], *, steps: int, seed: int = 0) -> CentreNetwork:
    """Train a network on batches of frames with random flips and lighting."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = CentreNetwork(len(CLASSES)).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        drawn = torch.randperm(len(frames), generator=generator)[:BATCH].tolist()
        batch = [varied(frames[at], generator) for at in drawn]
        heat, sides = network(torch.stack([each.picture for each in batch]))
        loss = torch.stack([_loss(heat[at], sides[at], each) for at, each in enumerate(batch)]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"detector: step {step} of {steps}, loss {loss.item():.3f}", flush=True)
    return network.eval()


def varied(frame: Frame, generator: torch.Generator) -> Frame:
    """Mirror the frame at random, and vary its brightness, contrast and noise."""
    flip, gain, contrast, noise = torch.rand(4, generator=generator).tolist()
    picture, boxes = frame.picture.float() / 255, frame.boxes_xyxy_px
    if flip < 0.5:
        picture = picture.flip(2)
        boxes = torch.stack(
            [picture.shape[2] - boxes[:, 2], boxes[:, 1], picture.shape[2] - boxes[:, 0], boxes[:, 3]], dim=1
        )
    picture = (picture - 0.5) * (0.8 + 0.4 * contrast) + 0.5 + 0.2 * (gain - 0.5)
    picture = picture + 0.02 * noise * torch.randn(picture.shape, generator=generator)
    return Frame(picture.clamp(0, 1), boxes, frame.class_index)


def _loss(heat: Tensor, sides: Tensor, frame: Frame) -> Tensor:
    """Return the focal loss of the centres plus one minus the overlap of the boxes predicted near them."""
    rows, cols = heat.shape[1:]
    boxes = frame.boxes_xyxy_px
    centre, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    x = (torch.arange(cols) + 0.5) * CENTRES_STRIDE
    y = (torch.arange(rows) + 0.5) * CENTRES_STRIDE
    spread = (size / 8).clamp(min=1.2)
    bump = torch.exp(
        -((x[None, None, :] - centre[:, 0, None, None]) ** 2) / (2 * spread[:, 0, None, None] ** 2)
        - ((y[None, :, None] - centre[:, 1, None, None]) ** 2) / (2 * spread[:, 1, None, None] ** 2)
    )  # (boxes, rows, cols)
    bump = bump / bump.amax(dim=(1, 2), keepdim=True)
    target = torch.zeros_like(heat)
    for number in range(len(heat)):
        if (frame.class_index == number).any():
            target[number] = bump[frame.class_index == number].amax(dim=0)
    told, untold = torch.nn.functional.logsigmoid(heat), torch.nn.functional.logsigmoid(-heat)
    probability = heat.sigmoid()
    is_centre = target > 0.999
    focal = -(is_centre * (1 - probability) ** 2 * told).sum()
    focal = focal - (~is_centre * (1 - target) ** 4 * probability**2 * untold).sum()
    weight, owner = bump.max(dim=0)
    near = weight > 0.5
    corner = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], dim=-1)[near]
    found = torch.cat([corner - sides[:2, near].T, corner + sides[2:, near].T], dim=1)
    overlap = _giou(found, boxes[owner[near]])
    return focal / len(boxes) + 2 * ((1 - overlap) * weight[near]).sum() / weight[near].sum()


def _giou(first: Tensor, second: Tensor) -> Tensor:
    """Return the generalised overlap of boxes, row by row (GIoU)."""
    shared = (
        (torch.minimum(first[:, 2:], second[:, 2:]) - torch.maximum(first[:, :2], second[:, :2]))
        .clamp(min=0)
        .prod(dim=1)
    )
    union = sum((box[:, 2:] - box[:, :2]).prod(dim=1) for box in (first, second)) - shared
    around = (torch.maximum(first[:, 2:], second[:, 2:]) - torch.minimum(first[:, :2], second[:, :2])).prod(
        dim=1
    )
    return shared / union - (around - union) / around


@dataclass(frozen=True)
class Found:
    """How well one class is found: boxes match if they overlap by half, each with at most one partner."""

    recall: float
    precision: float

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision."""
        return 2 * self.recall * self.precision / max(self.recall + self.precision, 1e-9)


def detect(detector: CentreDetector, frames: Sequence[Frame]) -> list[Detections]:
    """Run the detector on each frame."""
    return [detector(frame.picture[None]) for frame in frames]


def measure(
    found: Sequence[Detections], frames: Sequence[Frame], *, class_index: int, min_score: float
) -> Found:
    """Measure recall and precision of one class at a score."""
    num_right = num_found = num_there = 0
    for said, frame in zip(found, frames, strict=True):
        chosen = said.select((said.class_index == class_index) & (said.scores >= min_score))
        there = frame.boxes_xyxy_px[frame.class_index == class_index]
        num_found, num_there = num_found + len(chosen), num_there + len(there)
        num_right += _num_matched(iou_matrix(chosen.boxes_xyxy_px, there))
    return Found(num_right / max(num_there, 1), num_right / max(num_found, 1))


def _num_matched(iou: Tensor) -> int:
    """Return pairs that overlap by half; detections are matched in the order of their score."""
    iou = iou.clone()
    count = 0
    for row in range(len(iou)):
        if iou.shape[1] and float(iou[row].max()) >= SAME_IOU:
            iou[:, int(iou[row].argmax())] = 0
            count += 1
    return count


def best_actor_score(found: Sequence[Detections], frames: Sequence[Frame]) -> float:
    """Return the score at which persons are found best (largest F1)."""
    scores = [0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5]
    return max(scores, key=lambda score: measure(found, frames, class_index=PERSON, min_score=score).f1)
