"""Comparisons on several data sets on one page: what each found, and on what they agree.

page of one ────┬─▶ in short, table of methods, pictures
pages of others ┴─▶ methods, and scores on one network, side by side ─▶ what holds everywhere, what only here or there
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mule.comparison.agreement import FEWEST_SCORES, Agreement, agreement_sheet, agreements
from mule.comparison.results_pages import ResultsPage
from mule.core.errors import RangeError
from mule.evaluation.formats import escaped_markdown, markdown

FEWEST_PAGES = 2
_METHODS = "methods"


def overview(pages: Mapping[str, ResultsPage], *, command: str, folder: Path) -> str:
    """The page, in Markdown.

    Args:
        pages: what each is of, by the name it gets here.
        command: what makes this page.
        folder: where it will lie; links go from there.

    Raises:
        RangeError: there are fewer than two pages, or they have not three methods and three scores in common.
    """
    if len(pages) < FEWEST_PAGES:
        raise RangeError(
            f"an overview must be of at least {FEWEST_PAGES} pages with names of their own; got {len(pages)}."
        )
    shared = set.intersection(*(set(page.auroc_of_method) for page in pages.values()))
    if len(shared) < FEWEST_SCORES:
        raise RangeError(
            f"pages of an overview must have at least {FEWEST_SCORES} methods in common; they have "
            f"{', '.join(sorted(shared)) or 'none'}."
        )
    names = list(pages)
    (methods,) = agreements(*({_METHODS: page.auroc_of_method} for page in pages.values()))
    (scores,) = agreements(*({page.reference: page.auroc_of_score} for page in pages.values()))
    text = [
        "# Results",
        "",
        f"Made by `{command}`; nothing on this page was written by hand.",
        "",
        *_in_short(pages, folder),
        "",
        "## Methods, each by the score it is judged by",
        "",
        markdown(agreement_sheet(methods, names, judged="Method")).rstrip(),
        "",
        _correlations(methods, names, "methods"),
    ]
    for name, page in pages.items():
        text += ["", f"## {escaped_markdown(name)}", "", page.methods]
        for picture in page.pictures:
            place = Path(os.path.relpath(picture.path, folder)).as_posix()
            text += ["", f"![{picture.caption}]({place})", "", picture.caption]
    text += [
        "",
        f"## On what they agree: scores on {escaped_markdown(scores.network)}",
        "",
        *_held(pages, scores),
        "",
        _correlations(scores, names, "scores"),
        "",
        markdown(agreement_sheet(scores, names)).rstrip(),
    ]
    return "\n".join(text) + "\n"


def _in_short(pages: Mapping[str, ResultsPage], folder: Path) -> list[str]:
    return [
        f"- [{escaped_markdown(name)}]({Path(os.path.relpath(page.path, folder)).as_posix()}): {page.in_short}"
        for name, page in pages.items()
    ]


def _correlations(each: Agreement, names: Sequence[str], what: str) -> str:
    first, *others = map(escaped_markdown, names)
    told = ", ".join(
        f"{first} and {other} {each.correlation(at):.2f}" for at, other in enumerate(others, start=1)
    )
    return (
        f"AUROC in percent, mean over trials; the best of each column is bold. Spearman's ρ of the places of {len(each.scores)} "
        f"{what}: {told}."
    )


def _held(pages: Mapping[str, ResultsPage], scores: Agreement) -> list[str]:
    """Which scores beat the one that the reference is judged by: everywhere, nowhere, or only here or there."""
    first = next(iter(pages.values()))
    own = [page.auroc_of_method[page.reference] for page in pages.values()]
    groups: dict[tuple[str, ...], list[str]] = {}
    for score, aurocs in zip(scores.scores, scores.auroc, strict=True):
        where = tuple(
            name for name, auroc, bar in zip(pages, aurocs, own, strict=True) if round(auroc - bar, 6) > 0
        )
        groups.setdefault(where, []).append(score)
    everywhere, nowhere = groups.pop(tuple(pages), []), groups.pop((), [])
    bar = f"{first.reference_score}, the score that {escaped_markdown(scores.network)} is judged by"
    return [
        f"- Above {bar}, on all of them: {', '.join(everywhere) or 'none'}.",
        *(
            f"- On {escaped_markdown(' and '.join(where))} alone: {', '.join(some)}."
            for where, some in groups.items()
        ),
        f"- On none: {', '.join(nowhere) or 'none'}.",
    ]
