"""Write docs/QUICKSTART.md: from a folder of videos and a table to a watched video, with what the commands print.

    python -m examples.quickstart JHMDB [--weights I3D.pt] [--detector YOLOX.onnx]

The videos are J-HMDB clips of six actions, four more to watch, and ten to teach another action from. The page contains only
what the commands print. Your own folder would look the same.
"""

import argparse
import csv
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mule.core.files import write_file

TAUGHT = ("brush_hair", "clap", "golf", "pour", "pullup", "shoot_bow")
CLIPS_EACH = 8
NEW = "kick_ball"
"""The action that is novel first and taught later."""
WATCHED = {"golf": 1, "pour": 1, NEW: 2}
NUM_EXAMPLES = 10
REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "QUICKSTART.md"
COLUMNS = 100

BEGINNING = """# Your own videos in two commands

This page goes from a folder of videos to a watched video, on a laptop without a graphics card. The backbone is an I3D
pretrained on Kinetics-400; it stays frozen, so that only a small network is trained, which takes minutes.
`python -m examples.quickstart` runs the commands and writes this page with their output, here from a machine with {cores}
cores.

Install the package with two extras: `pip install ".[onnx,openvino]"` in its folder, or the same after the name of its
wheel. `onnx` runs the person detector, `openvino` makes the backbone fast. You need a folder with your videos and one table:

```
own/              video files in any format that FFmpeg reads, here or in own/videos/
own/labels.csv    the columns video and actions; one row per clip
own/videos.csv    optional: the columns video and film, to keep clips of one film together
```

These rows are from the table used here: {rows} clips, each of somebody doing one of {num} actions, from J-HMDB. Separate
several actions with `;`.

```
{table}
```

- Do you know who does what, and when? Add the columns `time_s` (a moment, in seconds), `x1`, `y1`, `x2`, `y2` (a person's
  box, in fractions of the frame's width and height) and `actor_id`, one row per person and moment. Rows without a box get the
  people that the detector finds.
- Labels in another format? `mule data from-cvat` and its siblings convert AVA, Charades, COCO, VIAME and CVAT files.
- `mule data check own/labels.csv` lists every problem of a table, and what training will need.

The weights of the backbone are `i3d`, the detector is `yolox_nano`. `mule weights list` shows both with their licences; what
is not on disk is fetched where that is possible. {given}
"""
TRAIN = """
## 1. Train

The command finds the people in your clips, decides what trains, what calibrates and what tests, says so, trains, and makes a
model. It can be stopped at any moment; the same command with `--resume` continues. Without a terminal it says every ten
seconds how far it is.
"""
WATCH = """
## 2. Watch

The folder `new` holds {num_watched} clips of films that the model has not seen: {known}, which it knows, and {num_new} of
{new}, which it does not. The source can also be a single video, a camera or an RTSP address.
"""
TEACH = """
Open `seen/*/report.html` in any browser; it needs no server. It shows the video with its boxes, a timeline per person, the
most similar remembered people, and a slider that changes the threshold without watching again.

## 3. Teach

A new action needs about ten examples and no training. `more` holds {num_examples} clips of {new}, with a table like the one
above.
"""
AGAIN = """
One of the clips of {new} again:
"""
END = """
## What to expect

A model trained on {rows} clips is small. It misses some novel actions, and it cannot judge a person whom the detector misses.

- `mule train --data own --novel ACTION` keeps an action out, and `mule evaluate run runs/own.training/run` says how many of
  those people would be flagged.
- More examples of the actions that matter to you help most; so do clips of more films.
- [TEACHING](TEACHING.md) shows how well actions are learned from ten examples.
"""


def main() -> None:
    """Prepares the folders, runs the commands, writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jhmdb", type=Path)
    parser.add_argument("--weights", type=Path, help="a file; by default i3d is fetched")
    parser.add_argument("--detector", type=Path, help="a file; by default yolox_nano is fetched")
    parser.add_argument("--work", type=Path, default=Path("runs/quickstart"))
    parser.add_argument("--mule", type=Path, default=Path(sys.executable).with_name("mule"))
    wanted = parser.parse_args()
    work: Path = wanted.work.resolve()
    if work.exists():
        raise SystemExit(f"{work}: must not exist yet; it does. Remove it, or choose another with --work.")
    rows = prepare(wanted.jhmdb.resolve(), work)
    files = {"--weights": ("i3d.pt", wanted.weights), "--detector": ("yolox_nano.onnx", wanted.detector)}
    given = [(option, name) for option, (name, path) in files.items() if path is not None]
    for name, path in files.values():
        if path is not None:
            (work / name).symlink_to(path.resolve())
    options = "".join(f" {option} {name}" for option, name in given) or " --weights i3d"
    told = {
        "cores": os.cpu_count(),
        "rows": len(rows),
        "num": len(TAUGHT),
        "table": "\n".join(["video,actions", *(",".join(row) for row in rows[:: len(rows) // 4][:4])]),
        "given": "Here both are files." if given else "",
        "num_watched": sum(WATCHED.values()),
        "known": " and ".join(f"one of {action}" for action in WATCHED if action != NEW),
        "num_new": WATCHED[NEW],
        "new": NEW,
        "num_examples": NUM_EXAMPLES,
    }
    steps = [
        (TRAIN, f"mule train --data own{options}"),
        (WATCH, "mule watch new --model runs/own --out seen"),
        (TEACH, f"mule teach runs/own --class {NEW} --examples more/labels.csv"),
        (AGAIN, f"mule watch new/{NEW}_1.mp4 --model runs/own --out seen_again"),
    ]
    text = (
        BEGINNING
        + "".join(before + "\n" + ran(command, work, wanted.mule) for before, command in steps)
        + END
    )
    write_file(PAGE, text.format(**told))
    print(f"{PAGE}: written")


def prepare(jhmdb: Path, work: Path) -> list[tuple[str, str]]:
    """The folders of somebody with videos and a table; returns the rows of the table."""
    videos = [
        row for row in csv.DictReader((jhmdb / "videos.csv").open()) if row["persons_detected_auto"] == "1"
    ]
    by_action = {action: [row for row in videos if row["action"] == action] for action in (*TAUGHT, NEW)}
    own = [row for action in TAUGHT for row in by_action[action][:CLIPS_EACH]]
    films = {row["source_group"] for row in own}
    examples = by_action[NEW][:NUM_EXAMPLES]
    films |= {row["source_group"] for row in examples}
    folder(work / "own", jhmdb, own)
    folder(work / "more", jhmdb, examples)
    (work / "new").mkdir()
    for action, number in WATCHED.items():
        others = [row for row in by_action[action] if row["source_group"] not in films]
        for at, row in enumerate(others[:: -(-len(others) // number)], start=1):
            shutil.copyfile(jhmdb / "videos" / row["video"], work / "new" / f"{action}_{at}.mp4")
    return [(Path(row["video"]).name, row["action"]) for row in own]


def folder(path: Path, jhmdb: Path, clips: Sequence[Mapping[str, str]]) -> None:
    """Copies clips, and writes their table and their films."""
    path.mkdir(parents=True)
    names = [Path(row["video"]).name for row in clips]
    for name, row in zip(names, clips, strict=True):
        shutil.copyfile(jhmdb / "videos" / row["video"], path / name)
    for file, column, key in (("labels.csv", "actions", "action"), ("videos.csv", "film", "source_group")):
        with (path / file).open("w", newline="") as opened:
            rows = zip(names, (row[key] for row in clips), strict=True)
            csv.writer(opened, lineterminator="\n").writerows([("video", column), *rows])


def ran(command: str, work: Path, mule: Path) -> str:
    """The command and what it printed, as the page shows them."""
    print(f"$ {command}", flush=True)
    started_at = time.perf_counter()
    done = subprocess.run(
        [mule, *shlex.split(command)[1:]],
        cwd=work,
        env={**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1", "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout, flush=True)
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}")
    lines = "\n".join(line.rstrip() for line in done.stdout.replace(f"{work}/", "").rstrip().splitlines())
    shown = lines.replace("{", "{{").replace("}", "}}")
    return f"```console\n$ {command}\n{shown}\n```\n\nTook {time.perf_counter() - started_at:.0f} s.\n"


if __name__ == "__main__":
    main()
