"""`mule data split`: open-set splits of a table. What computes is imported when a command runs, so help is quick."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from mule.cli.columns import column_place, of_all, value_of_each

if TYPE_CHECKING:
    from mule.data.split.splits import ClassSets, Rules, SideVideos
    from mule.data.table.table import ActorTable

app = typer.Typer(help="Divide a table into what is taught and what is novel.", no_args_is_help=True)

DEFAULT_VAL_SHARE = 0.15


class PolicyName(StrEnum):
    """How the actions are divided."""

    PAPER = "paper"
    RANDOM = "random"
    GROUPED = "grouped"
    LIST = "list"
    CLOSED = "closed"


class MixedRule(StrEnum):
    """What becomes of test actors with known and novel actions."""

    DROP = "drop"
    KEEP = "keep"


class TrainNovelRule(StrEnum):
    """What becomes of training actors with a novel action."""

    DROP = "drop"
    UNLABEL = "unlabel"


class Z1Rule(StrEnum):
    """What Z1 says at test."""

    IGNORE = "ignore"
    KNOWN = "known"
    TAGS = "tags"


TestTable = Annotated[
    Path | None,
    typer.Option(
        "--test", metavar="TABLE2", help="A table of the test side; TABLE then is training and validation."
    ),
]
Pretraining = Annotated[
    Path | None,
    typer.Option(
        metavar="LABELS.txt",
        help="Classes the backbone was taught, one per line: which actions are like them?",
    ),
]
Videos = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the videos are: are files on two sides identical?"),
]


@app.command()
def split(
    table: Annotated[Path, typer.Argument(help="Actors, .csv or .parquet.")],
    out: Annotated[Path, typer.Option(metavar="SPLIT.toml", help="The split; a report goes beside it.")],
    policy: Annotated[
        PolicyName,
        typer.Option(
            help="paper: AVA's published partition, or 52/52/53 of Charades. random: thirds. grouped: thirds of every "
            "group of actions. list: novel actions from a file. closed: none is novel."
        ),
    ],
    seed: Annotated[
        int, typer.Option(min=0, help="Of everything drawn: actions, sides, what is chosen on.")
    ] = 0,
    name: Annotated[str | None, typer.Option(help="Of the split; by default table, policy and seed.")] = None,
    novel: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For list: novel actions, one per line; or a .csv with action,set (z1, z2, novel, choose, report, ignored).",
        ),
    ] = None,
    class_groups: Annotated[
        str,
        typer.Option(
            metavar="FILE_OR_MARK",
            help="For grouped: a CSV file with action,group, or the mark that ends a group's name in an action's.",
        ),
    ] = ":",
    tags: Annotated[
        str | None,
        typer.Option(
            metavar="MARK",
            help="Labels whose names hold this mark, as view:back holds a colon, are tags: taught and never novel, deciding "
            "nothing, and novelty is not read from them. For random and closed.",
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
            help="Videos of one group (film, scene) stay on one side; the file has a column `video`.",
        ),
    ] = None,
    test: TestTable = None,
    sides: Annotated[
        str | None,
        typer.Option(
            metavar="VIDEOS.csv:COLUMN",
            help="Given sides: train, val or test for each video; or a SPLIT.toml whose sides they are.",
        ),
    ] = None,
    test_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of the actors, if sides are drawn.")
    ] = 0.25,
    val_share: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Of the actors, if sides are drawn: 0.15; with --test, of TABLE's, 0 unless said here.",
        ),
    ] = None,
    mixed: Annotated[
        MixedRule, typer.Option(help="Test actors with known and novel actions.")
    ] = MixedRule.DROP,
    mixed_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of novel actions from which a kept mixed actor is novel."),
    ] = 0.5,
    train_novel: Annotated[
        TrainNovelRule, typer.Option(help="Training actors with a novel action: dropped, or only that label.")
    ] = TrainNovelRule.DROP,
    z1_at_test: Annotated[
        Z1Rule | None,
        typer.Option(
            help="Z1 decides nothing (policy paper), counts as known (any other), or is tags (--tags), unless said here.",
        ),
    ] = None,
    pretraining: Pretraining = None,
    videos: Videos = None,
) -> None:
    """Write an open-set split: which actions are taught, which are novel, which videos are on which side.

    Prints what became of every actor and what leaks, and writes the same as JSON beside the split. Validation never
    holds a novel action. The novel actions are two sets: choose on the first, report on the second.
    """
    from mule.cli import show_split
    from mule.data.split.sides import apply_split
    from mule.data.split.splits import Rules, Split, table_digest, write_split

    _require_folder(out)
    if test is not None and sides is not None:
        raise typer.BadParameter("give a second table or a column of sides, not both.", param_hint="--sides")
    actors, tested = _read(table), None if test is None else _read(test)
    whole = _joined(actors, tested)
    files = (novel, class_groups, charades_classes)
    classes = (
        _class_sets(policy, whole.classes, seed, files)
        if tags is None
        else _beside_tags(policy, whole.classes, seed, files, tag_mark=tags)
    )
    group_of = {} if groups is None else value_of_each(groups, whole.videos, "--groups")
    rules = Rules(
        mixed=mixed.value,
        mixed_share=mixed_share,
        train_novel=train_novel.value,
        z1_at_test=_z1_rule(z1_at_test, policy, has_tags=tags is not None).value,
        sides="drawn" if sides is None and test is None else "given",
        val_share=_val_share(val_share, is_given=sides is not None, is_test_given=test is not None),
        test_share=test_share if sides is None and test is None else 0.0,
        groups_from=_place_name(groups),  # no folder: a digest must not depend on the machine
    )
    made = Split(
        name=name or f"{table.stem}-{policy}-{seed}",
        policy=policy.value,
        seed=seed,
        table_digest=table_digest(whole),
        classes=classes,
        rules=rules,
        videos=_given(sides, whole.videos)
        if sides
        else _drawn(actors, tested, classes, rules, seed, group_of),
        groups=group_of,
    )
    used = apply_split(
        whole, made, pretraining_labels=_labels(pretraining), video_files=_files(videos, whole.videos)
    )
    show_split.report(used.report, made)
    used.report.require_usable()
    write_split(made, out)
    used.report.write(_report_path(out))
    typer.echo(f"wrote {out} and {_report_path(out)}")


@app.command("split-report")
def split_report(
    split: Annotated[Path, typer.Argument(metavar="SPLIT.toml", help="What `mule data split` wrote.")],
    table: Annotated[Path, typer.Argument(help="Actors, .csv or .parquet.")],
    test: TestTable = None,
    pretraining: Pretraining = None,
    videos: Videos = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write the report here as JSON.")
    ] = None,
    accept_edits: Annotated[
        bool,
        typer.Option(
            "--accept-edits", help="Take a changed split as it is now, and write its new digest into it."
        ),
    ] = False,
) -> None:
    """Print what becomes of every actor of a table under a split, and what leaks."""
    from mule.cli import show_split
    from mule.data.split.sides import apply_split
    from mule.data.split.splits import read_split, write_split

    if json is not None:
        _require_folder(json)
    read = read_split(split, accept_edits=accept_edits)
    whole = _joined(_read(table), None if test is None else _read(test))
    used = apply_split(
        whole, read, pretraining_labels=_labels(pretraining), video_files=_files(videos, whole.videos)
    )
    if accept_edits:
        write_split(read, split)
    if json is not None:
        used.report.write(json)
    show_split.report(used.report, read)


def _class_sets(
    policy: PolicyName, classes: tuple[str, ...], seed: int, files: tuple[Path | None, str, Path | None]
) -> "ClassSets":
    from mule.data.convert.charades import read_class_names
    from mule.data.split import partition

    novel, class_groups, charades_classes = files
    if (novel is not None) != (policy is PolicyName.LIST):
        raise typer.BadParameter("a file of novel actions goes with the policy list.", param_hint="--novel")
    if charades_classes is not None and policy is not PolicyName.PAPER:
        raise typer.BadParameter("goes with the policy paper.", param_hint="--charades-classes")
    match policy:
        case PolicyName.PAPER:
            names = None if charades_classes is None else read_class_names(charades_classes)
            return partition.paper_partition(classes, seed=seed, charades_names=names)
        case PolicyName.RANDOM:
            return partition.random_partition(classes, seed=seed)
        case PolicyName.GROUPED:
            return partition.grouped_partition(_group_of(classes, class_groups), seed=seed)
        case PolicyName.LIST:
            return partition.read_partition(cast(Path, novel), classes, seed=seed)
        case PolicyName.CLOSED:
            return partition.closed_partition(classes)


def _beside_tags(
    policy: PolicyName,
    classes: tuple[str, ...],
    seed: int,
    files: tuple[Path | None, str, Path | None],
    *,
    tag_mark: str,
) -> "ClassSets":
    from mule.data.split.partition import beside_tags, told_apart

    if policy not in (PolicyName.RANDOM, PolicyName.CLOSED):
        raise typer.BadParameter(
            f"goes with the policies random and closed; {policy.value} has sets of its own.",
            param_hint="--tags",
        )
    actions, tags = told_apart(classes, tag_mark)
    return beside_tags(_class_sets(policy, actions, seed, files), tags)


def _group_of(classes: tuple[str, ...], file_or_mark: str) -> dict[str, str]:
    from mule.core.text_rows import read_pairs
    from mule.data.split.partition import group_by_prefix

    if len(file_or_mark) == 1:
        return group_by_prefix(classes, file_or_mark)
    return of_all(classes, read_pairs(Path(file_or_mark), "action", "group"), f"{file_or_mark}: every action")


def _drawn(
    actors: "ActorTable",
    tested: "ActorTable | None",
    classes: "ClassSets",
    rules: "Rules",
    seed: int,
    group_of: dict[str, str],
) -> "SideVideos":
    from mule.data.split.partition import drawn_sides
    from mule.data.split.splits import SideVideos

    drawn = drawn_sides(
        actors, classes, val_share=rules.val_share, test_share=rules.test_share, seed=seed, groups=group_of
    )
    return drawn if tested is None else SideVideos(drawn.train, drawn.val, tuple(sorted(tested.videos)))


def _given(sides: str, videos: tuple[str, ...]) -> "SideVideos":
    from mule.core.text_rows import read_pairs
    from mule.data.split.partition import given_sides
    from mule.data.split.splits import read_split

    if sides.endswith(".toml"):
        side_of = read_split(Path(sides)).videos.side_of()
    else:
        side_of = read_pairs(*column_place(sides, "--sides"))
    return given_sides({video: side_of[video] for video in videos if video in side_of})


def _z1_rule(asked: Z1Rule | None, policy: PolicyName, *, has_tags: bool) -> Z1Rule:
    if has_tags:
        if asked not in (None, Z1Rule.TAGS):
            raise typer.BadParameter("tags are all of Z1; leave --z1-at-test out.", param_hint="--tags")
        return Z1Rule.TAGS
    return asked or (Z1Rule.IGNORE if policy is PolicyName.PAPER else Z1Rule.KNOWN)


def _place_name(place: str | None) -> str:
    return "" if place is None else Path(place).name


def _val_share(asked: float | None, *, is_given: bool, is_test_given: bool) -> float:
    if is_given:
        return 0.0
    return asked if asked is not None else (0.0 if is_test_given else DEFAULT_VAL_SHARE)


def _read(path: Path) -> "ActorTable":
    from mule.data.table.reading import read_actor_table

    return read_actor_table(path, allow_unlabelled=True)


def _joined(actors: "ActorTable", tested: "ActorTable | None") -> "ActorTable":
    from mule.data.table.table import joined_tables

    return actors if tested is None else joined_tables([actors, tested])


def _labels(path: Path | None) -> tuple[str, ...]:
    from mule.core.text_rows import read_names

    return () if path is None else read_names(path, of="the classes of the pre-training")


def _files(folder: Path | None, videos: tuple[str, ...]) -> dict[str, Path]:
    """The file of each video that has one: of its very name, or of its name and an ending."""
    if folder is None:
        return {}
    found = {
        video: [folder / video, *sorted((folder / video).parent.glob(f"{Path(video).name}.*"))]
        for video in videos
    }
    return {
        video: next(path for path in paths if path.is_file())
        for video, paths in found.items()
        if any(path.is_file() for path in paths)
    }


def _report_path(out: Path) -> Path:
    return out.with_suffix(".report.json")


def _require_folder(path: Path) -> None:
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"must be a file in a folder that exists; got '{path}'.")
