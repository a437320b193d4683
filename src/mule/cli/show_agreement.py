"""`mule evaluate agreement`, shown."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import typer

from mule.comparison.agreement import agreement_sheets, agreements, read_aurocs
from mule.core.files import write_file
from mule.evaluation.formats import escaped_markdown, markdown
from mule.evaluation.tables import Sheet


def agreement(first: Path, second: Path, names: tuple[str, str], docs: Path | None) -> None:
    """Prints the tables, and writes them if that is wanted."""
    found = agreements(read_aurocs(first), read_aurocs(second))
    text = "\n".join(_page(agreement_sheets(found, names), names)) + "\n"
    if docs is not None:
        docs.parent.mkdir(parents=True, exist_ok=True)
        write_file(docs, text)
    typer.echo(text, nl=False)


def _page(sheets: Mapping[str, Sheet], names: tuple[str, str]) -> Iterator[str]:
    first, second = map(escaped_markdown, names)
    yield f"# {first} and {second}: do novelty scores agree?"
    yield ""
    yield (
        f"Every network that was judged on both, by every score that was. AUROC is the mean over trials, in percent; the best "
        f"on {first} and on {second} is bold. What holds on one alone is not to be relied on."
    )
    for name, sheet in sheets.items():
        yield ""
        if name:
            yield f"## {escaped_markdown(name)}"
            yield ""
        yield markdown(sheet).rstrip("\n")
