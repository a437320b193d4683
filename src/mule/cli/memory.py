"""`mule memory`: the remembered actors of a run, in one file. Torch is imported when a command runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mule.cli.printing import noted

if TYPE_CHECKING:
    from mule.memory.memory import EvidenceMemory
    from mule.memory.taught import HeldOut, Remembered

VIDEOS_SHOWN = 5

app = typer.Typer(help="Build, inspect and change the memory of a trained run.", no_args_is_help=True)

MemoryFile = Annotated[Path, typer.Argument(metavar="MEMORY", help="A file that `mule memory build` wrote.")]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result here; by default it replaces the old memory."),
]
VideosOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of the table's videos; by default videos/ beside the table, or the table's own folder.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Where the data lies now, such as data.root=DIR. Repeatable."
    ),
]


@app.command()
def build(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="By default memory.safetensors in the run's folder.")
    ] = None,
    settings: SettingsOption = None,
) -> None:
    """Remember the training actors of a run, and calibrate on the known actors of its validation side.

    An existing memory is not replaced, because that would lose what was taught and added to it.
    """
    from mule.api.memories import remember_run
    from mule.core.locks import only_writer
    from mule.memory.files import place_to_write
    from mule.watching.engine.bundle import MEMORY

    place = place_to_write(out or run_dir / MEMORY)
    with only_writer(place.parent):
        _write(remember_run(run_dir, settings or [], noted=noted), place)


@app.command()
def inspect(file: MemoryFile) -> None:
    """Show what a memory holds: actors per action, their videos, isolated entries, taught actions."""
    from rich.console import Console
    from rich.table import Table

    from mule.memory.files import read_memory
    from mule.memory.pruning import memory_contents

    remembered = read_memory(file)
    memory, contents = remembered.memory, memory_contents(remembered.memory)
    typer.echo(
        f"{contents.num_entries} entries of {contents.num_actors:g} actors in {contents.num_groups} groups, "
        f"{memory.dim} features, model {memory.model[:12]}…"
    )
    typer.echo(_kernel_in_words(memory))
    typer.echo(f"{100 * contents.isolated_share:.1f} % of the entries are far from all others")
    typer.echo(_held_out_in_words(remembered.held_out))
    table = Table("action", "actors", "learnt by")
    taught = {action.name for action in remembered.taught}
    for name, count in contents.actors_by_class.items():
        table.add_row(name, f"{count:.1f}".removesuffix(".0"), "teaching" if name in taught else "training")
    Console().print(table)
    shown = list(contents.entries_by_video.items())[:VIDEOS_SHOWN]
    more = len(contents.entries_by_video) - len(shown)
    if shown:
        names = ", ".join(f"{video} ({count})" for video, count in shown)
        typer.echo(f"videos: {names}" + (f" and {more} more" if more else ""))


@app.command()
def prune(
    file: MemoryFile,
    share: Annotated[float, typer.Option(help="Share of the entries to keep; 0.1 loses little.")],
    out: OutOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of k-means.")] = 0,
) -> None:
    """Make a memory smaller: nearby entries become one, with the mean of their labels."""
    from mule.core.locks import only_writer
    from mule.memory.files import naming, place_to_write, read_memory
    from mule.memory.pruning import prune_memory

    place = place_to_write(out, instead_of=file)
    with only_writer(place.parent):
        remembered = read_memory(file)
        with naming(file):
            _write_changed(remembered, prune_memory(remembered.memory, share=share, seed=seed), place)


@app.command()
def merge(
    first: MemoryFile,
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="A memory of the same model and actions.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Write the merged memory here.")],
) -> None:
    """Merge two memories of one model.

    Entries in both are kept once. Held-out actors and taught actions are
    those of MEMORY; entries of OTHER from videos of held-out actors are left
    out.
    """
    from mule.core.locks import only_writer
    from mule.memory.building import left_out_sentence, merge_memories
    from mule.memory.files import naming, place_to_write, read_memory

    place = place_to_write(out, instead_of=first)
    with only_writer(place.parent):
        remembered = read_memory(first)
        other = read_memory(second, model=remembered.memory.model).memory
        sentence = left_out_sentence(remembered.held_out, other.places.videos())
        if sentence is not None:
            noted(sentence)
        with naming(second):
            merged = merge_memories(remembered.memory, other, held_out=remembered.held_out)
            _write_changed(remembered, merged, place)


@app.command()
def add(
    file: MemoryFile,
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run the memory belongs to.")],
    examples: Annotated[
        Path, typer.Option(metavar="TABLE", help="People who do known actions, .csv or .parquet.")
    ],
    videos: VideosOption = None,
    out: OutOption = None,
    settings: SettingsOption = None,
) -> None:
    """Remember more actors that do known actions.

    Actors that do no known action are left out; teach new actions with
    `mule teach`. Actors from videos of held-out actors are left out too: with
    them, held-out actors would look less novel than people in a new video.

    They give evidence and reasons. Where a bundle with a frozen backbone
    decides by what people are seen by, they take no part in that decision.
    """
    from mule.api.memories import Examples, known_in_table, model_fingerprint
    from mule.core.locks import only_writer
    from mule.memory.building import add_actors
    from mule.memory.files import naming, place_to_write, read_memory
    from mule.training.run_folder import experiment_of

    place = place_to_write(out, instead_of=file)
    model = model_fingerprint(run_dir)
    with only_writer(place.parent):
        remembered = read_memory(file, model=model)
        table = Examples(examples, videos, settings or [])
        known = known_in_table(run_dir, remembered, table, noted=noted)
        with naming(file):
            _write_changed(
                remembered, add_actors(remembered.memory, known, held_out=remembered.held_out), place
            )
    if experiment_of(run_dir).backbone.frozen:
        noted(
            "The people added give evidence and reasons. They take no part in the decision who is novel where a bundle decides by "
            "what people are seen by: there only a new training adds known people."
        )


@app.command()
def forget(
    file: MemoryFile,
    class_name: Annotated[str, typer.Option("--class", metavar="NAME", help="Action to forget.")],
    out: OutOption = None,
) -> None:
    """Forget an action, and the actors that did nothing else."""
    from mule.core.locks import only_writer
    from mule.memory.files import naming, place_to_write, read_memory
    from mule.memory.teaching import forget_action
    from mule.watching.engine.bundle import CALIBRATION, cannot_follow_forgetting

    place = place_to_write(out, instead_of=file)
    with only_writer(place.parent):
        remembered = read_memory(file)
        with naming(file):
            _write(forget_action(remembered, class_name), place, before=remembered)
    if cannot_follow_forgetting(place):
        noted(
            f"{place.parent / CALIBRATION}: does not record what its held-out actors do. Those who did the forgotten action "
            "still count as known, so fewer people are flagged. Make the model again with `mule bundle`."
        )


def _write_changed(before: "Remembered", memory: "EvidenceMemory", path: Path) -> None:
    """Calibrate a changed memory again and write it."""
    from mule.memory.teaching import recalibrated

    if before.held_out is None:
        noted(
            "this memory keeps no held-out actors: it is no longer calibrated, and cannot be used until it is."
        )
    _write(recalibrated(before, memory), path, before=before)


def _write(remembered: "Remembered", path: Path, *, before: "Remembered | None" = None) -> None:
    from mule.memory.files import write_memory

    write_memory(path, remembered)
    change = "" if before is None else f" ({len(before.memory)} before)"
    typer.echo(f"{path}: {len(remembered.memory)} entries{change}, {remembered.memory.num_classes} actions")


def _kernel_in_words(memory: "EvidenceMemory") -> str:
    kernel = memory.kernel
    neighbours = (
        f"{kernel.num_neighbours} nearest entries count, typical distance s̄ = {kernel.typical_scale:.4g}"
    )
    if kernel.reach is None or kernel.evidence_scale is None:
        return f"{neighbours}; not calibrated"
    return f"{neighbours}, reach ρ = {kernel.reach:.4g}, evidence scale S = {kernel.evidence_scale:g}"


def _held_out_in_words(held_out: "HeldOut | None") -> str:
    if held_out is None:
        return "no held-out actors: a change cannot be calibrated"
    known = f"calibrated on {len(held_out)} held-out known actors"
    if held_out.videos is None:
        return f"{known}; their videos are not recorded"
    return f"{known} of {len(held_out.videos)} videos"
