"""From the results of rows to sheets in the paper's layout, and differences from a row that is named.

paper         one line per method: PE / NE / PNE / Belief in each cell
judged        one line per method, by the one score it is judged by
differences   each method minus the reference, paired: over trials, or with one trial over draws of clips
scenes        AUROC where scenes are random, go with the actions as in training, or against them
networks      what the methods are apart from novelty: mAP, dead outputs, calibration, steps, time
every         one line per method and score
"""

from collections.abc import Mapping

from mule.comparison.equal import gradient_steps
from mule.comparison.findings import OURS, Findings
from mule.comparison.paired import drawn_differences
from mule.comparison.rows import Row
from mule.evaluation.outcomes import PAPER_MEASURES, Comparison, Measure, MethodRow, Outcome
from mule.evaluation.results import OpenSetMeasures
from mule.evaluation.tables import Sheet, difference_sheet
from mule.inference.score_rules import PAPER_SCORES
from mule.metrics import MEASURES
from mule.training.run_record import RunFolder

VAL_MAP = Measure("map_val", "mAP, validation", "higher", has_scores=False)
NETWORK_MEASURES = (
    Measure("map", "Closed-set mAP", "higher", has_scores=False),
    VAL_MAP,
    Measure("dead_share", "Dead outputs", "lower", has_scores=False, decimals=1),
    Measure("expected_error", "ECE", "lower", has_scores=False),
    Measure("steps", "Gradient steps", "neither", has_scores=False, scale=1.0, decimals=0),
    Measure("trained_s", "Seconds of training", "neither", has_scores=False, scale=1.0, decimals=0),
)


def paper_comparison(findings: Findings, side: str) -> Comparison:
    """The paper's measures of the paper's scores; a Dirichlet has its vacuity."""
    return _compared(findings, side, {method: (*PAPER_SCORES, "vacuity") for method in findings.methods})


def judged_comparison(findings: Findings, side: str) -> Comparison:
    """The paper's measures of the one score by which each method is judged."""
    return _compared(findings, side, {method: (score,) for method, score in findings.judged_by.items()})


def every_comparison(findings: Findings, side: str) -> Comparison:
    """The paper's measures of every score that any method has."""
    scores = dict.fromkeys(score for each in findings.rows for score in each.results[side].scores)
    return _compared(findings, side, dict.fromkeys(findings.methods, tuple(scores)))


def _compared(findings: Findings, side: str, scores: Mapping[str, tuple[str, ...]]) -> Comparison:
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
    """AUROC on every test side by the score each method is judged by; on Stage also biased minus counter."""
    sides = findings.tests
    measures = [Measure(side, f"AUROC, {side.removeprefix('test-')}", "higher") for side in sides]
    gap = ("test-biased", "test-counter")
    if set(gap) <= set(sides):
        measures.append(Measure("gap", "biased − counter", "neither"))
    outcomes: list[Outcome] = []
    for each in findings.rows:
        score = findings.judged_by[each.method]
        found = {side: each.results[side].scores[score].measures for side in sides}
        aurocs = {side: its.auroc for side, its in found.items() if isinstance(its, OpenSetMeasures)}
        ends = {
            side: _interval(its, "auroc") for side, its in found.items() if isinstance(its, OpenSetMeasures)
        }
        outcomes += [
            Outcome(each.method, side, value, each.row.trial, score, ends[side])
            for side, value in aurocs.items()
        ]
        if set(gap) <= set(aurocs):
            outcomes.append(
                Outcome(each.method, "gap", aurocs[gap[0]] - aurocs[gap[1]], each.row.trial, score)
            )
    return Comparison(_listed(findings), tuple(measures), tuple(outcomes))


def networks_comparison(findings: Findings, side: str) -> Comparison:
    """What the methods are apart from novelty."""
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
        outcomes += [Outcome(each.method, name, value, each.row.trial) for name, value in values.items()]
    return Comparison(_listed(findings), NETWORK_MEASURES, tuple(outcomes))


def trained_seconds(row: Row) -> float:
    """Seconds of all sessions of the row's training: steps, waiting, validations, checkpoints."""
    sessions = RunFolder(row.folder).record().get("sessions", [])
    parts = ("step_s", "wait_s", "validate_s", "checkpoint_s")
    return float(sum(session.get(part, 0.0) for session in sessions for part in parts))


def differences(findings: Findings, side: str, *, resamples: int) -> Sheet | None:
    """Every other method minus the reference, each by its score; None where there is nothing to compare.

    With several trials over these; with one, over draws of the clips of its test side, the same for both methods.
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
