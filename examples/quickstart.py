"""Writes docs/QUICKSTART.md: the four commands from a table of labels to watching, each run here, with what it printed.

    python -m examples.quickstart JHMDB --weights I3D.pt --detector YOLOX.onnx

The videos are clips of six actions of J-HMDB, and three more to watch; nothing of them is copied into the page but
what the commands print. A folder of one's own looks the same.
"""

import argparse
import csv
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from mule.core.files import write_file

TAUGHT = ("brush_hair", "clap", "golf", "pour", "pullup", "shoot_bow")
CLIPS_EACH = 36
WATCHED = ("golf", "kick_ball", "swing_baseball")
"""Films to watch: one of an action that is taught, two of actions that are not."""
REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "QUICKSTART.md"
COLUMNS = 118
HEADER = ("video", "time_s", "x1", "y1", "x2", "y2", "actions", "actor_id")

BEGINNING = """# Your own videos, from a table of labels to watching, in four commands

On a laptop without a graphics card. The backbone is an I3D that has learnt from Kinetics-400 and stays as it is; what is
trained is small, and takes minutes. Everything below was printed by the commands themselves, here on a machine with {cores}
cores; `python -m examples.quickstart` writes this page.

What you bring is a folder:

```
own/videos/       any files that FFmpeg reads
own/actors.csv    one row for each person and key time
```

The sides of a box are shares of the picture's width and height; several actions of one person stand apart by `;`. A few
rows of the table used here, {rows} persons who do one of {num} actions (clips of J-HMDB):

```
{table}
```

No boxes yet? Leave them empty, and `mule data detect` finds the persons. `mule data check own/actors.csv` reads a table and
says what is wrong with it, line by line.

Two files are needed beside the videos: the weights of the backbone and a detector of persons. Both are listed, with
licence and checksum, by `mule weights list`; here they are called `i3d.pt` and `yolox_nano.onnx`.
"""

SPLIT = """
## 1. Which videos teach, and which are kept back

Clips of one film must stay on one side, or a model is praised for knowing the film: `--groups` says which belong together.
`closed`: every action of the table is taught; what is novel will come from elsewhere. The validation side says what is usual
among known actors, so give it fifty persons or more.
"""
TRAIN = """
## 2. Train

The maps of the backbone are computed once for every clip and kept in `own/features`; the training after it takes seconds.
Stopped at any moment, the same command with `--resume` goes on.
"""
BUNDLE = """
## 3. Put weights, memory and calibration into one folder

Every training actor is remembered, with a small picture; the validation actors say what is usual.
"""
WATCH = """
## 4. Watch

Three new clips: somebody who plays {known}, which was taught, and two who do what was not ({novel}). `new` may be a
video, a folder of videos, a camera or an RTSP address.
"""
END = """
`seen/*/report.html` opens in any browser, without a server: the video with its boxes, a time line for every person, the
remembered actors that are most alike, and a slider that moves the threshold without watching again.

A model of {rows} clips is a small model: it does not find everything that is new, and a person whom the detector misses is
not seen at all. `mule evaluate run run` judges it by what was kept back; more examples of the actions that matter help more
than anything else.
To add one action later, without training: `mule teach model --class NAME --examples TABLE`.
"""


def main() -> None:
    """Prepares the folder, runs the commands, writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jhmdb", type=Path)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--detector", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/quickstart"))
    wanted = parser.parse_args()
    work: Path = wanted.work.resolve()
    if work.exists():
        raise SystemExit(f"{work}: must not exist yet; it does. Remove it, or choose another with --work.")
    rows = prepare(wanted.jhmdb.resolve(), work)
    for name, path in (("i3d.pt", wanted.weights), ("yolox_nano.onnx", wanted.detector)):
        (work / name).symlink_to(path.resolve())
    given = {
        "cores": os.cpu_count(),
        "rows": len(rows),
        "num": len(TAUGHT),
        "table": "\n".join([",".join(HEADER), *(",".join(row) for row in rows[:: len(rows) // 4][:4])]),
        "known": WATCHED[0],
        "novel": ", ".join(WATCHED[1:]),
    }
    steps = [
        (
            SPLIT,
            "mule data split own/actors.csv --policy closed --groups own/videos.csv:film --val-share 0.25 --test-share 0.15 --out own/split.toml",
        ),
        (
            TRAIN,
            "mule train own --set data.root=own --set data.num_known=6 "
            "--set backbone.weights=i3d.pt --set backbone.runtime=openvino --out run",
        ),
        (BUNDLE, "mule bundle run --out model --pictures"),
        (
            WATCH,
            "mule watch new --model model --detector yolox_nano.onnx --every 0.5 --runtime openvino --out seen",
        ),
    ]
    text = BEGINNING + "".join(before + "\n" + ran(command, work) for before, command in steps) + END
    write_file(PAGE, text.format(**given))
    print(f"{PAGE}: written")


def prepare(jhmdb: Path, work: Path) -> list[tuple[str, ...]]:
    """The folder of somebody with videos and a table; returns the rows of the table."""
    (work / "own" / "videos").mkdir(parents=True)
    (work / "new").mkdir()
    videos = list(csv.DictReader((jhmdb / "videos.csv").open()))
    film_of = {row["video"]: row["source_group"] for row in videos}
    labels = list(csv.DictReader((jhmdb / "labels.csv").open()))
    rows: list[tuple[str, ...]] = []
    for action in TAUGHT:
        of_action = [row for row in labels if row["action"] == action][:CLIPS_EACH]
        for row in of_action:
            name = Path(row["video"]).name
            shutil.copyfile(jhmdb / "videos" / row["video"], work / "own" / "videos" / name)
            rows.append((name, *(row[key] for key in HEADER[1:6]), action, ""))
    with (work / "own" / "actors.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *rows])
    with (work / "own" / "videos.csv").open("w", newline="") as file:
        films = [(Path(video).name, film) for video, film in film_of.items()]
        csv.writer(file, lineterminator="\n").writerows([("video", "film"), *films])
    taught_films = {
        film_of[row["video"]] for row in labels if Path(row["video"]).name in {row[0] for row in rows}
    }
    for action in WATCHED:
        others = [
            row["video"]
            for row in videos
            if row["action"] == action
            and row["persons_detected_auto"] == "1"
            and row["source_group"] not in taught_films
        ]
        shutil.copyfile(jhmdb / "videos" / others[-1], work / "new" / f"{action}.mp4")
    return rows


def ran(command: str, work: Path) -> str:
    """The command and what it printed, as the page shows them."""
    print(f"$ {command}", flush=True)
    mule = Path(sys.executable).with_name("mule")
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
    told = command.replace(" --set ", " \\\n    --set ").replace("{", "{{").replace("}", "}}")
    shown = lines.replace("{", "{{").replace("}", "}}")
    return f"```console\n$ {told}\n{shown}\n```\n\nTook {time.perf_counter() - started_at:.0f} s.\n"


if __name__ == "__main__":
    main()
