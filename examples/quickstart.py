"""Write docs/QUICKSTART.md: the four commands from a table of labels to a watched video, with their output.

    python -m examples.quickstart JHMDB --weights I3D.pt --detector YOLOX.onnx

The videos are J-HMDB clips of six actions, and three more to watch. The page contains only what the commands
print. Your own folder would look the same.
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
"""Actions of the clips to watch: one that is taught, two that are not."""
REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "QUICKSTART.md"
COLUMNS = 118
HEADER = ("video", "time_s", "x1", "y1", "x2", "y2", "actions", "actor_id")

BEGINNING = """# Your own videos in four commands

This page goes from a table of labels to a watched video, on a laptop without a graphics card. The backbone is
an I3D pretrained on Kinetics-400; it stays frozen, so that only a small network is trained, which takes
minutes. `python -m examples.quickstart` runs the commands and writes this page with their output, here from a
machine with {cores} cores.

Install the package with two extras: `pip install ".[onnx,openvino]"` in its folder, or the same after the name of
its wheel. `onnx` runs the person detector. You need a folder with your videos and one table:

```
own/videos/       video files in any format that FFmpeg reads
own/actors.csv    one row per person and key time
own/videos.csv    optional: columns video and film, to keep clips of one film together
```

A key time is a moment at which you state what a person is doing. Box coordinates are fractions of the frame's
width and height. Separate several actions of one person with `;`. These rows are from the table used here:
{rows} people, each doing one of {num} actions, in clips of J-HMDB.

```
{table}
```

- No boxes yet? Leave the four columns empty, and `mule data detect` finds the people.
- Labels in another format? `mule data from-cvat` and its siblings convert AVA, Charades, COCO, VIAME and CVAT
  files.
- `mule data check own/actors.csv` lists every problem of a table with its line.

You also need the backbone's weights and a person detector, here named `i3d.pt` and `yolox_nano.onnx`.
`mule weights list` shows both, with licence and checksum; `mule weights pull NAME` fetches one and prints its path.
"""

SPLIT = """
## 1. Split the videos

The split decides which videos train the model, which calibrate it (validation) and which test it. Clips of
the same film must stay together, or the test would reward the model for recognising the film; `--groups`
names the file and the column that tell them apart. With `--policy closed` the model learns every action of the table. Aim
for at least fifty people in the validation set: they calibrate the novelty threshold.
"""
TRAIN = """
## 2. Train

The first pass computes the backbone's feature maps for every clip and caches them in `own/features`; training
itself then takes seconds. You can stop it at any moment and continue with the same command and `--resume`.
OpenVINO computes the maps faster; leave out `backbone.runtime` to use torch.
"""
BUNDLE = """
## 3. Make a model folder

`mule bundle` puts the weights, the memory and the calibration into one folder, which you can move or copy to
another computer. The memory holds every person
of the training set, with a small picture to show similar people in reports. A person is novel who looks like
nobody that does a known action, by the box, by the whole frame and by what the backbone's own classifier says.
All known people of training and validation calibrate this, each compared with the people of other films.
"""
WATCH = """
## 4. Watch

The folder `new` holds three new clips: one of {known}, which the model knows, and two of actions that it does
not ({novel}). The source can also be a single video, a camera or an RTSP address. `--runtime onnx`, `openvino`
and `torch` reach the same decisions; the first two export the model for each size of clip, which takes up to a minute
the first time and is kept.
"""
END = """
Open `seen/*/report.html` in any browser; it needs no server. It shows the video with its boxes, a timeline
per person, the most similar remembered people, and a slider that changes the threshold without watching
again.

## What to expect

A model trained on {rows} clips is small. It misses some novel actions, and it cannot judge a person whom the
detector misses.

- `mule evaluate run run` measures the model on the test set.
- More examples of the actions that matter to you help most.
- `mule teach model --class NAME --examples TABLE` adds an action later, [without retraining](TEACHING.md).
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
            "mule train own --set data.root=own "
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
