"""`mule evaluate overview`, shown."""

from collections.abc import Sequence
from pathlib import Path

import typer

from mule.cli.printing import command_shown
from mule.comparison.overview import overview
from mule.comparison.results_pages import read_results_page
from mule.core.errors import RangeError
from mule.core.files import write_file


def show_overview(pages: Sequence[Path], names: Sequence[str], docs: Path | None) -> None:
    """Prints the page, and writes it if that is wanted."""
    if len(names) != len(pages) or len(set(names)) < len(names):
        raise RangeError(
            f"every page must have a name of its own, in their order; got {len(pages)} pages and --name "
            f"{', --name '.join(names) or 'not once'}."
        )
    if docs is not None and docs.resolve() in {page.resolve() for page in pages}:
        raise RangeError(
            f"{docs}: an overview must not replace a page that it is of. Give --docs another name."
        )
    read = {name: read_results_page(page) for name, page in zip(names, pages, strict=True)}
    text = overview(read, command=command_shown(), folder=(docs.parent if docs else Path()).resolve())
    if docs is not None:
        docs.parent.mkdir(parents=True, exist_ok=True)
        write_file(docs, text)
    typer.echo(text, nl=False)
