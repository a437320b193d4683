"""A run's closed-set scores in the files of the official programs, and what these programs make of them.

RUN/results/ava_detections-SIDE.csv      ava_ground_truth-SIDE.csv, ava_label_map-SIDE.pbtxt
           /charades_scores-SIDE.txt     charades_ground_truth-SIDE.csv

All boxes that the network saw take part, whether the split judges them or not. The mean is over the classes that the
network knows; in an open-set split the others are ground truth that it is never asked for.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mule.core.files import write_file
from mule.core.settings import Experiment, TableData
from mule.data.convert.ava_files import FrameNumbers
from mule.data.convert.charades import NUM_CLASSES
from mule.data.convert.origin import Origin, origin_file, read_origin
from mule.data.table.table import ActorTable
from mule.evaluation.ava import evaluate_ava
from mule.evaluation.charades import evaluate_charades_official
from mule.evaluation.official_files import (
    AvaDetections,
    AvaFrames,
    AvaTruth,
    charades_scores_text,
    charades_truth_text,
    label_map_text,
)
from mule.evaluation.open_set import MeanApResult
from mule.inference.outputs import SideOutputs
from mule.inference.results import OfficialResult
from mule.training.data import root_of, table_sides


def official_result(
    experiment: Experiment, side: str, outputs: SideOutputs, results: Path
) -> OfficialResult | str:
    """Write the files of a side into a folder of results and evaluate them; a sentence says why it cannot be done.

    Args:
        experiment: names the data.
        side: of its table, validation or test.
        outputs: on all boxes of the side, judged or not.
        results: the folder.
    """
    data = experiment.data
    if not isinstance(data, TableData):
        return "Rendered clips have no official metric."
    table = root_of(data) / data.actors
    origin = read_origin(table)
    if origin is None:
        return (
            f"No official metric: {origin_file(table)} would say which published classes the table has; it is not there "
            "(`mule data from-ava` and `from-charades` write it)."
        )
    unnumbered = [name for name in outputs.classes if name not in origin.class_numbers]
    if unnumbered:
        return f"No official metric: {origin_file(table)} has no number of the class '{unnumbered[0]}'."
    annotated = table_sides(data).boxes(side).annotated
    if origin.dataset == "charades":
        return _charades(outputs, annotated, origin, side, results)
    if not (annotated.has_box & annotated.has_time).all():
        return (
            "No official metric: AVA's needs a box and a time in every row of the table; some rows have none."
        )
    return _ava(outputs, annotated, origin, side, results, boxes=data.test_boxes)


def _ava(
    outputs: SideOutputs, annotated: ActorTable, origin: Origin, side: str, results: Path, *, boxes: str
) -> OfficialResult:
    """The frame-mAP of all boxes against all annotated actors of the side."""
    clips = [outputs.clip_names[at] for at in outputs.clip_index.tolist()]
    time_s = np.array([clip.key_time_s for clip in clips]) + origin.starts_at_s
    found = AvaDetections(
        AvaFrames([clip.video for clip in clips], time_s),
        outputs.truth.boxes_xyxy_unit,
        outputs.probability,
        [origin.class_numbers[name] for name in outputs.classes],
    )
    numbered = [name for name in annotated.classes if name in origin.class_numbers]
    truth = AvaTruth(
        AvaFrames(annotated.video_names, annotated.time_s + origin.starts_at_s),
        annotated.boxes_xyxy_unit,
        annotated.labels_of(numbered),
        [origin.class_numbers[name] for name in numbered],
    )
    class_names = {origin.class_numbers[name]: name for name in outputs.classes}
    frames = FrameNumbers()
    measured = evaluate_ava(
        truth.boxes(frames), found.boxes(frames), class_names, empty_frames=truth.frames.numbers(frames)
    )
    texts = {
        f"ava_detections-{side}.csv": found.text(),
        f"ava_ground_truth-{side}.csv": truth.text(),
        f"ava_label_map-{side}.pbtxt": label_map_text(class_names),
    }
    name = f"frame-mAP at IoU 0.5 over {len(class_names)} known classes, {boxes} boxes"
    return _written(name, measured, texts, results)


def _charades(
    outputs: SideOutputs, annotated: ActorTable, origin: Origin, side: str, results: Path
) -> OfficialResult:
    """The mAP of whole videos: the scores of a video are the largest over its clips, its labels those of all its rows."""
    videos = list(dict.fromkeys(annotated.video_names))
    place = {video: at for at, video in enumerate(videos)}
    numbers = [origin.class_numbers[name] for name in outputs.classes]
    row = np.array([place[outputs.videos[at]] for at in outputs.video_index.tolist()], dtype=np.int64)
    best = np.full((len(videos), len(numbers)), -np.inf)
    np.maximum.at(best, row, outputs.probability)
    is_submitted = np.isin(np.arange(len(videos)), row)
    scores = np.full((len(videos), NUM_CLASSES), np.nan)
    scores[:, numbers] = best
    targets = _shown(annotated, place, origin.class_numbers)
    measured = evaluate_charades_official(scores, targets, is_submitted)
    submitted = [video for video, is_in in zip(videos, is_submitted, strict=True) if is_in]
    texts = {
        f"charades_scores-{side}.txt": charades_scores_text(submitted, scores[is_submitted]),
        f"charades_ground_truth-{side}.csv": charades_truth_text(videos, targets),
    }
    name = f"Charades mAP over {len(numbers)} known classes, largest score over the clips of a video"
    return _written(name, measured, texts, results)


def _shown(annotated: ActorTable, place: Mapping[str, int], class_numbers: Mapping[str, int]) -> np.ndarray:
    """Return which published classes each video shows."""
    targets = np.zeros((len(place), NUM_CLASSES), dtype=bool)
    row, column = np.nonzero(annotated.labels)
    video = np.array([place[name] for name in annotated.video_names], dtype=np.int64)
    numbers = np.array([class_numbers.get(name, -1) for name in annotated.classes], dtype=np.int64)
    has_number = numbers[column] >= 0
    targets[video[row[has_number]], numbers[column[has_number]]] = True
    return targets


def _written(name: str, measured: MeanApResult, texts: Mapping[str, str], results: Path) -> OfficialResult:
    results.mkdir(exist_ok=True)
    for file, text in texts.items():
        write_file(results / file, text)
    return OfficialResult(
        name=name,
        mean_ap=measured.map,
        mean_ap_by_class=measured.per_class,
        num_classes=measured.num_classes,
        files=tuple(texts),
        convention=measured.convention,
    )
