"""Outputs of a run on a side, kept in its folder and found again only by what they were made from.

RUN/outputs/SIDE.safetensors   tensors, with the key of their making
           /SIDE.json          the same key, and names: classes, clips, actors
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from mule.core.config import Experiment
from mule.core.errors import WeightsError
from mule.core.files import sha256_while_unchanged, write_file
from mule.core.records import Evidence
from mule.data.batches.samples import ClipName
from mule.inference.outputs import NO_PASSES, SideOutputs, outputs_of
from mule.inference.results import ResultError
from mule.inference.sides import ActorTruth, read_side, side_digest
from mule.rivals.scores.outputs import LinearReadout
from mule.training.build import load_run
from mule.training.data import Noted, tags_of
from mule.training.run_folder import CARD, MODEL

FORMAT = "mule-outputs-2"


@dataclass(frozen=True)
class OutputsOf:
    """Whose outputs on its sides are wanted."""

    run_dir: Path
    experiment: Experiment
    dropout_passes: int = 0
    test_clips: int | None = None
    """Of each test side of Stage; None is as many as the benchmark has."""

    def key(self, side: str) -> str:
        """All that the outputs depend on.

        Raises:
            WeightsError: the run is not finished.
        """
        facts = {
            "format": FORMAT,
            "weights_sha256": weights_digest(self.run_dir),
            "side": side,
            "side_digest": self.side_digest(side),
            "frozen_sha256": _frozen_digest(self.experiment),
            "dropout_passes": self.dropout_passes,
        }
        return json.dumps(facts, sort_keys=True)

    def side_digest(self, side: str) -> str:
        """Which clips and actors the side shows."""
        return side_digest(self.experiment, side, test_clips=self.test_clips)

    def on(self, side: str, *, noted: Noted) -> SideOutputs:
        """The outputs on a side, from the folder of the run if they are there, else computed now and kept.

        Outputs that were kept with more passes with dropout on hold those with fewer: the first passes are the same.
        """
        key = self.key(side)
        found = read_outputs(self.run_dir, side, key=key) or self._with_more_passes(side, key)
        if found is None:
            run = load_run(self.run_dir)._replace(experiment=self.experiment)
            noted(f"{self.run_dir.name}: looking at the {side} side")
            shown = read_side(self.experiment, side, test_clips=self.test_clips, noted=noted)
            found = outputs_of(run, shown, dropout_passes=self.dropout_passes)
            write_outputs(found, self.run_dir, side, key=key)
        return replace(found, tags=tags_of(self.experiment.data))

    def _with_more_passes(self, side: str, key: str) -> SideOutputs | None:
        kept = _kept_key(self.run_dir, side)
        passes = kept.get("dropout_passes", 0)
        if {**kept, "dropout_passes": self.dropout_passes} != json.loads(key) or passes < self.dropout_passes:
            return None
        found = read_outputs(self.run_dir, side)
        if found is None or found.dropout_logits is None:
            return found
        if self.dropout_passes:
            return replace(found, dropout_logits=found.dropout_logits[: self.dropout_passes])
        reasons = {**found.not_stored, "dropout_logits": NO_PASSES}
        return replace(found, dropout_logits=None, not_stored=reasons)


def weights_digest(run_dir: Path) -> str:
    """The digest of the weights that a run ended with.

    Raises:
        WeightsError: it has not ended.
    """
    path = run_dir / CARD
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["weights_sha256"])
    except FileNotFoundError:
        raise WeightsError(
            f"{path}: a finished run must have a card; this one has none. Finish it with `mule train … --resume`."
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"{path}: cannot be read ({error}).") from None


def write_outputs(outputs: SideOutputs, run_dir: Path, side: str, *, key: str) -> None:
    """Keeps outputs; the file of names comes last, so that what has one is whole."""
    tensors: dict[str, Tensor | None] = {
        "outputs": outputs.outputs,
        "positive": outputs.evidence.positive,
        "negative": outputs.evidence.negative,
        "features": outputs.features,
        "looks": outputs.looks,
        "readout_weight": outputs.readout and outputs.readout.weight,
        "readout_bias": outputs.readout and outputs.readout.bias,
        "dropout_logits": outputs.dropout_logits,
        "labels": torch.from_numpy(outputs.labels),
        "all_labels": torch.from_numpy(outputs.truth.labels),
        "is_novel": torch.from_numpy(outputs.truth.is_novel),
        "boxes_xyxy_unit": torch.from_numpy(outputs.truth.boxes_xyxy_unit),
        "clip_index": torch.from_numpy(outputs.clip_index),
        "key_time_s": torch.tensor([name.key_time_s for name in outputs.clip_names], dtype=torch.float64),
    }
    names = {
        "format": FORMAT,
        "key": key,
        "kind": outputs.kind,
        "classes": outputs.classes,
        "all_classes": outputs.truth.classes,
        "videos": [name.video for name in outputs.clip_names],
        "actor_ids": outputs.truth.actor_ids,
        "not_stored": dict(outputs.not_stored),
        "num_skipped": outputs.num_skipped,
    }
    folder = run_dir / "outputs"
    folder.mkdir(exist_ok=True)
    there = {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}
    write_file(folder / f"{side}.safetensors", safetensors.torch.save(there, {"key": key}))
    write_file(folder / f"{side}.json", json.dumps(names, ensure_ascii=False, indent=1) + "\n")


def read_outputs(run_dir: Path, side: str, *, key: str | None = None) -> SideOutputs | None:
    """What was kept, if it was made from what the key says (without one, from whatever); None if not, or damaged."""
    path = run_dir / "outputs" / f"{side}.safetensors"
    try:
        names: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        with safetensors.safe_open(path, framework="pt") as file:
            is_meant = key in (None, names["key"]) and (file.metadata() or {}).get("key") == names["key"]
            tensors = {name: file.get_tensor(name) for name in file.keys()} if is_meant else {}  # noqa: SIM118 - no dict
    except (OSError, ValueError, KeyError, SafetensorError):
        return None
    return _outputs(names, tensors) if tensors else None


def _kept_key(run_dir: Path, side: str) -> dict[str, Any]:
    """What the outputs that are kept were made from; nothing, where there are none."""
    try:
        names = json.loads((run_dir / "outputs" / f"{side}.json").read_text(encoding="utf-8"))
        return dict(json.loads(names["key"]))
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def kept_outputs(run_dir: Path, side: str) -> SideOutputs:
    """What was kept of a run that was judged.

    Raises:
        ResultError: nothing was, or it is damaged.
    """
    found = read_outputs(run_dir, side)
    if found is None:
        raise ResultError(
            f"{run_dir / 'outputs' / side}: the outputs of a judged run must be kept; they are not. Judge it again: remove "
            f"{run_dir / 'results'}."
        )
    return found


def _outputs(names: dict[str, Any], tensors: dict[str, Tensor]) -> SideOutputs:
    def column(name: str) -> np.ndarray:
        return tensors[name].numpy()

    readout = None
    if "readout_weight" in tensors:
        readout = LinearReadout(tensors["readout_weight"], tensors["readout_bias"])
    return SideOutputs(
        classes=tuple(names["classes"]),
        kind=names["kind"],
        outputs=tensors["outputs"],
        evidence=Evidence(tensors["positive"], tensors["negative"]),
        features=tensors["features"],
        looks=tensors["looks"],
        readout=readout,
        dropout_logits=tensors.get("dropout_logits"),
        labels=column("labels"),
        truth=ActorTruth(
            classes=tuple(names["all_classes"]),
            labels=column("all_labels"),
            is_novel=column("is_novel"),
            boxes_xyxy_unit=column("boxes_xyxy_unit"),
            actor_ids=tuple(names["actor_ids"]),
        ),
        clip_names=tuple(map(ClipName, names["videos"], column("key_time_s").tolist())),
        clip_index=column("clip_index"),
        not_stored=names["not_stored"],
        num_skipped=names["num_skipped"],
    )


def _frozen_digest(experiment: Experiment) -> str:
    """Of the weights of a backbone that is no part of the run's own."""
    weights = experiment.backbone.weights
    if not experiment.backbone.frozen or weights is None:
        return ""
    return sha256_while_unchanged(weights / MODEL if weights.is_dir() else weights)
