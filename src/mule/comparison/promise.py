"""Whether the promised false-alarm rate was kept: known actors flagged on a test side, all of them and group by group.

validation ─ novelty of its known actors ─▶ promised threshold ─▶ test ─ known actors above it, of each action and video

The promise is an average over known actors. It says nothing of one action or one camera, so these are counted.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from mule.comparison.sheets import Findings, FinishedRow
from mule.comparison.tested import DEFAULT
from mule.core.errors import TooFewActors
from mule.evaluation.coverage import Coverage, GroupCoverage, coverage
from mule.evaluation.tables import Block, Line, Number, Sheet
from mule.inference.judging import FALSE_ALARMS
from mule.inference.outputs import SideOutputs
from mule.inference.results import kept_outputs, read_novelties
from mule.inference.sides import VAL
from mule.novelty.thresholds import promised_threshold

EVERYBODY = "everybody"
FEWEST_OF_A_VIDEO = 20
"""Videos with fewer known actors are not counted by themselves: clips of one person each would fill the page."""


def promise_kept(findings: Findings, side: str) -> Sheet | None:
    """Known actors that the default, or else the first method, flags; None where too few were held out for a promise."""
    method = DEFAULT if DEFAULT in findings.methods else findings.methods[0]
    score = findings.judged_by[method]
    try:
        found = [_of_trial(each, side, score) for each in findings.of(method)]
    except TooFewActors:
        return None
    return coverage_sheet(found, f"{method} by {score}")


def known_coverage(
    outputs: SideOutputs, novelty: Float[np.ndarray, " actors"], held_out: Float[np.ndarray, " held_out"]
) -> Coverage:
    """How many known actors lie above the threshold promised on held-out ones, of each action and of each larger video.

    Raises:
        TooFewActors: fewer than nineteen were held out.
    """
    threshold = promised_threshold(torch.from_numpy(held_out), alarm_rate=FALSE_ALARMS)
    known = np.flatnonzero(np.logical_not(outputs.truth.is_novel))
    return coverage(
        novelty[known] > threshold.novelty,
        alarm_rate=FALSE_ALARMS,
        num_held_out=len(held_out),
        groups=_groups(outputs, known),
    )


def coverage_sheet(found: Sequence[Coverage], judged: str) -> Sheet:
    """The trials of a method, counted together; whether a group is off is asked of each trial by itself."""
    names = dict.fromkeys(name for each in found for name in each.groups)
    lines = [_line(EVERYBODY, [each.overall for each in found])]
    lines += [_line(name, [each.groups[name] for each in found if name in each.groups]) for name in names]
    numbers = sorted({each.num_held_out for each in found})
    held_out = " to ".join(str(number) for number in dict.fromkeys((numbers[0], numbers[-1])))
    notes = (
        f"{judged}: known actors above the threshold that promises at most {FALSE_ALARMS:.0%}, the conformal quantile of "
        f"{held_out} known actors of validation. Off: trials in which as many flags have a chance of at most 5 % "
        "(beta-binomial; Holm's correction over the groups of a trial). The promise is an average over known actors; a group "
        "that is off is a finding, not an error of arithmetic.",
    )
    return Sheet(("Known actors", "Number", "Flagged", "Off"), (Block("", tuple(lines)),), notes=notes)


def _of_trial(each: FinishedRow, side: str, score: str) -> Coverage:
    folder = each.row.folder
    is_held_out = np.logical_not(kept_outputs(folder, VAL).truth.is_novel)
    held_out = read_novelties(folder, VAL)[score][is_held_out]
    return known_coverage(kept_outputs(folder, side), read_novelties(folder, side)[score], held_out)


def _groups(
    outputs: SideOutputs, known: Int[np.ndarray, " known"]
) -> Mapping[str, Int[np.ndarray, " members"]]:
    """Positions among the known actors of those who do each action, and of those in each video with enough of them."""
    truth = outputs.truth
    by_action = {
        name: np.flatnonzero(does) for name, does in zip(truth.classes, truth.labels[known].T, strict=True)
    }
    video_index = outputs.video_index[known]
    by_video = {name: np.flatnonzero(video_index == at) for at, name in enumerate(outputs.videos)}
    return {
        **{name: members for name, members in by_action.items() if len(members)},
        **{name: members for name, members in by_video.items() if len(members) >= FEWEST_OF_A_VIDEO},
    }


def _line(name: str, found: list[GroupCoverage]) -> Line:
    num_known, num_flagged = (
        sum(getattr(each, key) for each in found) for key in ("num_known", "num_flagged")
    )
    share = f"{100 * num_flagged / num_known:.1f} %" if num_known else "–"
    off = f"{sum(each.is_off for each in found)} of {len(found)}"
    return Line((name, str(num_known), (Number(share, is_marked=any(each.is_off for each in found)),), off))
