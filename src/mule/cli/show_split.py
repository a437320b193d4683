"""The account of a split as tables for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.data.split.leakage import MetAction, Shared
from mule.data.split.report import Leakage, SplitClassCounts, SplitReport
from mule.data.split.splits import SIDES, Rules, Split, listed

_SET_WORDS = {
    "z1": "known (Z1)",
    "z2": "known (Z2)",
    "novel_choose": "novel, to choose on",
    "novel_report": "novel, to report on",
    "ignored": "ignored",
}
_SHOWN = 5


def report(found: SplitReport, split: Split) -> None:
    """Print what became of every actor, how often each action occurs, what leaks, and what may surprise."""
    console = Console()
    console.print(
        Text(f"{found.name}: policy {found.policy}, seed {found.seed}, digest {found.digest[:12]}", "bold")
    )
    console.print(Text(" ".join((*_sets(split), *_rules(split.rules, is_open=bool(split.classes.z3))))))
    console.print(_actors(found))
    console.print(_classes(found))
    for line in _leakage(found.leakage, found.classes):
        console.print(Text(line))
    for line in (*_table(found), *found.notes):
        console.print(Text(line, style="yellow"))
    if found.leakage.num_pretraining_labels:
        console.print(Text(found.leakage.convention, style="dim"))


def _sets(split: Split) -> list[str]:
    sets = split.classes
    taught = f"{len(sets.known_train)} actions are taught"
    lines = [f"{taught} ({len(sets.z1)} in Z1, {len(sets.z2)} in Z2)." if sets.z1 else f"{taught}."]
    if sets.z3:
        halves = f"{len(sets.novel_choose)} to choose on, {len(sets.novel_report)} to report on"
        lines.append(f"{len(sets.z3)} are novel ({halves}).")
    return [*lines, *([f"{len(sets.ignored)} are ignored."] if sets.ignored else [])]


def _rules(rules: Rules, *, is_open: bool) -> list[str]:
    lines: list[str] = []
    if is_open:
        lines = [
            {
                "drop": "Training actors with a novel action are dropped.",
                "unlabel": "Training actors lose their novel labels and stay for the others.",
            }[rules.train_novel],
            {
                "drop": "Test actors with known and novel actions are dropped.",
                "keep": "Test actors with known and novel actions are novel if at least "
                f"{100 * rules.mixed_share:g} % of their actions are, else known.",
            }[rules.mixed],
            {
                "ignore": "Z1 decides nothing at test.",
                "known": "At test all taught actions count as known.",
                "tags": "Z1 is tags: they decide nothing, and novelty is not read from them.",
            }[rules.z1_at_test],
        ]
    val = f"{100 * rules.val_share:g} % for validation"
    drawn = f"Sides were drawn by video: {val}, {100 * rules.test_share:g} % for test"
    given = "Sides were given" + (f", but {val} were drawn" if rules.val_share else "")
    together = f"; groups ({rules.groups_from}) stay together" if rules.groups_from else ""
    return [*lines, (drawn if rules.sides == "drawn" else given) + together + "."]


def _actors(found: SplitReport) -> Table:
    table = Table("actors", *SIDES, title=f"What becomes of {found.num_actors} actors")
    for column in table.columns[1:]:
        column.justify = "right"
    sides = [found.sides[side] for side in SIDES]
    table.add_row("in its videos", *(str(side.actors) for side in sides))
    for reason in dict.fromkeys(reason for side in sides for reason in side.lost):
        table.add_row(f"  {reason}: left out", *(_lost(side.lost.get(reason)) for side in sides))
    table.add_row("used", *(str(sum(side.used.values())) for side in sides), style="bold", end_section=True)
    for kind in dict.fromkeys(kind for side in sides for kind in side.used):
        table.add_row(f"  {kind}", *(_count(side.used.get(kind)) for side in sides))
    if any(found.novel_sets.values()):
        words = {
            "choose": "novel, to choose on",
            "report": "novel, to report on",
            "neither": "novel, of both sets",
        }
        for key, count in found.novel_sets.items():
            table.add_row(f"    {words[key]}", "", "", str(count))
    table.columns[0].no_wrap = True
    table.add_section()
    table.add_row("videos", *(str(side.videos) for side in sides))
    table.add_row("  with an actor that is used", *(str(side.videos_used) for side in sides))
    if any(side.groups is not None for side in sides):
        table.add_row("groups", *(_count(side.groups) for side in sides))
    return table


def _classes(found: SplitReport) -> Table:
    met = {each.action: each for each in found.leakage.met_in_pretraining}
    table = Table("action", "table", *SIDES, title="Actors that do each action: in the table, and used")
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify = "right"
    if found.leakage.num_pretraining_labels:
        table.add_column("most like it in pre-training", overflow="fold")
    last = ""
    for each in found.classes:
        if last != each.set:
            table.add_section()
            table.add_row(Text(_SET_WORDS[each.set], style="bold"))
        last = each.set
        counts = [str(count) for count in (each.table, each.train, each.val, each.test)]
        likeness = [_met(met.get(each.action))] if found.leakage.num_pretraining_labels else []
        table.add_row(Text(f"  {each.action}"), *counts, *likeness)
    return table


def _leakage(leakage: Leakage, classes: Sequence[SplitClassCounts]) -> list[str]:
    groups = f"{len(leakage.groups_on_two_sides)}{_examples(leakage.groups_on_two_sides)}"
    files = f"{len(leakage.identical_files)} among {leakage.files_checked} files{_examples(leakage.identical_files)}"
    lines = [
        f"Videos on two sides: {leakage.videos_on_two_sides}.",
        f"Groups on two sides: {groups if leakage.groups_checked else 'not known, no groups were given (--groups)'}.",
        f"Identical videos on two sides: {files if leakage.files_checked else 'not looked for (--videos)'}.",
    ]
    if not leakage.num_pretraining_labels:
        return [*lines, "Actions met in pre-training: not looked for (--pretraining)."]
    met = {each.action for each in leakage.met_in_pretraining}
    novel = [each.action for each in classes if each.set.startswith("novel")]
    known = [each.action for each in classes if each.set in ("z1", "z2")]
    lines.append(
        f"Actions like one of {leakage.num_pretraining_labels} labels of the pre-training: "
        f"{len(met.intersection(novel))} of {len(novel)} novel, {len(met.intersection(known))} of {len(known)} known."
    )
    if leakage.not_comparable:
        lines.append(f"Names without words, which cannot be compared: {listed(leakage.not_comparable)}.")
    return lines


def _table(found: SplitReport) -> list[str]:
    lines = []
    if not found.is_table_of_split:
        lines.append("The split was made from another table than this.")
    if found.num_on_no_side:
        lines.append(
            f"{found.num_on_no_side} actors are in {len(found.videos_on_no_side)} videos on no side and are not used: "
            f"{listed(found.videos_on_no_side)}."
        )
    if found.videos_missing:
        lines.append(f"{found.videos_missing} videos of the split are not in the table.")
    return lines


def _examples(shared: Sequence[Shared]) -> str:
    told = [
        f"{each.videos[0]} and {each.videos[-1]} ({' and '.join(each.sides)})" for each in shared[:_SHOWN]
    ]
    more = f" and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
    return f": {'; '.join(told)}{more}" if told else ""


def _met(met: MetAction | None) -> Text:
    if met is None:
        return Text("")
    others = f", {met.num_labels - 1} more" if met.num_labels > 1 else ""
    return Text(f"{100 * met.likeness:3.0f} % {met.label}{others}")


def _count(count: int | None) -> str:
    return "" if count is None else str(count)


def _lost(count: int | None) -> str:
    return "" if not count else f"−{count}"
