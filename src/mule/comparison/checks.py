"""Two checks beside the tables: do clips differ without their pixels, and does the false-alarm promise hold.

control    known and novel told apart by length and frame size alone; only for videos, since clips of Stage are all alike
promise    validation ─ novelty of its known actors ─▶ threshold ─▶ test ─ known actors above it, per action and per video

The promise is an average over known actors. It says nothing about a single action or camera, so these are
counted too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from mule.comparison.sheets import Findings, FinishedRow
from mule.comparison.tested import DEFAULT
from mule.core.errors import NotFinite, TooFewActors
from mule.core.settings import TableData
from mule.data.table.table import ActorTable
from mule.evaluation.coverage import Coverage, GroupCoverage, coverage
from mule.evaluation.open_set import evaluate_open_set
from mule.evaluation.outcomes import Comparison, MethodRow, Outcome, Trial
from mule.evaluation.tables import Line, Sheet, TableNumber
from mule.inference.judging import FALSE_ALARMS
from mule.inference.outputs import SideOutputs
from mule.inference.results import kept_outputs, read_novelties
from mule.inference.sides import VAL, table_actors
from mule.metrics import MEASURES
from mule.novelty.calibration import promised_threshold
from mule.training.data import root_of, table_sides, videos_of
from mule.video.reading import video_facts

CONTROL, FACTS = "control without pixels", "length, width, height"
SUSPICIOUS_AUROC = 0.55
"""Above this, the control alone separates novel from known clips: match the clips for it."""
EVERYBODY = "everybody"
FEWEST_OF_A_VIDEO = 20
"""Videos with fewer known actors are not listed separately; clips of one person each would fill the page."""


def with_control(comparison: Comparison, findings: Findings, side: str) -> Comparison:
    """Add the control as the last line of a table; a comparison on Stage stays as it is."""
    data = {each.row.trial: each.row.experiment.data for each in findings.rows}
    outcomes = [
        outcome
        for trial, its in data.items()
        if isinstance(its, TableData)
        for outcome in _control_outcomes(trial, its, side)  # pyright: ignore[reportArgumentType] - frozen, so it has a hash
    ]
    if not outcomes:
        return comparison
    return replace(
        comparison,
        rows=(*comparison.rows, MethodRow(CONTROL)),
        outcomes=(*comparison.outcomes, *outcomes),
    )


def control_note(comparison: Comparison) -> str | None:
    """The result of the control as a sentence; None if there is no control."""
    aurocs = [each.value for each in comparison.outcomes if (each.method, each.measure) == (CONTROL, "auroc")]
    if not aurocs:
        return None
    auroc = float(np.mean(aurocs))
    if auroc > SUSPICIOUS_AUROC:
        return (
            f"The control, the distance of a clip to the nearest training clip in {FACTS}, reaches AUROC {auroc:.2f} without "
            f"looking at the video. That is above {SUSPICIOUS_AUROC:g}, so the other numbers partly measure what the clips "
            "are, not what they show. Match known and novel clips in these facts."
        )
    return (
        f"The control, the distance of a clip to the nearest training clip in {FACTS}, reaches AUROC {auroc:.2f}; up to "
        f"{SUSPICIOUS_AUROC:g} counts as chance."
    )


def control_without_pixels(
    training: Float[np.ndarray, "trained facts"],
    tested: Float[np.ndarray, "tested facts"],
    is_novel: Bool[np.ndarray, " tested"],
) -> Float[np.ndarray, " tested"]:
    """Return the distance of each clip to the nearest training clip in facts such as length and height.

    Clips of one source often share their length and frame size. If these alone separate novel from known actors,
    a score that sees pixels may have learned no more than the source. Each fact is divided by its standard deviation over training clips; a constant fact keeps its own units.

    Raises:
        TooFewActors: there are no training clips, or the tested clips are not both known and novel.
        NotFinite: a fact is not a finite number.
    """
    if not len(training) or is_novel.all() or not is_novel.any():
        raise TooFewActors(
            "a control needs training clips, and both known and novel clips to test; got "
            f"{len(training)} for training, {int((~is_novel).sum())} known and {int(is_novel.sum())} novel."
        )
    if not (np.isfinite(training).all() and np.isfinite(tested).all()):
        raise NotFinite("the facts of clips must be finite numbers; some are not. Leave out unknown facts.")
    spread = training.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    return np.asarray(KDTree(training / scale).query(tested / scale)[0])


@cache
def _control_outcomes(trial: Trial, data: TableData, side: str) -> list[Outcome]:
    """The measures of the control, cached: the files do not change while a page is written."""
    sides = table_sides(data)
    tested, is_novel = table_actors(side, sides.sides)
    trained = sides.train_actors
    videos = videos_of({*trained.video_names, *tested.video_names}, root_of(data) / data.videos)
    facts = {name: _facts(path) for name, path in videos.items()}
    novelty = control_without_pixels(_of(trained, facts), _of(tested, facts), is_novel)
    measures = evaluate_open_set(novelty, is_novel, resamples=0)
    return [Outcome(CONTROL, name, getattr(measures, name), trial, FACTS) for name in MEASURES]


def _of(actors: ActorTable, facts: Mapping[str, Sequence[float]]) -> Float[np.ndarray, "actors facts"]:
    return np.array([facts[name] for name in actors.video_names], dtype=np.float64)


@cache
def _facts(path: Path) -> tuple[float, float, float]:
    """Length in seconds, width and height, cached: the files do not change while a page is written."""
    facts = video_facts(path)
    return float(facts.duration_s or 0), float(facts.cols), float(facts.rows)


def promise_kept(findings: Findings, side: str) -> Sheet | None:
    """Count the known actors that the default (or the first method) flags; None if too few were held out."""
    method = DEFAULT if DEFAULT in findings.methods else findings.methods[0]
    score = findings.judged_by[method]
    try:
        trials = [_of_trial(each, side, score) for each in findings.of(method)]
    except TooFewActors:
        return None
    return coverage_sheet(trials, f"{method} by {score}")


def known_coverage(
    outputs: SideOutputs, novelty: Float[np.ndarray, " actors"], held_out: Float[np.ndarray, " held_out"]
) -> Coverage:
    """Count the known actors above the threshold set on held-out ones, in all, per action and per larger video.

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


def coverage_sheet(trials: Sequence[Coverage], judged: str) -> Sheet:
    """The trials of a method, counted together; whether a group is off is tested in each trial separately."""
    names = dict.fromkeys(name for each in trials for name in each.groups)
    lines = [_line(EVERYBODY, [each.overall for each in trials])]
    lines += [_line(name, [each.groups[name] for each in trials if name in each.groups]) for name in names]
    numbers = sorted({each.num_held_out for each in trials})
    held_out = " to ".join(str(number) for number in dict.fromkeys((numbers[0], numbers[-1])))
    notes = (
        f"{judged}: known actors above the threshold that promises at most {FALSE_ALARMS:.0%} false alarms, the conformal "
        f"quantile of {held_out} known actors of validation. Off: trials in which so many flags have a probability of at "
        "most 5 % (beta-binomial, Holm's correction over the groups of a trial). The promise is an average over all known "
        "actors, so single groups may be off although it holds.",
    )
    return Sheet(("Known actors", "Number", "Flagged", "Off"), tuple(lines), notes=notes)


def _of_trial(each: FinishedRow, side: str, score: str) -> Coverage:
    folder = each.row.folder
    is_held_out = np.logical_not(kept_outputs(folder, VAL).truth.is_novel)
    held_out = read_novelties(folder, VAL)[score][is_held_out]
    return known_coverage(kept_outputs(folder, side), read_novelties(folder, side)[score], held_out)


def _groups(
    outputs: SideOutputs, known: Int[np.ndarray, " known"]
) -> Mapping[str, Int[np.ndarray, " members"]]:
    """Return who does each action and who is in each video with enough known actors, by position among them."""
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


def _line(name: str, trials: list[GroupCoverage]) -> Line:
    num_known, num_flagged = (
        sum(getattr(each, key) for each in trials) for key in ("num_known", "num_flagged")
    )
    share = f"{100 * num_flagged / num_known:.1f} %" if num_known else "–"
    off = f"{sum(each.is_off for each in trials)} of {len(trials)}"
    return Line(
        (name, str(num_known), (TableNumber(share, is_marked=any(each.is_off for each in trials)),), off)
    )
