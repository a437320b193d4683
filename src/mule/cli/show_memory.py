"""Memories, shown to people and written where they are wanted."""

from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from mule.memory.building import calibrate
from mule.memory.files import write_memory
from mule.memory.inspection import inspect
from mule.memory.memory import EvidenceMemory
from mule.memory.taught import Remembered

VIDEOS_SHOWN = 5


def contents(remembered: Remembered) -> None:
    """Print what a memory holds."""
    memory, found = remembered.memory, inspect(remembered.memory)
    kernel = memory.kernel
    typer.echo(
        f"{found.num_entries} entries of {found.num_actors:g} actors in {found.num_groups} groups, "
        f"{memory.dim} features, model {memory.model[:12]}…"
    )
    if kernel.reach is None or kernel.evidence_scale is None:
        typer.echo(f"k = {kernel.num_neighbours}, s̄ = {kernel.typical_scale:.4g}; not calibrated")
    else:
        typer.echo(
            f"k = {kernel.num_neighbours}, s̄ = {kernel.typical_scale:.4g}, ρ = {kernel.reach:.4g}, "
            f"S = {kernel.evidence_scale:g}"
        )
    typer.echo(f"{100 * found.isolated_share:.1f} % of the entries stand alone")
    held_out = remembered.held_out
    typer.echo(
        "no held-out actors are kept" if held_out is None else f"{len(held_out)} held-out known actors"
    )
    table = Table("action", "actors", "learnt")
    taught = {action.name for action in remembered.taught}
    for name, count in found.actors_by_class.items():
        table.add_row(name, f"{count:.1f}".removesuffix(".0"), "taught" if name in taught else "trained")
    Console().print(table)
    shown = list(found.entries_by_video.items())[:VIDEOS_SHOWN]
    rest = len(found.entries_by_video) - len(shown)
    typer.echo(
        "from "
        + ", ".join(f"{video} ({count})" for video, count in shown)
        + (f" and {rest} more" if rest else "")
        if shown
        else "from nowhere"
    )


def changed(before: Remembered, memory: EvidenceMemory, path: Path) -> None:
    """Set a changed memory anew by the held-out actors, if they are kept, then write it and say so."""
    if before.held_out is None:
        typer.echo(
            "no held-out actors are kept with this memory: it is not calibrated, and cannot be asked.",
            err=True,
        )
    else:
        memory = calibrate(memory, before.held_out)
    written(replace(before, memory=memory), path, before=before)


def written(remembered: Remembered, path: Path, *, before: Remembered | None = None) -> None:
    """Write a memory and say what it holds, and what it held before."""
    write_memory(path, remembered)
    grew = "" if before is None else f" ({len(before.memory)} before)"
    typer.echo(f"{path}: {len(remembered.memory)} entries{grew}, {remembered.memory.num_classes} actions")


def taught(remembered: Remembered, path: Path) -> None:
    """Write a memory that was just taught, and say what was."""
    write_memory(path, remembered)
    action = remembered.taught[-1]
    column = remembered.memory.class_names.index(action.name)
    count = int((remembered.memory.labels[:, column] > 0).sum())
    typer.echo(
        f"{path}: '{action.name}' taught from {count} exemplars; {remembered.memory.num_classes} actions now"
    )
