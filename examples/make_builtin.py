"""Make the model that comes with the package, from nothing but this repository.

    python -m examples.make_builtin [--work DIR] [--out src/mule/models/stage]
    python -m examples.make_builtin --measure [--work DIR]       the model as it is, measured again

takes ─▶ network (experiments/builtin.toml) ─▶ memory ─╮
   ╰───▶ detector ─────────────────────────────────────┴─▶ watch known takes: calibration ─▶ watch other takes: metrics ─▶ card

Parts that exist in DIR are not made again, so a run that was stopped continues.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from examples.builtin_decisions import record
from examples.builtin_scores import metrics, takes, watched
from examples.builtin_takes import Truth, matched
from examples.calibrating import WatchedActors
from examples.train_detector import (
    CLASSES,
    SHORT_SIDE_PX,
    best_actor_score,
    detect,
    measure,
    read_frames,
    train_detector,
)
from mule.core.config import experiment_toml, load_experiment
from mule.core.files import write_file
from mule.core.manifest import seal, write_sealed
from mule.detection.centres import CentreDetector, centre_detector_file, read_centre_detector
from mule.detection.detections import PERSON
from mule.memory.files import read_memory
from mule.watching.engine.bundle import (
    DETECTOR,
    EXPERIMENT,
    MEMORY,
    MODELS,
    STAGE,
    Bundle,
    BundleContents,
    read_bundle,
    write_bundle,
)
from mule.watching.engine.watch import WatchSettings, open_watch
from mule.watching.moments import Moment
from mule.watching.thumbnails import THUMBNAILS

NUM_TAKES, TRAIN_SEED, TAKE_SECONDS = 320, 100, 24
FIRST_VAL, FIRST_TEST = 285, 310
CALIBRATION_SEED, NUM_CALIBRATION = 200, 48
TEST_SEED, NUM_TEST = 300, 30
ALONE_SEED, NUM_ALONE = 400, 24
"""Test takes with known and novel actors, and test takes with known actors alone, like those for calibration."""
NUM_REMEMBERED, NUM_SETTING, MEMORY_SHARE = 48, 12, 0.3
"""Training takes to remember, validation takes to calibrate the memory, and the share of entries to keep."""
DETECTOR_STEPS = 2000
ACTORS = "actors.csv"
REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "mule" / MODELS / STAGE


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every step that is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/make_builtin"))
    parser.add_argument("--out", type=Path, default=PACKAGE)
    parser.add_argument("--measure", action="store_true", help="only measure the model in the package again")
    wanted = parser.parse_args(arguments)
    torch.set_num_threads(1)
    work: Path = wanted.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if wanted.measure:
        packaged = read_bundle(PACKAGE)
        write_numbers(packaged, measured(packaged, work))
        return
    render_takes(work / "takes")
    train(work)
    make_detector(work)
    calibrated = calibrate(work)
    finish(work, calibrated, wanted.out)
    if wanted.out == PACKAGE:
        record(work)


def mule(*arguments: str | Path) -> None:
    """Run a command of this package."""
    subprocess.run([Path(sys.executable).with_name("mule"), *map(str, arguments)], check=True, cwd=REPOSITORY)


def render_takes(folder: Path) -> None:
    """Render what network and detector learn from: known actions only."""
    if not folder.exists():
        sizes = ("--size", "96x128", "--seconds", str(TAKE_SECONDS), "--clips", str(NUM_TAKES))
        mule("stage", "render", folder, "--seed", str(TRAIN_SEED), "--split", "A", "--role", "train", *sizes)
    with (folder / "sides.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["video", "side"])
        rows.writerows([[name, side_of(at)] for at, name in enumerate(take_names(0, NUM_TAKES))])
    split(folder)


def split(folder: Path) -> None:
    """Split the takes into training, validation and test."""
    if not (folder / "split.toml").exists():
        sides = f"{folder / 'sides.csv'}:side"
        out = ("--out", folder / "split.toml")
        mule("data", "split", folder / ACTORS, "--policy", "closed", "--sides", sides, *out)


def copy_remembered(takes_folder: Path, folder: Path) -> None:
    """Copy the takes to remember, and those that calibrate the memory."""
    if folder.exists():
        return
    parts = folder.with_name(f"{folder.name}.parts")
    shutil.rmtree(parts, ignore_errors=True)
    (parts / "videos").mkdir(parents=True)
    setting = take_names(FIRST_VAL, FIRST_VAL + NUM_SETTING)
    names = {*take_names(0, NUM_REMEMBERED), *setting, *take_names(FIRST_TEST, NUM_TAKES)}
    for table in (ACTORS, "objects.csv"):
        with (takes_folder / table).open(newline="") as every, (parts / table).open("w", newline="") as some:
            rows = csv.writer(some, lineterminator="\n")
            rows.writerows(row for row in csv.reader(every) if row[0] in {"video", *names})
    for name in sorted(names):
        shutil.copyfile(takes_folder / "videos" / f"{name}.mp4", parts / "videos" / f"{name}.mp4")
    shutil.copyfile(takes_folder / "sides.csv", parts / "sides.csv")
    split(parts)
    parts.rename(folder)


def take_names(first: int, end: int) -> list[str]:
    """Names of rendered takes."""
    return [f"clip_{at:06d}" for at in range(first, end)]


def side_of(number: int) -> str:
    """The side of a rendered take."""
    return "train" if number < FIRST_VAL else "val" if number < FIRST_TEST else "test"


def train(work: Path) -> None:
    """Train the network, then make its memory and a first calibration on validation clips."""
    if not (work / "run" / "card.json").exists():
        root = f"data.root={work / 'takes'}"
        mule(
            "train", REPOSITORY / "experiments" / "builtin.toml", "--set", root,
            "--out", work / "run", "--resume",
        )  # fmt: skip
    if not (work / "bundle").exists():
        copy_remembered(work / "takes", work / "remembered")
        of_what = ("--set", f"data.root={work / 'remembered'}")
        memory = ("--share", str(MEMORY_SHARE), "--pictures", *of_what)
        mule("bundle", work / "run", "--out", work / "bundle", "--name", STAGE, *memory)


def make_detector(work: Path) -> None:
    """Train the detector on key frames of the training takes, and choose its score on validation takes."""
    path = work / DETECTOR
    if path.exists():
        return
    network = train_detector(read_frames(work / "takes", take_names(0, FIRST_VAL)), steps=DETECTOR_STEPS)
    held_out = read_frames(work / "takes", take_names(FIRST_VAL, FIRST_TEST))
    detector = CentreDetector(network, class_names=CLASSES, short_side_px=SHORT_SIDE_PX, actor_score=0.0)
    score = best_actor_score(detect(detector, held_out), held_out)
    file = centre_detector_file(network, class_names=CLASSES, short_side_px=SHORT_SIDE_PX, actor_score=score)
    write_file(path, file)


def calibrate(work: Path) -> Bundle:
    """Make the bundle with its detector, calibrated by watching takes of known actors."""
    out = work / "calibrated"
    if out.exists():
        return read_bundle(out)
    first = read_bundle(work / "bundle")
    actors = WatchedActors()
    videos = takes(work / "known", CALIBRATION_SEED, range(NUM_CALIBRATION), is_novel=False)
    for at, (path, truth) in enumerate(videos):
        watch = open_watch(path, first, detector=work / DETECTOR, settings=WatchSettings(explains=False))
        for _ in actors.add(watch, is_held_out=lambda moment, truth=truth: is_there(moment, truth)):
            pass
        print(f"calibrating: take {at + 1} of {NUM_CALIBRATION}", flush=True)
    held_out = actors.held_out
    parts = out.with_name("calibrated.unfinished")
    shutil.rmtree(parts, ignore_errors=True)
    numbers = {**first.card.metrics, "num_held_out_actors": float(len(held_out.outputs))}
    write_bundle(
        parts,
        work / "run",
        card=first.card.model_copy(
            update={
                "detector": DETECTOR,
                "metrics": numbers,
                "commit": first.card.commit or repository_commit(),
            }
        ),
        contents=BundleContents(
            held_out, read_memory(work / "bundle" / MEMORY, model=first.card.weights_sha256)
        ),
    )
    shutil.copyfile(work / "bundle" / THUMBNAILS, parts / THUMBNAILS)
    shutil.copyfile(work / DETECTOR, parts / DETECTOR)
    forget_places(parts / EXPERIMENT)
    seal(parts)
    parts.rename(out)
    return read_bundle(out)


def repository_commit() -> str:
    """Return the commit of this repository."""
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def is_there(moment: Moment, truth: Truth) -> torch.Tensor:
    """Whether each actor of a moment is really a person, and not a false detection."""
    found = {seen.track_id for seen, _ in matched(moment, truth)}
    return torch.tensor([actor.track_id in found for actor in moment.actors], dtype=torch.bool)


def forget_places(path: Path) -> None:
    """Remove the location of the data from the experiment."""
    experiment = load_experiment(path)
    data = experiment.data.model_copy(update={"root": None})
    write_file(path, experiment_toml(experiment.model_copy(update={"data": data})))


def finish(work: Path, bundle: Bundle, out: Path) -> None:
    """Measure on takes held out from every design choice, write the numbers into the card, and put the model into the package."""
    write_numbers(bundle, measured(bundle, work) | detector_metrics(work))
    parts = out.with_name(f"{out.name}.parts")
    shutil.rmtree(parts, ignore_errors=True)
    shutil.copytree(bundle.folder, parts)
    if out.exists():
        shutil.rmtree(out)
    parts.rename(out)
    size_mb = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    print(f"{out}: {size_mb:.1f} MB")


def measured(bundle: Bundle, work: Path) -> dict[str, float]:
    """Measure on takes held out from every design choice.

    The promise is about actors like those it was calibrated with. Novel actors bring what they handle and push others
    aside, so known actors are also counted in takes without them.
    """
    found = metrics(watched(bundle, takes(work / "mixed", TEST_SEED, range(NUM_TEST), is_novel=True)))
    alone = watched(bundle, takes(work / "alone", ALONE_SEED, range(NUM_ALONE), is_novel=False)).looks
    return found | {
        "known_flagged_alone": sum(look.is_flagged for look in alone) / len(alone),
        "num_known_looks_alone": float(len(alone)),
    }


def write_numbers(bundle: Bundle, found: dict[str, float]) -> None:
    """Write the numbers into the model's card, and print them."""
    card = bundle.card.model_copy(update={"metrics": {**bundle.card.metrics, **rounded(found)}})
    write_sealed(bundle.folder, {"bundle.json": (card.model_dump_json(indent=2) + "\n").encode()})
    print(json.dumps(dict(card.metrics), indent=2))


def detector_metrics(work: Path) -> dict[str, float]:
    """Measure recall and precision of each class on held-out takes, at the score from which a person counts as an actor."""
    detector = read_centre_detector(work / DETECTOR)
    frames = read_frames(work / "takes", take_names(FIRST_TEST, NUM_TAKES))
    said = detect(detector, frames)
    found: dict[str, float] = {"detector_actor_score": detector.actor_score}
    for number, name in enumerate(CLASSES):
        score = detector.actor_score if number == PERSON else 0.3
        measured = measure(said, frames, class_index=number, min_score=score)
        found |= {
            f"detector_{name}_recall": measured.recall,
            f"detector_{name}_precision": measured.precision,
        }
    return found


def rounded(found: dict[str, float]) -> dict[str, float]:
    """Format numbers for people."""
    return {name: round(value, 4) for name, value in found.items()}


if __name__ == "__main__":
    main()
