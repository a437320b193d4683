"""A page of results read back: what `mule compare --docs` wrote, for whoever sets several of them side by side.

Its rows may be long gone; what they came to is on the page.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mule.comparison.page import EVERY_SCORE_ON, JUDGED_TITLE
from mule.core.errors import AnnotationError

SHOWN_PICTURES = ("roc", "scores")

_CELL_ENDS = re.compile(r"(?<!\\)\|")
_ESCAPED = re.compile(r"\\(.)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_PICTURE = re.compile(r"!\[(?P<caption>.*)\]\((?P<place>[^)]+)\)")


@dataclass(frozen=True)
class PagePicture:
    """A picture of a page."""

    caption: str
    path: Path


@dataclass(frozen=True)
class ResultsPage:
    """What a page of results says; AUROC from 0 to 1."""

    path: Path
    in_short: str
    """Its first paragraph, in Markdown."""
    methods: str
    """Its table of methods, in Markdown."""
    auroc_of_method: Mapping[str, float]
    """Each by the score it is judged by."""
    reference: str
    """The network that every score was tried on."""
    reference_score: str
    """The score that the reference is judged by."""
    auroc_of_score: Mapping[str, float]
    """Every score on the reference."""
    pictures: tuple[PagePicture, ...]
    """Curves, and scores of known and novel actors."""


def read_results_page(path: Path) -> ResultsPage:
    """The page of a comparison.

    Raises:
        AnnotationError: it cannot be read, or is no such page; the message names the file, and the line of what is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _no_page(path, str(error)) from None
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    every = next((title for title in headings if title.startswith(EVERY_SCORE_ON)), EVERY_SCORE_ON)
    methods, scores = _table(path, lines, JUDGED_TITLE), _table(path, lines, every)
    reference = _plain(every.removeprefix(EVERY_SCORE_ON))
    judged_by = {row["Method"]: row["Score"] for row in methods}
    if reference not in judged_by:
        raise _no_page(path, f"{reference} is not among its methods")
    return ResultsPage(
        path=path,
        in_short=next((line for line in lines[1:] if line), ""),
        methods="\n".join(_lines_of_table(path, lines, JUDGED_TITLE)[1]),
        auroc_of_method=_aurocs(methods, "Method"),
        reference=reference,
        reference_score=judged_by[reference],
        auroc_of_score=_aurocs(scores, "Score"),
        pictures=tuple(_pictures(path, lines)),
    )


def _aurocs(rows: list[dict[str, str]], named_by: str) -> dict[str, float]:
    """Without those that have none."""
    numbers = {row[named_by]: _NUMBER.match(row["AUROC ↑"].lstrip("*")) for row in rows}
    return {name: float(number[0]) / 100 for name, number in numbers.items() if number is not None}


def _table(path: Path, lines: list[str], title: str) -> list[dict[str, str]]:
    """The rows of the table under a title, by the titles of its columns."""
    first, table = _lines_of_table(path, lines, title)
    titles, _, *rows = [_cells(line) for line in table]
    for number, row in enumerate(rows, start=first + 2):
        if len(row) != len(titles):
            raise _no_page(path, f"line {number + 1} has {len(row)} cells and its table {len(titles)}")
    missing = [name for name in ("Method", "Score", "AUROC ↑") if name not in titles]
    if missing:
        raise _no_page(path, f"the table in line {first + 1} has no column {' and no '.join(missing)}")
    return [dict(zip(titles, row, strict=True)) for row in rows]


def _lines_of_table(path: Path, lines: list[str], title: str) -> tuple[int, list[str]]:
    """Where the first table under a title begins, and its lines."""
    heading = f"## {title}"
    under = lines.index(heading) + 1 if heading in lines else len(lines)
    first = next((at for at in range(under, len(lines)) if lines[at].startswith("|")), len(lines))
    end = next((at for at in range(first, len(lines)) if not lines[at].startswith("|")), len(lines))
    if end - first < 3 or any(line.startswith("## ") for line in lines[under:first]):
        raise _no_page(path, f"it has no table under '{title.strip()}'")
    return first, lines[first:end]


def _cells(line: str) -> list[str]:
    return [_plain(cell.strip()) for cell in _CELL_ENDS.split(line.strip())[1:-1]]


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)


def _pictures(path: Path, lines: list[str]) -> list[PagePicture]:
    found = filter(None, map(_PICTURE.fullmatch, lines))
    pictures = [PagePicture(each["caption"], path.parent / each["place"]) for each in found]
    return [each for each in pictures if each.path.stem in SHOWN_PICTURES]


def _no_page(path: Path, what: str) -> AnnotationError:
    return AnnotationError(
        f"{path}: must be a page of results; {what}. Give a page that `mule compare … --docs PAGE.md` wrote."
    )
