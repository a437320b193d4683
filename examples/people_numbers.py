"""How well the model `people` tells actions, and actions it was never taught, measured on films that taught it nothing."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mule.data.batches.samples import WHOLE_FRAME
from mule.data.table.table import ActorTable
from mule.evaluation.mean_ap import mean_average_precision, multilabel_average_precision
from mule.features.weights.cards import find_card
from mule.features.weights.classifier import load_classifier
from mule.features.weights.loading import weights_on_disk
from mule.inference.running import OutputsOf
from mule.inference.seen import SeenRule
from mule.inference.sides import TABLE_TESTS, TRAIN, VAL
from mule.model import inputs_in_map, with_labels
from mule.novelty.crossfit import CrossFitted, Inputs
from mule.training.run_folder import experiment_of
from mule.video.person_crops import CROP_PX
from studies.seen.extract import place
from studies.seen.judging import ALARM_RATE, Judged, mean_of
from studies.seen.judging import measured as of_split
from studies.seen.material import Material

SEEDS = range(300, 303)
"""Class splits that nothing was chosen by: 14 actions are known, 7 novel."""
STRIDE = 32


def measured(table: ActorTable, jhmdb: Path, maps: Path, run: Path) -> dict[str, float]:
    """Return the numbers for the card.

    Actions are told apart by the model itself, on its test films. Novelty needs actions that were not taught, so the same
    closed form is fitted to 14 of the 21 actions and judged on the other 7 and on films of the 14, ten times over.
    """
    return {**known_actions(run), **novel_actions(table, jhmdb, maps)}


def known_actions(run: Path) -> dict[str, float]:
    """Measure on the run's test films, where everybody does a known action."""
    outputs = OutputsOf(run, experiment_of(run, []))
    train, val, test = (outputs.on(side, noted=print) for side in (TRAIN, VAL, *TABLE_TESTS))
    rule = SeenRule()
    rule.fit(train, val)
    is_flagged = rule.novelty(test).value.numpy() > 1 - ALARM_RATE
    scores, labels = test.outputs.numpy(), np.asarray(test.labels, dtype=bool)
    each = multilabel_average_precision(scores, labels)
    return {
        **{f"ap {name}": float(ap) for name, ap in zip(test.classes, each, strict=True) if not np.isnan(ap)},
        "test_mean_ap": float(mean_average_precision(scores, labels)),
        "test_first_right": float(labels[np.arange(len(labels)), scores.argmax(axis=1)].mean()),
        "test_known_flagged": float(is_flagged.mean()),
        "num_test_actors": float(len(labels)),
        "num_taught_actors": float(train.num_actors + val.num_actors),
    }


def novel_actions(table: ActorTable, jhmdb: Path, maps: Path) -> dict[str, float]:
    """Measure novelty over class splits, one look at each person; novel actions that Kinetics-400 names apart."""
    weights, card = weights_on_disk("i3d_rgb_kinetics400", None)
    classifier = load_classifier(weights, card or find_card("i3d_rgb_kinetics400"))
    if classifier is None:
        raise TypeError("I3D's weights have a classifier")
    material = Material(jhmdb, table, {}, classifier)
    named = set(material.named())
    inputs = inputs_of(table, jhmdb, maps, material)
    rows: list[dict[str, float]] = []
    for seed in SEEDS:
        drawn = material.drawn(seed)
        groups = torch.from_numpy(material.groups[drawn.known])
        score = CrossFitted.fit(_at(inputs, drawn.known), drawn.labels[:, : drawn.num_actions], groups)
        calibrated = score(_at(inputs, drawn.tested))
        action = material.action[drawn.tested]
        is_named = np.array([material.actions[at] in named for at in action])
        judged = Judged(
            seed,
            calibrated.rank.numpy(),
            drawn.is_novel,
            action,
            material.groups[drawn.tested],
            is_named,
            calibrated.p_value.numpy(),
        )
        rows.append(of_split(judged))
        print(f"class split {seed}: {rows[-1]}", flush=True)
    names = {
        "auroc": "auroc_one_look",
        "auroc_named": "auroc_named",
        "auroc_unnamed": "auroc_unnamed",
        "known_flagged": "known_flagged_one_look",
        "novel_flagged_promised": "novel_flagged_one_look",
    }
    return {names[name]: each / 100 for name, each in mean_of(rows).items() if name in names}


def inputs_of(table: ActorTable, jhmdb: Path, maps: Path, material: Material) -> Inputs:
    """Return what every row is seen by in the square around it."""
    from examples.make_people import in_squares

    squares = in_squares(table, jhmdb)
    seen = torch.stack(
        [torch.from_numpy(np.load(place(maps, "crop", row))["map"]).float() for row in range(len(table))]
    )
    unit = np.where(squares.has_box[:, None], squares.boxes_xyxy_unit, WHOLE_FRAME)
    boxes: Tensor = torch.from_numpy(unit).float() * CROP_PX
    rows = torch.arange(len(table))
    return with_labels(inputs_in_map(seen, boxes, rows, stride=STRIDE), material.classifier)


def _at(inputs: Inputs, rows: np.ndarray) -> Inputs:
    return {name: each[torch.from_numpy(rows)] for name, each in inputs.items()}
