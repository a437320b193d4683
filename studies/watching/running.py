"""Every way of accumulating on every class split, and the page."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from mule.core.files import write_file
from mule.evaluation.watched_results import WatchedResult
from mule.features.weights.classifier import LabelClassifier
from studies.results.numbers import FOLDER
from studies.watching.judging import WINDOWS, Acts, ClassSplit, Reel, read_acts, read_reels, said, taught

DEVELOPING, REPORTING = range(400, 410), range(500, 510)
VIEWS = ("roi", "labels")
TODAY, CHOSEN = "labelled moments, mean", "window"
MEASURES = (
    "reels", "people", "known_people", "novel_people", "known_people_flagged", "novel_people_flagged", "known_looks_flagged",
    "novel_looks_flagged", "idle_looks_flagged", "idle_looks_named", "known_looks_idle", "mean_ap", "delay_s",
)  # fmt: skip


def measured(result: WatchedResult) -> dict[str, float]:
    """Return what the bars are about, in percent."""
    looks, people, acts = result.looks, result.people, result.acts
    assert people is not None  # noqa: S101 - reels say who is who
    assert acts is not None  # noqa: S101

    def share(part: int, whole: int) -> float:
        return 100 * part / whole if whole else float("nan")

    known, novel, idle = looks["known"], looks["novel"], looks["idle"]
    return {
        "reels": result.num_videos,
        "people": sum(each.num_seen for each in people.values()),
        "known_people": people["known"].num_seen,
        "novel_people": people["novel"].num_seen,
        "known_people_flagged": share(people["known"].num_flagged, people["known"].num_seen),
        "novel_people_flagged": share(people["novel"].num_flagged_in_act, people["novel"].num_seen),
        "known_looks_flagged": share(known.num_flagged, known.num_seen),
        "novel_looks_flagged": share(novel.num_flagged, novel.num_seen),
        "idle_looks_flagged": share(idle.num_flagged, idle.num_seen),
        "idle_looks_named": share(idle.num_named, idle.num_seen),
        "known_looks_idle": share(known.num_seen - known.num_named, known.num_seen),
        "mean_ap": 100 * result.naming.mean_ap if result.naming.mean_ap is not None else float("nan"),
        "delay_s": float("nan") if acts.median_delay_s is None else acts.median_delay_s,
    }


def compared(
    acts: Acts,
    train: Sequence[Reel],
    tested: Sequence[Reel],
    seeds: Sequence[int],
    *,
    noted: Callable[[str], None],
) -> list[dict[str, object]]:
    """Return the mean of every measure over class splits, by way of accumulating."""
    found: dict[str, list[dict[str, float]]] = {}
    for seed in seeds:
        split = ClassSplit.drawn(seed, acts.labels.shape[1])
        before = taught(acts, train, split, VIEWS, has_idle=False)
        found.setdefault(TODAY, []).append(
            measured(said(before, tested, split, VIEWS, "mean", by_watching=False))
        )
        found.setdefault("watched, without idle, mean", []).append(
            measured(said(before, tested, split, VIEWS, "mean", by_watching=True))
        )
        after = taught(acts, train, split, VIEWS, has_idle=True)
        for way in WINDOWS:
            found.setdefault(f"watched, idle, {way}", []).append(
                measured(said(after, tested, split, VIEWS, way, by_watching=True))
            )
        noted(f"class split {seed} is done")
    return [
        {
            "way": way,
            "splits": len(rows),
            **{name: f"{np.nanmean([row[name] for row in rows]):.2f}" for name in MEASURES},
        }
        for way, rows in found.items()
    ]


def run_compare(
    jhmdb: Path, cache: Path, classifier: LabelClassifier, *, reports: bool, noted: Callable[[str], None]
) -> None:
    """Compare on the training reels, films left out in turn, or judge the reels that report; write the table."""
    acts, train = read_acts(jhmdb, cache, classifier), read_reels(jhmdb, cache, "train", classifier)
    tested = read_reels(jhmdb, cache, "report", classifier) if reports else train
    rows = compared(acts, train, tested, REPORTING if reports else DEVELOPING, noted=noted)
    for row in rows:
        noted(" ".join(f"{name} {value}" for name, value in row.items()))
    path = FOLDER / f"watching{'' if reports else '_develop'}.csv"

    def write(unfinished: Path) -> None:
        with unfinished.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    write_file(path, write)
