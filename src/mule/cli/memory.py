"""`mule memory`: remembered actors in one file. Torch is imported when a command runs."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Build, look into and change the memory of a trained run.", no_args_is_help=True)

MemoryFile = Annotated[Path, typer.Argument(metavar="MEMORY", help="A file that `mule memory build` wrote.")]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Where the result goes; by default in place of the old one."),
]
VideosOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where the videos of the table lie; by default videos/ beside it, or its own folder.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Where data now lies, such as data.root=DIR."),
]


@app.callback()
def memory() -> None:
    """Build, look into and change the memory of a trained run."""


@app.command()
def build(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="By default memory.safetensors in the run's folder.")
    ] = None,
    settings: SettingsOption = None,
) -> None:
    """A memory of the actors a run was trained on, set by the known actors of its validation side.

    A memory that is there already is not replaced: what was taught and added to it would be lost.
    """
    from mule.cli import remember, show_memory

    place = show_memory.place_for(out or run_dir / remember.MEMORY)
    show_memory.written(remember.from_run(run_dir, settings or []), place)


@app.command()
def inspect(file: MemoryFile) -> None:
    """What a memory holds: actors per action, sources, how many entries stand alone, what was taught."""
    from mule.cli import show_memory
    from mule.memory.files import read_memory

    show_memory.contents(read_memory(file))


@app.command()
def prune(
    file: MemoryFile,
    share: Annotated[float, typer.Option(help="Of the entries, how many are kept; 0.1 loses little.")],
    out: OutOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Of where k-means begins.")] = 0,
) -> None:
    """A smaller memory: nearby entries become one, with the mean of their labels."""
    from mule.cli import show_memory
    from mule.memory.files import read_memory
    from mule.memory.pruning import prune as pruned

    place = show_memory.place_for(out, instead_of=file)
    content = read_memory(file)
    with show_memory.about(file):
        show_memory.changed(content, pruned(content.memory, share=share, seed=seed), place)


@app.command()
def merge(
    first: MemoryFile,
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="A memory of the same model and actions.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the merged memory goes.")],
) -> None:
    """Two memories as one; what both hold is kept once. Held-out actors and taught actions are the first one's.

    Entries of the second from videos that held-out actors are from are left out.
    """
    from mule.cli import show_memory
    from mule.memory.building import merge as merged
    from mule.memory.files import read_memory

    place = show_memory.place_for(out, instead_of=first)
    content = read_memory(first)
    other = read_memory(second, model=content.memory.model).memory
    show_memory.noted_held_out(content.held_out, other.places.videos())
    with show_memory.about(second):
        show_memory.changed(content, merged(content.memory, other, held_out=content.held_out), place)


@app.command()
def add(
    file: MemoryFile,
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run whose memory it is.")],
    examples: Annotated[
        Path, typer.Option(metavar="TABLE", help="Actors doing known actions, .csv or .parquet.")
    ],
    videos: VideosOption = None,
    out: OutOption = None,
    settings: SettingsOption = None,
) -> None:
    """Remember more actors. Those that do no remembered action are left out: `mule teach` is for them.

    Those from videos that held-out actors are from are left out as well: these would look less strange than they are.
    """
    from mule.cli import remember, show_memory
    from mule.memory.building import add as added
    from mule.memory.files import read_memory

    place = show_memory.place_for(out, instead_of=file)
    content = read_memory(file, model=remember.fingerprint(run_dir))
    actors = remember.seen_in_table(run_dir, examples, videos, settings=settings or [])
    known = remember.known_of_table(actors.at_known(content), content, examples)
    show_memory.noted_held_out(content.held_out, known.places.videos())
    with show_memory.about(file):
        show_memory.changed(content, added(content.memory, known, held_out=content.held_out), place)


@app.command()
def forget(
    file: MemoryFile,
    class_name: Annotated[str, typer.Option("--class", metavar="NAME", help="The action to forget.")],
    out: OutOption = None,
) -> None:
    """Forget an action; actors that did nothing else are forgotten with it."""
    from mule.cli import show_memory
    from mule.memory.files import read_memory
    from mule.memory.teaching import forget_action

    place = show_memory.place_for(out, instead_of=file)
    content = read_memory(file)
    with show_memory.about(file):
        show_memory.written(forget_action(content, class_name), place, before=content)
    show_memory.noted_calibration(place)


@app.command()
def teaching(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(metavar="PAGE.md", help="By default teaching.md in the run's folder.")
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Actors that each action is taught from.")] = 10,
    draws: Annotated[int, typer.Option(min=1, help="How often, each time from other actors.")] = 5,
    side: Annotated[
        str | None, typer.Option(metavar="SIDE", help="A test side; by default the first one.")
    ] = None,
    test_clips: Annotated[
        int | None, typer.Option(min=1, help="Clips of a test side of Stage; by default the benchmark's 400.")
    ] = None,
    settings: SettingsOption = None,
) -> None:
    """Measure teaching: every novel action of the test side is taught by itself, and what changed is written down."""
    from mule.cli import show_teaching

    plan = show_teaching.TeachingPlan(run_dir, side, examples, draws, test_clips)
    typer.echo(show_teaching.report(plan, settings or [], out or run_dir / "teaching.md"))
