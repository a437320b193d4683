"""Far novelty: known actors of a run's test side against the actors of other videos, none of whom does a known action.

test side ─ known actors ─────────────┬─▶ one side, judged as any other ─▶ beside the test side itself, mean over runs
other videos ─ nobody a network knows ╯

Other videos differ in camera, light and size too, so it is easier than an unknown action in videos of the same kind, and
it is reported apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool

from mule.build_data import Noted
from mule.comparison.judging import Judging, judged, yardstick_of
from mule.comparison.output_files import OutputsOf, weights_digest
from mule.comparison.outputs import NO_PASSES, SideOutputs
from mule.comparison.remembering import reading_of
from mule.comparison.results import SideResult
from mule.comparison.score_rules import score_rules
from mule.comparison.sides import TRAIN, VAL, ActorTruth, sides_under_test
from mule.config import Experiment
from mule.errors import RangeError
from mule.evaluation.results import OpenSetMeasures
from mule.records import Evidence
from mule.report.tables import Block, Line, Number, Sheet

NearAndFar = Mapping[str, SideResult]
"""What a run was judged on: its test side first, then that side's known actors against others, by name."""


def judge_far(
    run_dir: Path,
    experiment: Experiment,
    others: Mapping[str, SideOutputs],
    *,
    judging: Judging,
    noted: Noted,
) -> NearAndFar:
    """A run's first test side as it is, and its known actors against those of other videos, by the same scores.

    Args:
        run_dir: the folder of a finished run.
        experiment: its experiment, with the data where they now lie.
        others: what the run says of the actors of other videos, by the name of these.
        judging: how.
        noted: is told what is being computed.

    Raises:
        RangeError: nobody on the test side is known, or everybody in some other videos.
    """
    source, side = OutputsOf(run_dir, experiment), sides_under_test(experiment)[0]
    train, val, test = (source.on(each, noted=noted) for each in (TRAIN, VAL, side))
    model = weights_digest(run_dir)
    read = reading_of(experiment.system, train, val, model=model)
    yardstick = yardstick_of(score_rules(judging.scores), train, read(val))
    shown = {side: test} | {
        f"{side} against {name}": against_far(test, outputs) for name, outputs in others.items()
    }
    found: dict[str, SideResult] = {}
    for name, outputs in shown.items():
        facts = {
            "key": "", "system": experiment.system, "side": name, "side_digest": "", "weights_sha256": model
        }  # fmt: skip
        found[name], _ = judged(read(outputs), yardstick, judging=judging, facts=facts)
    return found


def far_sheets(found: Sequence[NearAndFar]) -> dict[str, Sheet]:
    """For each system the AUROC of every score, near and far, in the mean over its runs; the best near first."""
    by_system: dict[str, list[NearAndFar]] = {}
    for sides in found:
        by_system.setdefault(next(iter(sides.values())).system, []).append(sides)
    return {system: _sheet(runs) for system, runs in by_system.items()}


def against_far(test: SideOutputs, far: SideOutputs) -> SideOutputs:
    """The known actors of a test side, then those of other videos who do no action of a known name, as novel ones.

    Raises:
        RangeError: on one of the sides there is nobody like that.
    """
    does_known = far.truth.labels[:, [name in test.classes for name in far.truth.classes]].any(axis=1)
    known, novel = np.logical_not(test.truth.is_novel), np.logical_not(does_known)
    if not (known.any() and novel.any()):
        raise RangeError(
            f"far novelty needs known actors and others who do none of their actions; got {int(known.sum())} and "
            f"{int(novel.sum())}."
        )
    parts = (_at(test, known), _at(far, novel))
    first, second = parts
    return replace(
        first,
        outputs=torch.cat([each.outputs for each in parts]),
        evidence=Evidence(
            torch.cat([each.evidence.positive for each in parts]),
            torch.cat([each.evidence.negative for each in parts]),
        ),
        features=torch.cat([each.features for each in parts]),
        looks=torch.cat([each.looks for each in parts]),
        dropout_logits=None,
        labels=np.concatenate(
            [first.labels, np.zeros((second.num_actors, first.labels.shape[1]), dtype=bool)]
        ),
        truth=_truth(first.truth, second.truth),
        clip_names=(*first.clip_names, *second.clip_names),
        clip_index=np.concatenate([first.clip_index, second.clip_index + len(first.clip_names)]),
        not_stored={**first.not_stored, "dropout_logits": NO_PASSES},
        num_skipped=first.num_skipped + second.num_skipped,
    )


def _at(outputs: SideOutputs, rows: Bool[np.ndarray, " actors"]) -> SideOutputs:
    chosen = torch.from_numpy(rows)
    return replace(
        outputs,
        outputs=outputs.outputs[chosen],
        evidence=Evidence(outputs.evidence.positive[chosen], outputs.evidence.negative[chosen]),
        features=outputs.features[chosen],
        looks=outputs.looks[chosen],
        dropout_logits=None,
        labels=outputs.labels[rows],
        truth=outputs.truth.at(np.flatnonzero(rows)),
        clip_index=outputs.clip_index[rows],
    )


def _truth(known: ActorTruth, far: ActorTruth) -> ActorTruth:
    """Actions of both, each under its name; nobody on one side does what only the other has."""
    classes = tuple(dict.fromkeys((*known.classes, *far.classes)))
    labels = np.zeros((len(known.labels) + len(far.labels), len(classes)), dtype=bool)
    for first, truth in ((0, known), (len(known.labels), far)):
        columns = [classes.index(name) for name in truth.classes]
        labels[first : first + len(truth.labels), columns] = truth.labels
    is_novel = np.arange(len(labels)) >= len(known.labels)
    boxes = np.concatenate([known.boxes_xyxy_unit, far.boxes_xyxy_unit])
    return ActorTruth(classes, labels, is_novel, boxes, (*known.actor_ids, *far.actor_ids))


def _sheet(runs: Sequence[NearAndFar]) -> Sheet:
    sides = tuple(runs[0])
    means = {
        name: tuple(_mean_auroc(runs, side, name) for side in sides) for name in runs[0][sides[0]].scores
    }
    best = [
        max((each[at] for each in means.values() if not np.isnan(each[at])), default=0.0)
        for at in range(len(sides))
    ]
    ordered = sorted(means.items(), key=lambda each: -np.nan_to_num(each[1][0]))
    lines = tuple(
        Line(
            (
                name,
                *(
                    (Number("–" if np.isnan(value) else f"{100 * value:.2f}", is_marked=bool(value == most)),)
                    for value, most in zip(values, best, strict=True)
                ),
            )
        )
        for name, values in ordered
    )
    note = f"AUROC in percent, mean over {len(runs)} runs; the largest of a column is bold. " + " ".join(
        f"{side}: {_counted(runs, side)}." for side in sides
    )
    return Sheet(("Score", *(f"{side} ↑" for side in sides)), (Block("", lines),), notes=(note,))


def _mean_auroc(runs: Sequence[NearAndFar], side: str, score: str) -> float:
    """NaN where a run was not judged by this score, or has nobody novel."""
    measures = [each[side].scores[score].measures if score in each[side].scores else None for each in runs]
    return float(np.mean([each.auroc if isinstance(each, OpenSetMeasures) else np.nan for each in measures]))


def _counted(runs: Sequence[NearAndFar], side: str) -> str:
    known, novel = [each[side].num_known for each in runs], [each[side].num_novel for each in runs]
    return f"{_span(known)} known and {_span(novel)} novel actors"


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"
