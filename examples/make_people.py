"""Make the model `people` of the package: everyday actions of real people.

    python -m examples.make_people JHMDB CAVIAR --maps DIR [--work DIR] [--out src/mule/models/people]

J-HMDB ─▶ a square around each person ─▶ frozen I3D (kept maps) ─▶ head ─▶ memory, known actors, calibration ─▶ half precision
                                               ╰────▶ class splits ─▶ how well novel actions are told ──────────╯ and card

Parts that exist in DIR are not made again, so a run that was stopped continues. The inputs are those below, by checksum.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch

from examples.make_builtin import repository_commit
from examples.people_idle import idle_inputs, idle_looks, still_looks
from examples.people_numbers import idle_people_told, known_actions, novel_actions
from mule.core.config import experiment_toml, load_experiment
from mule.core.files import sha256_of, write_file
from mule.core.manifest import seal, write_sealed
from mule.core.settings import TableData
from mule.data.table.table import ActorTable
from mule.data.table.writing import write_actor_table
from mule.evidence.head import opinion_from
from mule.features.cache import CacheEntry, feature_key, video_sha256
from mule.features.feature_files import VideoFeatures, write_features
from mule.features.weights.cards import find_card
from mule.features.weights.classifier import load_classifier
from mule.features.weights.loading import weights_on_disk
from mule.inference.running import OutputsOf
from mule.inference.sides import TRAIN
from mule.memory.files import read_memory, write_memory
from mule.training.build import load_run
from mule.training.maps import backbone_when_asked
from mule.training.run_folder import CARD, EXPERIMENT, MODEL, experiment_of
from mule.video.clips import exact
from mule.video.person_crops import CROP_PX, person_square
from mule.video.reading import video_facts
from mule.video.sources import video_source
from mule.watching.engine.bundle import (
    CALIBRATION,
    HELD_OUT_LABELS,
    MEMORY,
    MODELS,
    PEOPLE,
    Bundle,
    read_bundle,
)
from mule.watching.engine.judging import Judge
from mule.watching.engine.seen import SEEN, SeenModel, write_seen
from mule.watching.engine.showing import box_in_square
from studies.convert.jhmdb import LABELS, VIDEOS, actors_from_jhmdb
from studies.seen.extract import extract, place

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "mule" / MODELS / PEOPLE
BACKBONE = "i3d_rgb_kinetics400"
DETECTOR = "picodet_416"
EVERY_S = 0.5
NAMES_FROM = tuple(step / 20 for step in range(4, 17))
"""Probabilities to choose from."""
STRIDE = 32
INPUTS = {
    LABELS: "a97b0ab9f959febed335749a4bc27af0eb55b1406b182e1e8ab60c140ea2aab7",
    VIDEOS: "bf2f5c6ea23493565ccb74bfc776063819e4167312452ddce5bb3d4b8b9757d0",
    "videos/": "f7b268b7dc1ed75426e6437c0fb6379b881f38c6effcaae660d9b376e025066b",
}
"""SHA-256 of J-HMDB's tables, and of the list of its videos' checksums."""
IDLE_LABELS = "a6d64cc6d3ad34057b9fc4baf315e7129116b3c6347d248b3f51d9009f09fe92"
"""SHA-256 of CAVIAR's labels."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every step that is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jhmdb", type=Path)
    parser.add_argument("caviar", type=Path)
    parser.add_argument(
        "--maps", type=Path, required=True, help="maps that studies.seen computed, or will hold"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/make_people"))
    parser.add_argument("--out", type=Path, default=PACKAGE)
    wanted = parser.parse_args(arguments)
    jhmdb, work = wanted.jhmdb.resolve(), wanted.work.resolve()
    require_inputs(jhmdb)
    if sha256_of(wanted.caviar / LABELS) != IDLE_LABELS:
        raise SystemExit(f"{wanted.caviar / LABELS}: must have the SHA-256 checksum {IDLE_LABELS}.")
    table, _ = actors_from_jhmdb(jhmdb)
    weights, _ = weights_on_disk(BACKBONE, None)
    extract(
        table, jhmdb / "videos", (weights, find_card(BACKBONE)), wanted.maps, views=("crop",), noted=print
    )
    data = work / "data"
    if not (data / "split.toml").exists():
        keep_maps(table, jhmdb, wanted.maps, data)
    train(work)
    bundle(work, known_actions(work / "run"), idle_people(table, jhmdb, wanted.caviar, work))
    put_into(wanted.out, work / "bundle")


def require_inputs(jhmdb: Path) -> None:
    """Stop unless the inputs are the ones that the model in the package was made of."""
    found = {name: sha256_of(jhmdb / name) for name in (LABELS, VIDEOS)}
    paths = sorted(path for path in (jhmdb / "videos").rglob("*") if path.is_file())
    lines = [f"{sha256_of(path)}  {path.relative_to(jhmdb).as_posix()}\n" for path in paths]
    found["videos/"] = hashlib.sha256("".join(lines).encode()).hexdigest()
    if found != INPUTS:
        raise SystemExit(
            f"{jhmdb}: must be the inputs {json.dumps(INPUTS, indent=2)}; got {json.dumps(found, indent=2)}."
        )


def mule(*arguments: str | Path) -> None:
    """Run a command of this package."""
    subprocess.run([Path(sys.executable).with_name("mule"), *map(str, arguments)], check=True, cwd=REPOSITORY)


def keep_maps(table: ActorTable, jhmdb: Path, maps: Path, data: Path) -> None:
    """Write the table in shares of each person's square, and the maps of the squares where training looks for maps."""
    data.mkdir(parents=True, exist_ok=True)
    (data / "videos").unlink(missing_ok=True)
    (data / "videos").symlink_to(jhmdb / "videos")
    write_actor_table(in_squares(table, jhmdb), data / "actors.csv")
    experiment = load_experiment(
        REPOSITORY / "experiments" / "people.toml", [f"data.root={data}", *weights_setting()]
    )
    if not isinstance(experiment.data, TableData):
        raise TypeError("people are taught by a table")
    recipe = backbone_when_asked(experiment, experiment.data).recipe
    folder = data / experiment.data.features
    folder.mkdir(exist_ok=True)
    for row in range(len(table)):
        source = video_source(jhmdb / "videos" / table.videos[table.video_index[row]])
        times = (exact(float(table.time_s[row])),)
        entry = CacheEntry(folder, source, feature_key(recipe, video_sha256(source), times))
        seen = torch.from_numpy(np.load(place(maps, "crop", row))["map"]).float()
        kept = VideoFeatures(
            context=seen[None],
            key_time_s=torch.tensor([float(times[0])], dtype=torch.float64),
            num_clamped=torch.zeros(1, dtype=torch.int64),
            stride=STRIDE,
            input_size=(CROP_PX, CROP_PX),
            source_size=(CROP_PX, CROP_PX),
        )
        write_features(entry.path, [kept], key=entry.key, scratch=folder)
    groups = ("--groups", f"{jhmdb / VIDEOS}:source_group")
    sides = ("--val-share", "0.2", "--test-share", "0.15")
    mule(
        "data",
        "split",
        data / "actors.csv",
        "--policy",
        "closed",
        *sides,
        *groups,
        "--out",
        data / "split.toml",
    )


def in_squares(table: ActorTable, jhmdb: Path) -> ActorTable:
    """Return the table with boxes in shares of the square around each person; a row without a box keeps none."""
    boxes = table.boxes_xyxy_unit.copy()
    for row in np.flatnonzero(table.has_box).tolist():
        facts = video_facts(video_source(jhmdb / "videos" / table.videos[table.video_index[row]]))
        sides = np.array([facts.cols, facts.rows, facts.cols, facts.rows])
        box = torch.from_numpy(boxes[row] * sides).float()
        square = person_square(box, facts.rows, facts.cols)
        boxes[row] = box_in_square(box[None], [square]).numpy()[0] / CROP_PX
    return ActorTable(
        table.videos, table.classes, table.video_index, table.time_s, boxes, table.labels, table.actor_id
    )


def weights_setting() -> list[str]:
    """Return the setting that names the pulled weights of the backbone."""
    return [f"backbone.weights={weights_on_disk(BACKBONE, None)[0]}"]


def train(work: Path) -> None:
    """Train the head on the maps, store its weights in half precision, and bundle it with all it remembers."""
    run = work / "run"
    root = ("--set", f"data.root={work / 'data'}")
    if not (run / CARD).exists():
        settings = [word for each in weights_setting() for word in ("--set", each)]
        mule("train", REPOSITORY / "experiments" / "people.toml", *root, *settings, "--out", run, "--resume")
        in_half_precision(run)
    if not (work / "first").exists():
        mule("bundle", run, "--out", work / "first", "--name", PEOPLE, *root)


def in_half_precision(run: Path) -> None:
    """Round the weights of a run; its card vouches for the rounded ones."""
    halve(run / MODEL)
    card = json.loads((run / CARD).read_text())
    card["weights_sha256"] = sha256_of(run / MODEL)
    write_sealed(run, {CARD: (json.dumps(card, indent=2) + "\n").encode()})
    seal(run, known={MODEL: card["weights_sha256"]})


def halve(path: Path) -> None:
    """Round the floating-point tensors of a file to half precision; its notes stay."""
    with safetensors.safe_open(path, framework="pt") as file:
        about = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    halves = {name: each.half() if each.dtype == torch.float32 else each for name, each in tensors.items()}
    write_file(path, safetensors.torch.save(halves, about))


Idle = tuple[list[str], dict[str, torch.Tensor], list[str]]
"""Kind, inputs and video of each example of nothing going on."""


def idle_people(table: ActorTable, jhmdb: Path, caviar: Path, work: Path) -> Idle:
    """Return the examples of nothing going on; what they are seen by is kept in DIR."""
    taught = OutputsOf(work / "run", experiment_of(work / "run", [])).on(TRAIN, noted=print).videos
    looks = [(caviar / "videos", each) for each in idle_looks(caviar)]
    looks += [(jhmdb / "videos", each) for each in still_looks(table, taught)]
    place = work / "idle.safetensors"
    if not place.exists():
        weights, card = weights_on_disk(BACKBONE, None)
        classifier = load_classifier(weights, card or find_card(BACKBONE))
        if classifier is None:
            raise TypeError("I3D's weights have a classifier")
        seen = {name: each.contiguous() for name, each in idle_inputs(looks, classifier).items()}
        write_file(place, safetensors.torch.save(seen))
    kinds, videos = zip(*((look.kind, look.video) for _, look in looks), strict=True)
    return list(kinds), safetensors.torch.load_file(place), list(videos)


def bundle(work: Path, numbers: dict[str, float], idle: Idle) -> Bundle:
    """Write the bundle with its card, without a copy of the backbone and without what is fitted when it is read."""
    out = work / "bundle"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(work / "first", out)
    numbers = {**numbers, **naming(out), **rounded(out, idle)}
    halve(out / CALIBRATION)
    for copy in out.glob("backbone.*"):
        copy.unlink()
    first = read_bundle(work / "first").card
    card = first.model_copy(
        update={
            "backbone_sha256": None,
            "backbone_card": BACKBONE,
            "sees": "person",
            "detector": DETECTOR,
            "every_s": EVERY_S,
            "names_from": round(numbers.pop("names_from"), 2),
            "commit": repository_commit(),
            "data": {
                **first.data,
                **{f"jhmdb/{name}": each for name, each in INPUTS.items()},
                "caviar/labels.csv": IDLE_LABELS,
            },
            "metrics": {name: round(each, 4) for name, each in {**first.metrics, **numbers}.items()},
        }
    )
    write_file(out / "bundle.json", card.model_dump_json(indent=2) + "\n")
    experiment = load_experiment(out / EXPERIMENT)
    data = experiment.data.model_copy(update={"root": None})
    backbone = experiment.backbone.model_copy(update={"weights": None})
    write_file(
        out / EXPERIMENT, experiment_toml(experiment.model_copy(update={"data": data, "backbone": backbone}))
    )
    seal(out)
    return read_bundle(out)


def rounded(out: Path, idle: Idle) -> dict[str, float]:
    """Write what is remembered and known in half precision, with idle people among it; return how many there are of each.

    What is fitted to known people is fitted when the model is read. How well it tells novel ones is measured before.
    """
    made = read_bundle(out)
    sha256 = made.card.weights_sha256
    if made.seen is None:
        raise TypeError("a frozen backbone decides by what people are seen by")
    known = made.seen.known
    numbers = {"num_taught_actors": float(known.num_calibrating), "num_idle_examples": float(len(idle[0]))}
    numbers |= novel_actions(known)
    seen = SeenModel.of(known.with_idle(*idle))
    numbers |= idle_people_told(seen.known)
    write_seen(out / SEEN, seen, weights_sha256=sha256, is_small=True)
    remembered = read_memory(out / MEMORY, model=sha256)
    write_memory(out / MEMORY, remembered, is_small=True)
    return numbers


def naming(out: Path) -> dict[str, float]:
    """Return from which probability on actions are named: where precision and recall on validation films balance best (F1)."""
    run, remembered = load_run(out), read_memory(out / MEMORY)
    held_out = safetensors.torch.load_file(out / CALIBRATION)
    judge = Judge(run.pair_evidence, run.classes, remembered)
    judged = judge(held_out["outputs"].float(), held_out["features"].float())
    probability, labels = opinion_from(judged.together).probability, held_out[HELD_OUT_LABELS].bool()
    found: dict[float, tuple[float, float]] = {}
    for least in NAMES_FROM:
        is_named = probability >= least
        num_right = float((is_named & labels).sum())
        found[least] = (num_right / max(float(is_named.sum()), 1.0), num_right / float(labels.sum()))
    best = max(found, key=lambda least: 2 * np.prod(found[least]) / max(sum(found[least]), 1e-9))
    return {"names_from": best, "names_right": found[best][0], "actions_named": found[best][1]}


def put_into(out: Path, made: Path) -> None:
    """Put the made folder into the package."""
    parts = out.with_name(f"{out.name}.parts")
    shutil.rmtree(parts, ignore_errors=True)
    shutil.copytree(made, parts)
    shutil.rmtree(out, ignore_errors=True)
    parts.rename(out)
    size_mb = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    print(f"{out}: {size_mb:.1f} MB\n{json.dumps(dict(read_bundle(out).card.metrics), indent=2)}")


if __name__ == "__main__":
    main()
