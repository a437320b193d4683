"""`mule bundle`: make a finished run ready to watch with. Torch is imported when the command runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mule.cli.memory import SettingsOption
from mule.cli.printing import require_folders, said_once, steps_shown

if TYPE_CHECKING:
    from mule.watching.engine.bundle import Bundle

PROMISED_RATE = 0.05
"""Of `known-95`, the threshold of `mule watch`."""


def bundle(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to make; it must not exist yet.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the model in results; by default the run's folder.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Remember the training actors.")
    ] = True,
    share: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="Share of the memory to keep; 0.1 loses little.")
    ] = 1.0,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Keep a small picture of every remembered actor.")
    ] = False,
    detector: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME", help="Find people with this while calibrating; watch with the same."
        ),
    ] = None,
    watches: Annotated[
        bool,
        typer.Option(
            "--watch/--no-watch", help="Calibrate on the run's own videos, watched as `mule watch` will."
        ),
    ] = True,
    settings: SettingsOption = None,
) -> None:
    """Make a model for `mule watch --model` from a finished run.

    The folder holds the weights, a memory of the training actors, and a
    calibration: how novel known actors look.

    With a frozen backbone, a person is novel who looks like nobody that does
    a known action: by the box, by the whole frame, and by what the backbone's
    own classifier says. This is fitted to all known actors of training and
    validation, and calibrated by watching their videos: the threshold is set
    on people who are found and followed as `mule watch` will. With
    `data.complete = true`, people there who do nothing teach who is idle.
    Otherwise the network's evidence and the memory decide, and the
    known actors of validation calibrate them.

    Networks with two outputs per action have no memory; their novelty rests
    on the network's evidence alone.
    """
    require_folders(run_dir, what="the folder of a run")
    from mule.api.bundling import RECOMMENDED_DETECTOR, BundlePlan, make_bundle

    plan = BundlePlan(
        run_dir,
        out,
        name or run_dir.resolve().name,
        has_memory=memory,
        memory_share=share,
        has_pictures=pictures,
        detector=Path(detector)
        if detector and Path(detector).is_file()
        else detector or RECOMMENDED_DETECTOR,
        watches=watches,
    )
    with steps_shown():
        model = make_bundle(plan, settings or [], noted=said_once())
    print_bundle(model)


def print_bundle(model: "Bundle") -> None:
    """Say what a new model knows, what decides and how it is used."""
    remembered = model.judge.remembered
    size_mb = sum(path.stat().st_size for path in model.folder.rglob("*") if path.is_file()) / 1e6
    typer.echo(
        f"{model.folder}: {len(model.classes)} actions, {size_mb:.1f} MB, weights {model.fingerprint}…"
    )
    if remembered is not None:
        typer.echo(f"{len(remembered.memory)} remembered actors, which give reasons")
    if model.seen is not None:
        _print_seen(model)
        if model.card.watched is not None:
            typer.echo(model.card.watched.in_words())
        typer.echo(f"several looks at one person: {model.usual.looks_rule}")
        typer.echo(f"detector: {model.card.detector}; next: mule watch SOURCE --model {model.folder}")
        return
    if remembered is None:
        typer.echo("no memory; a person is novel if the network finds little evidence for any known action")
    else:
        typer.echo(
            "a person is novel if the network finds little evidence for any known action and nobody similar is remembered"
        )
    typer.echo(f"calibrated on {model.usual.num_held_out} held-out known actors")
    typer.echo(f"several looks at one person: {model.usual.looks_rule}")
    typer.echo(f"detector: {model.card.detector}; next: mule watch SOURCE --model {model.folder}")


def _print_seen(model: "Bundle") -> None:
    """What decides, what it costs, and how far its promise can be off."""
    from mule.novelty.odds import shares_flagged
    from mule.training.actor_inputs import SeenBy

    seen = model.seen
    if seen is None:
        return
    known = seen.known
    passes = SeenBy(crop="crop" in known.inputs).num_passes(num_actors=1)
    low, high = shares_flagged(PROMISED_RATE, known.num_groups)
    typer.echo(
        "a person is novel who looks like nobody that does a known action, seen by "
        f"{', '.join(known.inputs)}: {passes} pass of the backbone per moment, however many people there are"
    )
    typer.echo(
        f"calibrated on {known.num_calibrating} known actors of {known.num_groups} films or videos, each compared with the "
        f"others. Where {100 * PROMISED_RATE:g} % of known people may be flagged, it can be from {100 * low:.1f} to "
        f"{100 * high:.1f} % of new ones (9 of 10 such calibrations; more films narrow it)"
    )
