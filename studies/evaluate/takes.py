"""What more looks at each actor are worth: takes judged by their first look, two, four and eight.

A take shows each actor for several seconds. The run was trained on single looks; held-out takes set the
thresholds.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mule.core.errors import RangeError
from mule.core.settings import Experiment
from mule.inference.judging import Judging, facts_unkept, judged, yardstick_of
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import reading_of
from mule.inference.results import SideResult
from mule.inference.running import OutputsOf, weights_digest
from mule.inference.score_rules import score_rules
from mule.inference.sides import TRAIN, VAL
from mule.training.data import Noted

NUMBERS_OF_LOOKS = (1, 2, 4, 8)


class Takes(NamedTuple):
    """The outputs of a run for every look at the actors of two sets of takes."""

    test: SideOutputs
    held_out: SideOutputs
    """Its known actors set thresholds and p-values."""


def judge_takes(
    run_dir: Path,
    experiment: Experiment,
    takes: Takes,
    *,
    looks: Sequence[int] = NUMBERS_OF_LOOKS,
    judging: Judging,
    noted: Noted,
) -> dict[int, SideResult]:
    """Judge takes that are no part of a run's data; returns a result for each number of looks.

    An actor who does an action the run was not taught is novel. Scores learn from the run's training actors;
    thresholds and p-values come from held-out tracks with as many looks.

    Args:
        run_dir: the folder of the run.
        experiment: its experiment, with the data where they are now.
        takes: the outputs of the run; only known actors of the held-out takes are used.
        looks: the numbers of looks to use.
        judging: how to judge; always by track.
        noted: receives a sentence about whatever is being computed.

    Raises:
        RangeError: there are no tracks, no held-out actor is known, or a number of looks is below one.
    """
    source, model = OutputsOf(run_dir, experiment), weights_digest(run_dir)
    train, val = (source.on(side, noted=noted) for side in (TRAIN, VAL))
    read = reading_of(experiment.system, train, val, model=model)
    test, held_out = map(_with_novel_marked, takes)
    test, held_out = read(test), read(held_out.at(~held_out.truth.is_novel))
    results: dict[int, SideResult] = {}
    for number in looks:
        by_tracks = replace(judging, by="track", most_looks=number)
        yardstick = yardstick_of(score_rules(by_tracks.scores), train, by_tracks.rows_of(held_out))
        facts = facts_unkept(experiment.system, by_tracks.name_of("takes"), model=model)
        results[number], _ = judged(by_tracks.rows_of(test), yardstick, judging=by_tracks, facts=facts)
    return results


def _with_novel_marked(outputs: SideOutputs) -> SideOutputs:
    """The looks at actors who do something; those who do an action the network was not taught are novel.

    An actor who changes actions becomes another actor: looks at different actions are never fused.
    """
    truth = outputs.truth
    untaught = [name not in outputs.classes for name in truth.classes]
    is_novel = np.asarray(truth.labels[:, untaught].any(axis=1))
    if np.all(is_novel):
        raise RangeError(
            "takes must show actors who do only actions that the run was taught; "
            f"all {outputs.num_actors} looks show other actions."
        )
    who_does = zip(truth.actor_ids, truth.labels, strict=True)
    actor_ids = tuple(f"{who} {np.flatnonzero(does)}" if who else "" for who, does in who_does)
    marked = replace(outputs, truth=replace(truth, is_novel=is_novel, actor_ids=actor_ids))
    return marked.at(np.asarray(truth.labels.any(axis=1)))
