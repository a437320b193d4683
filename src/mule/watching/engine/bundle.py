"""A folder to watch with: a trained run, and what turns its evidence into a decision.

    BUNDLE/experiment.toml, card.json, model.safetensors   the run, as `mule train` writes it
           calibration.safetensors                         held-out known actors: how novel known actors look
           memory.safetensors                              remembered actors; optional
           thumbnails.zip                                  pictures of remembered actors; optional
           detector.safetensors                            its own detector, if the card recommends it
           bundle.json                                     what all this is, and what it may be used with

The folder is also a run's: `mule teach` and `mule memory` change its memory. The calibration keeps actors, not their scores,
so it follows the memory the next time it is read. Files made for other weights are refused.
"""

import importlib.resources
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float, Int
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from mule.core.errors import FileError, MuleError, WeightsError
from mule.core.files import os_reason, sha256_of, write_file
from mule.memory.files import read_memory, write_memory
from mule.memory.taught import Remembered
from mule.model import MuleModel
from mule.runtime.engines import require_runtime
from mule.runtime.exported import kept_graphs, running_model
from mule.training.build import load_run
from mule.training.checkpoint import weights_file
from mule.training.run_folder import CARD, EXPERIMENT, MODEL
from mule.watching.engine.judging import HeldOutActors, Judge, UsualNovelty
from mule.watching.engine.seeing import ClipNeeds, clip_needs, seeing_model
from mule.watching.thumbnails import THUMBNAILS, ThumbnailArchive, thumbnails_in, write_thumbnails

BUNDLE, CALIBRATION, MEMORY = "bundle.json", "calibration.safetensors", "memory.safetensors"
DETECTOR = "detector.safetensors"
"""A bundle's own detector."""
BUILTIN = "builtin"
"""The model that comes with the package; it knows rendered scenes only."""
FORMAT, CALIBRATION_FORMAT = "mule-bundle-1", "mule-calibration-2"
SCENE_BOXES = "scene"
"""The recommended detector of rendered scenes: the boxes in the tables beside them."""
RUN_FILES = (EXPERIMENT, CARD, MODEL)
_TENSORS = ("outputs", "features", "clip_index", "track_index")
LABELS = "labels"


class BundleError(WeightsError):
    """A folder is no usable bundle; the message names the file and says what to do."""


class BundleCard(BaseModel):
    """What a bundle contains and was made from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = FORMAT
    name: str
    weights_sha256: str
    backbone_sha256: str | None = None
    """Of the frozen backbone's weights, which are not in the folder; None if the run has its own."""
    seed: int
    commit: str | None = None
    data: Mapping[str, str] = {}
    """Digests of the training data."""
    tags: tuple[str, ...] = ()
    """Taught labels that do not count for novelty."""
    metrics: Mapping[str, float] = {}
    detector: str
    """The recommended detector: `detector.safetensors` in the folder, `scene`, or a card of `mule weights list`."""
    every_s: float = 1.0


@dataclass(frozen=True)
class HeldOutOutputs:
    """Held-out known actors as the network saw them; a later change of the memory does not make them stale."""

    outputs: Float[Tensor, "actors outputs"]
    features: Float[Tensor, "actors whole"]
    """What a memory keeps of each actor (`mule.memory.memory.whole_features`)."""
    clip_index: Int[Tensor, " actors"]
    track_index: Int[Tensor, " actors"]
    labels: Float[Tensor, "actors classes"] | None = None
    """Which of the trained actions each actor does; None if the labels were not kept."""

    def still_known(
        self, trained: Sequence[str], remembered: Remembered | None, *, tags: Sequence[str] = ()
    ) -> "HeldOutOutputs":
        """Return the actors that do an action which was not forgotten since; all of them without labels.

        An actor who does nothing but forgotten actions is novel now and must not count among known ones.
        """
        if remembered is None or self.labels is None:
            return self
        known = set(remembered.memory.class_names).difference(tags)
        is_known = torch.tensor([name in known for name in trained], dtype=torch.bool)
        rows = (self.labels[:, is_known] > 0).any(dim=1)
        return HeldOutOutputs(
            self.outputs[rows],
            self.features[rows],
            self.clip_index[rows],
            self.track_index[rows],
            self.labels[rows],
        )


@dataclass(frozen=True)
class Bundle:
    """A model to watch with: network, memory, calibration and card."""

    folder: Path
    card: BundleCard
    model: MuleModel = field(repr=False)
    needs: ClipNeeds
    judge: Judge = field(repr=False)
    usual: UsualNovelty = field(repr=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """The actions it knows; those taught later come last."""
        return self.judge.classes

    @property
    def own_detector(self) -> Path | None:
        """The detector in the folder, if it is the recommended one."""
        return self.folder / DETECTOR if self.card.detector == DETECTOR else None

    @property
    def fingerprint(self) -> str:
        """The first digits of the weights' checksum."""
        return self.card.weights_sha256[:12]

    @property
    def has_memory(self) -> bool:
        """Whether remembered actors take part in the judgement."""
        return self.judge.remembered is not None

    @property
    def thumbnails(self) -> ThumbnailArchive | None:
        """Pictures of remembered actors, if the folder has them."""
        return thumbnails_in(self.folder)

    def on(self, runtime: str, *, kept_in: Path | None = None, num_threads: int | None = None) -> "Bundle":
        """Return the same bundle with its network on `torch`, `onnx` or `openvino`; results differ in the last digits.

        Args:
            runtime: where the network runs.
            kept_in: the folder for exported graphs; None is `graphs` in the cache folder.
            num_threads: None takes as many as torch does.

        Raises:
            RangeError: there is no such runtime, or the network cannot be exported.
            RuntimeMissing: its package is not installed; the message names the extra.
        """
        if runtime == "torch":
            return self
        running = running_model(
            self.model,
            require_runtime(runtime),
            kept_in=kept_graphs() if kept_in is None else kept_in,
            num_threads=num_threads,
        )
        return replace(self, model=running)


def builtin_folder() -> Path:
    """Return the folder of the model that comes with the package."""
    return Path(str(importlib.resources.files("mule") / BUILTIN))


def read_bundle(folder: Path) -> Bundle:
    """Read the bundle in a folder; `builtin` is the package's own, unless there is a folder of that name.

    Raises:
        BundleError: there is no bundle, a file is damaged, or files do not belong together.
        WeightsError: the run's own files cannot be used.
        MemoryFileError: the memory cannot be used, or belongs to other weights.
    """
    if str(folder) == BUILTIN and not folder.exists():
        folder = builtin_folder()
    card = _card(folder)
    run = load_run(folder)
    if _weights_sha256(folder) != card.weights_sha256:
        raise BundleError(
            f"{folder / BUNDLE}: must belong to the weights beside it, {_weights_sha256(folder)[:12]}…; it belongs to "
            f"{card.weights_sha256[:12]}…. Build the bundle again (`mule bundle RUN_DIR --out DIR`)."
        )
    _require_backbone(folder, card, run.experiment.backbone.weights)
    remembered = None
    if (folder / MEMORY).exists():
        remembered = read_memory(folder / MEMORY, model=card.weights_sha256)
    judge = Judge(run.pair_evidence, run.classes, remembered, tags=card.tags)
    held_out = _held_out(folder, card).still_known(run.classes, remembered, tags=card.tags)
    return Bundle(
        folder=folder,
        card=card,
        model=seeing_model(run),
        needs=clip_needs(run.experiment),
        judge=judge,
        usual=usual_novelty(judge, held_out),
    )


def cannot_follow_forgetting(memory_file: Path) -> bool:
    """Whether the calibration beside a memory has no labels, so that it cannot follow when an action is forgotten."""
    path = memory_file.parent / CALIBRATION
    try:
        return LABELS not in _read_tensors(path)[0]
    except (OSError, SafetensorError, ValueError):
        return False  # missing or damaged: whoever uses it gets the error


def usual_novelty(judge: Judge, held_out: HeldOutOutputs) -> UsualNovelty:
    """Calibrate on held-out known actors, as a judge sees them."""
    ranks = judge(held_out.outputs, held_out.features).ranks
    return UsualNovelty(HeldOutActors(ranks, held_out.clip_index, held_out.track_index))


def write_bundle(
    folder: Path,
    run_dir: Path,
    *,
    card: BundleCard,
    held_out: HeldOutOutputs,
    remembered: Remembered | None,
    thumbnails: Mapping[str, bytes],
) -> None:
    """Write a bundle of a finished run; the folder appears once everything is in it.

    Args:
        folder: must not exist yet.
        run_dir: the finished run.
        card: what the bundle is.
        held_out: known actors of its validation side.
        remembered: the memory of its training actors, calibrated; None leaves it out.
        thumbnails: pictures of remembered actors by name.

    Raises:
        BundleError: the folder exists already.
        FileError: the folder cannot be written.
    """
    if folder.exists():
        raise BundleError(f"{folder}: must not exist yet; it does. Choose another name, or remove it.")
    parts = folder.with_name(f"{folder.name}.parts")
    try:
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir(parents=True)
        for name in RUN_FILES:
            shutil.copyfile(run_dir / name, parts / name)
        if remembered is not None:
            write_memory(parts / MEMORY, remembered)
        if thumbnails:
            write_thumbnails(parts / THUMBNAILS, thumbnails)
        names = (*_TENSORS, *([] if held_out.labels is None else [LABELS]))
        tensors = {name: getattr(held_out, name) for name in names}
        about = {"format": CALIBRATION_FORMAT, "weights_sha256": card.weights_sha256}
        write_file(parts / CALIBRATION, weights_file(tensors, about))
        write_file(parts / BUNDLE, card.model_dump_json(indent=2) + "\n")
        parts.rename(folder)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{folder}: the bundle cannot be written: {os_reason(error)}.") from error


def _card(folder: Path) -> BundleCard:
    path = folder / BUNDLE
    if not folder.is_dir():
        raise BundleError(
            f"{folder}: a model must be a folder that `mule bundle` wrote, or builtin; there is no such folder."
        )
    try:
        card = BundleCard.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        what = "This folder is a run: " if (folder / CARD).exists() else ""
        raise BundleError(
            f"{path}: must exist in the folder of a model; it does not. {what}`mule bundle RUN_DIR --out DIR` makes a "
            "model of a finished run."
        ) from None
    except (OSError, ValidationError) as error:
        reason = str(error).replace("\n", " ")
        raise BundleError(f"{path}: must be the card of a bundle; {reason[:200]}.") from None
    if card.format != FORMAT:
        raise BundleError(f"{path}: format must be {FORMAT!r}; got {card.format!r}. Build the bundle again.")
    return card


def _weights_sha256(folder: Path) -> str:
    return str(json.loads((folder / CARD).read_text(encoding="utf-8"))["weights_sha256"])


def _require_backbone(folder: Path, card: BundleCard, weights: Path | None) -> None:
    if card.backbone_sha256 is None:
        return
    if weights is None or not weights.is_file():
        raise BundleError(
            f"{folder / EXPERIMENT}: backbone.weights must name the file of the frozen backbone; {weights} does not "
            "exist. Correct the path in that file."
        )
    sha256 = sha256_of(weights)
    if sha256 != card.backbone_sha256:
        raise BundleError(
            f"{weights}: must be the backbone that the bundle was made with, {card.backbone_sha256[:12]}…; it is "
            f"{sha256[:12]}…. Download it again (`mule weights pull`), or build the bundle again."
        )


def _held_out(folder: Path, card: BundleCard) -> HeldOutOutputs:
    path = folder / CALIBRATION
    try:
        tensors, about = _read_tensors(path)
        if about.get("format") != CALIBRATION_FORMAT or about.get("weights_sha256") != card.weights_sha256:
            raise BundleError(
                f"{path}: must have the format {CALIBRATION_FORMAT} and belong to the weights "
                f"{card.weights_sha256[:12]}…; it has {about.get('format')!r} and belongs to "
                f"{str(about.get('weights_sha256'))[:12]}…. Build the bundle again."
            )
        return HeldOutOutputs(*(tensors[name] for name in _TENSORS), labels=tensors.get(LABELS))
    except MuleError:
        raise
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise BundleError(
            f"{path}: must hold the calibration of the bundle; {error}. Build the bundle again."
        ) from None


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    tensors = safetensors.torch.load(content)  # refuses a file that was cut short
    return tensors, json.loads(content[8 : 8 + length]).get("__metadata__", {})
