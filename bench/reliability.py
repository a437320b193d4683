"""Write the tables of docs/RELIABILITY.md: the limits, memory by people in view, and how many hostile files are survived.

python -m bench.reliability --write             the limits alone, in a second
python -m bench.reliability --write --tries 50  also 50 hostile files for each reader, and two crowds
python -m bench.reliability --tries 50 film     print how one reader fares
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import crowd
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

PAGE = Path(__file__).resolve().parent.parent / "docs" / "RELIABILITY.md"

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


def hostile_table(tries: int) -> str:
    """Return tries and survivors by kind of file as Markdown."""
    tries_of, survived = Counter[str](), Counter[str]()
    readers: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        canary = Path(scratch) / CANARY
        for reader in all_readers(str(canary)):
            alive, problems = tried(reader, tries)
            print(f"{reader.name}: {alive} of {tries}", *problems, sep="\n  ", flush=True)
            tries_of[reader.kind] += tries
            survived[reader.kind] += alive - canary.exists()
            readers.setdefault(reader.kind, []).append(reader.name)
            canary.unlink(missing_ok=True)
    rows = [
        f"| {kind} | {', '.join(readers[kind])} | {tries_of[kind]:,} | {survived[kind]:,} |"
        for kind in readers
    ]
    total = f"| all | | {tries_of.total():,} | {survived.total():,} |"
    said = f"\n\n`python -m bench.reliability --write --tries {tries}` repeats this table."
    return "\n".join(["| Kind | Readers | Tries | Survived |", "|---|---|---:|---:|", *rows, total]) + said


def crowd_table() -> str:
    """Return memory by people in view as Markdown."""
    rows = [f"| {people} | {crowd.measured(people).split(',')[0]} |" for people in (40, 400)]
    return "\n".join(["| People in view | Peak memory of the process |", "|---:|---:|", *rows])


def written(page: str, name: str, table: str) -> str:
    """Return the page with a table between its markers."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = page.partition(start)
    return f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    """Write or print."""
    parser = argparse.ArgumentParser(description="tables of docs/RELIABILITY.md")
    parser.add_argument("readers", nargs="*", help="print how these fare")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tries", type=int, default=0)
    asked = parser.parse_args()
    if asked.readers:
        for reader in all_readers(""):
            if reader.name in asked.readers:
                alive, problems = tried(reader, asked.tries or reader.cases)
                print(f"{reader.name}: {alive} survived", *problems, sep="\n  ")
        return
    tables_of: dict[str, Callable[[], str]] = {"limits": limits_table}
    if asked.tries:
        tables_of |= {"hostile": lambda: hostile_table(asked.tries), "crowd": crowd_table}
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables_of.items():
        page = written(page, name, table())
    if asked.write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
