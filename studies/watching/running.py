"""Every way of accumulating on every class split; a class split that was judged is kept."""

import csv
import json
from collections.abc import Callable, Sequence
from math import isnan
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from mule.core.files import write_file
from mule.evaluation.mean_ap import multilabel_average_precision
from mule.evaluation.watched_results import WatchedResult
from mule.features.weights.classifier import LabelClassifier
from studies.results.numbers import FOLDER
from studies.watching.judging import (
    WINDOWS,
    Acts,
    ClassSplit,
    Judged,
    Reel,
    flagged,
    flagged_after,
    joined,
    learnt_from,
    limit_of,
    named,
    ordinary,
    read_acts,
    read_reels,
    said,
    some_of,
    taught,
)
from studies.watching.rivals import RIVALS, judged_by

DEVELOPING, REPORTING = range(400, 410), range(500, 510)
VIEWS = ("roi", "labels")
BEFORE, CHOSEN = "labelled moments, mean", "watched, idle, window"
LOOKS = (1, 2, 4, 8)
MEASURES = (
    "reels", "minutes", "people", "known_people", "novel_people", "known_people_flagged", "novel_people_flagged",
    "known_looks_flagged", "novel_looks_flagged", "idle_looks_flagged", "idle_looks_named", "known_looks_idle", "mean_ap",
    "mean_ap_labelled", "delay_s", *(f"{kind}_after_{most}" for most in LOOKS for kind in ("known", "novel")),
)  # fmt: skip
Rows = dict[str, dict[str, float]]


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
        "minutes": result.num_key_times / 60,
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


def of_split(
    seed: int, acts: Acts, train: Sequence[Reel], tested: Sequence[Reel], labelled: Acts | None
) -> Rows:
    """Return every measure of every way under one class split.

    Args:
        seed: of the class split.
        acts: labelled moments of training films.
        train: the training reels.
        tested: the reels to judge: others, or the same, films left out in turn.
        labelled: labelled moments of the films of the tested reels.
    """
    split = ClassSplit.drawn(seed, acts.labels.shape[1])
    watched, looks = joined(train, VIEWS), joined(tested, VIEWS)
    is_ordinary = ordinary(watched, split)
    found: Rows = {}

    def note(way: str, at: Judged, is_flagged: np.ndarray) -> None:
        does = {"known": looks.labels[:, split.known], "novel": looks.labels[:, split.novel]}
        found[way] = {
            **measured(said(at, is_flagged, tested, split)),
            **{
                f"{kind}_after_{most}": flagged_after(is_flagged, looks, np.asarray(labels.any(axis=1)), most)
                for kind, labels in does.items()
                for most in LOOKS
            },
        }

    before = taught(acts, watched, split, VIEWS, has_idle=False)
    at = before.judged(looks) if tested is not train else before.watched
    note(BEFORE, at, flagged(at, looks, "mean", limit=None))
    if labelled is not None:
        rows = np.asarray(labelled.labels[:, split.known].any(axis=1))
        shown = named(before.fitted, some_of(labelled.inputs, rows, VIEWS), len(split.known))
        each = multilabel_average_precision(shown, labelled.labels[rows][:, split.known])
        found[BEFORE]["mean_ap_labelled"] = 100 * float(np.nanmean(each))
    limit = limit_of(before.watched, watched, is_ordinary, "mean")
    note("watched, without idle, mean", at, flagged(at, looks, "mean", limit=limit))
    after = taught(acts, watched, split, VIEWS, has_idle=True)
    at = after.judged(looks) if tested is not train else after.watched
    for way in WINDOWS:
        limit = limit_of(after.watched, watched, is_ordinary, way)
        note(f"watched, idle, {way}", at, flagged(at, looks, way, limit=limit))
    known = learnt_from(acts, watched, split, VIEWS, has_idle=True)
    if tested is not train:
        for name, fit in RIVALS.items():
            of_train, at = judged_by(fit, known, watched, after.groups(watched), looks)
            limit = limit_of(of_train, watched, is_ordinary, "window")
            note(f"{name}, watched, idle, window", at, flagged(at, looks, "window", limit=limit))
    return found


def run_compare(
    jhmdb: Path, cache: Path, classifier: LabelClassifier, *, reports: bool, noted: Callable[[str], None]
) -> None:
    """Judge the training reels, films left out in turn, or the reels that report; write the table of the mean over splits."""
    torch.manual_seed(0)
    acts, train = read_acts(jhmdb, cache, "train", classifier), read_reels(jhmdb, cache, "train", classifier)
    tested = read_reels(jhmdb, cache, "report", classifier) if reports else train
    labelled = read_acts(jhmdb, cache, "report", classifier) if reports else None
    kept = cache / "judged"
    kept.mkdir(exist_ok=True)
    splits: list[Rows] = []
    for seed in REPORTING if reports else DEVELOPING:
        path = kept / f"{seed}.json"
        if not path.exists():
            rows = of_split(seed, acts, train, tested, labelled)
            write_file(path, json.dumps(rows))
            noted(f"class split {seed} is done")
        splits.append(json.loads(path.read_text()))
    _write_mean(FOLDER / f"watching{'' if reports else '_develop'}.csv", splits)


def _write_mean(path: Path, splits: Sequence[Rows]) -> None:
    """Write the mean over class splits; what a split has no number of is left out."""
    rows: list[dict[str, object]] = []
    for way in splits[0]:
        row: dict[str, object] = {"way": way, "splits": len(splits)}
        for name in MEASURES:
            numbers = [each[way][name] for each in splits if name in each[way]]
            known = [number for number in numbers if not isnan(number)]
            row[name] = f"{fmean(known):.2f}" if known else ""
        rows.append(row)

    def write(unfinished: Path) -> None:
        with unfinished.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["way", "splits", *MEASURES], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    write_file(path, write)
