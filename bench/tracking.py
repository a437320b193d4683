"""IDF1 of the tracker compared with two simpler trackers, on rendered crowds.

    python -m bench.tracking

Walkers of known identity cross each other and pass behind pillars. Each frame is painted back to front into a
picture of identities, which gives the visible part of each walker exactly. A simulated detector adds jitter,
misses boxes, lowers scores and invents boxes. motmetrics computes IDF1 (Ristani et al. 2016).
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import motmetrics
import numpy as np
import torch
from torch import Tensor

from mule.detection.boxes import iou_matrix
from mule.detection.detections import PERSON, Detections
from mule.detection.tracks import NO_TRACK, best_pairs, link_actors

WIDTH_PX, HEIGHT_PX = 640, 360
SURE_SCORE = 0.5
MEMORY_S = 2
NUM_CROWDS = 6


@dataclass(frozen=True)
class Crowd:
    """A rendered sequence: true boxes with identities, and the output of the simulated detector."""

    boxes_xyxy_px: Tensor
    identity: Tensor
    frame_index: Tensor
    detections: Detections
    memory_frames: int


def render_crowd(seed: int, *, fps: int, duration_s: int = 20, num_walkers: int = 8) -> Crowd:
    """Render walkers who go back and forth at different depths, behind two pillars and each other.

    A walker is 70 to 150 px tall and, if that is 1.7 m, walks at up to 2.5 m/s.
    """
    random = np.random.default_rng(seed)
    depth = np.sort(random.uniform(0, 1, num_walkers))  # 0 far, 1 near; painted in this order
    height = 70 + 80 * depth
    width = height * random.uniform(0.35, 0.45, num_walkers)
    feet = 200 + 140 * depth
    phase, period_s = random.uniform(0, 2 * np.pi, num_walkers), random.uniform(12, 32, num_walkers)
    pillar_x = random.uniform(120, WIDTH_PX - 120, 2)
    true, detected = [], []
    for frame in range(duration_s * fps):
        sway = 2 * np.pi * frame / fps / period_s + phase
        centre = WIDTH_PX / 2 + (WIDTH_PX / 2 - 50) * np.sin(sway)
        top = feet - height + 2 * np.sin(8 * sway)
        boxes = np.stack([centre - width / 2, top, centre + width / 2, top + height], axis=1)
        visible = _visible_fraction(boxes, pillar_x)
        true += [(frame, who, *boxes[who]) for who in range(num_walkers) if visible[who] > 0.1]
        detected += [(frame, *row) for row in _detect(boxes, visible, random)]
    true_rows, detected_rows = torch.tensor(true).double(), torch.tensor(detected).float()
    return Crowd(
        boxes_xyxy_px=true_rows[:, 2:],
        identity=true_rows[:, 1].long(),
        frame_index=true_rows[:, 0].long(),
        detections=Detections(
            boxes_xyxy_px=detected_rows[:, 2:],
            scores=detected_rows[:, 1],
            class_index=torch.full((len(detected_rows),), PERSON),
            image_index=detected_rows[:, 0].long(),
            num_images=duration_s * fps,
        ),
        memory_frames=MEMORY_S * fps,
    )


def _visible_fraction(boxes: np.ndarray, pillar_x: np.ndarray) -> np.ndarray:
    picture = np.full((HEIGHT_PX, WIDTH_PX), -1)
    corners = boxes.round().astype(int).clip(0)
    for who, (x1, y1, x2, y2) in enumerate(corners):
        picture[y1:y2, x1:x2] = who
        if who == len(boxes) // 2:  # the pillars are half-way back
            for x in pillar_x.astype(int):
                picture[:, x : x + 35] = -1
    painted = np.bincount(picture[picture >= 0], minlength=len(boxes))
    return painted / ((corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1]))


def _detect(boxes: np.ndarray, visible: np.ndarray, random: np.random.Generator) -> list[tuple[float, ...]]:
    """Rows (score, x1, y1, x2, y2) of a simulated detector.

    Boxes jitter by 4 %, 5 % are missed, covered ones score lower, and a frame has 0.4 false boxes.
    """
    rows = []
    for box, seen in zip(boxes, visible, strict=True):
        if seen < 0.3 or random.uniform() < 0.05:
            continue
        size = np.tile(box[2:] - box[:2], 2)
        score = np.clip(0.9 * seen + random.normal(0, 0.08), 0.1, 0.99)
        rows.append((score, *(box + random.normal(0, 0.04, 4) * size)))
    for _ in range(random.poisson(0.4)):
        x, y = random.uniform(0, WIDTH_PX - 60), random.uniform(0, HEIGHT_PX - 120)
        rows.append((random.uniform(0.1, 0.7), x, y, x + random.uniform(25, 60), y + random.uniform(60, 120)))
    return rows


def idf1(crowd: Crowd, track_id: Tensor) -> tuple[float, int]:
    """Return IDF1 and the number of identity switches of these tracks; boxes match from an IoU of 0.5."""
    tally = motmetrics.MOTAccumulator(auto_id=True)
    detections = crowd.detections
    for frame in range(detections.num_images):
        true = crowd.frame_index == frame
        tracked = (detections.image_index == frame) & (track_id != NO_TRACK)
        overlap = iou_matrix(crowd.boxes_xyxy_px[true], detections.boxes_xyxy_px[tracked].double()).numpy()
        distance = np.where(overlap >= 0.5, 1 - overlap, np.nan)
        tally.update(crowd.identity[true].tolist(), track_id[tracked].tolist(), distance)
    row = motmetrics.metrics.create().compute(tally, metrics=["idf1", "num_switches"])
    return float(row["idf1"].iloc[0]), int(row["num_switches"].iloc[0])


def link_greedily(detections: Detections, *, memory_frames: int) -> Tensor:
    """The simple rival: each confident box takes the id of the last box that it overlaps most (IoU ≥ 0.3)."""
    track_id = torch.full((len(detections),), NO_TRACK)
    last_box: dict[int, Tensor] = {}
    last_frame: dict[int, int] = {}
    num_tracks = 0
    for frame in range(detections.num_images):
        rows = torch.nonzero((detections.image_index == frame) & (detections.scores >= SURE_SCORE))[
            :, 0
        ].tolist()
        alive = [track for track in last_box if frame - last_frame[track] <= memory_frames]
        pairs = []
        if rows and alive:
            overlap = iou_matrix(
                torch.stack([last_box[track] for track in alive]), detections.boxes_xyxy_px[rows]
            )
            pairs = sorted(((-float(v), i, j) for (i, j), v in np.ndenumerate(overlap.numpy()) if v >= 0.3))
        for _, i, j in pairs:
            if track_id[rows[j]] == NO_TRACK and last_frame[alive[i]] < frame:
                track_id[rows[j]], last_frame[alive[i]] = alive[i], frame
        for row in rows:
            if track_id[row] == NO_TRACK:
                track_id[row], num_tracks = num_tracks, num_tracks + 1
            last_box[int(track_id[row])], last_frame[int(track_id[row])] = (
                detections.boxes_xyxy_px[row],
                frame,
            )
    return track_id


def link_truly(crowd: Crowd) -> Tensor:
    """The upper limit of any tracker: each box has the identity of the walker it shows."""
    detections = crowd.detections
    track_id = torch.full((len(detections),), NO_TRACK)
    for frame in range(detections.num_images):
        true, rows = crowd.frame_index == frame, torch.nonzero(detections.image_index == frame)[:, 0]
        overlap = iou_matrix(crowd.boxes_xyxy_px[true], detections.boxes_xyxy_px[rows].double())
        walkers, boxes = best_pairs(overlap, min_iou=0.5)
        track_id[rows[boxes]] = crowd.identity[true][walkers]
    return track_id


LINKERS: dict[str, Callable[[Crowd], Tensor]] = {
    "true identities (upper limit)": link_truly,
    "two-stage, IoU and Kalman": lambda crowd: link_actors(
        crowd.detections, actor_score=SURE_SCORE, max_hidden_images=crowd.memory_frames
    ),
    "greedy IoU, the same memory": lambda crowd: link_greedily(
        crowd.detections, memory_frames=crowd.memory_frames
    ),
    "greedy IoU, last frame only": lambda crowd: link_greedily(crowd.detections, memory_frames=1),
}


def main() -> None:
    for fps in (30, 10):
        # the tracker's settings were chosen on seeds below 20
        crowds = [render_crowd(100 + seed, fps=fps) for seed in range(NUM_CROWDS)]
        print(
            f"{NUM_CROWDS} crowds of 8 walkers, 20 s at {fps} fps, {sum(len(c.identity) for c in crowds)} true boxes"
        )
        print(f"{'':34}{'IDF1':>8}{'lowest':>8}{'switches':>10}{'ms/frame':>10}")
        for name, link in LINKERS.items():
            started_at = perf_counter()
            tracks = [link(crowd) for crowd in crowds]
            ms = (perf_counter() - started_at) * 1000 / (NUM_CROWDS * crowds[0].detections.num_images)
            results = [idf1(crowd, track_id) for crowd, track_id in zip(crowds, tracks, strict=True)]
            values = [value for value, _ in results]
            print(
                f"{name:34}{np.mean(values):8.3f}{min(values):8.3f}{sum(n for _, n in results):10d}{ms:10.2f}"
            )


if __name__ == "__main__":
    main()
