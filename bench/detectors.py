"""How well small detectors find people in a lobby, against boxes that people drew, on the same frames.

    python -m bench.detectors CAVIAR [--yolox FILE] [--write]

CAVIAR is the folder of its videos and labels.csv. A frame a second is looked at; nobody trained a detector on them here. Box and
person match at an overlap (IoU) of 0.5, each once, the surest box first. People are 20 to 50 pixels tall.

EC Funded CAVIAR project/IST 2001 37540.
"""

import argparse
import csv
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bench.timing import machine, replace_section
from mule.detection.boxes import iou_matrix
from mule.detection.cards import PICODET_CARDS, YOLOX_CARDS
from mule.detection.detector import Detector
from mule.detection.named import BUILTIN_DETECTOR, detector_place, load_detector
from mule.video.reading import frames_at

LEAST_IOU, PRECISION = 0.5, 0.9
PAGE = Path(__file__).resolve().parent.parent / "docs" / "BENCHMARKS.md"


class LabelledFrame(NamedTuple):
    """A frame, and the boxes that people drew."""

    frame: Tensor
    boxes_xyxy_px: Tensor


class Found(NamedTuple):
    """The people that a detector reports, over all frames."""

    scores: Tensor
    is_right: Tensor
    seconds: float
    num_frames: int
    num_people: int

    def recall_and_precision(self, least_score: float) -> tuple[float, float]:
        """Return both over the boxes that have this score."""
        kept = self.is_right[self.scores >= least_score]
        return int(kept.sum()) / self.num_people, int(kept.sum()) / max(len(kept), 1)

    def recall_at(self, precision: float) -> float:
        """Return the largest recall of the surest boxes that has this precision."""
        right = self.is_right[self.scores.argsort(descending=True)].cumsum(0)
        has_it = right >= precision * torch.arange(1, len(right) + 1)
        return float(right[has_it].max()) / self.num_people if has_it.any() else 0.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or write it into docs/BENCHMARKS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("caviar", type=Path)
    parser.add_argument("--yolox", type=Path, help="file of YOLOX-nano; by default the pulled one")
    parser.add_argument("--write", action="store_true")
    wanted = parser.parse_args(arguments)
    torch.set_num_threads(2)
    frames = labelled_frames(wanted.caviar)
    files = {
        "PicoDet (`picodet_416`)": detector_place(PICODET_CARDS["picodet_416"].name),
        "YOLOX-nano (`yolox_nano`)": wanted.yolox or detector_place(YOLOX_CARDS["nano"].name),
        "the detector of the model `stage`": detector_place(BUILTIN_DETECTOR),
    }
    table = as_table({name: load_detector(path) for name, path in files.items()}, frames)
    if wanted.write:
        replace_section(PAGE, "detectors", table)
    else:
        print(table)


def labelled_frames(caviar: Path) -> list[LabelledFrame]:
    """Return a frame a second of every video, where somebody is in view."""
    people: dict[tuple[str, float], dict[str, list[float]]] = defaultdict(dict)
    with (caviar / "labels.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            box = [float(row[name]) for name in ("x1", "y1", "x2", "y2")]
            people[row["video"], float(row["time_s"])][row["person_id"]] = box
    times: dict[str, list[float]] = defaultdict(list)
    for video, time_s in sorted(people):
        if not times[video] or time_s >= times[video][-1] + 1:
            times[video].append(time_s)
    found: list[LabelledFrame] = []
    for video, chosen in times.items():
        for frame, time_s in zip(frames_at(caviar / "videos" / video, chosen), chosen, strict=True):
            rows, cols = frame.shape[1:]
            boxes = torch.tensor(list(people[video, time_s].values()))
            found.append(LabelledFrame(frame, boxes * torch.tensor([cols, rows, cols, rows])))
    return found


def as_table(detectors: Mapping[str, Detector], frames: Sequence[LabelledFrame]) -> str:
    """Run every detector over the same frames, and return a row for each."""
    header = (
        "detector",
        "least score",
        "recall",
        "precision",
        f"recall at {PRECISION:.0%} precision",
        "frames a second",
    )
    rows = [header, ("---",) * len(header)]
    for name, detector in detectors.items():
        found = people_found(detector, frames)
        recall, precision = found.recall_and_precision(detector.actor_score)
        rows.append(
            (
                name,
                f"{detector.actor_score:g}",
                f"{recall:.1%}",
                f"{precision:.1%}",
                f"{found.recall_at(PRECISION):.1%}",
                f"{found.num_frames / found.seconds:.0f}",
            )
        )
    num_people = sum(len(each.boxes_xyxy_px) for each in frames)
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{lines}\n\n{len(frames)} frames with {num_people} people. Measured by `python -m bench.detectors` on {machine()}."


@torch.inference_mode()
def people_found(detector: Detector, frames: Sequence[LabelledFrame]) -> Found:
    """Return the score of each reported person, and whether it is one."""
    scores: list[Tensor] = []
    is_right: list[Tensor] = []
    seconds = 0.0
    detector(frames[0].frame[None])
    for frame, boxes in frames:
        started_s = time.perf_counter()
        found = detector(frame[None])
        seconds += time.perf_counter() - started_s
        is_person = found.class_index == 0
        order = found.scores[is_person].argsort(descending=True)
        scores.append(found.scores[is_person][order])
        is_right.append(matched(found.boxes_xyxy_px[is_person][order], boxes))
    num_people = sum(len(each.boxes_xyxy_px) for each in frames)
    return Found(torch.cat(scores), torch.cat(is_right), seconds, len(frames), num_people)


def matched(found_xyxy: Tensor, true_xyxy: Tensor) -> Tensor:
    """Return whether each box, the surest first, overlaps a person whom no surer box took."""
    overlap = iou_matrix(found_xyxy, true_xyxy)
    is_right = torch.zeros(len(found_xyxy), dtype=torch.bool)
    for at in range(len(found_xyxy)):
        best = int(overlap[at].argmax())
        if overlap[at, best] >= LEAST_IOU:
            is_right[at] = True
            overlap[:, best] = 0
    return is_right


if __name__ == "__main__":
    main()
