"""`mule bundle`: make a finished run ready to watch with. Torch is imported when the command runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mule.cli.memory import SettingsOption
from mule.cli.printing import noted

if TYPE_CHECKING:
    from mule.watching.engine.bundle import Bundle


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
    settings: SettingsOption = None,
) -> None:
    """Make a model for `mule watch --model` from a finished run.

    The folder holds the weights, a memory of the training actors, and a
    calibration: how novel the known actors of the validation side look.

    Networks with two outputs per action have no memory; their novelty rests
    on the network's evidence alone.
    """
    from mule.api.bundling import BundlePlan, make_bundle

    plan = BundlePlan(
        run_dir,
        out,
        name or run_dir.resolve().name,
        has_memory=memory,
        memory_share=share,
        has_pictures=pictures,
    )
    _print(make_bundle(plan, settings or [], noted=noted))


def _print(model: "Bundle") -> None:
    remembered = model.judge.remembered
    size_mb = sum(path.stat().st_size for path in model.folder.rglob("*") if path.is_file()) / 1e6
    typer.echo(
        f"{model.folder}: {len(model.classes)} actions, {size_mb:.1f} MB, weights {model.fingerprint}…"
    )
    if remembered is None:
        typer.echo("no memory; a person is novel if the network finds little evidence for any known action")
    else:
        typer.echo(
            f"{len(remembered.memory)} remembered actors; a person is novel if the network finds little evidence for any "
            "known action and nobody similar is remembered"
        )
    typer.echo(f"calibrated on {model.usual.num_held_out} held-out known actors")
    typer.echo(f"several looks at one person: {model.usual.looks_rule}")
    typer.echo(f"detector: {model.card.detector}; next: mule watch SOURCE --model {model.folder}")
