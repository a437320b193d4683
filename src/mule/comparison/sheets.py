"""What the rows of a comparison found, and the tables made from it in the paper's layout.

paper         one line per method: PE / NE / PNE / Belief in each cell
judged        one line per method, by the one score it is compared by
differences   each method minus the reference, paired: over trials, or with one trial over resampled clips
scenes        AUROC where scenes are random, go with the actions as in training, or against them
networks      the methods apart from novelty: mAP, dead outputs, calibration, steps, time
every         one line per method and score
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mule.comparison.rows import Contestant, Row, gradient_steps
from mule.core.config import ConfigError
from mule.evaluation.intervals import draw_clips, drawn_measures, interval_of
from mule.evaluation.open_set import OpenSetMeasures
from mule.evaluation.outcomes import (
    LEVEL,
    PAPER_MEASURES,
    Comparison,
    Difference,
    Measure,
    MethodRow,
    Outcome,
)
from mule.evaluation.tables import ARROWS, Line, Sheet, TableNumber, difference_number, difference_sheet
from mule.inference.results import SideResult, kept_outputs, read_novelties
from mule.inference.score_rules import JUDGED_BY, PAPER_SCORES
from mule.metrics import MEASURES
from mule.systems.catalogue import find_system
from mule.training.run_folder import RunFolder

OURS = "mule"
USUAL_REFERENCE = "bce-aco-r"


def method_names(contestants: Sequence[Contestant]) -> dict[str, str]:
    """The name of each experiment in tables: its system, unless another experiment has the same one."""
    systems = [each.experiment.system for each in contestants]
    return {
        each.name: each.text
        or (each.experiment.system if systems.count(each.experiment.system) == 1 else each.name)
        for each in contestants
    }


def require_methods(methods: Mapping[str, str], against: str | None, judged_by: Mapping[str, str]) -> None:
    """Require that every name is one of the methods.

    Raises:
        ConfigError: one is not.
    """
    named = [*judged_by, *([] if against is None else [against])]
    unknown = [name for name in named if name not in methods.values()]
    if unknown:
        raise ConfigError(f"a method must be one of {', '.join(methods.values())}; got {', '.join(unknown)}.")


@dataclass(frozen=True)
class FinishedRow:
    """A finished row, its method, and its results by side."""

    row: Row
    method: str
    results: Mapping[str, SideResult]


@dataclass(frozen=True)
class Findings:
    """The results of all rows of a comparison."""

    rows: tuple[FinishedRow, ...]
    reference: str
    """The method that the others are compared with."""
    judged_by: Mapping[str, str]
    """The one score by which each method is compared, fixed before any result was seen."""

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order given."""
        return tuple(dict.fromkeys(each.method for each in self.rows))

    @property
    def tests(self) -> tuple[str, ...]:
        """The test sides; the first is that of the main table."""
        return self.rows[0].row.sides[1:]

    def tells_apart(self, side: str) -> bool:
        """Whether every row has known and novel actors on the side; otherwise only recognition can be compared."""
        sides = [each.results[side] for each in self.rows]
        return all(side.num_known and side.num_novel for side in sides)

    def of(self, method: str) -> tuple[FinishedRow, ...]:
        """The trials of a method."""
        return tuple(each for each in self.rows if each.method == method)


def findings_of(
    rows: Sequence[tuple[Row, Mapping[str, SideResult]]],
    methods: Mapping[str, str],
    *,
    against: str | None = None,
    judged_by: Mapping[str, str] | None = None,
) -> Findings:
    """What finished rows found, under the names of their methods.

    Args:
        rows: with the results of each.
        methods: the method of each contestant.
        against: the method others are compared with; None is `bce-aco-r`, or the first where there is none.
        judged_by: the score of a method, where it is not the one it decides by or its kind of evidence is judged by.

    Raises:
        ConfigError: there is no such method, or it has no such score.
    """
    finished = tuple(FinishedRow(row, methods[row.contestant], results) for row, results in rows)
    names = list(dict.fromkeys(each.method for each in finished))
    asked = dict(judged_by or {})
    require_methods(methods, against, asked)
    usual = USUAL_REFERENCE if USUAL_REFERENCE in names else next(iter(names), "")
    chosen: dict[str, str] = {}
    for each in finished:
        test = each.results[each.row.sides[1]]
        own = find_system(each.row.experiment.system).decides_by
        chosen[each.method] = asked.get(each.method) or own or JUDGED_BY[test.kind]
        if chosen[each.method] not in test.scores and test.num_novel:
            raise ConfigError(
                f"{each.method} must be compared by a score it has; {chosen[each.method]} was left out: "
                f"{test.left_out.get(chosen[each.method], 'it was not computed')}. It has {', '.join(test.scores)}."
            )
    return Findings(finished, against if against in names else usual, chosen)


def drawn_difference(
    first: FinishedRow, other: FinishedRow, side: str, *, scores: tuple[str, str], resamples: int
) -> dict[str, Difference] | None:
    """First minus other in every measure, paired by resampling clips; None if they have different actors."""
    rows = (first, other)
    if len({each.results[side].side_digest for each in rows}) > 1:
        return None
    outputs, others = (kept_outputs(each.row.folder, side) for each in rows)
    if not np.array_equal(outputs.clip_index, others.clip_index):
        return None
    draws = draw_clips(outputs.video_index, num_clips=len(outputs.videos), resamples=resamples)
    novelties = [
        read_novelties(each.row.folder, side)[score] for each, score in zip(rows, scores, strict=True)
    ]
    drawn = [drawn_measures(novelty, outputs.truth.is_novel, draws) for novelty in novelties]
    differences: dict[str, Difference] = {}
    for name in MEASURES:
        values = [
            getattr(each.results[side].scores[score].measures, name)
            for each, score in zip(rows, scores, strict=True)
        ]
        ends = interval_of(drawn[0][name] - drawn[1][name], level=LEVEL) or (np.nan, np.nan)
        differences[name] = Difference(
            values[0] - values[1], *ends, num_units=len(outputs.videos), unit="seed"
        )
    return differences


def drawn_differences(findings: Findings, side: str, *, resamples: int) -> Sheet:
    """Every other method minus the reference, each by its score, when there is only one trial."""
    (reference,) = findings.of(findings.reference)
    lines: list[Line] = []
    for method in findings.methods:
        if method == findings.reference:
            continue
        (each,) = findings.of(method)
        scores = findings.judged_by[method], findings.judged_by[findings.reference]
        found = drawn_difference(each, reference, side, scores=scores, resamples=resamples) or {}
        mean_ap = each.results[side].mean_ap - reference.results[side].mean_ap
        found["map"] = Difference(mean_ap, np.nan, np.nan, 0, "seed")
        cells = [
            (difference_number(found[measure.key], measure) if measure.key in found else TableNumber("–"),)
            for measure in PAPER_MEASURES
        ]
        lines.append(Line((method, scores[0], *cells), method.startswith(OURS)))
    notes = (
        f"Method minus {findings.reference} ({findings.judged_by[findings.reference]}) in percent, with its "
        f"{100 * LEVEL:g} % interval over {resamples} bootstrap resamples of the test clips, the same for both. With one "
        "trial, the interval covers other clips, not other seeds or classes. Bold: the interval excludes zero. The "
        "intervals are not adjusted for multiple comparisons.",
    )
    titles = ("Method", "Score", *(f"{each.title}{ARROWS[each.better]}" for each in PAPER_MEASURES))
    return Sheet(titles, tuple(lines), notes=notes)


NETWORK_MEASURES = (
    Measure("map", "Closed-set mAP", "higher", has_scores=False),
    Measure("map_val", "mAP, validation", "higher", has_scores=False),
    Measure("dead_share", "Dead outputs", "lower", has_scores=False, decimals=1),
    Measure("expected_error", "ECE", "lower", has_scores=False),
    Measure("steps", "Gradient steps", "neither", has_scores=False, scale=1.0, decimals=0),
    Measure("trained_s", "Seconds of training", "neither", has_scores=False, scale=1.0, decimals=0),
)


def paper_comparison(findings: Findings, side: str) -> Comparison:
    """The paper's measures of the paper's scores; Dirichlet networks use vacuity."""
    return compared_by(findings, side, {method: (*PAPER_SCORES, "vacuity") for method in findings.methods})


def judged_comparison(findings: Findings, side: str) -> Comparison:
    """The paper's measures of the one score by which each method is compared."""
    return compared_by(findings, side, {method: (score,) for method, score in findings.judged_by.items()})


def every_comparison(findings: Findings, side: str) -> Comparison:
    """The paper's measures of every score that any method has."""
    scores = dict.fromkeys(score for each in findings.rows for score in each.results[side].scores)
    return compared_by(findings, side, dict.fromkeys(findings.methods, tuple(scores)))


def compared_by(findings: Findings, side: str, scores: Mapping[str, tuple[str, ...]]) -> Comparison:
    """The paper's measures of these scores of each method."""
    outcomes: list[Outcome] = []
    for each in findings.rows:
        result, trial = each.results[side], each.row.trial
        for score in scores[each.method]:
            measures = result.scores[score].measures if score in result.scores else None
            if isinstance(measures, OpenSetMeasures):
                outcomes += [
                    Outcome(
                        each.method, name, getattr(measures, name), trial, score, _interval(measures, name)
                    )
                    for name in MEASURES
                ]
        outcomes.append(Outcome(each.method, "map", result.mean_ap, trial))
    return Comparison(_listed(findings), PAPER_MEASURES, tuple(outcomes))


def scenes_comparison(findings: Findings) -> Comparison:
    """AUROC on every test side by each method's score; on Stage also biased minus counter."""
    sides = findings.tests
    measures = [Measure(side, f"AUROC, {side.removeprefix('test-')}", "higher") for side in sides]
    gap = ("test-biased", "test-counter")
    if set(gap) <= set(sides):
        measures.append(Measure("gap", "biased − counter", "neither"))
    outcomes: list[Outcome] = []
    for each in findings.rows:
        score = findings.judged_by[each.method]
        aurocs: dict[str, float] = {}
        for side in sides:
            measures_here = each.results[side].scores[score].measures
            if isinstance(measures_here, OpenSetMeasures):
                aurocs[side], ends = measures_here.auroc, _interval(measures_here, "auroc")
                outcomes.append(Outcome(each.method, side, aurocs[side], each.row.trial, score, ends))
        if set(gap) <= set(aurocs):
            value = aurocs[gap[0]] - aurocs[gap[1]]
            outcomes.append(Outcome(each.method, "gap", value, each.row.trial, score))
    return Comparison(_listed(findings), tuple(measures), tuple(outcomes))


def networks_comparison(findings: Findings, side: str) -> Comparison:
    """The methods apart from novelty: recognition, calibration, cost."""
    outcomes: list[Outcome] = []
    for each in findings.rows:
        result = each.results[side]
        values = {
            "map": result.mean_ap,
            "map_val": result.mean_ap_val,
            "dead_share": result.dead_share,
            "expected_error": result.expected_error,
            "steps": float(gradient_steps(each.row.experiment)),
            "trained_s": trained_seconds(each.row),
        }
        found = {name: value for name, value in values.items() if value is not None}
        outcomes += [Outcome(each.method, name, value, each.row.trial) for name, value in found.items()]
    return Comparison(_listed(findings), NETWORK_MEASURES, tuple(outcomes))


def trained_seconds(row: Row) -> float:
    """Seconds that all sessions of the row's training took: steps, waiting, validation, checkpoints."""
    return training_session_seconds(row, ("step_s", "wait_s", "validate_s", "checkpoint_s"))


def training_session_seconds(row: Row, parts: Sequence[str]) -> float:
    """Seconds that all sessions of the row's training took for these parts of the work."""
    sessions = RunFolder(row.folder).record().get("sessions", [])
    return float(sum(session.get(part, 0.0) for session in sessions for part in parts))


def reference_differences(findings: Findings, side: str, *, resamples: int) -> Sheet | None:
    """Every other method minus the reference, each by its score; None if there is nothing to compare.

    Pairs are trials; with a single trial, resampled clips of its test side, the same for both methods.
    """
    if len(findings.methods) < 2:
        return None
    comparison = judged_comparison(findings, side)
    if len(comparison.trials) > 1:
        return difference_sheet(comparison, findings.reference, score_of=findings.judged_by)
    return drawn_differences(findings, side, resamples=resamples) if resamples else None


def _interval(measures: OpenSetMeasures, name: str) -> tuple[float, float] | None:
    return None if measures.intervals is None else tuple(getattr(measures.intervals, name))


def _listed(findings: Findings) -> tuple[MethodRow, ...]:
    return tuple(MethodRow(method, is_ours=method.startswith(OURS)) for method in findings.methods)
