"""`python -m studies.results`: write docs/RESULTS.md and the table of the README from CSV files."""

from pathlib import Path
from typing import Annotated

import typer

from mule.core.errors import RangeError
from mule.core.files import write_file
from studies.commands import run
from studies.results.numbers import FOLDER, read_numbers
from studies.results.page import HEADLINES, OTHERS, readme_table, results_page
from studies.seen.page import read_tables, section

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
TABLE = Path("studies") / "results" / "readme_table.md"

app = typer.Typer(add_completion=False)


@app.command()
def results(
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="The repository.", show_default=False)
    ] = FOLDER.parents[1],
) -> None:
    """Write docs/RESULTS.md, and the table of the README between its markers."""
    studies = {key: read_numbers(key) for key in (*(study.key for study in HEADLINES), *OTHERS)}
    page, readme, table = folder / "docs" / "RESULTS.md", folder / "README.md", readme_table(studies)
    seen = read_tables()
    write_file(page, results_page(studies, section(seen)))
    write_file(folder / TABLE, f"{table}\n")
    write_file(readme, between_markers(readme.read_text(encoding="utf-8"), table, name=readme.name))
    typer.echo(f"wrote {page}, and the table in {readme}")


def between_markers(text: str, table: str, *, name: str) -> str:
    """Return the text with the table between its markers.

    Raises:
        RangeError: the text does not have both markers, once each and in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise RangeError(f"{name}: must have one line {BEGIN} and, after it, one line {END}; add them.")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


if __name__ == "__main__":
    run(app, "studies.results")
