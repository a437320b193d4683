"""A comparison as Markdown, LaTeX and CSV. All names are escaped, so none can break the markup."""

import csv
import io
import re
from collections.abc import Sequence

from mule.core.errors import RangeError
from mule.evaluation.outcomes import Comparison, Contender, Outcome
from mule.evaluation.tables import Cell, Line, Sheet, TableNumber

LATEX_PACKAGES = r"% needs \usepackage{booktabs, adjustbox} and \usepackage[table]{xcolor}"
OUTCOME_COLUMNS = ["method", "score", "measure", "split", "seed", "value", "low", "high"]
_MARKDOWN = {
    **{sign: f"\\{sign}" for sign in "\\`*_{}[]#~|$!"},
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
}
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # after a line break, LaTeX would read a bracket as an option
    "]": "{]}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "±": r"$\pm$",
    "−": r"$-$",
    "×": r"$\times$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
}


def markdown(sheet: Sheet) -> str:
    """Format the sheet as a GitHub-flavoured Markdown table with its notes below."""
    titles = list(map(escaped_markdown, sheet.titles))
    spanned = _scores_of_columns(sheet)
    lines = [
        _markdown_row(
            [
                f"{title} ({scores})" if scores else title
                for title, scores in zip(titles, spanned, strict=True)
            ]
        ),
        "|" + "|".join(" :-- " if _is_text(sheet, at) else " --: " for at in range(len(titles))) + "|",
    ]
    lines += [_markdown_row(list(map(_markdown_cell, line.cells))) for line in sheet.lines]
    notes = [text for note in sheet.notes for text in ("", escaped_markdown(note))]
    return "\n".join([*lines, *notes]) + "\n"


def latex(sheet: Sheet, *, caption: str, label: str) -> str:
    r"""Format the sheet as a LaTeX table with booktabs rules, notes in the caption and our rows in green.

    Args:
        sheet: the table.
        caption: plain text; it is escaped like every name.
        label: for `\ref`; letters, digits, and any of `: . _ -`.
    """
    if not re.fullmatch(r"[A-Za-z0-9:._-]+", label):
        raise RangeError(rf"a LaTeX label must be letters, digits and any of : . _ -; got {label!r}.")
    columns = "".join("l" if _is_text(sheet, at) else "c" for at in range(len(sheet.titles)))
    text = " ".join(map(escaped_latex, filter(None, (caption, *sheet.notes))))
    return "\n".join(
        [
            LATEX_PACKAGES,
            r"\begin{table*}[t]",
            r"\centering\scriptsize",
            r"\begin{adjustbox}{max width=\linewidth}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *_latex_spans(sheet),
            " & ".join(rf"\textbf{{{escaped_latex(title)}}}" for title in sheet.titles) + r" \\",
            r"\midrule",
            *map(_latex_line, sheet.lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            rf"\caption{{{text}}}",
            rf"\label{{{label}}}",
            r"\end{table*}",
            "",
        ]
    )


def summary_csv(comparison: Comparison) -> str:
    """Return CSV with a row per method and score: mean, deviation, trials and is_best of every measure, unscaled."""
    numbers = [
        name for each in comparison.measures for name in (each.key, *(f"{each.key}_{what}" for what in ("deviation", "trials", "is_best")))
    ]  # fmt: skip
    marked = {each: comparison.best(comparison.contenders(each), each) for each in comparison.measures}
    rows: list[Sequence[object]] = [["method", "score", *numbers]]
    for row in comparison.rows:
        for score in comparison.scores(row.method) or ("",):
            cells: list[object] = [row.method, score]
            for measure in comparison.measures:
                contender = Contender(row.method, score if measure.has_scores else "")
                summary = comparison.summary(contender, measure)
                cells += [_csv_number(summary.mean), _csv_number(summary.deviation), summary.num_trials]
                cells.append(int(contender in marked[measure]))
            rows.append(cells)
    return _csv_text(rows)


def outcomes_csv(outcomes: Sequence[Outcome]) -> str:
    """Return CSV with every number of every trial, exact."""
    rows = [
        [each.method, each.score, each.measure, each.trial.split, each.trial.seed, _csv_number(each.value)]
        + ([repr(end) for end in each.interval] if each.interval else ["", ""])
        for each in outcomes
    ]
    return _csv_text([OUTCOME_COLUMNS, *rows])


def escaped_markdown(text: str) -> str:
    """Escape text for Markdown, also inside a table; line breaks become spaces."""
    return "".join(_MARKDOWN.get(sign, sign) for sign in _one_line(text))


def escaped_latex(text: str) -> str:
    """Escape text for LaTeX, also inside a table; line breaks become spaces."""
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _is_text(sheet: Sheet, column: int) -> bool:
    return all(isinstance(line.cells[column], str) for line in sheet.lines)


def _scores_of_columns(sheet: Sheet) -> list[str]:
    """The heading above each column; Markdown has only one line of titles, so they share it."""
    if not sheet.spans:
        return [""] * len(sheet.titles)
    return [escaped_markdown(heading) for heading, width in sheet.spans for _ in range(width)]


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return escaped_markdown(cell)
    return " / ".join(map(_markdown_number, cell)) or "–"


def _markdown_number(number: TableNumber) -> str:
    text = f"**{number.text}**" if number.is_marked else number.text
    return f"{text} {escaped_markdown(number.spread)}".strip()


def _latex_line(line: Line) -> str:
    colour = r"\rowcolor{green!12} " if line.is_ours else ""
    return colour + " & ".join(map(_latex_cell, line.cells)) + r" \\"


def _latex_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return escaped_latex(cell)
    return " / ".join(map(_latex_number, cell)) or "--"


def _latex_number(number: TableNumber) -> str:
    text = escaped_latex(number.text)
    text = rf"\textbf{{{text}}}" if number.is_marked else text
    spread = escaped_latex(number.spread.replace("± ", "±"))
    return rf"{text}\textsubscript{{{spread}}}" if spread else text


def _latex_spans(sheet: Sheet) -> list[str]:
    if not sheet.spans:
        return []
    cells: list[str] = []
    rules: list[str] = []
    start = 1
    for heading, width in sheet.spans:
        if heading:
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{\textbf{{{escaped_latex(heading)}}}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        else:
            cells += [""] * width
        start += width
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _csv_text(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _csv_number(value: float) -> str:
    return repr(value) if value == value else ""
