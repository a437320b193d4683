"""Differences of two methods in one trial, paired by drawing the clips of its test side: the same draws for both."""

import numpy as np

from mule.comparison.findings import OURS, Findings, FinishedRow
from mule.evaluation.clip_bootstrap import draw_clips, drawn_measures, interval_of
from mule.evaluation.outcomes import LEVEL, PAPER_MEASURES, Difference, Measure
from mule.evaluation.tables import ARROWS, Block, Line, Number, Sheet
from mule.inference.output_files import kept_outputs
from mule.inference.results import read_novelties
from mule.metrics import MEASURES


def drawn_difference(
    first: FinishedRow, other: FinishedRow, side: str, *, scores: tuple[str, str], resamples: int
) -> dict[str, Difference] | None:
    """First minus other in every measure, paired by drawing clips; None if they were not judged on the same actors."""
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
    found: dict[str, Difference] = {}
    for name in MEASURES:
        values = [
            getattr(each.results[side].scores[score].measures, name)
            for each, score in zip(rows, scores, strict=True)
        ]
        ends = interval_of(drawn[0][name] - drawn[1][name], level=LEVEL) or (np.nan, np.nan)
        found[name] = Difference(values[0] - values[1], *ends, num_units=len(outputs.videos), unit="seed")
    return found


def drawn_differences(findings: Findings, side: str, *, resamples: int) -> Sheet:
    """Every other method minus the reference, each by its score, where each has the same one trial."""
    (reference,) = findings.of(findings.reference)
    lines: list[Line] = []
    for method in findings.methods:
        if method == findings.reference:
            continue
        (each,) = findings.of(method)
        scores = findings.judged_by[method], findings.judged_by[findings.reference]
        found = drawn_difference(each, reference, side, scores=scores, resamples=resamples) or {}
        cells = [
            (_drawn_number(found.get(measure.key), measure),)
            for measure in PAPER_MEASURES
            if measure.has_scores
        ]
        mean_ap = each.results[side].mean_ap - reference.results[side].mean_ap
        cells.append((_drawn_number(Difference(mean_ap, np.nan, np.nan, 0, "seed"), PAPER_MEASURES[-1]),))
        lines.append(Line((method, scores[0], *cells), method.startswith(OURS)))
    notes = (
        f"Method minus {findings.reference} ({findings.judged_by[findings.reference]}) in percent, with its "
        f"{100 * LEVEL:g} % interval over {resamples} draws of the test clips, the same for both. One trial: the interval "
        "speaks of other clips, not of other seeds or classes. Bold: it leaves zero out. The intervals are not adjusted "
        "for their number.",
    )
    titles = ("Method", "Score", *(f"{each.title}{ARROWS[each.better]}" for each in PAPER_MEASURES))
    return Sheet(titles, (Block("", tuple(lines)),), notes=notes)


def _drawn_number(difference: Difference | None, measure: Measure) -> Number:
    if difference is None:
        return Number("–")
    sign = "+" if difference.mean > 0 else ""
    spread = (
        f"[{measure.shown(difference.low)}, {measure.shown(difference.high)}]"
        if difference.low == difference.low
        else ""
    )
    return Number(f"{sign}{measure.shown(difference.mean)}", spread, difference.is_clear)
