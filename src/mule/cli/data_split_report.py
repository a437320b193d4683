"""`mule data split-report`: what becomes of every actor of a table under a split, and what leaks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.cli.printing import TableArgument, require_files

if TYPE_CHECKING:
    from mule.data.split.leakage import MetAction, Shared
    from mule.data.split.report import Leakage, SplitClassCounts, SplitReport
    from mule.data.split.splits import Rules, Split

SET_TITLES = {
    "z1": "known (Z1)",
    "z2": "known (Z2)",
    "novel_choose": "novel, to choose on",
    "novel_report": "novel, to report on",
    "ignored": "ignored",
}
NUM_EXAMPLES = 5

TestTableOption = Annotated[
    Path | None,
    typer.Option(
        "--test", metavar="TABLE2", help="Table of the test set; TABLE is then for training and validation."
    ),
]
PretrainingOption = Annotated[
    Path | None,
    typer.Option(
        metavar="LABELS.txt",
        help="Classes the backbone was pre-trained on, one per line; actions like them are reported.",
    ),
]
SplitVideosOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of the videos; identical files on two sides are reported."),
]


def report_split(
    split: Annotated[
        Path, typer.Argument(metavar="SPLIT.toml", help="Split file written by `mule data split`.")
    ],
    table: TableArgument,
    test: TestTableOption = None,
    pretraining: PretrainingOption = None,
    videos: SplitVideosOption = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the report as JSON.")
    ] = None,
    accept_edits: Annotated[
        bool,
        typer.Option(
            "--accept-edits", help="Accept a split file that was edited by hand, and update its digest."
        ),
    ] = False,
) -> None:
    """Report what becomes of every actor of a table under a split.

    The report also states what leaks from one side to another.
    """
    require_files(split, table)
    if json is not None:
        require_folder_of(json)
    from mule.data.split.planning import pretraining_labels, video_files, whole_table
    from mule.data.split.sides import apply_split
    from mule.data.split.splits import read_split, write_split
    from mule.data.table.reading import read_actor_table

    read = read_split(split, accept_edits=accept_edits)
    tested = None if test is None else read_actor_table(test, allow_unlabelled=True)
    whole = whole_table(read_actor_table(table, allow_unlabelled=True), tested)
    used = apply_split(
        whole,
        read,
        pretraining_labels=pretraining_labels(pretraining),
        video_files=video_files(videos, whole.videos),
    )
    if accept_edits:
        write_split(read, split)
    if json is not None:
        used.report.write(json)
    print_report(used.report, read)


def require_folder_of(path: Path) -> None:
    """Stop unless the path is a file, old or new, in a folder that exists."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"must be a file in a folder that exists; got '{path}'.")


def print_report(report: "SplitReport", split: "Split") -> None:
    """Print what becomes of every actor, how often each action occurs, what leaks, and what may surprise."""
    console = Console()
    console.print(
        Text(
            f"{report.name}: policy {report.policy}, seed {report.seed}, digest {report.digest[:12]}", "bold"
        )
    )
    console.print(Text(" ".join((*_sets(split), *_rules(split.rules, is_open=bool(split.classes.z3))))))
    for line in (*_drawn(report, split.rules), *_kept(report, split.rules)):
        console.print(Text(line))
    console.print(_actors(report))
    console.print(_classes(report))
    for line in _leakage(report.leakage, report.classes):
        console.print(Text(line))
    for line in (*_table_notes(report), *report.notes):
        console.print(Text(line, style="yellow"))
    if report.leakage.num_pretraining_labels:
        console.print(Text(report.leakage.convention, style="dim"))


def _sets(split: "Split") -> list[str]:
    sets = split.classes
    taught = f"{len(sets.known_train)} actions are taught"
    lines = [f"{taught} ({len(sets.z1)} in Z1, {len(sets.z2)} in Z2)." if sets.z1 else f"{taught}."]
    if sets.z3:
        halves = f"{len(sets.novel_choose)} to choose on, {len(sets.novel_report)} to report on"
        lines.append(f"{len(sets.z3)} are novel ({halves}).")
    if sets.ignored:
        lines.append(f"{len(sets.ignored)} are ignored.")
    return [*lines, *(["Z1 and Z2 are the paper's sets of taught actions."] if sets.z1 else [])]


def _rules(rules: "Rules", *, is_open: bool) -> list[str]:
    lines: list[str] = []
    if is_open:
        lines = [
            {
                "drop": "Training actors with a novel action are dropped.",
                "unlabel": "Training actors lose their novel labels and keep the others.",
            }[rules.train_novel],
            {
                "drop": "Test actors with known and novel actions are dropped.",
                "keep": "Test actors with known and novel actions are novel if at least "
                f"{100 * rules.mixed_share:g} % of their actions are, otherwise known.",
            }[rules.mixed],
            {
                "ignore": "At test, actions in Z1 count neither as known nor as novel.",
                "known": "At test all taught actions count as known.",
                "tags": "Z1 holds the tags: they count neither as known nor as novel, and novelty does not depend on them.",
            }[rules.z1_at_test],
        ]
    val = f"{100 * rules.val_share:g} % for validation"
    drawn = f"Videos were divided at random: {val}, {100 * rules.test_share:g} % for test"
    given = "The sides of videos were given" + (
        f", but {val} were drawn at random" if rules.val_share else ""
    )
    together = f"; groups ({rules.groups_from}) stay together" if rules.groups_from else ""
    return [*lines, (drawn if rules.sides == "drawn" else given) + together + "."]


def _drawn(report: "SplitReport", rules: "Rules") -> list[str]:
    """What the draw for validation gave, next to what it aimed at."""
    if not rules.val_share:
        return []
    pool = ("train", "val", "test") if rules.sides == "drawn" else ("train", "val")
    val, total = report.sides["val"], sum(report.sides[side].actors for side in pool)
    share = 100 * val.actors / max(total, 1)
    return [
        f"Validation has {val.videos} videos with {val.actors} of {total} actors ({share:.1f} %; "
        f"{100 * rules.val_share:g} % were wanted)."
    ]


def _kept(report: "SplitReport", rules: "Rules") -> list[str]:
    """What the rule for novel actions leaves of the training side, and what the other rule would leave."""
    if not report.train_kept:
        return []
    total = max(report.sides["train"].actors, 1)
    shares = {
        rule: f"{count} of {total} actors ({count / total:.1%})" for rule, count in report.train_kept.items()
    }
    other = "unlabel" if rules.train_novel == "drop" else "drop"
    return [
        f"Training keeps {shares[rules.train_novel]} with --train-novel {rules.train_novel}; with {other} it would keep "
        f"{shares[other]}."
    ]


def _actors(report: "SplitReport") -> Table:
    from mule.data.split.splits import SIDES

    table = Table("actors", *SIDES, title=f"What becomes of {report.num_actors} actors")
    for column in table.columns[1:]:
        column.justify = "right"
    sides = [report.sides[side] for side in SIDES]
    table.add_row("in the videos", *(str(side.actors) for side in sides))
    for reason in dict.fromkeys(reason for side in sides for reason in side.lost):
        table.add_row(f"  {reason}: left out", *(_lost(side.lost.get(reason)) for side in sides))
    table.add_row("used", *(str(sum(side.used.values())) for side in sides), style="bold", end_section=True)
    for kind in dict.fromkeys(kind for side in sides for kind in side.used):
        table.add_row(f"  {kind}", *(_count(side.used.get(kind)) for side in sides))
    if any(report.novel_sets.values()):
        words = {
            "choose": "novel, to choose on",
            "report": "novel, to report on",
            "neither": "novel, of both sets",
        }
        for key, count in report.novel_sets.items():
            table.add_row(f"    {words[key]}", "", "", str(count))
    table.columns[0].no_wrap = True
    table.add_section()
    table.add_row("videos", *(str(side.videos) for side in sides))
    table.add_row("  with a used actor", *(str(side.videos_used) for side in sides))
    if any(side.groups is not None for side in sides):
        table.add_row("groups", *(_count(side.groups) for side in sides))
    return table


def _classes(report: "SplitReport") -> Table:
    from mule.data.split.splits import SIDES

    met = {each.action: each for each in report.leakage.met_in_pretraining}
    table = Table(
        "action", "table", *SIDES, title="Actors per action: in the table, and used for train, val and test"
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify = "right"
    if report.leakage.num_pretraining_labels:
        table.add_column("closest pre-training label", overflow="fold")
    last = ""
    for each in report.classes:
        if last != each.set:
            table.add_section()
            table.add_row(Text(SET_TITLES[each.set], style="bold"))
        last = each.set
        counts = [str(count) for count in (each.table, each.train, each.val, each.test)]
        likeness = [_met(met.get(each.action))] if report.leakage.num_pretraining_labels else []
        table.add_row(Text(f"  {each.action}"), *counts, *likeness)
    return table


def _leakage(leakage: "Leakage", classes: "Sequence[SplitClassCounts]") -> list[str]:
    from mule.data.split.splits import listed

    groups = f"{len(leakage.groups_on_two_sides)}{_examples(leakage.groups_on_two_sides)}"
    files = f"{len(leakage.identical_files)} among {leakage.files_checked} files{_examples(leakage.identical_files)}"
    lines = [
        f"Videos on two sides: {leakage.videos_on_two_sides}.",
        f"Groups on two sides: {groups if leakage.groups_checked else 'not checked (--groups)'}.",
        f"Identical videos on two sides: {files if leakage.files_checked else 'not checked (--videos)'}.",
    ]
    if not leakage.num_pretraining_labels:
        return [*lines, "Actions met in pre-training: not checked (--pretraining)."]
    met = {each.action for each in leakage.met_in_pretraining}
    novel = [each.action for each in classes if each.set.startswith("novel")]
    known = [each.action for each in classes if each.set in ("z1", "z2")]
    lines.append(
        f"Actions similar to one of {leakage.num_pretraining_labels} pre-training labels: "
        f"{len(met.intersection(novel))} of {len(novel)} novel, {len(met.intersection(known))} of {len(known)} known."
    )
    if leakage.not_comparable:
        lines.append(f"Names without words, which cannot be compared: {listed(leakage.not_comparable)}.")
    return lines


def _table_notes(report: "SplitReport") -> list[str]:
    from mule.data.split.splits import listed

    lines = []
    if not report.is_table_of_split:
        lines.append("The split was made from a different table.")
    if report.num_on_no_side:
        lines.append(
            f"{report.num_on_no_side} actors are in {len(report.videos_on_no_side)} videos on no side and are not used: "
            f"{listed(report.videos_on_no_side)}."
        )
    if report.videos_missing:
        lines.append(f"{report.videos_missing} videos of the split are not in the table.")
    return lines


def _examples(shared: "Sequence[Shared]") -> str:
    examples = [
        f"{each.videos[0]} and {each.videos[-1]} ({' and '.join(each.sides)})"
        for each in shared[:NUM_EXAMPLES]
    ]
    more = f" and {len(shared) - NUM_EXAMPLES} more" if len(shared) > NUM_EXAMPLES else ""
    return f": {'; '.join(examples)}{more}" if examples else ""


def _met(met: "MetAction | None") -> Text:
    if met is None:
        return Text("")
    others = f", {met.num_labels - 1} more" if met.num_labels > 1 else ""
    return Text(f"{100 * met.likeness:3.0f} % {met.label}{others}")


def _count(count: int | None) -> str:
    return "" if count is None else str(count)


def _lost(count: int | None) -> str:
    return "" if not count else f"−{count}"
