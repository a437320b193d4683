"""Good files of every kind, small, and the calls that read them."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from mule.data.convert.conversion import BoxSettings
from mule.data.split.splits import ClassSets, Rules, SideVideos, Split, write_split
from mule.data.table.reading import read_actor_table
from mule.data.table.writing import write_actor_table
from mule.runtime.exported import ExportCard
from mule.runtime.running import Parity
from mule.training.checkpoint import DIGESTS, Checkpoint, Checkpoints, chance_state
from mule.training.run_folder import METRICS, RUN
from mule.video.clips import ClipShape, clip_windows
from mule.video.reading import read_clips
from mule.watching.engine.bundle import Bundle, read_bundle
from mule.watching.engine.watch import Watcher, open_watch
from mule.watching.outputs.results import recorded
from mule.watching.thumbnails import png_bytes, write_thumbnails

SAVED = Path(__file__).parents[1] / "saved"
BUNDLE = (
    "bundle.json",
    "calibration.safetensors",
    "card.json",
    "experiment.toml",
    "memory.safetensors",
    "model.safetensors",
)
VIDEO = SAVED / "take" / "videos" / "clip_000000.mp4"

ACTORS = """video,time_s,x1,y1,x2,y2,actions,actor_id
film,0.5,0.1,0.2,0.5,0.9,walk;wave,1
film,0.5,0.5,0.2,0.9,0.9,sit,2
"two, words",1.25,,,,,walk,
hall,,,,,,run,
"""
OBJECTS = """video,time_s,x1,y1,x2,y2,object_class,score
film,0.5,0.1,0.2,0.5,0.9,cup,0.9
hall,1,0.5,0.2,0.9,0.9,person,0.25
"""
AVA_BOXES = "film,0902,0.1,0.2,0.5,0.9,,0.98\nfilm,0903,0.1,0.2,0.5,0.9,12,0.5\nhall,0904\n"
COCO = {
    "videos": [{"id": 1, "name": "film", "fps": 25, "width": 64, "height": 48}],
    "images": [
        {"id": 1, "video_id": 1, "frame_index": 10, "file_name": "film/10.jpg", "width": 64, "height": 48}
    ],
    "categories": [{"id": 1, "name": "person"}, {"id": 2, "name": "walk"}],
    "annotations": [
        {
            "id": 1,
            "image_id": 1,
            "category_id": 2,
            "bbox": [1, 2, 30.5, 40],
            "track_id": 3,
            "attributes": {"a": 1},
        },
        {"id": 2, "image_id": 1, "category_id": 1, "bbox": [5, 2, 30, 40], "iscrowd": 0, "score": 0.5},
    ],
}
CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><meta><task><size>60</size><original_size><width>64</width><height>48</height></original_size></task>
<source>film.mp4</source></meta><track id="0" label="walk">
<box frame="0" outside="0" xtl="1.0" ytl="2.5" xbr="30" ybr="40" rotation="10"><attribute name="action">run</attribute></box>
<box frame="25" outside="1" xtl="1.0" ytl="2.5" xbr="30" ybr="40"></box></track></annotations>
"""
VIAME = """# 1: Detection or Track-id,2: Video or Image Identifier
# metadata,fps: 5
0,film,0,1,2,30,40,0.9,-1,walk,0.9,(atr) pose tall
1,film,5,5,2,30,40,0.9,-1,sit,0.7,run,0.2
"""
CHARADES = "id,actions,length\nABC12,c008 1.00 5.50;c092 0.00 12.00,31.5\nDEF34,,12\n"
GROUPS = "video,group\nfilm,a\nhall,b\n"
ORIGIN = {"dataset": "ava", "class_numbers": {"walk": 1}, "starts_at_s": 900}
LABEL_MAP = 'item {\n  name: "walk"\n  id: 1\n}\nitem {\n  name: "sit"\n  id: 2\n}\n'
BOXES_BY_FRAME = {"film,0902": [[0.1, 0.2, 0.5, 0.9, 0.98], [0.1, 0.2, 0.5, 0.9]], "hall,0903": []}


def text(name: str, content: str | Mapping[str, Any]) -> Callable[[Path], None]:
    """Return a function that writes a file."""
    written = content if isinstance(content, str) else json.dumps(content, indent=1)

    def prepare(folder: Path) -> None:
        (folder / name).write_text(written, encoding="utf-8")

    return prepare


def parquet(folder: Path) -> None:
    """Write the table of actors as Parquet."""
    (folder / "source.csv").write_text(ACTORS)
    write_actor_table(read_actor_table(folder / "source.csv"), folder / "actors.parquet")


def split(folder: Path) -> None:
    """Write a split with groups."""
    sides = SideVideos(("film", "hall"), ("yard",), ("roof",))
    sets = ClassSets(("walk",), ("run", "sit"), ("fly",), ("swim",), ("other",))
    groups: dict[str, str] = {video: "g" for video in ("film", "hall", "yard", "roof")}
    write_split(Split("made", "list", 3, "ab" * 32, sets, Rules(), sides, groups), folder / "split.toml")


def thumbnails(folder: Path) -> None:
    """Write pictures of remembered actors."""
    write_thumbnails(folder / "thumbnails.zip", {"a.png": png_bytes(np.zeros((4, 4, 3), np.uint8))})


def images(folder: Path) -> None:
    """Write a folder of frames and a list of them."""
    (folder / "frames").mkdir()
    for number in range(3):
        content = png_bytes(np.full((16, 24, 3), 40 * number, np.uint8))
        (folder / "frames" / f"{number}.png").write_bytes(content)
    (folder / "frames.txt").write_text("frames/0.png\nframes/1.png\n\nframes/2.png\n")


def film(path: Path) -> None:
    """Read a few clips of a video."""
    for _ in read_clips(
        path, clip_windows([0, 1, 2], ClipShape(4, 2, 4), 8), short_side_px=24, keep_key_frames=True
    ):
        pass


def export_card(folder: Path) -> None:
    """Write the card of an exported model."""
    card = ExportCard(
        target="onnx",
        model_sha256="ab" * 32,
        versions={"mule": "1"},
        clip_size=(8, 24, 32),
        map_size=(3, 4),
        stride=8,
        graphs={},
        limit=1e-3,
        parity=Parity(context=0.0, scenes=()),
        files={"see.onnx": "cd" * 32},
    )
    (folder / "card.json").write_text(card.model_dump_json(indent=2))


def checkpoint(folder: Path) -> None:
    """Write a checkpoint of training."""
    weights = {"a": torch.zeros(3)}
    state = {"chance": chance_state(), "optimizer": {"state": {}}, "position": 3}
    Checkpoints(folder).save(Checkpoint(7, weights, weights, state), best_step=None)


CHECKPOINT = "step-00000007"


def checkpoint_signed(folder: Path) -> None:
    """Renew the digests of a checkpoint's files."""
    place = folder / CHECKPOINT
    names = [path.name for path in sorted(place.iterdir()) if path.name != DIGESTS]
    digests = {name: hashlib.sha256((place / name).read_bytes()).hexdigest() for name in names}
    (place / DIGESTS).write_text(json.dumps(digests))


def load_checkpoint(folder: Path) -> None:
    """Load the checkpoint."""
    Checkpoints(folder).load(7)


def run_record(folder: Path) -> None:
    """Write the record and the curves of a run."""
    (folder / RUN).write_text(
        json.dumps({"status": "running", "sessions": [{"started_at": "now", "python": "3"}]})
    )
    (folder / METRICS).write_text(
        '{"kind": "train", "step": 1, "loss": 0.5}\n{"kind": "val", "step": 2, "map": 0.1}\n'
    )


@cache
def small_bundle() -> Bundle:
    """Return the bundle in tests/saved, loaded once."""
    return read_bundle(SAVED / "bundle")


def small_watcher() -> Watcher:
    """Return a watcher of a take of two seconds."""
    return open_watch(VIDEO, small_bundle(), detector=SAVED / "take")


def watched(folder: Path) -> None:
    """Watch two key times of a take."""
    seen = recorded(small_watcher(), folder)
    for _ in range(2):
        next(seen)
    seen.close()


def resumed(folder: Path) -> None:
    """Continue a copy of a watch by one moment."""
    with TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(folder, Path(scratch) / "watched"))
        moments = recorded(small_watcher(), copy, resumes=True)
        try:
            next(moments, None)
        finally:
            moments.close()


def resume_file(folder: Path) -> None:
    """Keep one of the two states alone, so that it is the one that is read."""
    watched(folder)
    (folder / "resume.0.safetensors").unlink()


COCO_SETTINGS = BoxSettings(keep_unlabelled=True)
AT_25 = BoxSettings(frame_rate=Fraction(25), size_px=(64, 48))
WORK = {"detector": "d", "every_s": "1"}


def partial_boxes(folder: Path) -> None:
    """Write boxes of one finished video."""
    entry = {
        "video": "film",
        "stamp": "ab",
        "times_s": [0.0, 1.0],
        "after_end_s": [],
        "stopped_by": None,
        "boxes": [[0, 0.5, [0, 0, 0.5, 0.5], "person"], [1, 0.6, [0, 0, 0.5, 0.5], "cup"]],
    }
    (folder / "found.jsonl").write_text(json.dumps({"work": WORK}) + "\n" + json.dumps(entry) + "\n")
