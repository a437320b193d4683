"""`mule data split`: open-set splits of a table. Heavy modules are imported when a command runs, so help is quick."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mule.cli.data_split_report import (
    PretrainingOption,
    SplitVideosOption,
    TestTableOption,
    print_report,
    report_split,
    require_folder_of,
)
from mule.cli.printing import TableArgument, require_files
from mule.core.errors import TooFewActors

app = typer.Typer(help="Divide a table into what is taught and what is novel.", no_args_is_help=True)


@app.command()
def split(
    table: TableArgument,
    out: Annotated[
        Path, typer.Option(metavar="SPLIT.toml", help="Split file to write; a JSON report goes beside it.")
    ],
    policy: Annotated[
        Literal["paper", "random", "grouped", "list", "closed"],
        typer.Option(
            metavar="paper|random|grouped|list|closed",
            help="How actions are divided. paper: AVA's published partition, or 52/52/53 of Charades. random: thirds. "
            "grouped: thirds of every group of actions. list: novel actions from a file. closed: none is novel.",
        ),
    ],
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of every random choice: actions and videos.")
    ] = 0,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the split. Default: table, policy and seed.")
    ] = None,
    novel: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For list: novel actions, one per line; or a .csv with the columns action and set (z1, z2, novel, "
            "choose, report or ignored).",
        ),
    ] = None,
    class_groups: Annotated[
        str,
        typer.Option(
            metavar="FILE_OR_MARK",
            help="For grouped: a CSV file with the columns action and group, or the character after the group in an "
            "action's name.",
        ),
    ] = ":",
    tags: Annotated[
        str | None,
        typer.Option(
            metavar="MARK",
            help="For random and closed: labels that contain MARK, such as view:back with a colon, are tags. Tags are "
            "taught, but never novel, and novelty does not depend on them.",
        ),
    ] = None,
    charades_classes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="For paper: Charades' list of classes, if the table names them in words."
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="VIDEOS.csv:COLUMN",
            help="Keep videos of one group (film, scene) on one side; the file has a column `video`.",
        ),
    ] = None,
    test: TestTableOption = None,
    sides: Annotated[
        str | None,
        typer.Option(
            metavar="VIDEOS.csv:COLUMN",
            help="Use these sides: train, val or test for each video; or the sides of another SPLIT.toml.",
        ),
    ] = None,
    test_share: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Share of actors to test on.")
    ] = 0.25,
    val_share: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Share of actors to validate on. Default: 0.15, or 0 with --test.",
        ),
    ] = None,
    mixed: Annotated[
        Literal["drop", "keep"],
        typer.Option(metavar="drop|keep", help="Drop or keep test actors that do known and novel actions."),
    ] = "drop",
    mixed_share: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="With --mixed keep: an actor is novel if at least this share of its actions is.",
        ),
    ] = 0.5,
    train_novel: Annotated[
        Literal["drop", "unlabel"],
        typer.Option(
            metavar="drop|unlabel",
            help="Drop training actors with a novel action, or remove that label only.",
        ),
    ] = "drop",
    z1_at_test: Annotated[
        Literal["ignore", "known", "tags"] | None,
        typer.Option(
            metavar="ignore|known|tags",
            help="How taught actions of Z1, the first of the paper's two sets of known actions, count at test. Default: "
            "ignore for paper, tags with --tags, otherwise known.",
        ),
    ] = None,
    pretraining: PretrainingOption = None,
    videos: SplitVideosOption = None,
) -> None:
    """Split a table into taught and novel actions, and into train, val and test.

    The report states what became of every actor and what leaks; it is also written as JSON beside the split.
    Validation holds no novel action. Novel actions form two sets: use the first to choose between models, the second to
    report results.
    """
    require_files(table)
    require_folder_of(out)
    from mule.data.split.planning import (
        SplitPlan,
        planned_split,
        pretraining_labels,
        video_files,
        whole_table,
    )
    from mule.data.split.sides import apply_split
    from mule.data.split.splits import write_split
    from mule.data.table.reading import read_actor_table

    plan = SplitPlan(
        policy=policy,
        seed=seed,
        name=name,
        novel=novel,
        class_groups=class_groups,
        tags=tags,
        charades_classes=charades_classes,
        groups=groups,
        sides=sides,
        has_test_table=test is not None,
        test_share=test_share,
        val_share=val_share,
        mixed=mixed,
        mixed_share=mixed_share,
        train_novel=train_novel,
        z1_at_test=z1_at_test,
    )
    actors = read_actor_table(table, allow_unlabelled=True)
    tested = None if test is None else read_actor_table(test, allow_unlabelled=True)
    made = planned_split(plan, actors, tested, table_name=table.stem)
    whole = whole_table(actors, tested)
    used = apply_split(
        whole,
        made,
        pretraining_labels=pretraining_labels(pretraining),
        video_files=video_files(videos, whole.videos),
    )
    report_path = out.with_suffix(".report.json")
    unusable: TooFewActors | None = None
    try:
        used.report.require_usable()
    except TooFewActors as error:
        unusable = error
    else:  # written before printing: a pipe that closes early must not lose the split
        write_split(made, out)
        used.report.write(report_path)
    print_report(used.report, made)
    if unusable is not None:
        raise unusable
    typer.echo(f"wrote {out} and {report_path}")


app.command("split-report")(report_split)
