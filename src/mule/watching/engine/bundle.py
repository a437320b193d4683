"""What a user hands over to watch with: a trained run, and what turns its evidence into a decision.

    BUNDLE/experiment.toml, card.json, model.safetensors   the run, as `mule train` leaves it
           calibration.safetensors                         held-out known actors: what is usual
           memory.safetensors                              remembered actors; a bundle without it works too
           thumbnails/                                     pictures of remembered actors, if they were kept
           detector.safetensors                            a detector of its own, where the card recommends it
           bundle.json                                     what all this is, and what it may be used with

The folder is also that of a run: `mule teach` and `mule memory` change its memory, and the calibration, which keeps
actors and not their scores, follows when it is read next. What was made for other weights is refused.
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

from mule.core.errors import MuleError, WeightsError
from mule.core.files import sha256_of, write_file
from mule.memory.files import read_memory, write_memory
from mule.memory.taught import Remembered
from mule.model import MuleModel
from mule.runtime.engines import require_runtime
from mule.runtime.exported import running_model
from mule.training.build import load_run
from mule.training.checkpoint import weights_file
from mule.training.run_folder import CARD, EXPERIMENT, MODEL
from mule.watching.engine.judging import HeldOutActors, Judge, UsualNovelty
from mule.watching.engine.seeing import ClipNeeds, clip_needs, seeing_model

BUNDLE, CALIBRATION, MEMORY, THUMBNAILS = (
    "bundle.json",
    "calibration.safetensors",
    "memory.safetensors",
    "thumbnails",
)
DETECTOR = "detector.safetensors"
"""A bundle's own detector, in its folder."""
BUILTIN = "builtin"
"""The model that comes with the package."""
FORMAT, CALIBRATION_FORMAT = "mule-bundle-1", "mule-calibration-2"
SCENE_BOXES = "scene"
"""The recommended detector of rendered scenes: the boxes written beside them."""
RUN_FILES = (EXPERIMENT, CARD, MODEL)
_TENSORS = ("outputs", "features", "clip_index", "track_index")
LABELS = "labels"


class BundleError(WeightsError):
    """A folder cannot be watched with; the message names the file and says what to do."""


class BundleCard(BaseModel):
    """What a bundle is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = FORMAT
    name: str
    weights_sha256: str
    backbone_sha256: str | None = None
    """Of the frozen backbone's weights, which are not in the folder; None where the run has its own."""
    seed: int
    commit: str | None = None
    data: Mapping[str, str] = {}
    """Digests of what it was trained on."""
    tags: tuple[str, ...] = ()
    """Taught labels that novelty is not read from."""
    metrics: Mapping[str, float] = {}
    detector: str
    """The recommended one: `detector.safetensors` in the folder, `scene`, or a card of `mule weights list`."""
    every_s: float = 1.0


@dataclass(frozen=True)
class HeldOutOutputs:
    """Held-out known actors as the network saw them, which no later change of the memory makes stale."""

    outputs: Float[Tensor, "actors outputs"]
    features: Float[Tensor, "actors whole"]
    """What a memory keeps of each (`mule.memory.memory.whole_features`)."""
    clip_index: Int[Tensor, " actors"]
    track_index: Int[Tensor, " actors"]
    labels: Float[Tensor, "actors classes"] | None = None
    """What each does of the actions the network was trained on; None where nobody wrote it down."""

    def still_known(
        self, trained: Sequence[str], remembered: Remembered | None, *, tags: Sequence[str] = ()
    ) -> "HeldOutOutputs":
        """Those that do an action which was not forgotten since; all, where nobody wrote down what they do.

        Whoever does nothing else than what was forgotten is novel now, and would decide what is usual among known ones.
        """
        if remembered is None or self.labels is None:
            return self
        left = set(remembered.memory.class_names).difference(tags)
        is_left = torch.tensor([name in left for name in trained], dtype=torch.bool)
        rows = (self.labels[:, is_left] > 0).any(dim=1)
        return HeldOutOutputs(
            self.outputs[rows],
            self.features[rows],
            self.clip_index[rows],
            self.track_index[rows],
            self.labels[rows],
        )


@dataclass(frozen=True)
class Bundle:
    """All that watching needs to know."""

    folder: Path
    card: BundleCard
    model: MuleModel = field(repr=False)
    needs: ClipNeeds
    judge: Judge = field(repr=False)
    usual: UsualNovelty = field(repr=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """The actions it knows, those taught since last."""
        return self.judge.classes

    @property
    def own_detector(self) -> Path | None:
        """The detector in the folder, where it is the recommended one."""
        return self.folder / DETECTOR if self.card.detector == DETECTOR else None

    @property
    def fingerprint(self) -> str:
        """Names the weights, and the memory beside them, shortly."""
        return self.card.weights_sha256[:12]

    def on(self, runtime: str, *, kept_in: Path, num_threads: int | None = None) -> "Bundle":
        """The same bundle with its network on `torch`, `onnx` or `openvino`; what it says differs in the last digits.

        Args:
            runtime: where the network runs.
            kept_in: graphs are kept there from one watch to the next.
            num_threads: None takes as many as torch does.

        Raises:
            RangeError: there is no such runtime, or the network has no form for it.
            RuntimeMissing: its package is not installed; the message names the extra.
        """
        running = running_model(
            self.model, require_runtime(runtime), kept_in=kept_in, num_threads=num_threads
        )
        return replace(self, model=running)


def builtin_folder() -> Path:
    """Where the model that comes with the package lies."""
    return Path(str(importlib.resources.files("mule") / BUILTIN))


def read_bundle(folder: Path) -> Bundle:
    """The bundle in a folder, ready to watch with; `builtin` is the package's own, unless there is a folder of that name.

    Raises:
        BundleError: there is none, a file is damaged, or files do not belong together.
        WeightsError: the run's own files cannot be used.
        MemoryFileError: the memory cannot be used, or is of other weights.
    """
    if str(folder) == BUILTIN and not folder.exists():
        folder = builtin_folder()
    card = _card(folder)
    run = load_run(folder)
    if _weights_sha256(folder) != card.weights_sha256:
        raise BundleError(
            f"{folder / BUNDLE}: must have been made for the weights beside it, {_weights_sha256(folder)[:12]}…; it was "
            f"made for {card.weights_sha256[:12]}…. Build the bundle anew (`mule bundle RUN_DIR --out DIR`)."
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
    """Whether a calibration lies beside a memory that does not say what its actors do, so that it cannot follow forgetting."""
    path = memory_file.parent / CALIBRATION
    try:
        return LABELS not in _read_tensors(path)[0]
    except (OSError, SafetensorError, ValueError):
        return False  # not there, or damaged, which is said when it is read to be used


def usual_novelty(judge: Judge, held_out: HeldOutOutputs) -> UsualNovelty:
    """What is usual among held-out known actors, as a judge sees them."""
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
    """A bundle of a finished run; the folder appears when everything is in it.

    Args:
        folder: must not exist yet.
        run_dir: the finished run.
        card: what it is.
        held_out: known actors of its validation side.
        remembered: the memory of its training actors, calibrated; None leaves it out.
        thumbnails: pictures of remembered actors by the name of their file.

    Raises:
        BundleError: the folder is there already, or cannot be written.
    """
    if folder.exists():
        raise BundleError(f"{folder}: must not exist yet; it does. Choose another name, or remove it.")
    parts = folder.with_name(f"{folder.name}.parts")
    try:
        shutil.rmtree(parts, ignore_errors=True)
        (parts / THUMBNAILS).mkdir(parents=True)
        for name in RUN_FILES:
            shutil.copyfile(run_dir / name, parts / name)
        if remembered is not None:
            write_memory(parts / MEMORY, remembered)
        for name, png in thumbnails.items():
            (parts / THUMBNAILS / name).write_bytes(png)
        names = (*_TENSORS, *([] if held_out.labels is None else [LABELS]))
        tensors = {name: getattr(held_out, name) for name in names}
        about = {"format": CALIBRATION_FORMAT, "weights_sha256": card.weights_sha256}
        write_file(parts / CALIBRATION, weights_file(tensors, about))
        write_file(parts / BUNDLE, card.model_dump_json(indent=2) + "\n")
        parts.rename(folder)
    except OSError as error:
        raise BundleError(f"{folder}: a bundle must be written; {error.strerror or error}.") from error


def _card(folder: Path) -> BundleCard:
    path = folder / BUNDLE
    if not folder.is_dir():
        raise BundleError(
            f"{folder}: a model to watch with must be a folder that `mule bundle` made; there is no such folder."
        )
    try:
        card = BundleCard.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        what = "It is a run: " if (folder / CARD).exists() else ""
        raise BundleError(
            f"{path}: a model to watch with must have one; this folder has none. {what}`mule bundle RUN_DIR --out DIR` "
            "makes it of a finished run."
        ) from None
    except (OSError, ValidationError) as error:
        reason = str(error).replace("\n", " ")
        raise BundleError(f"{path}: must be the card of a bundle; {reason[:200]}.") from None
    if card.format != FORMAT:
        raise BundleError(f"{path}: format must be {FORMAT!r}; got {card.format!r}. Build the bundle anew.")
    return card


def _weights_sha256(folder: Path) -> str:
    return str(json.loads((folder / CARD).read_text(encoding="utf-8"))["weights_sha256"])


def _require_backbone(folder: Path, card: BundleCard, weights: Path | None) -> None:
    if card.backbone_sha256 is None:
        return
    if weights is None or not weights.is_file():
        raise BundleError(
            f"{folder / EXPERIMENT}: the frozen backbone's weights must be at hand; {weights} is not there. Put its place "
            "into backbone.weights."
        )
    found = sha256_of(weights)
    if found != card.backbone_sha256:
        raise BundleError(
            f"{weights}: must be the backbone that the bundle was made with, {card.backbone_sha256[:12]}…; it is "
            f"{found[:12]}…."
        )


def _held_out(folder: Path, card: BundleCard) -> HeldOutOutputs:
    path = folder / CALIBRATION
    try:
        tensors, about = _read_tensors(path)
        if about.get("format") != CALIBRATION_FORMAT or about.get("weights_sha256") != card.weights_sha256:
            raise BundleError(
                f"{path}: must be of the format {CALIBRATION_FORMAT} and of the weights {card.weights_sha256[:12]}…; it is "
                f"of {about.get('format')!r} and {str(about.get('weights_sha256'))[:12]}…. Build the bundle anew."
            )
        return HeldOutOutputs(*(tensors[name] for name in _TENSORS), labels=tensors.get(LABELS))
    except MuleError:
        raise
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise BundleError(
            f"{path}: held-out actors must be there and whole; {error}. Build the bundle anew."
        ) from None


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    tensors = safetensors.torch.load(content)  # refuses what is cut short
    return tensors, json.loads(content[8 : 8 + length]).get("__metadata__", {})
