"""The metrics compared with loops over scikit-learn's, and at full size."""

import time
from collections import defaultdict

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bench.timing import Comparison, take_turns
from mule.evaluation.ava import ActionBoxes, ScoredActionBoxes, evaluate_ava
from mule.evaluation.open_set import evaluate_open_set

CLASSES = {i: f"class {i}" for i in range(1, 61)}


def comparisons() -> list[Comparison]:
    return [_open_set(), _ava()]


def full_size() -> list[str]:
    """Time sizes at which a loop would take too long."""
    random = np.random.default_rng(0)
    novelty, is_novel = random.normal(size=10_000_000), random.random(10_000_000) < 0.3
    open_set_s = _elapsed_s(lambda: evaluate_open_set(novelty, is_novel))
    truth, detections = _boxes(57_000, 2, 0), _boxes(57_000, 35, 1)
    ava_s = _elapsed_s(lambda: evaluate_ava(ActionBoxes(*truth[:3]), ScoredActionBoxes(*detections), CLASSES))
    rate = len(detections[0]) / ava_s
    return [
        f"- all open-set metrics of {len(novelty):,} scores, with 1,000 bootstrap resamples: "
        f"{open_set_s:.1f} s",
        f"- AVA mAP of {len(detections[0]):,} detections in 57,000 frames, 60 classes: {ava_s:.1f} s, {rate:,.0f} "
        "detections per second (goal: 240,000, thirty times the official program's 8,000)",
    ]


def _elapsed_s(run) -> float:
    started_at = time.perf_counter()
    run()
    return time.perf_counter() - started_at


def _open_set() -> Comparison:
    random = np.random.default_rng(0)
    novelty, is_novel = random.normal(size=300_000), random.random(300_000) < 0.3

    def sklearn():
        roc_auc_score(is_novel, novelty)
        average_precision_score(is_novel, novelty)
        average_precision_score(~is_novel, -novelty)
        for positive, score in ((is_novel, novelty), (~is_novel, -novelty)):
            fpr, tpr, _ = roc_curve(positive, score, drop_intermediate=False)
            _ = fpr[np.argmax(tpr >= 0.95)], np.min((1 - tpr + fpr) / 2)

    times = take_turns(
        {"ours": lambda: evaluate_open_set(novelty, is_novel, resamples=0), "sklearn": sklearn}
    )
    return Comparison("All open-set metrics, 300,000 scores", "scikit-learn", times["ours"], times["sklearn"])


def _boxes(num_frames: int, per_frame: int, seed: int):
    random = np.random.default_rng(seed)
    count = num_frames * per_frame
    frame = np.repeat(np.arange(num_frames), per_frame)
    corner = random.choice([0.1, 0.4, 0.6], size=(count, 2)) + 0.05 * random.random((count, 2))
    boxes = np.concatenate([corner, corner + 0.3 + 0.05 * random.random((count, 2))], axis=1)
    return frame, boxes, random.integers(1, 61, size=count), random.random(count)


def _ava() -> Comparison:
    truth, detections = _boxes(3000, 8, 0), _boxes(3000, 20, 1)
    cells = defaultdict(list)
    for row, cell in enumerate(zip(truth[0].tolist(), truth[2].tolist(), strict=True)):
        cells[cell].append(row)

    def loops():
        """Detection by detection, best first, as the definition goes; scikit-learn does the precision."""
        labels, scores = {c: [] for c in CLASSES}, {c: [] for c in CLASSES}
        taken = set()
        for row in np.argsort(-detections[3], kind="stable").tolist():
            action, best, best_overlap = int(detections[2][row]), -1, 0.0
            for other in cells[int(detections[0][row]), action]:
                overlap = _overlap(detections[1][row], truth[1][other])
                if overlap > best_overlap:
                    best, best_overlap = other, overlap
            labels[action].append(best_overlap >= 0.5 and best not in taken)
            scores[action].append(detections[3][row])
            if labels[action][-1]:
                taken.add(best)
        return [average_precision_score(labels[c], scores[c]) for c in CLASSES if any(labels[c])]

    def ours():
        evaluate_ava(ActionBoxes(*truth[:3]), ScoredActionBoxes(*detections), CLASSES)

    times = take_turns({"ours": ours, "loops": loops})
    what = f"AVA frame-mAP, {len(detections[0]):,} detections"
    return Comparison(what, "per-detection loop", times["ours"], times["loops"])


def _overlap(a, b) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)
