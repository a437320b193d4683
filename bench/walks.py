"""Measure four walks through the package: files entered, lines executed in them, and the deepest call.

    python -m bench.walks              print the table
    python -m bench.walks --write      also put it, and each walk's steps, into docs/ARCHITECTURE.md

Each walk is a tiny run in a process of its own, traced from the command to the line where it ends. Only frames of
`src/mule` count; comprehensions belong to the function that contains them.
"""

import argparse
import json
import pkgutil
import subprocess
import sys
import tempfile
import threading
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
"""Version 0.1.0 by the same measure: files, lines, depth."""


class Walk(NamedTuple):
    """The measures of one walk."""

    files: int
    lines: int
    depth: int
    steps: list[str]
    """The first function entered in each file, in order: `file: function`."""
    deepest: list[str]
    """The call stack where the walk is deepest, from the command down."""


class Tracer:
    """Follows every frame of the package, on every thread, until the walk's last function is called."""

    def __init__(self, end: str | None) -> None:
        self.end = end
        self.entered: dict[str, str] = {}
        self.lines: set[tuple[str, int]] = set()
        self.deepest: list[str] = []
        self._is_over = False
        self._places: dict[CodeType, str | None] = {}

    def __enter__(self) -> "Tracer":
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def walk(self) -> Walk:
        """Return the measures so far."""
        steps = [f"{file}: {function}" for file, function in self.entered.items()]
        return Walk(len(self.entered), len(self.lines), len(self.deepest), steps, self.deepest)

    def _enter(self, frame: FrameType, *_: object) -> Callable[..., Any] | None:
        code = frame.f_code
        file = None if self._is_over else self._place(code)
        if file is None:
            return None
        self.lines.add((file, frame.f_lineno))
        if not code.co_name.startswith("<"):
            self.entered.setdefault(file, code.co_qualname)
            stack = self._stack(frame)
            self.deepest = max(self.deepest, stack, key=len)
        self._is_over = code.co_qualname == self.end
        return self._inside

    def _inside(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if self._is_over:
            return None
        if event == "line":
            self.lines.add((self._place(frame.f_code) or "", frame.f_lineno))
        return self._inside

    def _stack(self, frame: FrameType | None) -> list[str]:
        """Return the functions of the package on the stack, outermost first."""
        found: list[str] = []
        while frame is not None:
            file = self._place(frame.f_code)
            if file is not None and not frame.f_code.co_name.startswith("<"):
                found.append(f"{file}: {frame.f_code.co_qualname}")
            frame = frame.f_back
        return found[::-1]

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
    """A walk's name, its command, and the function at which it ends; None is the end of the command."""

    name: str
    command: list[str]
    end: str | None


def routes(folder: Path) -> dict[str, Route]:
    """Return the four walks, on data that `prepare` wrote into the folder."""
    here = str(folder)
    return {
        "train": Route(
            "`mule train` to the multiplier",
            ["train", f"{here}/stage.toml", "--out", f"{here}/run"],
            "Constraint.ascend",
        ),
        "watch": Route(
            "`mule watch` to report.html",
            ["watch", f"{here}/takes/videos/clip_000000.mp4", "--model", "builtin", "--out", f"{here}/seen"],
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
    """Write rendered clips, the same as a table with videos and a split, and an experiment on each."""
    takes = folder / "takes"
    run_command(["stage", "render", str(takes), "--clips", "12", "--seconds", "2", "--size", "96x128"])
    split = ["--policy", "random", "--seed", "1", "--out", str(takes / "split.toml")]
    run_command(["data", "split", str(takes / "actors.csv"), *split])
    (folder / "stage.toml").write_text(STAGE.format(folder=folder))
    (folder / "table.toml").write_text(TABLE.format(folder=folder))
    # run once before tracing, so that no walk renders its clips
    run_command([*COMPARE, f"{folder}/stage.toml", "--out", f"{folder}/compared-before"])


def run_command(arguments: list[str]) -> None:
    """Run a `mule` command in this process."""
    from mule.cli.main import app

    if app(arguments, standalone_mode=False):
        raise SystemExit(f"`mule {' '.join(arguments)}` failed.")


def traced(name: str, folder: Path) -> Walk:
    """Trace one walk in this process."""
    for module in pkgutil.walk_packages(mule.__path__, "mule."):
        import_module(module.name)  # imports are not part of the walk
    route = routes(folder)[name]
    with Tracer(route.end) as tracer, redirect_stdout(sys.stderr):
        run_command(route.command)
    return tracer.walk()


def measured() -> dict[str, Walk]:
    """Trace all four walks, each in its own process."""
    found: dict[str, Walk] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run(
            [sys.executable, "-m", "bench.walks", "--prepare", scratch], check=True, capture_output=True
        )
        for name in routes(folder):
            command = [sys.executable, "-m", "bench.walks", "--trace", name, "--in", scratch]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[name] = Walk(**json.loads(done.stdout))
    return found


def table(found: dict[str, Walk]) -> str:
    """Return the numbers as Markdown, beside those of 0.1.0."""
    names = routes(Path())
    lines = ["| walk | files | lines | depth | in 0.1.0 |", "|---|---|---|---|---|"]
    for key, walk in found.items():
        before = " / ".join(map(str, BEFORE[key]))
        lines.append(f"| {names[key].name} | {walk.files} | {walk.lines} | {walk.depth} | {before} |")
    return "\n".join(lines)


def main() -> None:
    """Prints the table; `--write` puts it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--trace")
    parser.add_argument("--in", dest="folder", type=Path)
    wanted = parser.parse_args()
    if wanted.prepare:
        prepare(wanted.prepare)
    elif wanted.trace:
        print(json.dumps(traced(wanted.trace, wanted.folder)._asdict()))
    else:
        print(table(measured()))


if __name__ == "__main__":
    main()
