"""Memories, shown to people and written where they are wanted."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from mule.core.errors import MuleError
from mule.memory.files import MemoryFileError, write_memory
from mule.memory.memory import EvidenceMemory
from mule.memory.pruning import inspect
from mule.memory.taught import HeldOut, Remembered, apart_from
from mule.memory.teaching import set_anew
from mule.watching.engine.bundle import CALIBRATION, cannot_follow_forgetting

VIDEOS_SHOWN = 5


@contextmanager
def about(path: Path) -> Generator[None]:
    """What cannot be done with the memory in a file is said with the file's name."""
    try:
        yield
    except MemoryFileError:
        raise
    except MuleError as error:
        raise MemoryFileError(f"{path}: {error}") from error


def place_for(out: Path | None, *, instead_of: Path | None = None) -> Path:
    """Where a memory may be written: a new file, or that which is changed. Asked before anything is computed.

    Raises:
        MemoryFileError: something else is there, or there is no such folder.
    """
    if out is None or (instead_of is not None and out.exists() and out.samefile(instead_of)):
        assert instead_of is not None  # noqa: S101 - who gives no file changes one
        return instead_of
    if out.exists():
        raise MemoryFileError(
            f"{out}: must not exist yet; it does, and what it holds would be lost. Choose another name, or remove it."
        )
    if not out.parent.is_dir():
        raise MemoryFileError(
            f"{out}: must lie in a folder that is there; {out.parent} is not. Make it first."
        )
    return out


def noted_held_out(held_out: HeldOut | None, videos: Sequence[str]) -> None:
    """Say what held-out actors mean for actors of these videos, who are to be remembered or to teach."""
    if held_out is None:
        return
    if held_out.videos is None:
        typer.echo(
            "where the held-out actors were seen is not kept with this memory: if these are some of them, or are from their "
            "videos, more known actors will be flagged than was promised. A memory that is built anew keeps it.",
            err=True,
        )
        return
    is_apart = apart_from(held_out, videos).tolist()
    shared = sorted({video for video, apart in zip(videos, is_apart, strict=True) if not apart})
    if shared:
        typer.echo(
            f"{is_apart.count(False)} of {len(videos)} left out: held-out actors are from their videos ("
            f"{', '.join(shared[:VIDEOS_SHOWN])}{', …' if len(shared) > VIDEOS_SHOWN else ''}), and with them remembered more "
            "known actors would be flagged than was promised. Rename videos that only have the same name.",
            err=True,
        )


def noted_calibration(file: Path) -> None:
    """Say where what is usual among known actors still rests on those who did what was just forgotten."""
    if cannot_follow_forgetting(file):
        typer.echo(
            f"{file.parent / CALIBRATION}: does not say what its held-out actors do, so those who did what was forgotten still "
            "count as known, and fewer actors are flagged than could be. `mule bundle` makes one that says it.",
            err=True,
        )


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
    typer.echo("no held-out actors are kept" if held_out is None else _held_out_in_words(held_out))
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


def _held_out_in_words(held_out: HeldOut) -> str:
    known = f"{len(held_out)} held-out known actors"
    return (
        f"{known}, from where is not kept"
        if held_out.videos is None
        else f"{known} of {len(held_out.videos)} videos"
    )


def changed(before: Remembered, memory: EvidenceMemory, path: Path) -> None:
    """Set a changed memory anew by the held-out actors, if they are kept, then write it and say so."""
    if before.held_out is None:
        typer.echo(
            "no held-out actors are kept with this memory: it is not calibrated, and cannot be asked.",
            err=True,
        )
    written(set_anew(before, memory), path, before=before)


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
