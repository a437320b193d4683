"""What a trained network says about every actor of a side, with what is true of them, and the file that keeps it.

RUN/outputs/SIDE.safetensors   tensors, with the key they were made from
           /SIDE.json          the same key, and names: classes, clips, actors
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from torch import Tensor

from mule.core.defaults import BASE_RATE
from mule.core.documents import json_of
from mule.core.errors import RangeError
from mule.core.files import write_file
from mule.core.records import Evidence
from mule.data.batches.samples import ClipName
from mule.evidence.fusion import along_tracks
from mule.evidence.head import beta_parameters
from mule.inference.sides import ActorTruth
from mule.memory.memory import whole_features
from mule.novelty.crossfit import Inputs
from mule.objective.dirichlet_loss import dirichlet_parameters
from mule.rivals.scores.outputs import LinearReadout, StoredOutputs
from mule.systems.catalogue import EvidenceKind

OUTPUTS_FORMAT = "mule-outputs-3"
_DIGEST = "sha256"
_INPUTS = "inputs."
"""Begins the names of tensors in the file."""


@dataclass(frozen=True)
class SideOutputs:
    """One row per actor, or per clip where clips have the labels.

    `labels` are those of the actions the network was taught; `truth` has the same rows and all actions.
    """

    classes: tuple[str, ...]
    kind: EvidenceKind
    outputs: Float[Tensor, "actors outputs"]
    """h, the raw outputs of the last layer."""
    evidence: Evidence
    features: Float[Tensor, "actors dim"]
    """What the last linear layer sees."""
    backbone_features: Float[Tensor, "actors channels"]
    """The backbone's map, pooled over each actor's box."""
    readout: LinearReadout | None
    dropout_logits: Float[Tensor, "passes actors classes"] | None
    labels: Bool[np.ndarray, "actors classes"]
    truth: ActorTruth
    clip_names: tuple[ClipName, ...]
    clip_index: Int[np.ndarray, " actors"]
    not_stored: Mapping[str, str]
    """What a score may need but this network cannot give, with the reason."""
    num_skipped: int = 0
    """Clips that could not be read."""
    tags: tuple[str, ...] = ()
    """Taught labels that are no actions, such as a viewpoint; novelty ignores them."""
    base_rate: float = BASE_RATE
    """a of Eq. 1, in the Belief score."""
    box_index: Int[np.ndarray, " actors"] | None = None
    """The box of the side that each row shows; several clips of one video show the same. None: each row its own."""
    is_judged: Bool[np.ndarray, " actors"] | None = None
    """False for boxes that are neither known nor novel under the split; None judges all."""
    inputs: Inputs = field(default_factory=dict)
    """What each actor is seen by; empty without a frozen backbone whose maps are kept."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    """The film of each video, if the split states it."""

    @property
    def num_actors(self) -> int:
        """How many actors there are."""
        return len(self.clip_index)

    def at(self, rows: Bool[np.ndarray, " actors"]) -> "SideOutputs":
        """Some of the actors, without passes with dropout."""
        chosen = torch.from_numpy(rows)
        return replace(
            self,
            outputs=self.outputs[chosen],
            evidence=Evidence(self.evidence.positive[chosen], self.evidence.negative[chosen]),
            features=self.features[chosen],
            backbone_features=self.backbone_features[chosen],
            dropout_logits=None,
            labels=self.labels[rows],
            truth=self.truth.at(np.flatnonzero(rows)),
            clip_index=self.clip_index[rows],
            inputs={name: each[chosen] for name, each in self.inputs.items()},
        )

    @cached_property
    def does_known(self) -> Bool[np.ndarray, " actors"]:
        """Whether each actor does a taught action; tags do not count."""
        return np.asarray(self.labels[:, self._is_action].any(axis=1))

    @cached_property
    def deciding(self) -> "SideOutputs":
        """The same actors without the tags: what novelty scores read.

        A tag, such as the view from behind, is recognised in novel actors too. Read as evidence of an action,
        it would make them look known.
        """
        if not self.tags:
            return self
        kept, num_classes = torch.from_numpy(np.flatnonzero(self._is_action)), len(self.classes)
        columns = torch.cat([kept + first for first in range(0, self.outputs.shape[1], num_classes)])
        readout = self.readout and LinearReadout(self.readout.weight[kept], self.readout.bias[kept])
        return replace(
            self,
            classes=tuple(name for name in self.classes if name not in self.tags),
            outputs=self.outputs[:, columns],
            evidence=Evidence(self.evidence.positive[:, kept], self.evidence.negative[:, kept]),
            readout=readout,
            dropout_logits=None if self.dropout_logits is None else self.dropout_logits[..., kept],
            labels=self.labels[:, self._is_action],
            tags=(),
        )

    @cached_property
    def _is_action(self) -> Bool[np.ndarray, " classes"]:
        return np.array([name not in self.tags for name in self.classes], dtype=bool)

    @cached_property
    def video_index(self) -> Int[np.ndarray, " actors"]:
        """The position of each actor's video in `videos`. Every rendered clip is a video of its own."""
        videos = {name: number for number, name in enumerate(self.videos)}
        return np.array([videos[name.video] for name in self.clip_names], dtype=np.int64)[self.clip_index]

    @cached_property
    def videos(self) -> tuple[str, ...]:
        """The names of the videos, in order of appearance."""
        return tuple(dict.fromkeys(name.video for name in self.clip_names))

    @cached_property
    def stored(self) -> StoredOutputs:
        """The same outputs as the rivals' scores read them."""
        logits = one_logit_per_action(self.outputs, len(self.classes))
        return StoredOutputs(logits, self.features, self.readout, self.dropout_logits)

    @cached_property
    def remembered(self) -> Float[Tensor, "actors whole"]:
        """What a memory keeps of each actor."""
        return whole_features(self.features.float(), self.backbone_features.float())

    @cached_property
    def probability(self) -> Float[np.ndarray, "actors classes"]:
        """The expected probability of each action under the Beta, the Dirichlet or the sigmoid."""
        if self.kind == "read":
            return torch.sigmoid(self.stored.logits.double()).numpy()
        if self.kind == "dirichlet":
            alpha, total = dirichlet_parameters(self.evidence.positive.double())
            return (alpha / total).numpy()
        alpha, beta = beta_parameters(self.evidence)
        return (alpha.double() / (alpha.double() + beta.double())).numpy()


def one_logit_per_action(
    outputs: Float[Tensor, "rows outputs"], num_classes: int
) -> Float[Tensor, "rows classes"]:
    """The outputs themselves; where an action has two, the output for it minus the output against it."""
    if outputs.shape[1] == num_classes:
        return outputs
    return outputs[:, :num_classes] - outputs[:, num_classes:]


def write_side_outputs(outputs: SideOutputs, run_dir: Path, side: str, *, key: str) -> None:
    """Cache outputs in the run's folder.

    The JSON file is written last, so its presence means all is there.
    """
    tensors: dict[str, Tensor | None] = {
        "outputs": outputs.outputs,
        "positive": outputs.evidence.positive,
        "negative": outputs.evidence.negative,
        "features": outputs.features,
        "backbone_features": outputs.backbone_features,
        "readout_weight": outputs.readout and outputs.readout.weight,
        "readout_bias": outputs.readout and outputs.readout.bias,
        "dropout_logits": outputs.dropout_logits,
        "labels": torch.from_numpy(outputs.labels),
        "all_labels": torch.from_numpy(outputs.truth.labels),
        "is_novel": torch.from_numpy(outputs.truth.is_novel),
        "boxes_xyxy_unit": torch.from_numpy(outputs.truth.boxes_xyxy_unit),
        "clip_index": torch.from_numpy(outputs.clip_index),
        "box_index": None if outputs.box_index is None else torch.from_numpy(outputs.box_index),
        "is_judged": None if outputs.is_judged is None else torch.from_numpy(outputs.is_judged),
        "key_time_s": torch.tensor([name.key_time_s for name in outputs.clip_names], dtype=torch.float64),
        **{f"{_INPUTS}{name}": each for name, each in outputs.inputs.items()},
    }
    names = {
        "format": OUTPUTS_FORMAT,
        "key": key,
        "kind": outputs.kind,
        "base_rate": outputs.base_rate,
        "classes": outputs.classes,
        "all_classes": outputs.truth.classes,
        "videos": [name.video for name in outputs.clip_names],
        "actor_ids": outputs.truth.actor_ids,
        "not_stored": dict(outputs.not_stored),
        "num_skipped": outputs.num_skipped,
    }
    folder = run_dir / "outputs"
    folder.mkdir(exist_ok=True)
    stored = {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}
    content = safetensors.torch.save(stored, {"key": key})
    write_file(folder / f"{side}.safetensors", content)
    names[_DIGEST] = _digest(names, content)
    write_file(folder / f"{side}.json", json.dumps(names, ensure_ascii=False, indent=1) + "\n")


def read_side_outputs(run_dir: Path, side: str, *, key: str | None = None) -> SideOutputs | None:
    """Read cached outputs if they were made from `key` (None accepts any).

    Return None if they were not, or are damaged.
    """
    path = run_dir / "outputs" / f"{side}.safetensors"
    try:
        names: dict[str, Any] = json_of(path.with_suffix(".json").read_bytes(), finite=False)
        if key not in (None, names["key"]) or names["format"] != OUTPUTS_FORMAT:
            return None
        content = path.read_bytes()
        if names.pop(_DIGEST, None) not in (None, _digest(names, content)):  # before 0.2 there was none
            return None
        with safetensors.safe_open(path, framework="pt") as file:
            is_meant = (file.metadata() or {}).get("key") == names["key"]
        return _outputs(names, safetensors.torch.load(content)) if is_meant else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError):
        return None


def _digest(names: Mapping[str, Any], content: bytes) -> str:
    return hashlib.sha256(json.dumps(names, sort_keys=True).encode() + content).hexdigest()


def cached_key(run_dir: Path, side: str) -> dict[str, Any]:
    """What the cached outputs were made from; empty if there are none."""
    try:
        names = json_of((run_dir / "outputs" / f"{side}.json").read_bytes(), finite=False)
        return dict(json_of(names["key"]))
    except (OSError, ValueError, KeyError, TypeError):
        return {}


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
        backbone_features=tensors["backbone_features"],
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
        base_rate=names.get("base_rate", BASE_RATE),  # not in files of version 0.1
        box_index=column("box_index") if "box_index" in tensors else None,
        is_judged=column("is_judged") if "is_judged" in tensors else None,
        inputs={
            name.removeprefix(_INPUTS): each for name, each in tensors.items() if name.startswith(_INPUTS)
        },
    )


def judged_rows(outputs: SideOutputs) -> SideOutputs:
    """Return one row for each box that is known or novel, and the clips that show one.

    Boxes without a truth under the split are left out. Where several clips of one video show the same box, outputs, features
    and evidence are their mean, so α and β are averaged as in the authors' multi-crop test.

    Raises:
        RangeError: no box is judged.
    """
    if outputs.is_judged is not None:
        if not outputs.is_judged.any():
            raise RangeError(
                f"a side must have boxes of known or novel actors; none of its {outputs.num_actors} boxes is one under the "
                "split. `mule data split-report` counts why actors are left out."
            )
        outputs = _taken(outputs, np.flatnonzero(outputs.is_judged))
    return outputs if outputs.box_index is None else _over_clips(outputs, outputs.box_index)


def _taken(outputs: SideOutputs, rows: Int[np.ndarray, " taken"]) -> SideOutputs:
    """Return some rows with all that belongs to them, and the clips that show them."""
    at = torch.from_numpy(rows)
    clips, clip_index = np.unique(outputs.clip_index[rows], return_inverse=True)
    dropped, boxes = outputs.dropout_logits, outputs.box_index
    return replace(
        outputs,
        outputs=outputs.outputs[at],
        evidence=Evidence(outputs.evidence.positive[at], outputs.evidence.negative[at]),
        features=outputs.features[at],
        backbone_features=outputs.backbone_features[at],
        dropout_logits=None if dropped is None else dropped[:, at],
        labels=outputs.labels[rows],
        truth=outputs.truth.at(rows),
        clip_names=tuple(outputs.clip_names[clip] for clip in clips.tolist()),
        clip_index=clip_index,
        box_index=None if boxes is None else boxes[rows],
        is_judged=None,
        inputs={name: each[at] for name, each in outputs.inputs.items()},
    )


def _over_clips(outputs: SideOutputs, boxes: Int[np.ndarray, " rows"]) -> SideOutputs:
    """Return a row for each box, the mean over the clips that show it; its clip is the first."""
    _, first, number = np.unique(boxes, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[number]  # boxes in the order of their first rows
    index, num_boxes = torch.from_numpy(number), len(first)

    def mean(rows: torch.Tensor) -> torch.Tensor:
        return along_tracks(rows, index, num_tracks=num_boxes)

    dropped = outputs.dropout_logits
    return replace(
        _taken(outputs, np.sort(first)),
        outputs=mean(outputs.outputs),
        evidence=Evidence(mean(outputs.evidence.positive), mean(outputs.evidence.negative)),
        features=mean(outputs.features),
        backbone_features=mean(outputs.backbone_features),
        dropout_logits=None if dropped is None else mean(dropped.transpose(0, 1)).transpose(0, 1),
        box_index=None,
        inputs={name: mean(each) for name, each in outputs.inputs.items()},
    )
