"""`mule evaluate watch`: what was said of the people in watched videos, against a table of who did what when."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.cli.printing import require_files

if TYPE_CHECKING:
    from mule.evaluation.watched_results import WatchedResult


def evaluate_watched_folders(
    watched: Annotated[
        list[Path],
        typer.Argument(
            metavar="WATCHED...", help="Folders that `mule watch` left, or folders of such folders."
        ),
    ],
    truth: Annotated[
        Path,
        typer.Option(
            metavar="TABLE",
            help="Table of people over time: video, time_s, x1, y1, x2, y2, actions, actor_id. Without actor_id, "
            "only looks are measured. A person without an action is idle.",
        ),
    ],
    nothing: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION", help="An action of the table that means that nothing is done. Repeatable."
        ),
    ] = None,
    complete: Annotated[
        bool,
        typer.Option(
            "--complete",
            help="The table lists every person at all times, so judge key times between its rows too.",
        ),
    ] = False,
    iou: Annotated[
        float,
        typer.Option(
            metavar="IOU", help="Match a watched with a labelled person if their boxes overlap by this IoU."
        ),
    ] = 0.5,
    probability: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="An action counts as shown from this probability on. Default: as watched. For an mAP of all probabilities, "
            "watch with --probability 0 and give 0.5 here.",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")
    ] = None,
) -> None:
    """Measure who was flagged and named while videos were watched, against the truth.

    An action that the model does not know is novel. Reports known, novel and idle people flagged and named, how soon novel
    acts are flagged, and who was missed or confused with others.
    """
    require_files(truth, what="a table of actors, .csv or .parquet")
    from mule.evaluation.open_set import require_place, write_json
    from mule.watching.measuring import evaluate_watch

    require_place(json)
    result = evaluate_watch(
        watched,
        truth,
        nothing=nothing or (),
        min_iou=iou,
        is_complete=complete,
        min_probability=probability,
    )
    write_json(result, json)
    _print(result)


def _print(result: "WatchedResult") -> None:
    from mule.evaluation.watched_results import watched_in_words

    console = Console()
    console.print(Text(watched_in_words(result), style="bold"))
    for line in _facts(result):
        console.print(Text(line))
    console.print(_looks_table(result))
    if result.people is not None:
        console.print(_people_table(result))
    console.print(_measures_table(result))
    if result.known_actions:
        console.print(_known_table(result))
    if result.novel_actions:
        console.print(_novel_table(result))
    console.print(Text(result.convention, style="dim"))


def _facts(result: "WatchedResult") -> list[str]:
    lines = [
        f"{result.num_videos} videos, {result.num_judged_times} of {result.num_key_times} key times judged."
    ]
    if result.num_not_watched:
        lines.append(f"{result.num_not_watched} videos of the table were not watched.")
    if result.people is None:
        lines.append("Some rows of the table have no actor_id, so people are not followed over time.")
    if not any(action.num for action in result.known_actions.values()):
        lines.append("The table has no action that the model knows.")
    if result.novel_actions:
        lines.append(f"Novel, because the model does not know them: {', '.join(result.novel_actions)}.")
    return lines


def _plain_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(columns[0], overflow="fold")
    for name in columns[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _looks_table(result: "WatchedResult") -> Table:
    from mule.evaluation.watched_results import percent

    table = _plain_table("looks", "by the table", "looks", "seconds", "seen", "flagged", "named", "wrongly")
    for kind, looks in result.looks.items():
        shares = (looks.num_flagged, looks.num_named, looks.num_wrongly_named)
        seen = "" if kind == "unlisted" else percent(looks.num_seen, looks.num)
        cells = (percent(each, looks.num_seen) for each in shares)
        table.add_row(kind, str(looks.num), f"{looks.seconds:.5g}", seen, *cells)
    return table


def _people_table(result: "WatchedResult") -> Table:
    table = _plain_table("people", "by the table", "people", "seen", "flagged", "flagged in the act")
    for kind, people in (result.people or {}).items():
        in_act = str(people.num_flagged_in_act) if kind == "novel" else ""
        table.add_row(kind, str(people.num), str(people.num_seen), str(people.num_flagged), in_act)
    return table


def _measures_table(result: "WatchedResult") -> Table:
    table = _plain_table("measures", "measure", "value")
    naming = result.naming
    shown = {
        "mAP of known people seen": naming.mean_ap,
        "mAP of everybody": naming.mean_ap_everybody,
        "precision of the actions shown": naming.precision,
        "recall of the actions shown": naming.recall,
        "mAP by person": naming.mean_ap_by_person,
        "precision by person": naming.precision_by_person,
        "recall by person": naming.recall_by_person,
    }
    for name, value in shown.items():
        if value is not None or result.people is not None or "by person" not in name:
            table.add_row(name, _number(value))
    if result.acts is not None:
        acts = result.acts
        delay = "–" if acts.median_delay_s is None else f"{acts.median_delay_s:.2f} s"
        table.add_row("novel acts", str(acts.num))
        table.add_row("novel acts never flagged", str(acts.num - acts.num_flagged))
        table.add_row("median time until flagged", delay)
    if result.identities is not None:
        identities = result.identities
        table.add_row("people never seen", f"{identities.num_never_seen} of {identities.num_people}")
        table.add_row(
            "tracks of nobody in the table", f"{identities.num_tracks_of_nobody} of {identities.num_tracks}"
        )
        table.add_row("identity switches", str(identities.num_switches))
        seen = sum(result.looks[kind].num_seen for kind in ("known", "novel", "idle"))
        table.add_row("looks on the person's own track", f"{identities.num_on_own_track} of {seen}")
    return table


def _known_table(result: "WatchedResult") -> Table:
    table = _plain_table(
        "known actions", "action", "looks", "seen", "average precision", "precision", "recall"
    )
    for name, action in result.known_actions.items():
        if not action.num and action.precision is None:  # nobody did it, and nobody was said to
            continue
        numbers = (action.average_precision, action.precision, action.recall)
        table.add_row(Text(name), str(action.num), str(action.num_seen), *map(_number, numbers))
    return table


def _novel_table(result: "WatchedResult") -> Table:
    table = _plain_table(
        "novel actions", "action", "looks", "seen", "flagged", "people", "flagged in the act"
    )
    for name, action in result.novel_actions.items():
        people = (
            "" if each is None else str(each) for each in (action.num_people, action.num_people_flagged)
        )
        table.add_row(Text(name), str(action.num), str(action.num_seen), str(action.num_flagged), *people)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
