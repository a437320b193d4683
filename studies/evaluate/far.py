"""Far novelty: the known actors of a test side against actors of other videos who do no known action.

test side ─ known actors ──────────────┬─▶ one side, judged like any other
other videos ─ actors of other actions ╯

Other videos also differ in camera, light and size. Far novelty is therefore easier than unknown actions in
videos of the same kind, and is reported separately.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.core.settings import Experiment
from mule.data.split.leakage import met_in_pretraining
from mule.inference.judging import Judging, facts_unkept, judged, yardstick_of
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import reading_of
from mule.inference.results import SideResult
from mule.inference.running import NO_PASSES, OutputsOf, weights_digest
from mule.inference.score_rules import score_rules
from mule.inference.sides import TRAIN, VAL, ActorTruth, sides_under_test
from mule.training.data import Noted


def judge_far(
    run_dir: Path,
    experiment: Experiment,
    others: Mapping[str, SideOutputs],
    *,
    judging: Judging,
    noted: Noted,
) -> dict[str, SideResult]:
    """Judge the first test side of a run, and its known actors against those of other videos.

    Args:
        run_dir: the folder of a finished run.
        experiment: its experiment, with the data where they are now.
        others: the outputs of the run for the actors of other videos, by the name of these videos.
        judging: how to judge.
        noted: receives sentences about what is computed, and about names that resemble a known action.

    Raises:
        RangeError: the test side has no known actors, or some other videos have nobody else.
    """
    source, side = OutputsOf(run_dir, experiment), sides_under_test(experiment)[0]
    train, val, test = (source.on(each, noted=noted) for each in (TRAIN, VAL, side))
    for outputs in others.values():
        for sentence in doubtful_names(test.classes, outputs.truth.classes):
            noted(sentence)
    model = weights_digest(run_dir)
    read = reading_of(experiment.system, train, val, model=model)
    yardstick = yardstick_of(score_rules(judging.scores), train, read(val))
    shown = {side: test} | {
        f"{side} against {name}": against_far(test, outputs) for name, outputs in others.items()
    }
    results: dict[str, SideResult] = {}
    for name, outputs in shown.items():
        facts = facts_unkept(experiment.system, name, model=model)
        results[name], _ = judged(read(outputs), yardstick, judging=judging, facts=facts)
    return results


def against_far(test: SideOutputs, far: SideOutputs) -> SideOutputs:
    """Return the known actors of a test side, then, as novel, those of other videos without a known action.

    Raises:
        RangeError: there are no such actors on one of the sides.
    """
    does_known = far.truth.labels[:, [name in test.classes for name in far.truth.classes]].any(axis=1)
    known, novel = np.logical_not(test.truth.is_novel), np.logical_not(does_known)
    if not (known.any() and novel.any()):
        raise RangeError(
            f"far novelty needs known actors, and actors of other videos who do no known action; got "
            f"{int(known.sum())} and {int(novel.sum())}."
        )
    parts = (test.at(known), far.at(novel))
    first, second = parts
    return replace(
        first,
        outputs=torch.cat([each.outputs for each in parts]),
        evidence=Evidence(
            torch.cat([each.evidence.positive for each in parts]),
            torch.cat([each.evidence.negative for each in parts]),
        ),
        features=torch.cat([each.features for each in parts]),
        backbone_features=torch.cat([each.backbone_features for each in parts]),
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


def doubtful_names(known: Sequence[str], far: Sequence[str]) -> list[str]:
    """Return a sentence for each known action that other videos may have under another name.

    >>> doubtful_names(["walk", "jump"], ["movement:walking", "jump"])
    ["'movement:walking' resembles the known 'walk', but counts as novel"]
    """
    others = [name for name in far if name not in known]
    unshared = [name for name in known if name not in far]
    return [
        f"'{each.label}' resembles the known '{each.action}', but counts as novel"
        for each in met_in_pretraining(unshared, others)
    ]


def _truth(known: ActorTruth, far: ActorTruth) -> ActorTruth:
    """The actions of both sides, each under its name."""
    classes = tuple(dict.fromkeys((*known.classes, *far.classes)))
    labels = np.zeros((len(known.labels) + len(far.labels), len(classes)), dtype=bool)
    for first, truth in ((0, known), (len(known.labels), far)):
        columns = [classes.index(name) for name in truth.classes]
        labels[first : first + len(truth.labels), columns] = truth.labels
    is_novel = np.arange(len(labels)) >= len(known.labels)
    boxes = np.concatenate([known.boxes_xyxy_unit, far.boxes_xyxy_unit])
    return ActorTruth(classes, labels, is_novel, boxes, (*known.actor_ids, *far.actor_ids))
