"""What MULE keeps for itself: manifests, cached outputs, results, times, first uses, rendered clips and known actors."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from mule.comparison.equal import TIMES, read_times
from mule.core.manifest import MANIFEST, seal
from mule.features.weights.cards import WEIGHT_CARDS
from mule.features.weights.download import PINS, require_first_used
from mule.inference.outputs import cached_key, read_side_outputs, write_side_outputs
from mule.inference.results import SideResult, read_novelties, read_result, write_result
from mule.novelty.known import KnownActors
from mule.stage.benchmark import StageSet
from mule.stage.clips import render_to_cache
from mule.training.build import load_run
from mule.watching.engine.seen import SEEN, SeenModel, read_seen, write_seen
from tests.hostile.good_files import SAVED
from tests.hostile.mutations import Mutate, of_bytes, of_json, of_safetensors
from tests.hostile.readers import Reader, copied
from tests.made_outputs import made_outputs

RUN_FILES = ("card.json", "experiment.toml", "model.safetensors")
KEY = json.dumps({"of": "the outputs"})
TIMED = {"slowfast": "its experiment"}
UNKNOWN = next(card for card in WEIGHT_CARDS.values() if card.sha256 is None)
CLIPS = StageSet(num_clips=2, size=(24, 32), num_frames=2)
WEIGHTS = "ab" * 32


def sealed_run(folder: Path) -> None:
    """Copy a run and write its manifest."""
    copied(SAVED / "run", RUN_FILES)(folder)
    seal(folder)


def outputs(folder: Path) -> None:
    """Cache the outputs of a network on a side."""
    made = made_outputs(6, seed=0)
    write_side_outputs(replace(made, labels=made.labels.copy()), folder, "val", key=KEY)


def read_outputs(folder: Path) -> None:
    """Read them as `mule bundle` and `mule compare` do."""
    read_side_outputs(folder, "val", key=KEY)
    cached_key(folder, "val")


def result(folder: Path) -> None:
    """Write what an evaluation found on a side."""
    found = SideResult(
        key="k", system="slowfast", kind="tied", side="val", side_digest="d", weights_sha256=WEIGHTS, num_clips=2,
        num_skipped=0, num_known=3, num_novel=0, mean_ap=0.5, mean_ap_by_class={"walk": 0.5, "run": None},
        mean_ap_val=None, dead_share=None, expected_error=0.1, scores={}, left_out={"odin": "why"}, convention="c",
    )  # fmt: skip
    write_result(found, {"pe": np.arange(3.0)}, folder)


def times(folder: Path) -> None:
    """Write how long epochs take."""
    (folder / TIMES).write_text(json.dumps({"experiments": TIMED, "epoch_s": {"slowfast": 1.5}}))


def pins(folder: Path) -> None:
    """Note the first use of a file."""
    require_first_used(UNKNOWN, WEIGHTS, folder / "weights.pth")


def known_actors(folder: Path) -> None:
    """Write the known actors of a bundle and what was fitted to them."""
    does = torch.arange(30) % 3
    places = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(3, 4)[does]
    known = KnownActors(
        inputs={"roi": places},
        labels=does[:, None] == torch.arange(3),
        actions=("run", "sit", "talk"),
        groups=torch.arange(30) // 3,
        group_names=tuple(f"film {at}" for at in range(10)),
        tracks=torch.full((30,), -1),
        is_example=torch.zeros(30, dtype=torch.bool),
        group_of={"video 0": "film 0"},
    )
    write_seen(folder / SEEN, SeenModel.of(known), weights_sha256=WEIGHTS)


def clips(folder: Path) -> None:
    """Render two clips."""
    render_to_cache(CLIPS, folder, workers=1)


def of_records() -> tuple[Reader, ...]:
    """Return the readers of what MULE keeps for itself; a cache that is damaged is made again."""
    rendered = partial(render_to_cache, CLIPS, workers=1)

    def one(
        name: str,
        file: str,
        prepare: Callable[[Path], object],
        read: Callable[[Path], object],
        mutate: Mutate,
        names: tuple[str, ...] = (),
    ) -> Reader:
        notes = file == PINS  # where no file of this name is noted, this one is
        return Reader(name, "records and caches", file, prepare, read, mutate, names=names, repairs=notes)

    return (
        one("manifest", MANIFEST, sealed_run, load_run, of_json, ("manifest", *RUN_FILES)),
        one("outputs", "outputs/val.safetensors", outputs, read_outputs, of_safetensors),
        one("outputs-names", "outputs/val.json", outputs, read_outputs, of_json),
        one("results", "results/val.json", result, lambda folder: read_result(folder, "val"), of_json),
        one(
            "novelties", "results/val.safetensors", result, lambda f: read_novelties(f, "val"), of_safetensors
        ),
        one("times", TIMES, times, lambda folder: read_times(folder / TIMES, TIMED), of_json),
        one(
            "first-uses",
            PINS,
            pins,
            lambda f: require_first_used(UNKNOWN, WEIGHTS, f / "weights.pth"),
            of_json,
        ),
        one(
            "known-actors",
            SEEN,
            known_actors,
            lambda f: read_seen(f / SEEN, weights_sha256=WEIGHTS),
            of_safetensors,
        ),
        one("clips-frames", f"{CLIPS.name}/frames.npy", clips, rendered, of_bytes, (CLIPS.name,)),
        one("clips-table", f"{CLIPS.name}/table.npz", clips, rendered, of_bytes, (CLIPS.name,)),
        one("clips-card", f"{CLIPS.name}/parameters.json", clips, rendered, of_json, (CLIPS.name,)),
    )
