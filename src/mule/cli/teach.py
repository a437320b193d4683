"""`mule teach`: add an action from a few examples, without retraining. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer

from mule.cli.memory import SettingsOption, VideosOption
from mule.cli.printing import noted, require_files, steps_shown


def teach(
    run_dir: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Folder made by `mule bundle`, or of a run with a memory.")
    ],
    class_name: Annotated[str, typer.Option("--class", metavar="NAME", help="Name of the new action.")],
    examples: Annotated[
        Path,
        typer.Option(metavar="TABLE", help="People who do it, .csv or .parquet; 10 to 20 are plenty."),
    ],
    videos: VideosOption = None,
    memory: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Memory to teach; by default memory.safetensors in MODEL."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the taught memory here; by default it replaces the old one."
        ),
    ] = None,
    settings: SettingsOption = None,
) -> None:
    """Teach a model a new action from a few examples, without retraining.

    The model then recognises the action, no longer calls it novel, and
    forgets nothing else. It must have a memory (`mule bundle` makes one).

    A table needs the columns video and actions; where it has no boxes, the
    model's detector finds the people.

    Rows of the table that do not do the action are ignored, as are rows from
    videos that held-out actors are from.
    """
    require_files(examples, what="a table of examples")
    from mule.api.memories import Examples, exemplars_in_table, model_fingerprint
    from mule.core.locks import only_writer
    from mule.memory.files import naming, place_to_write, read_memory, write_memory
    from mule.memory.teaching import require_new, teach_action
    from mule.watching.engine.bundle import MEMORY

    file = memory or run_dir / MEMORY
    place = place_to_write(out, instead_of=file)
    model = model_fingerprint(run_dir)
    with only_writer(place.parent):
        remembered = read_memory(file, model=model)
        with naming(file):
            require_new(remembered, class_name)
        table = Examples(examples, videos, settings or [])
        with steps_shown():
            exemplars = exemplars_in_table(run_dir, remembered, class_name, table, noted=noted)
        with naming(file):
            taught = teach_action(remembered, exemplars, class_name=class_name)
        write_memory(place, taught)
    count = int((taught.memory.labels[:, taught.memory.class_names.index(class_name)] > 0).sum())
    typer.echo(
        f"{place}: '{class_name}' taught from {count} examples; {taught.memory.num_classes} actions now"
    )
