"""How many people a judged run would flag as novel, by action: what a practitioner asks of it first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from mule.core.settings import Experiment, TableData
from mule.data.split.sides import apply_split
from mule.data.split.splits import read_split
from mule.data.table.reading import read_actor_table
from mule.inference.judging import Judging
from mule.inference.results import ResultError, SideResult, kept_outputs, read_novelties
from mule.inference.seen import SEEN_SCORE
from mule.inference.sides import ActorTruth
from mule.novelty.combining import DECIDING_SCORE
from mule.training.data import root_of

WITHOUT_MEMORY = "PE of log"
"""The score of `mule watch` for networks that have no memory."""


class Flagged(NamedTuple):
    """How many of the people who do an action are flagged."""

    num_flagged: int
    num_people: int


class FlaggedByAction(NamedTuple):
    """The flagged people who do each action: known people by taught action, novel people by novel action."""

    known: Mapping[str, Flagged]
    novel: Mapping[str, Flagged]


def deciding_score(result: SideResult) -> str | None:
    """Return the score by which `mule watch` decides for this network; None if it was not computed."""
    name = DECIDING_SCORE if result.kind in ("tied", "read") else WITHOUT_MEMORY
    if result.has_inputs and SEEN_SCORE not in result.left_out:
        name = SEEN_SCORE
    return name if name in result.scores else None


def flagged_by_action(
    truth: ActorTruth, novelty: Float[np.ndarray, " actors"], threshold: float, *, taught: Sequence[str]
) -> FlaggedByAction:
    """Count the people above the threshold for each action; who does two counts for both."""
    is_flagged = novelty > threshold
    known: dict[str, Flagged] = {}
    novel: dict[str, Flagged] = {}
    for name, does in zip(truth.classes, truth.labels.T, strict=True):
        doing = does & (~truth.is_novel if name in taught else truth.is_novel)
        if doing.any():
            counts = known if name in taught else novel
            counts[name] = Flagged(int(np.count_nonzero(is_flagged & doing)), int(np.count_nonzero(doing)))
    return FlaggedByAction(known, novel)


def flagged_in_run(
    run_dir: Path, side: str, result: SideResult, score: str, *, judging: Judging
) -> FlaggedByAction:
    """Count the flagged people of a judged side of a run by action; none without a threshold or without its outputs.

    Args:
        run_dir: the folder of the run.
        side: the side, as the run's data names it.
        result: its judgement.
        score: the score to flag by.
        judging: how the side was judged.
    """
    threshold = result.scores[score].threshold
    if threshold is None:
        return FlaggedByAction({}, {})
    try:
        outputs = judging.rows_of(kept_outputs(run_dir, side))
        novelty = read_novelties(run_dir, judging.name_of(side))[score]
    except ResultError:
        return FlaggedByAction({}, {})
    return flagged_by_action(outputs.truth, novelty, threshold, taught=outputs.classes)


def novel_actions(experiment: Experiment) -> tuple[str, ...]:
    """Return the novel actions of a split table that results are reported on; none where scenes are rendered."""
    data = experiment.data
    if not isinstance(data, TableData):
        return ()
    left_out = actions_left_out(experiment)
    return tuple(name for name in read_split(root_of(data) / data.split).classes.z3 if name not in left_out)


def actions_left_out(experiment: Experiment) -> tuple[str, ...]:
    """Return the novel actions that are not tested because the split keeps them for choosing between models."""
    data = experiment.data
    if not isinstance(data, TableData):
        return ()
    split = read_split(root_of(data) / data.split)
    test = apply_split(read_actor_table(root_of(data) / data.actors), split).test
    if not (test.is_for_choosing.any() and test.is_for_reporting.any()):
        return ()
    return split.classes.novel_choose
