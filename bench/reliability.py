"""Write the tables of docs/RELIABILITY.md: limits, memory by people in view, hostile files and failed writes that are survived.

python -m bench.reliability --write             the limits alone, in a second
python -m bench.reliability --write --tries 50  also 50 hostile files for each reader, and two crowds
python -m bench.reliability --tries 50 film     print how one reader fares; with --write, repeat the row of its kind alone
python -m bench.reliability --write --hours 2   also a stream of two hours, on a fast clock
python -m bench.reliability --write --same      also eight trainings with one seed, and the cost of deterministic algorithms
python -m bench.reliability --write --faults    make every write fail once, and continue; or only those of some works
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from bench import crowd, training
from mule.core import documents, settings, text_rows
from mule.data.convert import cvat
from mule.data.table import reading as tables
from mule.detection import detector
from mule.video import decode
from mule.video import reading as videos
from mule.watching.engine import finding, recognising
from tests.hostile.corpus import all_readers
from tests.hostile.mutations import random_of
from tests.hostile.readers import CANARY, Reader, broken_law

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "RELIABILITY.md"

LIMITS: Sequence[tuple[str, float, str]] = (
    ("classes of a table of actors", tables.MOST_CLASSES, ""),
    ("columns of a row", text_rows.MOST_COLUMNS, ""),
    ("letters of a cell", text_rows.MOST_CELL_LETTERS, "and no NUL anywhere in a text"),
    ("levels of lists and tables in TOML and JSON", documents.MOST_NESTED, "also the parts of a dotted key"),
    ("digits of a whole number in TOML and JSON", documents.MOST_DIGITS, ""),
    ("bytes of a tag with its attributes in XML", cvat.MOST_TAG_BYTES, ""),
    ("bytes of a name in a path of an experiment", settings.LONGEST_NAME_BYTES, "and no NUL"),
    ("loading workers", settings.MOST_WORKERS, "`loading.workers`"),
    ("frames of a clip", settings.MOST_CLIP_FRAMES, "`data.num_frames`"),
    ("pixels of a side that frames are scaled to", settings.LARGEST_SIDE_PX, "`view`, `data.rows` and `data.cols`"),
    ("pixels of a clip, all frames together", videos.MOST_CLIP_PIXELS, ""),
    ("pixels of a picture", decode.MAX_PIXELS, ""),
    ("longer side of a picture, in shorter sides", videos.MOST_TIMES_AS_LONG, ""),
    ("seconds that a picture may stay before it is a gap in time", float(videos.LONGEST_STILL_S), "a gap is skipped"),
    ("pixels of a side of a detector's input", detector.LARGEST_INPUT_PX, "ONNX"),
    ("actors at a moment", finding.MOST_ACTORS, ""),
    ("actors that go through the network together", recognising.MOST_ACTORS_AT_ONCE, "larger crowds are judged in parts"),
)  # fmt: skip


def limits_table() -> str:
    """Return the limits as Markdown."""
    rows = [f"| {what} | {value:,.0f} | {note} |" for what, value, note in LIMITS]
    return "\n".join(["| What | At most | |", "|---|---:|---|", *rows])


def tried(reader: Reader, tries: int) -> tuple[int, list[str]]:
    """Return how many hostile files a reader survived, and what broke at the others."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / reader.name
        folder.mkdir()
        reader.prepare(folder)
        good = (folder / reader.file).read_bytes()
        found = [
            broken_law(reader, folder, reader.mutate(good, random_of(reader.name, each)))
            for each in range(tries)
        ]
    problems = [f"{reader.name} {number}: {problem}" for number, problem in enumerate(found) if problem]
    return tries - len(problems), problems


def hostile_rows(tries: int, kinds: Collection[str]) -> dict[str, str]:
    """Return tries and survivors of some kinds of files, each as a row in Markdown."""
    tries_of, survived = Counter[str](), Counter[str]()
    readers: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        canary = Path(scratch) / CANARY
        for reader in all_readers(str(canary)):
            if reader.kind not in kinds:
                continue
            alive, problems = tried(reader, tries)
            print(f"{reader.name}: {alive} of {tries}", *problems, sep="\n  ", flush=True)
            tries_of[reader.kind] += tries
            survived[reader.kind] += alive - canary.exists()
            readers.setdefault(reader.kind, []).append(reader.name)
            canary.unlink(missing_ok=True)
    return {
        kind: f"| {kind} | {', '.join(readers[kind])} | {tries_of[kind]:,} | {survived[kind]:,} |"
        for kind in readers
    }


def hostile_table(page: str, made: Mapping[str, str], tries: int) -> str:
    """Return the table of hostile files; kinds without a new row keep that of the page."""
    kinds = dict.fromkeys(reader.kind for reader in all_readers(""))
    old = page.partition("<!-- hostile -->")[2].partition("<!-- /hostile -->")[0].splitlines()
    rows = [made.get(kind) or next(line for line in old if line.startswith(f"| {kind} |")) for kind in kinds]
    numbers = [[int(cell.replace(",", "")) for cell in row.split("|")[3:5]] for row in rows]
    total = "| all | | {:,} | {:,} |".format(*map(sum, zip(*numbers, strict=True)))
    in_suite = sum(reader.cases for reader in all_readers(""))
    said = f"\n\n`python -m bench.reliability --write --tries {tries}` repeats this table; the test suite tries {in_suite:,} files."
    return "\n".join(["| Kind | Readers | Tries | Survived |", "|---|---|---:|---:|", *rows, total]) + said


def crowd_table() -> str:
    """Return memory by people in view as Markdown."""
    rows = [f"| {people} | {crowd.measured(people).split(',')[0]} |" for people in (40, 400)]
    return "\n".join(["| People in view | Peak memory of the process |", "|---:|---:|", *rows])


WORKS = {
    "extract": "`mule features extract`",
    "train": "`mule train`",
    "compare": "`mule compare`, its row",
    "report": "`mule compare`, its pages",
    "bundle": "`mule bundle`",
    "watch": "`mule watch`",
    "teach": "`mule teach`",
}
"""Pieces of work in tests/faults/works.py, and the commands they stand for."""
WAYS = ("full disk", "read-only disk", "killed before", "killed after")
INJECTING = ROOT / "tests" / "faults" / "injecting.py"


def fault_row(work: str) -> str:
    """Return how a piece of work fares when each of its writes fails, as a row in Markdown."""
    paths = [str(ROOT / "src"), str(ROOT), str(ROOT / "tests")]
    done = subprocess.run(
        [sys.executable, str(INJECTING), "--works", work],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    trials = [json.loads(line) for line in done.stdout.splitlines() if '"work"' in line]
    for trial in trials:
        if trial["wrong"]:
            print(json.dumps(trial), flush=True)
    print(f"{work}: {len(trials)} trials", flush=True)
    if not trials:
        raise SystemExit(f"{work}: no trial came to an end")
    num_writes = len({trial["at"] for trial in trials})
    cells: list[str] = []
    for way in WAYS:
        of_way = [trial for trial in trials if trial["fault"] == way]
        cells.append(f"{sum(not trial['wrong'] for trial in of_way)} of {len(of_way)}")
    return f"| {WORKS[work]} | {num_writes} | {' | '.join(cells)} |"


def faults_table(page: str, made: Mapping[str, str]) -> str:
    """Return the table of failed writes; works without a new row keep that of the page."""
    rows = {
        work: next((line for line in page.splitlines() if line.startswith(f"| {shown} |")), "")
        for work, shown in WORKS.items()
    }
    head = [
        f"| Work | Writes | {' | '.join(way.capitalize() for way in WAYS)} |",
        f"|---|---:|{'---:|' * len(WAYS)}",
    ]
    return "\n".join([*head, *filter(None, {**rows, **made}.values())])


SAME = 8
REPEATED = ROOT / "tests" / "training" / "repeated_training.py"


def same_table() -> str:
    """Return whether trainings with one seed give the same bytes, and what that costs, as Markdown."""
    paths = [str(ROOT / "src"), str(ROOT / "tests" / "training")]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    with tempfile.TemporaryDirectory() as scratch:
        weights: set[bytes] = set()
        for number in range(SAME):
            run_dir = Path(scratch) / "same" / f"run{number}"
            command = [sys.executable, str(REPEATED), f"{scratch}/stage", str(run_dir)]
            subprocess.run(command, env={**environment, "PYTHONHASHSEED": str(number)}, check=True)
            weights.add((run_dir / "model.safetensors").read_bytes())
        effort = training.Effort(train_clips=32)
        print(f"{SAME} trainings, {len(weights)} different", flush=True)
        ratio = training.determinism(training.Runs(Path(scratch) / "timed", effort), effort)
    rows = [
        ("trainings with one seed, each in a fresh process with two threads and two loader workers", SAME),
        ("different weights among them", len(weights)),
        ("time of a step with deterministic algorithms, in steps without", f"{ratio:.2f}"),
    ]
    return "\n".join(["| | |", "|---|---:|", *(f"| {what} | {found} |" for what, found in rows)])


def soak_table(hours: float) -> str:
    """Return the memory of watching a stream for so many hours as Markdown."""
    command = [sys.executable, "-m", "bench.crowd", "--hours", f"{hours:g}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = [line.removeprefix("minute ").split(": ") for line in said]
    shown = [each for each in found if int(each[0]) % 30 == 10] + [
        ["after its files are written", found[-1][1]]
    ]
    return "\n".join(["| Minute | Memory |", "|---|---:|", *(f"| {when} | {size} |" for when, size in shown)])


def written(page: str, name: str, table: str) -> str:
    """Return the page with a table between its markers."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = page.partition(start)
    return f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"


def print_readers(names: Sequence[str], tries: int) -> None:
    """Print how some readers fare."""
    for reader in all_readers(""):
        if reader.name in names:
            alive, problems = tried(reader, tries or reader.cases)
            print(f"{reader.name}: {alive} survived", *problems, sep="\n  ")


def main() -> None:
    """Write or print."""
    parser = argparse.ArgumentParser(description="tables of docs/RELIABILITY.md")
    parser.add_argument("readers", nargs="*", help="print how these fare")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tries", type=int, default=0)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--faults", nargs="*", metavar="WORK", choices=list(WORKS))
    asked = parser.parse_args()
    if asked.readers:
        (put_hostile if asked.write else print_readers)(asked.readers, asked.tries)
        return
    tables_of: dict[str, Callable[[], str]] = {"limits": limits_table}
    if asked.tries:
        put_hostile((), asked.tries, writes=asked.write)
        tables_of["crowd"] = crowd_table
    if asked.hours:
        tables_of["soak"] = lambda: soak_table(asked.hours)
    if asked.same:
        tables_of["same"] = same_table
    for name, table in tables_of.items():
        found = table()
        put(name, lambda _, found=found: found, writes=asked.write)
    for work in asked.faults or (WORKS if asked.faults is not None else ()):
        row = fault_row(work)
        put("faults", lambda page, work=work, row=row: faults_table(page, {work: row}), writes=asked.write)


def put_hostile(names: Sequence[str], tries: int, *, writes: bool = True) -> None:
    """Write or print the table of hostile files; new are the rows of the kinds of these readers, or all."""
    kinds = {each.kind for each in all_readers("") if not names or each.name in names}
    made = hostile_rows(tries, kinds)
    put("hostile", lambda page: hostile_table(page, made, tries), writes=writes)


def put(name: str, table: Callable[[str], str], *, writes: bool) -> None:
    """Write a table into the page as soon as it is known, or print it; it may keep rows of the page."""
    page = PAGE.read_text(encoding="utf-8")
    if writes:
        PAGE.write_text(written(page, name, table(page)), encoding="utf-8")
    else:
        print(table(page), flush=True)


if __name__ == "__main__":
    main()
