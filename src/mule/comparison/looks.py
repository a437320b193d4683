"""What more looks at each actor are worth: the same tracks judged with their first look, the first two, four, eight.

a side of the run's own data ────────────────────────────▶ judge_looks
takes that show each actor for long, some held out ─▶ judge_takes: a run that was trained on single looks
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mule.core.config import Experiment
from mule.core.errors import RangeError
from mule.inference.judging import Judging, facts_unkept, judge_run, judged, yardstick_of
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import reading_of
from mule.inference.results import SideResult
from mule.inference.running import OutputsOf, weights_digest
from mule.inference.score_rules import score_rules
from mule.inference.sides import TRAIN, VAL
from mule.training.data import Noted

NUMBERS_OF_LOOKS = (1, 2, 4, 8)


class Takes(NamedTuple):
    """What a run says of the actors of takes, look by look: of those to be judged, and of others that set thresholds."""

    test: SideOutputs
    held_out: SideOutputs


def judge_looks(
    run_dir: Path,
    experiment: Experiment,
    side: str,
    *,
    looks: Sequence[int] = NUMBERS_OF_LOOKS,
    judging: Judging,
    noted: Noted,
) -> dict[int, SideResult]:
    """How well every score does with the first few looks at each track, by their number; on the same tracks each time.

    Args:
        run_dir: the folder of the run.
        experiment: its experiment, with the data where they now lie.
        side: of its data.
        looks: numbers of looks.
        judging: how; by track, whatever it says.
        noted: is told what is being computed.

    Raises:
        RangeError: nobody was followed on that side, or a number is below one.
    """
    found: dict[int, SideResult] = {}
    for number in looks:
        wanted = replace(judging, by="track", most_looks=number)
        results = judge_run(run_dir, experiment, sides=[side], judging=wanted, noted=noted)
        found[number] = results[wanted.name_of(side)]
    return found


def judge_takes(
    run_dir: Path,
    experiment: Experiment,
    takes: Takes,
    *,
    looks: Sequence[int] = NUMBERS_OF_LOOKS,
    judging: Judging,
    noted: Noted,
) -> dict[int, SideResult]:
    """The same in takes that are no part of the run's data; whoever does an action it was not taught is novel.

    Scores learn from the run's training actors; thresholds and p-values are of the held-out tracks, of as many looks.

    Args:
        run_dir: the folder of the run.
        experiment: its experiment, with the data where they now lie.
        takes: what the run says of their actors; of those held out only the known are asked.
        looks: numbers of looks.
        judging: how; by track, whatever it says.
        noted: is told what is being computed.

    Raises:
        RangeError: nobody was followed, nobody held out is known, or a number is below one.
    """
    source, model = OutputsOf(run_dir, experiment), weights_digest(run_dir)
    train, val = (source.on(side, noted=noted) for side in (TRAIN, VAL))
    read = reading_of(experiment.system, train, val, model=model)
    test, held_out = map(_with_strangers, takes)
    test, held_out = read(test), read(held_out.at(~held_out.truth.is_novel))
    found: dict[int, SideResult] = {}
    for number in looks:
        wanted = replace(judging, by="track", most_looks=number)
        yardstick = yardstick_of(score_rules(wanted.scores), train, wanted.rows_of(held_out))
        facts = facts_unkept(experiment.system, wanted.name_of("takes"), model=model)
        found[number], _ = judged(wanted.rows_of(test), yardstick, judging=wanted, facts=facts)
    return found


def _with_strangers(outputs: SideOutputs) -> SideOutputs:
    """Those who do anything, and whoever does what the network was not taught is novel.

    An actor who turns to something else is another one from then on: looks at different actions are not put together.
    """
    truth = outputs.truth
    untaught = [name not in outputs.classes for name in truth.classes]
    is_novel = np.asarray(truth.labels[:, untaught].any(axis=1))
    if np.all(is_novel):
        raise RangeError(
            f"takes must show actors who do only what the run was taught; all {outputs.num_actors} looks are at others."
        )
    who_does = zip(truth.actor_ids, truth.labels, strict=True)
    actor_ids = tuple(f"{who} {np.flatnonzero(does)}" if who else "" for who, does in who_does)
    marked = replace(outputs, truth=replace(truth, is_novel=is_novel, actor_ids=actor_ids))
    return marked.at(np.asarray(truth.labels.any(axis=1)))
