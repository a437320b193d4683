"""`mule discover`: what the novel people of watched videos do, in groups. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer

from mule.cli.watch import fetch_missing


def discover(
    watched: Annotated[
        list[Path],
        typer.Argument(
            metavar="WATCHED…", help="Folders that `mule watch` left, or folders of such folders."
        ),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="The model that watched.")] = Path("people"),
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the groups go.")] = Path("groups.json"),
    fewest: Annotated[int, typer.Option(min=2, metavar="N", help="Acts that a group has at least.")] = 5,
    offline: Annotated[
        bool,
        typer.Option("--offline", envvar="MULE_OFFLINE", help="Fetch no weights; stop if some are missing."),
    ] = False,
) -> None:
    """Group the novel people of watched videos by what they do.

    Looks at one person become acts, acts become groups, and each group gets
    typical members, names that the backbone's pre-training has for it, the
    known actions that it resembles, and how often and when it happens.
    Needs scikit-learn (pip install 'mule-actions[discover]').
    """
    from mule.watching.measuring import moments_below

    folders = [path.parent for path in moments_below(watched)]
    fetch_missing(model, None, offline=offline)
    from mule.watching.discovering.discover import discover as discovered
    from mule.watching.discovering.groups import summary_lines, write_groups
    from mule.watching.engine.bundle import read_bundle

    groups = discovered(folders, read_bundle(model), fewest=fewest)
    write_groups(out, groups)
    for line in summary_lines(groups):
        typer.echo(line)
    typer.echo(f"{out}")
