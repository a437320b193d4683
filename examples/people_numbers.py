"""How well the model `people` tells actions, and actions it was never taught, measured on films that taught it nothing."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int

from mule.core.errors import WeightsError
from mule.data.split.leakage import met_in_pretraining
from mule.evaluation.mean_ap import mean_average_precision, multilabel_average_precision
from mule.features.weights.cards import find_card
from mule.features.weights.classifier import load_classifier
from mule.features.weights.loading import weights_on_disk
from mule.inference.running import OutputsOf
from mule.inference.seen import SeenRule
from mule.inference.sides import TABLE_TESTS, TRAIN, VAL
from mule.novelty.crossfit import CrossFitted, Inputs, SeenParts
from mule.novelty.known import FittedToKnown, KnownActors
from mule.novelty.odds import IDLE_FROM
from mule.training.run_folder import experiment_of
from studies.seen.judging import ALARM_RATE, Judged, mean_of
from studies.seen.judging import measured as of_split

BACKBONE = "i3d_rgb_kinetics400"
SEEDS = range(300, 310)
"""Class splits by which nothing was chosen."""
SHARE_OF_ACTIONS, SHARE_OF_FILMS = 2 / 3, 0.65
"""How many actions are taught, and by how many of the films; everybody in the other films is tested."""
NAMED = 1.0
"""How alike an action and a label of Kinetics-400 must be for the pre-training to have a name for it."""


def known_actions(run: Path) -> dict[str, float]:
    """Measure the model itself on its run's test films, where everybody does a known action."""
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
    }


def novel_actions(known: KnownActors) -> dict[str, float]:
    """Measure novelty over class splits of the known actors, one look at each person.

    The model knows all actions, so its closed form is fitted anew: to two thirds of them, and to some of the films.
    """
    weights, card = weights_on_disk(BACKBONE, None)
    classifier = load_classifier(weights, card or find_card(BACKBONE))
    if classifier is None:
        raise WeightsError("the weights of I3D must have a classifier; these have none. Pull them again.")
    met = met_in_pretraining(known.actions, classifier.names, min_likeness=NAMED)
    named = {each.action for each in met}
    acts = known.calibrates.numpy()
    labels = known.labels[acts, : len(known.actions)]
    inputs = _at(known.inputs, np.flatnonzero(acts))
    action, film = labels.float().argmax(dim=1).numpy(), known.groups[acts].numpy()
    is_named = np.array([known.actions[at] in named for at in action])
    rows: list[dict[str, float]] = []
    for seed in SEEDS:
        taught, is_novel, is_tested = class_split(action, film, len(known.actions), seed)
        train, test = np.flatnonzero(~is_novel & ~is_tested), np.flatnonzero(is_tested)
        score = CrossFitted.fit(_at(inputs, train), labels[train][:, taught], torch.from_numpy(film[train]))
        found = score(_at(inputs, test))
        judged = Judged(
            seed,
            found.rank.numpy(),
            is_novel[test],
            action[test],
            film[test],
            is_named[test],
            found.p_value.numpy(),
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


def idle_people_told(known: KnownActors) -> dict[str, float]:
    """Measure who is called idle in half of the films, by parts fitted to the other half."""
    films = np.random.default_rng(SEEDS[0]).permutation(known.groups.unique().numpy())
    is_tested = torch.from_numpy(np.isin(known.groups.numpy(), films[len(films) // 2 :]))
    train, test = (known.at(torch.nonzero(rows).flatten()) for rows in (~is_tested, is_tested))
    nothing = torch.zeros(0, dtype=torch.int64)
    fitted = FittedToKnown(
        SeenParts.fit(train.inputs, train.labels), torch.zeros(0, 2), nothing, nothing, len(known.idle)
    )
    share = fitted.idle(test.inputs)
    if share is None:
        return {}
    is_called = share > IDLE_FROM
    told = {
        f"{name} called idle": float(is_called[test.labels[:, len(known.actions) + at]].float().mean())
        for at, name in enumerate(known.idle)
    }
    return {**told, "known_called_idle": float(is_called[~test.is_idle].float().mean())}


def class_split(
    action: Int[np.ndarray, " actors"], film: Int[np.ndarray, " actors"], num_actions: int, seed: int
) -> tuple[Int[np.ndarray, " taught"], Bool[np.ndarray, " actors"], Bool[np.ndarray, " actors"]]:
    """Draw which actions are taught, and return them, who does another one, and who is in a film for testing.

    >>> taught, is_novel, is_tested = class_split(np.array([0, 1, 2, 2]), np.array([5, 5, 6, 7]), 3, seed=0)
    >>> len(taught), bool((is_tested[0] == is_tested[1]))
    (2, True)
    """
    draw = np.random.default_rng(seed)
    taught = np.sort(draw.permutation(num_actions)[: round(SHARE_OF_ACTIONS * num_actions)])
    films = draw.permutation(np.unique(film))
    return taught, ~np.isin(action, taught), np.isin(film, films[round(SHARE_OF_FILMS * len(films)) :])


def _at(inputs: Inputs, rows: Int[np.ndarray, " chosen"]) -> Inputs:
    return {name: each[torch.from_numpy(rows)] for name, each in inputs.items()}
