"""Far novelty: known actors of a run's test side against the actors of other videos, none of whom does a known action.

test side ─ known actors ─────────────┬─▶ one side, judged as any other
other videos ─ nobody a network knows ╯

Other videos differ in camera, light and size too, so it is easier than an unknown action in videos of the same kind, and
it is reported apart.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool

from mule.comparison.outputs import NO_PASSES, SideOutputs
from mule.comparison.sides import ActorTruth
from mule.errors import RangeError
from mule.records import Evidence


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
