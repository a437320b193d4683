"""`python -m studies.watching`: what is said of people in reels, by each way of accumulating evidence."""

import time
from pathlib import Path
from typing import Annotated

import typer

from mule.features.weights.cards import find_card
from mule.features.weights.classifier import load_classifier
from studies.commands import noted, run
from studies.watching.material import CARD, drawn_reels, look_at_acts, look_at_reels, reel_on_disk, sighting
from studies.watching.page import PAGE, write_page
from studies.watching.running import run_compare

app = typer.Typer(add_completion=False, no_args_is_help=True)
Data = Annotated[Path, typer.Argument(metavar="JHMDB", help="The folder of J-HMDB.")]
Weights = Annotated[Path, typer.Option(metavar="FILE", help="Weights of I3D.")]
Cache = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder of the reels and of what is computed from them.")
]


@app.command()
def make(data: Data, cache: Cache) -> None:
    """Write all reels ahead, and who is in them; `look` writes those that it needs."""
    for part, reel in drawn_reels(data, cache):
        noted(str(reel_on_disk(cache, part, reel)))


@app.command()
def look(
    data: Data,
    cache: Cache,
    weights: Weights,
    detector: Annotated[Path, typer.Option(metavar="FILE", help="A person detector.")],
    seconds: Annotated[float, typer.Option(help="Stop after this time; run again to go on.")] = 450.0,
) -> None:
    """Compute what people are seen by, first what is learnt from; a run that was interrupted goes on."""
    until, seeing = time.monotonic() + seconds, sighting(weights)
    left = look_at_acts(data, cache, "train", seeing, until=until, noted=noted)
    left += look_at_reels(data, cache, seeing, detector, until=until, noted=noted)
    left += look_at_acts(data, cache, "report", seeing, until=until, noted=noted)
    noted(f"{left} acts and reels are left")


@app.command()
def compare(
    data: Data,
    cache: Cache,
    weights: Weights,
    reports: Annotated[
        bool, typer.Option("--report", help="Judge the reels that report instead; do so once.")
    ] = False,
) -> None:
    """Compare ways of accumulating on training reels, films left out in turn; class splits that were judged are kept."""
    classifier = load_classifier(weights, find_card(CARD))
    assert classifier is not None  # noqa: S101 - the card has one
    run_compare(data, cache, classifier, reports=reports, noted=noted)


@app.command()
def page() -> None:
    """Write the page of the study from its tables."""
    write_page()
    noted(f"{PAGE}: written")


if __name__ == "__main__":
    run(app, "studies.watching")
