"""`mule review`: say what novel people do, and make the model that has learnt it. Torch is imported when the command runs."""

from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mule.core.errors import RangeError

if TYPE_CHECKING:
    from mule.watching.reviewing.log import Entry


def review(
    groups: Annotated[Path, typer.Argument(metavar="GROUPS", help="groups.json that `mule discover` wrote.")],
    model: Annotated[Path, typer.Option(metavar="DIR", help="The model that watched.")] = Path("people"),
    log: Annotated[
        Path, typer.Option(metavar="FILE", help="The log of all that was said; it only grows.")
    ] = Path("review.jsonl"),
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP=ACTION", help="The people of this group do this action, new or known. Repeatable."
        ),
    ] = None,
    idle: Annotated[
        list[int] | None, typer.Option(metavar="GROUP", help="They are idle. Repeatable.")
    ] = None,
    nobody: Annotated[
        list[int] | None, typer.Option(metavar="GROUP", help="Nobody is there. Repeatable.")
    ] = None,
    ignore: Annotated[
        list[int] | None, typer.Option(metavar="GROUP", help="Nothing that matters. Repeatable.")
    ] = None,
    undo: Annotated[
        int | None, typer.Option(metavar="ENTRY", help="This entry of the log no longer counts.")
    ] = None,
    who: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who says so. Default: the name of the user.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Make a model here that has learnt all that the log says."),
    ] = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", envvar="MULE_OFFLINE", help="Fetch no weights; stop if some are missing."),
    ] = False,
) -> None:
    """Say what the people of groups do, and make the model that has learnt it.

    Everything said is one line of a log, with who and when; nothing is ever
    removed, and --undo adds a line too. --out replays the whole log. The
    model that watched is never written over; `mule decide` then decides
    again what was watched.
    """
    from mule.core.printable import printable
    from mule.watching.discovering.groups import read_groups
    from mule.watching.reviewing.log import Marked, Named, ReviewLog, Undone, members_of

    found = read_groups(groups)
    acts: list[Named | Marked | Undone] = [
        Named(members=members_of(found, number), action=action) for number, action in map(_named, name or ())
    ]
    acts += [Marked(members=members_of(found, number), mark="idle") for number in idle or ()]
    acts += [Marked(members=members_of(found, number), mark="nobody") for number in nobody or ()]
    acts += [Marked(members=members_of(found, number), mark="ignore") for number in ignore or ()]
    acts += [] if undo is None else [Undone(number=undo)]
    kept = ReviewLog(log, fingerprint=found.model.fingerprint)
    for act in acts:
        typer.echo(_line(kept.add(act, who=printable(who or getuser()))))
    if out is None:
        if not acts:
            for entry in kept.entries():
                typer.echo(_line(entry))
        return
    from mule.cli.watch import fetch_missing

    fetch_missing(model, None, offline=offline)
    from mule.watching.engine.bundle import read_bundle
    from mule.watching.reviewing.applying import apply_review

    applied = apply_review(
        kept.review(), read_bundle(model), out, noted=lambda sentence: typer.echo(sentence, err=True)
    )
    learnt = ", ".join(f"{action} from {count} looks" for action, count in applied.examples.items())
    typer.echo(f"{out}: learnt {learnt}. `mule decide WATCHED --model {out}` decides again what was watched.")


def _named(text: str) -> tuple[int, str]:
    number, sign, action = text.partition("=")
    if not sign or not number.strip().isdecimal() or not action.strip():
        raise RangeError(f"--name must be GROUP=ACTION, such as 3=juggle; got {text!r}.")
    return int(number), action.strip()


def _line(entry: "Entry") -> str:
    act = entry.act
    when = f"{entry.number}. {entry.at:%Y-%m-%d %H:%M} {entry.who}:"
    if act.kind == "undone":
        return f"{when} entry {act.number} undone"
    said = act.action if act.kind == "named" else act.mark if act.kind == "marked" else "nothing"
    return f"{when} {len(act.members)} acts are {said}"
