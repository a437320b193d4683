"""Sheets of a comparison: the contents of every cell, before formatting.

    paper_sheet        one row per method; a cell holds every score: PE / NE / PNE / Belief (Tables 1, 2 and appendix)
    score_sheet        one row per method and score (Tables 3 and 4 when each method has one)
    difference_sheet   each method minus one of them, paired by trial, with confidence intervals

`formats.py` turns a sheet into Markdown or LaTeX.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from mule.core.errors import RangeError
from mule.evaluation.outcomes import (
    LEVEL,
    Comparison,
    Contender,
    Difference,
    Measure,
    MethodRow,
    paired_difference,
)

ARROWS = {"higher": " ↑", "lower": " ↓", "neither": ""}
ALIKE_NOTE = (
    "Bold: the best value and every value indistinguishable from it, because {why} or because both are printed the "
    "same. If that holds for all values, none is bold. A row with missing trials is never bold."
)
WHY_OVER_TRIALS = "the 95 % interval of their paired difference over trials contains zero"
WHY_IN_ONE_TRIAL = "it lies in the interval of the best value"
CONVENTION_NOTE = (
    "AUROC and AUPR: novel is positive. FPR: share of novel actors accepted as known when 95 % of known actors are. "
    "Error = 2.5 + FPR / 2."
)


@dataclass(frozen=True)
class TableNumber:
    """A printed value, the spread beside it, and whether it is bold."""

    text: str
    spread: str = ""
    is_marked: bool = False


Cell = str | tuple[TableNumber, ...]


@dataclass(frozen=True)
class Line:
    """One row of a sheet; names are text, results are numbers."""

    cells: tuple[Cell, ...]
    is_ours: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table: titles of columns, headings that span several, rows, and notes below."""

    titles: tuple[str, ...]
    lines: tuple[Line, ...]
    spans: tuple[tuple[str, int], ...] = ()
    """Headings above the titles, with the number of columns each covers; none, or all columns are covered."""
    notes: tuple[str, ...] = ()


def paper_sheet(comparison: Comparison) -> Sheet:
    """Return one row per method with all its scores in one cell; the best value of each score is bold.

    If methods have different scores, an extra column names them in the order of the numbers.
    """
    score_sets = dict.fromkeys(filter(None, (comparison.scores(row.method) for row in comparison.rows)))
    is_shared = len(score_sets) <= 1
    shared = " / ".join(next(iter(score_sets), ()))
    marked = {measure: _marked_by_score(comparison, measure) for measure in comparison.measures}

    def line(row: MethodRow) -> Line:
        scores = comparison.scores(row.method)
        cells: list[Cell] = [row.method]
        if not is_shared:
            cells.append(" / ".join(scores) or "–")
        for measure in comparison.measures:
            of = [Contender(row.method, score) for score in (scores if measure.has_scores else ("",))]
            cells.append(tuple(_number(comparison, each, measure, each in marked[measure]) for each in of))
        return Line(tuple(cells), row.is_ours)

    names = ("Method",) if is_shared else ("Method", "Scores")
    spans = _spans(comparison, len(names), shared) if is_shared and shared else ()
    titles = (*names, *map(_title, comparison.measures))
    return Sheet(titles, tuple(map(line, comparison.rows)), spans, _notes(comparison))


def score_sheet(comparison: Comparison) -> Sheet:
    """One row per method and score; the best value of each column is bold."""
    marked = {each: comparison.best(comparison.contenders(each), each) for each in comparison.measures}

    def lines(row: MethodRow) -> list[Line]:
        found: list[Line] = []
        for at, score in enumerate(comparison.scores(row.method) or ("",)):
            cells: list[Cell] = [row.method if at == 0 else "", score or "–"]
            for measure in comparison.measures:
                each = Contender(row.method, score if measure.has_scores else "")
                is_repeated = at > 0 and not measure.has_scores
                cells.append(
                    "" if is_repeated else (_number(comparison, each, measure, each in marked[measure]),)
                )
            found.append(Line(tuple(cells), row.is_ours))
        return found

    titles = ("Method", "Score", *map(_title, comparison.measures))
    found = tuple(line for row in comparison.rows for line in lines(row))
    return Sheet(titles, found, notes=_notes(comparison))


def difference_sheet(comparison: Comparison, against: str, *, score_of: Mapping[str, str]) -> Sheet:
    """Every other method minus `against`, on the trials both have; bold where the interval excludes zero.

    Args:
        comparison: the outcomes.
        against: the method to subtract.
        score_of: the one score by which each method is compared, fixed before the outcomes were seen; methods
            without one have no differences in columns that need a score.
    """
    _require_scores(comparison, against, score_of)
    others = [row for row in comparison.rows if row.method != against]
    found: dict[tuple[str, Measure], Difference] = {}
    for row in others:
        for measure in comparison.measures:
            pair = [
                comparison.values(
                    Contender(name, score_of.get(name, "") if measure.has_scores else ""), measure
                )
                for name in (row.method, against)
            ]
            found[row.method, measure] = paired_difference(pair[0], pair[1])

    def line(row: MethodRow) -> Line:
        cells = [(difference_number(found[row.method, each], each),) for each in comparison.measures]
        return Line((row.method, score_of.get(row.method, "–"), *cells), row.is_ours)

    shown = [each for each in found.values() if isfinite(each.low)]
    name = f"{against} ({score_of[against]})" if against in score_of else against
    notes = (
        f"Method minus {name}: mean difference over the same trials, in the units of the columns, with its "
        f"{100 * LEVEL:g} % interval (Student's t over {_units(shown)}). Bold: the interval excludes zero. The "
        f"{len(shown)} intervals are not adjusted for multiple comparisons: about {(1 - LEVEL) * len(shown):.1f} would "
        "exclude zero if no method differed.",
    )
    titles = ("Method", "Score", *map(_title, comparison.measures))
    return Sheet(titles, tuple(map(line, others)), notes=notes)


def _number(comparison: Comparison, contender: Contender, measure: Measure, is_marked: bool) -> TableNumber:
    summary = comparison.summary(contender, measure)
    if not summary.num_trials:
        return TableNumber("–")
    spread = ""
    if summary.num_trials > 1:
        spread = f"± {measure.shown(summary.deviation)}"
    elif summary.interval is not None and len(comparison.trials) == 1:
        spread = f"[{measure.shown(summary.interval[0])}, {measure.shown(summary.interval[1])}]"
    if summary.num_trials < len(comparison.trials):
        spread = f"{spread} ({summary.num_trials} of {len(comparison.trials)})".strip()
    return TableNumber(measure.shown(summary.mean), spread, is_marked)


def difference_number(difference: Difference, measure: Measure) -> TableNumber:
    """The mean with its sign and its interval; bold where the interval excludes zero."""
    if not isfinite(difference.mean):
        return TableNumber("–")
    sign = "+" if difference.mean > 0 else ""
    spread = (
        f"[{measure.shown(difference.low)}, {measure.shown(difference.high)}]"
        if isfinite(difference.low)
        else ""
    )
    return TableNumber(f"{sign}{measure.shown(difference.mean)}", spread, difference.is_clear)


def _marked_by_score(comparison: Comparison, measure: Measure) -> frozenset[Contender]:
    contenders = comparison.contenders(measure)
    scores = dict.fromkeys(each.score for each in contenders)
    return frozenset[Contender]().union(
        *(comparison.best([each for each in contenders if each.score == score], measure) for score in scores)
    )


def _title(measure: Measure) -> str:
    return f"{measure.title}{ARROWS[measure.better]}"


def _spans(comparison: Comparison, num_names: int, scores: str) -> tuple[tuple[str, int], ...]:
    """The names of the scores above the columns that hold them."""
    spans: list[tuple[str, int]] = [("", num_names)]
    for measure in comparison.measures:
        heading = scores if measure.has_scores else ""
        if spans[-1][0] == heading:
            spans[-1] = (heading, spans[-1][1] + 1)
        else:
            spans.append((heading, 1))
    return tuple(spans)


def _notes(comparison: Comparison) -> tuple[str, ...]:
    trials = len(comparison.trials)
    if not trials:
        return ("No trial has finished.",)
    splits = len({each.split for each in comparison.trials})
    of_trials = f"{trials} trial{'s' * (trials != 1)}, {splits} class split{'s' * (splits != 1)}."
    spread = f"Mean ± standard deviation over {of_trials}" if trials > 1 else f"From {of_trials}"
    if all(each.scale == 100 for each in comparison.measures):
        spread = f"In percent. {spread}"
    alike = ALIKE_NOTE.format(why=WHY_OVER_TRIALS if trials > 1 else WHY_IN_ONE_TRIAL)
    convention = (CONVENTION_NOTE,) if any(each.key == "auroc" for each in comparison.measures) else ()
    return (spread, alike, *convention)


def _units(differences: list[Difference]) -> str:
    counted = dict.fromkeys(f"{each.num_units} {each.unit}s" for each in differences)
    return " or ".join(counted) or "trials, if there are two"


def _require_scores(comparison: Comparison, against: str, score_of: Mapping[str, str]) -> None:
    methods = [row.method for row in comparison.rows]
    if against not in methods:
        raise RangeError(f"differences must be against a method of the table, {methods}; got {against!r}.")
    wrong = [
        f"{name!r} has no score {score!r}, it has {list(comparison.scores(name))}"
        for name, score in score_of.items()
        if name in methods and score not in comparison.scores(name)
    ]
    if wrong:
        raise RangeError(f"each method must be compared by a score it has: {'; '.join(wrong)}.")
