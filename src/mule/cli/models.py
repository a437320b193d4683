"""`mule models`: every backbone and system with its cost, the rows of an experiment, or what a model of the package knows."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

SIDE_PX = 256
"""Short side of a row's clip, where its experiment keeps the size of frames."""


def models(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="NAME",
            help="Show what a packaged model knows and how well (people, stage), a model folder's card, or the rows of an "
            "experiment, such as ava or charades.",
        ),
    ] = None,
    stage: Annotated[
        bool,
        typer.Option("--stage", help="Show systems as trained on Stage: tiny backbone, small relations."),
    ] = False,
) -> None:
    """List backbones, systems and inputs with their cost, or show what a model knows and how well.

    Multiply-adds (mult-adds) count convolutions and matrix products for one clip of the size shown. The column "counted
    alike" adds what the publisher counts for every number that a batch norm returns: five in pytorchvideo's model zoo,
    except for SlowFast R50, and three in mmaction2's (ir-CSN-152). X3D-XL's are of its paper. For a system or row, the
    clip holds four actors and five objects.
    """
    console = Console()
    if experiment is not None and _model_folder(experiment) is not None:
        _print_card(console, experiment)
        return
    if experiment is not None:
        console.print(_rows(experiment))
        return
    from mule.systems.catalogue import SYSTEMS
    from mule.systems.costs import backbone_costs, system_costs

    table = _table(
        "Backbones, as classifiers of Kinetics-400; clip: frames x rows x columns",
        (
            "backbone",
            "clip",
            "params\n(M)",
            "published\n(M)",
            "mult-adds\n(G)",
            "counted\nalike (G)",
            "published\n(G)",
        ),
    )
    for cost in backbone_costs():
        table.add_row(
            cost.name,
            "x".join(map(str, cost.input_size)),
            f"{cost.num_parameters / 1e6:.2f}",
            "" if cost.published_parameters_m is None else f"{cost.published_parameters_m:.2f}",
            f"{cost.num_multiply_adds / 1e9:.2f}",
            f"{cost.counted_alike / 1e9:.2f}" if cost.publisher else "",
            "" if cost.published_multiply_adds_g is None else f"{cost.published_multiply_adds_g:.2f}",
        )
    console.print(table)
    console.print()
    network = (
        "with TinySlowFast and Stage's 14 known actions"
        if stage
        else "with SlowFast R50, X3D-XL or CSN-152 and 40 known actions"
    )
    table = _table(f"Systems, {network}", ("system", "params", "mult-adds"))
    table.add_column("published as", overflow="fold")
    for cost in system_costs(tiny=stage):
        table.add_row(
            cost.name,
            f"{cost.num_parameters / 1e6:.3f} M" if stage else f"{cost.num_parameters / 1e6:.1f} M",
            f"{cost.num_multiply_adds / 1e9:.2f} G",
            SYSTEMS[cost.name].source,
        )
    console.print(table)
    console.print()
    console.print(_inputs())


def _model_folder(name: Path) -> Path | None:
    """Return the folder of a packaged model, or a model folder itself; None for experiments."""
    from mule.watching.engine.bundle import packaged_folder
    from mule.watching.engine.bundle_card import BUNDLE

    folder = packaged_folder(name) or name
    return folder if (folder / BUNDLE).is_file() else None


def _print_card(console: Console, name: Path) -> None:
    """What a model knows, from how many examples, how well, and what it needs."""
    from mule.api.model_card import NUMBERS
    from mule.watching.engine.bundle import read_known_examples
    from mule.watching.engine.bundle_card import read_bundle_card

    folder = _model_folder(name) or name
    card = read_bundle_card(folder)
    table = _table(f"{card.name}: what it knows", ("action", "examples", "average precision"))
    for action, count in read_known_examples(folder).items():
        precision = card.metrics.get(f"ap {action}")
        table.add_row(action, str(count or ""), "" if precision is None else f"{100 * precision:.0f} %")
    console.print(table)
    console.print()
    found = _table("How well, measured when it was made", ("what", "number"))
    for key, words in NUMBERS:
        if key in card.metrics:
            found.add_row(words, f"{100 * card.metrics[key]:.1f} %")
    found.add_row("least probability at which an action is named", f"{100 * card.names_from:.1f} %")
    console.print(found)
    console.print()
    needs = [each for each in (card.backbone_card, card.detector) if each and "." not in each]
    console.print(
        f"It looks at {'a square around each person' if card.sees == 'person' else 'the whole frame'} every {card.every_s:g} s; "
        f"needs {' and '.join(needs) or 'no further weights'}; weights {card.weights_sha256[:12]}…; made of "
        + ", ".join(f"{what} {digest[:12]}…" for what, digest in card.data.items()),
        highlight=False,
    )


def _inputs() -> Table:
    """What decides about novelty where the backbone is frozen, and how often the backbone runs for it."""
    from mule.training.actor_inputs import SeenBy

    table = _table(
        "Inputs of a frozen backbone, with passes of the backbone per moment",
        ("input", "1 person", "5 people"),
    )
    table.add_column("what it is", overflow="fold")
    frame, crop = SeenBy(), SeenBy(crop=True)
    for name, seen_by, what in (
        (
            "roi, frame, labels",
            frame,
            "box and whole of one map, and the backbone's own classifier: what a bundle uses",
        ),
        ("and crop", crop, "a square around each person; tables only"),
    ):
        table.add_row(name, *(str(seen_by.num_passes(num_actors=number)) for number in (1, 5)), what)
    return table


def _rows(experiment: Path) -> Table:
    """The rows of an experiment file: what each is built of, and what it costs."""
    from mule.core.config import systems_by_row
    from mule.training.choosing import load_for_training
    from mule.training.row_costs import row_cost

    table = _table(
        f"Rows of {experiment.stem}, with the short side of validation",
        ("row", "clip", "params", "mult-adds", "epochs"),
    )
    table.add_column("system and backbone", overflow="fold")
    for name in systems_by_row(experiment):
        row = load_for_training(experiment, [], name)
        side = row.view.val_short_side_px or SIDE_PX
        cost = row_cost(name, row, rows_px=side, cols_px=side * 11 // 8)
        table.add_row(
            name,
            "x".join(map(str, cost.input_size)),
            f"{cost.num_parameters / 1e6:.1f} M",
            f"{cost.num_multiply_adds / 1e9:.1f} G",
            str(row.training.epochs),
            f"{row.system} on {row.backbone.name}",
        )
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    """A table whose names and numbers stay on one line."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at else "left", no_wrap=True)
    return table
