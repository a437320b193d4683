"""Measure four walks through the package: files entered, lines executed in them, and the deepest call.

    python -m bench.walks              print the table
    python -m bench.walks --write      also put the table and each walk's steps into docs/ARCHITECTURE.md

Each walk is a tiny run in a process of its own, traced from the command to the function where it ends. The processes
are forks of one that has imported everything, because imports are not part of a walk. Only frames of `src/mule` count;
comprehensions belong to the function that contains them.
"""

import argparse
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import mule

PACKAGE = str(Path(mule.__file__).resolve().parent) + "/"
ARCHITECTURE = Path(__file__).resolve().parent.parent / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- walks: begin -->", "<!-- walks: end -->"


BEFORE = {
    "train": (49, 1497, 20),
    "watch": (80, 3293, 19),
    "compare": (107, 4171, 25),
    "table": (49, 1814, 25),
}
"""Files, lines and depth of version 0.1.0 by the same measure."""


class Walk(NamedTuple):
    """The measurements of one walk."""

    files: int
    lines: int
    depth: int
    steps: list[str]
    """Each file in the order the walk enters it, with the first function called there: `file: function`."""
    deepest: list[str]
    """The deepest call stack, from the command down."""


class Tracer:
    """Trace every frame of the package, on every thread, until the walk's last function is called."""

    def __init__(self, end: str | None) -> None:
        self.end = end
        self.entered: dict[str, str] = {}
        self.lines: set[tuple[str, int]] = set()
        self.deepest: list[str] = []
        self.is_over = False
        self._places: dict[CodeType, str | None] = {}

    def __enter__(self) -> "Tracer":
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def walk(self) -> Walk:
        """The walk traced so far."""
        steps = [f"{file}: {function}" for file, function in self.entered.items()]
        return Walk(len(self.entered), len(self.lines), len(self.deepest), steps, self.deepest)

    def _enter(self, frame: FrameType, *_: object) -> Callable[..., Any] | None:
        code = frame.f_code
        file = None if self.is_over else self._place(code)
        if file is None:
            return None
        self.lines.add((file, frame.f_lineno))
        if not code.co_name.startswith("<"):
            self.entered.setdefault(file, code.co_qualname)
            stack = self._stack(frame)
            self.deepest = max(self.deepest, stack, key=len)
        self.is_over = code.co_qualname == self.end
        return self._inside

    def _inside(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if self.is_over:
            return None
        if event == "line":
            self.lines.add((self._place(frame.f_code) or "", frame.f_lineno))
        return self._inside

    def _stack(self, frame: FrameType | None) -> list[str]:
        """Functions of the package on the call stack, outermost first."""
        functions: list[str] = []
        while frame is not None:
            file = self._place(frame.f_code)
            if file is not None and not frame.f_code.co_name.startswith("<"):
                functions.append(f"{file}: {frame.f_code.co_qualname}")
            frame = frame.f_back
        return functions[::-1]

    def _place(self, code: CodeType) -> str | None:
        if code not in self._places:
            is_ours = code.co_filename.startswith(PACKAGE)
            self._places[code] = code.co_filename.removeprefix(PACKAGE) if is_ours else None
        return self._places[code]


STAGE = """
system = "mule"
sizes = "tiny"
data = {{kind = "stage", root = "{folder}/stage", train_clips = 8, val_clips = 4, rows = 24, cols = 32, num_frames = 4, stride_frames = 1}}
optimizer = {{kind = "adamw", lr = 1e-3}}
training = {{epochs = 1, batch_clips = 4, tensorboard = false}}
loading = {{workers = 0}}
"""
TABLE = """
system = "mule"
sizes = "tiny"
data = {{kind = "table", root = "{folder}/takes", num_frames = 4, stride_frames = 1}}
optimizer = {{kind = "adamw", lr = 1e-3}}
training = {{epochs = 1, batch_clips = 2, tensorboard = false}}
loading = {{workers = 0}}
"""

COMPARE = ["compare", "--workers", "0", "--resamples", "10", "--test-clips", "4", "--dropout-passes", "0"]


class Route(NamedTuple):
    """A walk's name, its command, and the function where it ends; None means the end of the command."""

    name: str
    command: list[str]
    end: str | None


def routes(folder: Path) -> dict[str, Route]:
    """The four walks, on the data that `prepare` writes."""
    here = str(folder)
    return {
        "train": Route(
            "`mule train` to the multiplier",
            ["train", f"{here}/stage.toml", "--out", f"{here}/run"],
            "Constraint.ascend",
        ),
        "watch": Route(
            "`mule watch` to report.html",
            ["watch", f"{here}/takes/videos/clip_000000.mp4", "--model", "stage", "--out", f"{here}/seen"],
            None,
        ),
        "compare": Route(
            "a row of `mule compare` to its number",
            [*COMPARE, f"{here}/stage.toml", "--out", f"{here}/compared"],
            None,
        ),
        "table": Route(
            "a user's table to a batch",
            ["train", f"{here}/table.toml", "--out", f"{here}/table-run"],
            "TrainingRun._step",
        ),
    }  # fmt: skip


def prepare(folder: Path) -> None:
    """Render clips, write a table and a split for them, and an experiment for each walk."""
    takes = folder / "takes"
    run_command(["stage", "render", str(takes), "--clips", "12", "--seconds", "2", "--size", "96x128"])
    split = ["--policy", "random", "--seed", "1", "--out", str(takes / "split.toml")]
    run_command(["data", "split", str(takes / "actors.csv"), *split])
    (folder / "stage.toml").write_text(STAGE.format(folder=folder))
    (folder / "table.toml").write_text(TABLE.format(folder=folder))
    # one untraced run renders the clips, so that rendering is not part of a walk
    run_command([*COMPARE, f"{folder}/stage.toml", "--out", f"{folder}/compared-before"])


def run_command(arguments: list[str]) -> None:
    """Run a `mule` command in this process."""
    from mule.cli.main import app

    if app(arguments, standalone_mode=False):
        raise SystemExit(f"`mule {' '.join(arguments)}` failed.")


def traced(name: str, folder: Path) -> Walk:
    """Trace one walk in this process."""
    route = routes(folder)[name]
    with Tracer(route.end) as tracer, redirect_stdout(sys.stderr):
        run_command(route.command)
    if route.end is not None and not tracer.is_over:
        raise SystemExit(
            f"the walk {name!r} must reach {route.end}; it did not. Name its new end in `routes`."
        )
    return tracer.walk()


def measured() -> dict[str, Walk]:
    """Trace all four walks, each in a process of its own, so that none reuses the state of another."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "bench.walks", "--trace-in", scratch]
        subprocess.run(command, check=True, capture_output=True)
        return {
            name: Walk(**json.loads((Path(scratch) / f"{name}.json").read_text()))
            for name in routes(Path(scratch))
        }


def trace_each(folder: Path) -> None:
    """Write the four walks into a folder; nothing of torch may have run in this process."""
    for module in pkgutil.walk_packages(mule.__path__, "mule."):
        import_module(module.name)
    in_fork(lambda: prepare(folder))
    for name in routes(folder):
        in_fork(lambda name=name: _write_walk(name, folder))


def in_fork(work: Callable[[], object]) -> None:
    """Do the work in a fork of this process.

    Raises:
        SystemExit: the work failed.
    """
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("a walk could not be traced")


def _write_walk(name: str, folder: Path) -> None:
    (folder / f"{name}.json").write_text(json.dumps(traced(name, folder)._asdict()))


def table(walks: dict[str, Walk]) -> str:
    """The numbers as Markdown, beside those of version 0.1.0."""
    names = routes(Path())
    lines = ["| walk | files | lines | depth | in 0.1.0 |", "|---|---|---|---|---|"]
    for key, walk in walks.items():
        before = " / ".join(map(str, BEFORE[key]))
        lines.append(f"| {names[key].name} | {walk.files} | {walk.lines} | {walk.depth} | {before} |")
    return "\n".join(lines)


def section(walks: dict[str, Walk]) -> str:
    """The section of the page: the table, and a list of steps per walk that opens on a click."""
    names = routes(Path())
    lists = [
        f'<details markdown="1">\n<summary>{_as_html(names[key].name)}: {walk.files} files</summary>\n\n'
        + "```\n"
        + "\n".join(walk.steps)
        + "\n```\n\n</details>"
        for key, walk in walks.items()
    ]
    return "\n\n".join([table(walks), *lists])


def listed_steps(page: str) -> dict[str, list[str]]:
    """The steps of each walk as the page lists them."""
    _, _, rest = page.partition(BEGIN)
    blocks = rest.partition(END)[0].split("```\n")[1::2]
    return dict(zip(routes(Path()), (block.splitlines() for block in blocks), strict=True))


def write(walks: dict[str, Walk]) -> None:
    """Replace the section between the markers of docs/ARCHITECTURE.md."""
    page = ARCHITECTURE.read_text()
    before, _, rest = page.partition(BEGIN)
    ARCHITECTURE.write_text(f"{before}{BEGIN}\n{section(walks)}\n{END}{rest.partition(END)[2]}")


def _as_html(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def main() -> None:
    """Print the table; `--write` also updates the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="Also update docs/ARCHITECTURE.md.")
    parser.add_argument("--trace-in", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trace_in:
        trace_each(arguments.trace_in)
    else:
        walks = measured()
        print(table(walks))
        if arguments.write:
            write(walks)


if __name__ == "__main__":
    main()
