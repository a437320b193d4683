"""Every reader of MULE: its good file, the call that reads it, and how its files are made hostile."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mule.core.config import load_experiment
from mule.core.text_rows import read_json, read_names, read_pairs
from mule.data.convert.ava_files import read_label_map
from mule.data.convert.charades import actors_from_charades
from mule.data.convert.coco import actors_from_coco
from mule.data.convert.cvat import actors_from_cvat
from mule.data.convert.origin import read_origin
from mule.data.convert.partial_boxes import PartialBoxes
from mule.data.convert.viame import actors_from_viame
from mule.data.split.splits import read_split
from mule.data.table.reading import read_actor_table, read_object_table
from mule.detection.faster_rcnn import load_faster_rcnn
from mule.detection.files import load_boxes
from mule.features.feature_files import read_features
from mule.features.weights.checkpoints import read_checkpoint
from mule.memory.files import read_memory
from mule.runtime.exported import read_export_card
from mule.training.build import load_run
from mule.training.checkpoint import DIGESTS, STATE
from mule.training.run_folder import METRICS, RUN, RunFolder, read_metrics
from mule.watching.engine.bundle import read_bundle
from mule.watching.outputs.moments_file import MomentsFile
from mule.watching.outputs.results import MOMENTS
from mule.watching.thumbnails import ThumbnailArchive
from tests.hostile.good_files import (
    ACTORS,
    AT_25,
    AVA_BOXES,
    BOXES_BY_FRAME,
    BUNDLE,
    CHARADES,
    CHECKPOINT,
    COCO,
    COCO_SETTINGS,
    CVAT,
    GROUPS,
    LABEL_MAP,
    OBJECTS,
    ORIGIN,
    SAVED,
    VIAME,
    VIDEO,
    WORK,
    checkpoint,
    checkpoint_signed,
    export_card,
    film,
    images,
    load_checkpoint,
    parquet,
    partial_boxes,
    resume_file,
    resumed,
    run_record,
    split,
    text,
    thumbnails,
    watched,
)
from tests.hostile.good_records import of_records
from tests.hostile.good_weights import (
    FEATURES_KEY,
    bundle_signed,
    caffe2_file,
    card_signed,
    detector,
    features,
    flax_file,
    memory_signed,
    of_onnx,
    of_pickle,
    onnx_bytes,
    read_detector,
    read_onnx,
    safe_file,
    torch_file,
)
from tests.hostile.mutations import Mutate, of_bytes, of_json, of_safetensors, of_text, of_toml
from tests.hostile.readers import Reader, copied

CASES = {
    "actors": 40, "cvat": 40, "experiment": 40, "film": 30, "memory": 30, "moments": 30, "parquet": 30, "split": 30,
    "yolox": 30, "resume": 30, "bundle-card": 15, "bundle-run-card": 12, "calibration": 15, "run-card": 15,
    "run-weights": 10, "bundle-experiment": 8, "bundle-memory": 8, "bundle-weights": 8, "resumed-moments": 8,
}  # fmt: skip
"""Cases of each reader in the suite, where they are not 20: slow ones have fewer."""


def all_readers(canary: str) -> tuple[Reader, ...]:
    """Return every reader; hostile pickles try to make the file `canary`."""
    groups = (
        of_tables(),
        of_documents(),
        of_models(),
        of_weights(partial(of_pickle, canary)),
        of_results(),
        of_records(),
    )
    return tuple(replace(each, cases=CASES.get(each.name, each.cases)) for group in groups for each in group)


def one(
    name: str, kind: str, file: str, content: str | Mapping[str, Any], read: Callable[[Path], object]
) -> Reader:
    """Return the reader of a single text file."""
    mutate = {".json": of_json, ".jsonl": of_json, ".toml": of_toml}.get(Path(file).suffix, of_text)
    return Reader(name, kind, file, text(file, content), lambda folder: read(folder / file), mutate)


def of_tables() -> tuple[Reader, ...]:
    """Return the readers of rows."""
    return (
        one("actors", "CSV", "actors.csv", ACTORS, read_actor_table),
        one("objects", "CSV", "objects.csv", OBJECTS, read_object_table),
        one("ava-boxes", "CSV", "boxes.csv", AVA_BOXES, load_boxes),
        one("ava-objects", "CSV", "boxes.csv", AVA_BOXES.replace("hall,0904\n", ""), read_object_table),
        one("viame", "CSV", "viame.csv", VIAME, lambda file: actors_from_viame([file], AT_25)),
        one("charades", "CSV", "charades.csv", CHARADES, actors_from_charades),
        one("pairs", "CSV", "groups.csv", GROUPS, lambda file: read_pairs(file, "video", "group")),
        one("names", "text", "names.txt", "walk\nrun\n\nsit\n", lambda file: read_names(file, of="actions")),
        one("label-map", "text", "ava.pbtxt", LABEL_MAP, read_label_map),
        one("cvat", "XML", "cvat.xml", CVAT, lambda file: actors_from_cvat([file], AT_25)),
        Reader(
            "parquet",
            "Parquet",
            "actors.parquet",
            parquet,
            on(read_actor_table, "actors.parquet"),
            of_bytes,
        ),
    )


def of_documents() -> tuple[Reader, ...]:
    """Return the readers of TOML and JSON."""
    experiment = copied(SAVED / "run", ("experiment.toml",))
    return (
        Reader(
            "experiment",
            "TOML",
            "experiment.toml",
            experiment,
            on(load_experiment, "experiment.toml"),
            of_toml,
        ),
        Reader(
            "split",
            "TOML",
            "split.toml",
            split,
            on(partial(read_split, accept_edits=True), "split.toml"),
            of_toml,
        ),
        one("json", "JSON", "any.json", COCO, read_json),
        one("boxes-by-frame", "JSON", "boxes.json", BOXES_BY_FRAME, load_boxes),
        one("coco-boxes", "JSON", "coco.json", COCO, load_boxes),
        one("coco-actors", "JSON", "coco.json", COCO, lambda file: actors_from_coco(file, COCO_SETTINGS)),
        one(
            "origin",
            "JSON",
            "actors.origin.json",
            ORIGIN,
            lambda file: read_origin(file.with_name("actors.csv")),
        ),
        Reader(
            "partial-boxes",
            "JSON",
            "found.jsonl",
            partial_boxes,
            lambda f: PartialBoxes(f / "found.jsonl", WORK),
            of_json,
            repairs=True,
        ),
        Reader("run-record", "JSON", RUN, run_record, lambda folder: RunFolder(folder).record(), of_json),
        Reader("curves", "JSON", METRICS, run_record, on(read_metrics, METRICS), of_json),
        Reader("export-card", "JSON", "card.json", export_card, read_export_card, of_json),
    )


def of_models() -> tuple[Reader, ...]:
    """Return the readers of runs and bundles."""
    run = copied(SAVED / "run", ("card.json", "experiment.toml", "model.safetensors"))
    bundle = copied(SAVED / "bundle", BUNDLE)
    weights, others = "model.safetensors", ("calibration.safetensors", "memory.safetensors")
    return (
        Reader("run-card", "run", "card.json", run, load_run, of_json, names=(weights,)),
        Reader("run-weights", "run", weights, run, load_run, of_safetensors, sign=card_signed),
        Reader("bundle-card", "bundle", "bundle.json", bundle, read_bundle, of_json),
        Reader(
            "bundle-run-card",
            "bundle",
            "card.json",
            bundle,
            read_bundle,
            of_json,
            names=(weights, "bundle.json"),
        ),
        Reader(
            "bundle-experiment",
            "bundle",
            "experiment.toml",
            bundle,
            read_bundle,
            of_toml,
            names=(weights,),
        ),
        Reader("calibration", "bundle", "calibration.safetensors", bundle, read_bundle, of_safetensors),
        Reader(
            "bundle-memory",
            "bundle",
            "memory.safetensors",
            bundle,
            read_bundle,
            of_safetensors,
            sign=memory_signed,
        ),
        Reader(
            "bundle-weights",
            "bundle",
            weights,
            bundle,
            read_bundle,
            of_safetensors,
            sign=bundle_signed,
            names=others,
        ),
    )


def of_weights(of_evil: Mutate) -> tuple[Reader, ...]:
    """Return the readers of networks and other tensors."""
    zipped, legacy = partial(torch_file, zipped=True), partial(torch_file, zipped=False)
    remembered = copied(SAVED / "run", ("memory.safetensors",))
    return (
        Reader(
            "yolox",
            "ONNX",
            "yolox.onnx",
            lambda f: (f / "yolox.onnx").write_bytes(onnx_bytes()),
            read_onnx,
            of_onnx,
        ),
        Reader(
            "detector", "safetensors", "detector.safetensors", detector, read_detector, of_safetensors, 25
        ),
        Reader(
            "features",
            "safetensors",
            "film.safetensors",
            features,
            on(partial(read_features, key=FEATURES_KEY), "film.safetensors"),
            of_safetensors,
        ),
        Reader(
            "weights-safe",
            "safetensors",
            "weights.safetensors",
            safe_file,
            on(read_checkpoint, "weights.safetensors"),
            of_safetensors,
        ),
        Reader(
            "weights-zip",
            "pickles and torch files",
            "weights.pth",
            zipped,
            on(read_checkpoint, "weights.pth"),
            of_evil,
        ),
        Reader(
            "weights-legacy",
            "pickles and torch files",
            "weights.pth",
            legacy,
            on(read_checkpoint, "weights.pth"),
            of_evil,
        ),
        Reader(
            "weights-caffe2",
            "pickles and torch files",
            "weights.pkl",
            caffe2_file,
            on(read_checkpoint, "weights.pkl"),
            of_evil,
        ),
        Reader(
            "weights-flax",
            "pickles and torch files",
            "weights.ckpt",
            flax_file,
            on(read_checkpoint, "weights.ckpt"),
            of_evil,
        ),
        Reader(
            "faster-rcnn",
            "pickles and torch files",
            "weights.pth",
            zipped,
            on(load_faster_rcnn, "weights.pth"),
            of_evil,
        ),
        Reader(
            "memory",
            "memory",
            "memory.safetensors",
            remembered,
            on(read_memory, "memory.safetensors"),
            of_safetensors,
            sign=memory_signed,
        ),
    )


def of_results() -> tuple[Reader, ...]:
    """Return the readers of what MULE itself was interrupted in or has written, and of pictures and videos."""
    state, weights, place = f"{CHECKPOINT}/{STATE}", f"{CHECKPOINT}/model.safetensors", (CHECKPOINT,)
    return (
        Reader(
            "moments",
            "moments",
            MOMENTS,
            watched,
            lambda folder: list(MomentsFile(folder / MOMENTS)),
            of_json,
        ),
        Reader(
            "resumed-moments",
            "resume state",
            MOMENTS,
            watched,
            resumed,
            of_json,
            names=("resume.0.safetensors",),
        ),
        Reader("resume", "resume state", "resume.1.safetensors", resume_file, resumed, of_safetensors),
        Reader(
            "checkpoint-state",
            "resume state",
            state,
            checkpoint,
            load_checkpoint,
            of_bytes,
            sign=checkpoint_signed,
            names=place,
        ),
        Reader(
            "checkpoint-weights",
            "resume state",
            weights,
            checkpoint,
            load_checkpoint,
            of_safetensors,
            sign=checkpoint_signed,
            names=place,
        ),
        Reader(
            "checkpoint-digests",
            "resume state",
            f"{CHECKPOINT}/{DIGESTS}",
            checkpoint,
            load_checkpoint,
            of_json,
            names=place,
        ),
        Reader(
            "thumbnails",
            "pictures",
            "thumbnails.zip",
            thumbnails,
            lambda f: ThumbnailArchive(f / "thumbnails.zip").read("a.png"),
            of_bytes,
        ),
        Reader("frame", "pictures", "frames/1.png", images, on(film, "frames"), of_bytes, names=("frames",)),
        Reader("frame-list", "pictures", "frames.txt", images, on(film, "frames.txt"), of_text),
        Reader(
            "film",
            "video",
            "film.mp4",
            lambda folder: shutil.copyfile(VIDEO, folder / "film.mp4"),
            on(film, "film.mp4"),
            of_bytes,
        ),
    )


def on(read: Callable[[Path], object], name: str) -> Callable[[Path], object]:
    """Return the call that reads a file in a folder."""
    return lambda folder: read(folder / name)
