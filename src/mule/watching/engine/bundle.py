"""A folder to watch with: a trained run, and what turns its evidence into a decision.

    BUNDLE/experiment.toml, card.json, model.safetensors   the run, as `mule train` writes it
           calibration.safetensors                         held-out known actors: how novel known actors look
           seen.safetensors                                what decides, if the backbone is frozen (`engine.seen`)
           memory.safetensors                              remembered actors; optional
           backbone.pt                                     the frozen backbone, if the run was trained on its maps
           thumbnails.zip                                  pictures of remembered actors; optional
           detector.safetensors                            its own detector, if the card recommends it
           bundle.json                                     what all this is, and what it may be used with
           mule-manifest.json                              SHA-256 of every file above but the pictures

The folder is also a run's: `mule teach` and `mule memory` change its memory. The calibration keeps actors, not their scores,
so it follows the memory the next time it is read. Files made for other weights are refused.
"""

import importlib.resources
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float, UInt8
from safetensors import SafetensorError
from torch import Tensor

from mule.core.config import experiment_toml, load_experiment
from mule.core.documents import json_of
from mule.core.errors import MuleError, WeightsError
from mule.core.files import sha256_while_unchanged, write_file
from mule.core.locks import new_folder
from mule.core.manifest import require_sealed, seal
from mule.core.settings import Experiment, StageData
from mule.core.tensors import Promised, require_tensors
from mule.features.backbones.tiny import STRIDE
from mule.features.weights.cards import find_card
from mule.features.weights.download import at_hand
from mule.features.weights.loading import weights_on_disk
from mule.inference.seen import SEEN_SCORE
from mule.memory.files import naming, read_memory, write_memory
from mule.memory.taught import Remembered
from mule.model import MuleModel
from mule.runtime.choosing import model_on
from mule.runtime.exported import kept_graphs
from mule.stage.plans import FRAME_RATE
from mule.training.build import TINY, LoadedRun, load_run, normalisation
from mule.training.checkpoint import weights_file
from mule.training.data import frame_rate
from mule.training.run_folder import CARD, EXPERIMENT, MODEL, experiment_of, read_card
from mule.video.clips import ClipShape
from mule.video.transforms import Normalisation, normalised, resized, short_side_size
from mule.watching.engine.bundle_card import BUNDLE, BUNDLE_FORMAT, BundleCard, BundleError, read_bundle_card
from mule.watching.engine.judging import HeldOutOutputs, Judge
from mule.watching.engine.seen import SEEN, Eyes, SeenModel, read_seen, write_seen
from mule.watching.engine.usual import UsualNovelty, usual_novelty, usual_of
from mule.watching.thumbnails import THUMBNAILS, ThumbnailArchive, thumbnails_in, write_thumbnails

CALIBRATION, MEMORY = "calibration.safetensors", "memory.safetensors"
DETECTOR = "detector.safetensors"
"""A bundle's own detector."""
DETECTOR_PARTS = (".pdiparams",)
"""Files that belong to a detector's file and lie beside it."""
PEOPLE, STAGE = "people", "stage"
"""The models that come with the package: of real people, and of rendered scenes only."""
MODELS = "models"
"""Their folder in the package."""
EARLIER_NAMES: Mapping[str, str] = {"builtin": STAGE}
CALIBRATION_FORMAT = "mule-calibration-2"
SCENE_BOXES = "scene"
"""The recommended detector of rendered scenes: the boxes in the tables beside them."""
RUN_FILES = (EXPERIMENT, CARD, MODEL)
_TENSORS = ("outputs", "features", "clip_index", "track_index")
HELD_OUT_LABELS = "labels"
_PROMISED: Mapping[str, Promised] = {
    "outputs": (None, ("actors", "outputs")),
    "features": (None, ("actors", "whole")),
    "clip_index": (torch.int64, ("actors",)),
    "track_index": (torch.int64, ("actors",)),
}
_LABELS: Mapping[str, Promised] = {HELD_OUT_LABELS: (None, ("actors", "classes"))}
BACKBONE = "backbone"
"""The stem of the file of a frozen backbone's weights."""


@dataclass(frozen=True)
class ClipNeeds:
    """How to cut and scale clips so that they look like those the network was validated on."""

    shape: ClipShape
    frame_rate: Fraction | None
    """Of the grid of times; None takes each video's own."""
    short_side_px: int | None
    """None leaves frames in their own size."""
    multiple_px: int
    """Rows and columns must be multiples of this."""
    normalisation: Normalisation

    def pixels(
        self, frames: UInt8[Tensor, "frames channels rows cols"]
    ) -> Float[Tensor, "1 channels frames fitted_rows fitted_cols"]:
        """Return the clip as the backbone takes it: with its short side, each side rounded to the nearest multiple."""
        if self.short_side_px is not None:
            rows, cols = frames.shape[2:]
            frames = resized(frames, short_side_size(rows, cols, self.short_side_px))
        rows, cols = (self.fitting_px(side) for side in frames.shape[2:])
        return normalised(resized(frames, (rows, cols)), self.normalisation)[None]

    def fitting_px(self, side_px: int | float) -> int:
        """Return the nearest length of a side that the network takes."""
        return max(1, round(side_px / self.multiple_px)) * self.multiple_px


@dataclass(frozen=True)
class Bundle:
    """A model to watch with: network, memory, calibration and card."""

    folder: Path
    card: BundleCard
    model: MuleModel = field(repr=False)
    needs: ClipNeeds
    judge: Judge = field(repr=False)
    usual: UsualNovelty = field(repr=False)
    seen: SeenModel | None = field(default=None, repr=False)
    """The known actors that decide; None where network and memory do."""
    eyes: Eyes | None = field(default=None, repr=False)
    """What people are seen by, if that decides."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The actions it knows; those taught later come last."""
        return self.judge.classes

    @property
    def own_detector(self) -> Path | None:
        """The detector in the folder, if it is the recommended one."""
        return self.folder / self.card.detector if is_own_detector(self.card.detector) else None

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

    def on(
        self,
        runtime: str,
        *,
        kept_in: Path | None = None,
        num_clips: int | float = math.inf,
        noted: Callable[[str], None] = lambda _: None,
    ) -> "Bundle":
        """Return the same bundle with its network on another runtime; results differ in the last digits.

        `runtime` is `auto`, `torch`, `onnx`, `openvino`, or a folder of `mule export`. Exported graphs are kept in `kept_in`;
        None is `graphs` in the cache folder. With `auto`, nothing is exported for a `num_clips` that is not worth it. `noted`
        receives a sentence before an export, and one about what `auto` chose.
        """
        if runtime == "torch":
            return self
        folder = kept_graphs() if kept_in is None else kept_in
        return replace(
            self, model=model_on(self.model, runtime, kept_in=folder, num_clips=num_clips, noted=noted)
        )


def packaged_folder(name: str | Path) -> Path | None:
    """Return the folder of a model that comes with the package, `people` or `stage`; None if a run or model has that name here.

    >>> packaged_folder("stage").name, packaged_folder("builtin").name, packaged_folder("other")
    ('stage', 'stage', None)
    """
    known = EARLIER_NAMES.get(str(name), str(name))
    if known not in (PEOPLE, STAGE) or (Path(name) / CARD).exists():
        return None
    return Path(str(importlib.resources.files("mule") / MODELS / known))


def read_bundle(folder: Path) -> Bundle:
    """Read the bundle in a folder; `people` and `stage` are the package's own, unless models have these names here.

    Raises:
        BundleError: there is no bundle, a file is damaged, or files do not belong together.
        WeightsError: the run's own files cannot be used.
        MemoryFileError: the memory cannot be used, or belongs to other weights.
    """
    folder = packaged_folder(folder) or folder
    card = read_bundle_card(folder)
    run = load_run(folder)
    sha256 = read_card(folder)["weights_sha256"]
    if card.format == BUNDLE_FORMAT:
        require_sealed(folder, vouched={MODEL: sha256}, is_needed=True)
    if sha256 != card.weights_sha256:
        raise BundleError(
            f"{folder / BUNDLE}: must belong to the weights beside it, {sha256[:12]}…; it belongs to "
            f"{card.weights_sha256[:12]}…. Build the bundle again (`mule bundle RUN_DIR --out DIR`)."
        )
    run = _with_pulled_backbone(card, run)
    _require_backbone(folder, card, run.experiment.backbone.weights)
    remembered = None
    if (folder / MEMORY).exists():
        remembered = read_memory(folder / MEMORY, model=card.weights_sha256)
    seen = None
    if card.decides_by == SEEN_SCORE:
        seen = read_seen(folder / SEEN, weights_sha256=card.weights_sha256).following(remembered)
    with naming(folder / MEMORY):
        judge = Judge(
            run.pair_evidence,
            run.classes,
            remembered,
            tags=card.tags,
            seen=None if seen is None else seen.fitted,
        )
    return Bundle(
        folder=folder,
        card=card,
        model=seeing_model(run),
        needs=clip_needs(run.experiment),
        judge=judge,
        usual=_usual(folder, card, judge, run) if seen is None else usual_of(seen.fitted),
        seen=seen,
        eyes=None if seen is None else Eyes.of(run),
    )


def read_known_examples(folder: Path) -> dict[str, int]:
    """Return the actions of a bundle, and how many people showed each where it keeps them; its backbone is not needed."""
    card, names = read_bundle_card(folder), read_card(folder)["classes"]
    if card.decides_by == SEEN_SCORE:
        known = read_seen(folder / SEEN, weights_sha256=card.weights_sha256).known
        counts: list[int] = known.labels[:, : len(known.actions)].sum(dim=0).tolist()
        return dict(zip(known.actions, counts, strict=True))
    if (folder / MEMORY).exists():
        memory = read_memory(folder / MEMORY, model=card.weights_sha256).memory
        return dict(zip(memory.class_names, (memory.labels > 0).sum(dim=0).tolist(), strict=True))
    return dict.fromkeys(names, 0)


def cannot_follow_forgetting(memory_file: Path) -> bool:
    """Whether the calibration beside a memory has no labels, so that it cannot follow when an action is forgotten."""
    path = memory_file.parent / CALIBRATION
    try:
        return HELD_OUT_LABELS not in _read_tensors(path)[0]
    except (OSError, SafetensorError, ValueError):
        return False  # missing or damaged: whoever uses it gets the error


def clip_needs(experiment: Experiment) -> ClipNeeds:
    """Return the clips that the network of an experiment needs."""
    data, view = experiment.data, experiment.view
    is_tiny = experiment.backbone.name == TINY
    short_side_px = view.val_short_side_px
    if isinstance(data, StageData):
        num_frames = math.ceil(data.num_frames / data.stride_frames)
        shape = ClipShape(num_frames, data.stride_frames, num_slow_frames=num_frames)
        rate, short_side_px = Fraction(FRAME_RATE), short_side_px or min(data.rows, data.cols)
    else:
        shape = ClipShape(data.num_frames, data.stride_frames, num_slow_frames=data.num_frames)
        rate = frame_rate(data)
        if experiment.backbone.frozen:  # without a size in the experiment, kept maps have the card's
            short_side_px = short_side_px or find_card(experiment.backbone.name).clip.short_side_px
    return ClipNeeds(shape, rate, short_side_px, STRIDE if is_tiny else 1, normalisation(experiment))


def seeing_model(run: LoadedRun) -> MuleModel:
    """Return the network from pixels to evidence; one that was trained on kept maps gets its frozen backbone back."""
    if run.system.evidence == "dirichlet":
        raise WeightsError(
            f"to watch, a network must have evidence for and against each action; '{run.experiment.system}' shares one "
            "Dirichlet among all. Use mule, or any system with one logit per action (`mule models`)."
        )
    return run.model_on_pixels()


@dataclass(frozen=True)
class BundleContents:
    """What a bundle adds to the files of a run."""

    held_out: HeldOutOutputs
    remembered: Remembered | None = None
    thumbnails: Mapping[str, bytes] = field(default_factory=dict)
    seen: SeenModel | None = None
    """None where network and memory decide."""
    detector: Path | None = None
    """A detector to copy into the folder."""

    def write(self, folder: Path, *, weights_sha256: str) -> None:
        """Write them to a folder, for the run with these weights."""
        if self.remembered is not None:
            write_memory(folder / MEMORY, self.remembered)
        if self.seen is not None:
            write_seen(folder / SEEN, self.seen, weights_sha256=weights_sha256)
        if self.detector is not None:
            for part in (self.detector, *map(self.detector.with_suffix, DETECTOR_PARTS)):
                if part.is_file():
                    shutil.copyfile(part, folder / own_detector_name(part))
        if self.thumbnails:
            write_thumbnails(folder / THUMBNAILS, self.thumbnails)
        names = (*_TENSORS, *([] if self.held_out.labels is None else [HELD_OUT_LABELS]))
        tensors = {name: getattr(self.held_out, name) for name in names}
        about = {"format": CALIBRATION_FORMAT, "weights_sha256": weights_sha256}
        write_file(folder / CALIBRATION, weights_file(tensors, about))


def own_detector_name(file: Path) -> str:
    """Return the name of a detector that is copied into a bundle; its suffix says what runs it."""
    return f"{Path(DETECTOR).stem}{file.suffix.lower()}"


def is_own_detector(name: str) -> bool:
    """Whether a card recommends a detector in the bundle's folder."""
    return Path(name).stem == Path(DETECTOR).stem


def write_bundle(folder: Path, run_dir: Path, *, card: BundleCard, contents: BundleContents) -> Bundle:
    """Write a bundle of a finished run and read it; the folder, which must not exist yet, appears once it can be read.

    Raises:
        BundleError: the folder exists, or the run cannot be watched with.
        FolderInUseError: another process writes a bundle of this name.
        FileError: the disk is full, or the folder is not writable; nothing is left.
    """
    if folder.exists():
        raise BundleError(f"{folder}: must not exist yet; it does. Choose another name, or remove it.")
    with new_folder(folder) as parts:
        for name in RUN_FILES:
            shutil.copyfile(run_dir / name, parts / name)
        weights = experiment_of(run_dir).backbone.weights
        if card.backbone_sha256 is not None and weights is not None:
            _copy_backbone(weights, parts)
        contents.write(parts, weights_sha256=card.weights_sha256)
        write_file(parts / BUNDLE, card.model_dump_json(indent=2) + "\n")
        seal(parts, known={MODEL: card.weights_sha256})
        return replace(read_bundle(parts), folder=folder)


def _copy_backbone(weights: Path, parts: Path) -> None:
    """Copy the weights into the bundle, and name the copy in its experiment."""
    copy = f"{BACKBONE}{weights.suffix}"
    shutil.copyfile(weights, parts / copy)
    experiment = load_experiment(parts / EXPERIMENT, [f"backbone.weights={copy}"])
    write_file(parts / EXPERIMENT, experiment_toml(experiment))


def _with_pulled_backbone(card: BundleCard, run: LoadedRun) -> LoadedRun:
    """Return the run with the weights that its bundle's card refers to."""
    if card.backbone_card is None:
        return run
    at_hand(find_card(card.backbone_card))
    weights, _ = weights_on_disk(card.backbone_card, None)
    backbone = run.experiment.backbone.model_copy(update={"weights": weights})
    return run._replace(experiment=run.experiment.model_copy(update={"backbone": backbone}))


def _require_backbone(folder: Path, card: BundleCard, weights: Path | None) -> None:
    if card.backbone_sha256 is None:
        return
    if weights is None or not weights.is_file():
        raise BundleError(
            f"{folder / EXPERIMENT}: backbone.weights must name the file of the frozen backbone that {BUNDLE} vouches for; "
            f"{weights} does not exist. Correct the path in that file."
        )
    sha256 = sha256_while_unchanged(weights)
    if sha256 != card.backbone_sha256:
        raise BundleError(
            f"{weights}: must be the backbone that the bundle was made with, {card.backbone_sha256[:12]}…; it is "
            f"{sha256[:12]}…. Download it again (`mule weights pull`), or build the bundle again."
        )


def _usual(folder: Path, card: BundleCard, judge: Judge, run: LoadedRun) -> UsualNovelty:
    num_outputs = len(run.classes) * (1 if run.pair_evidence is None else 2)
    sizes = {"outputs": num_outputs, "classes": len(run.classes)}
    if judge.remembered is not None:
        sizes["whole"] = judge.remembered.memory.dim
    try:
        held_out = _held_out(folder, card, sizes)
        return usual_novelty(judge, held_out.still_known(run.classes, judge.remembered, tags=card.tags))
    except BundleError:
        raise
    except MuleError as error:
        raise BundleError(
            f"{folder / CALIBRATION}: must hold the calibration of the bundle: {str(error).rstrip('.')}. Build the bundle "
            "again."
        ) from None


def _held_out(folder: Path, card: BundleCard, sizes: Mapping[str, int]) -> HeldOutOutputs:
    path = folder / CALIBRATION
    try:
        tensors, about = _read_tensors(path)
        if about.get("format") != CALIBRATION_FORMAT or about.get("weights_sha256") != card.weights_sha256:
            raise BundleError(
                f"{path}: must have the format {CALIBRATION_FORMAT} and belong to the weights "
                f"{card.weights_sha256[:12]}…; it has {about.get('format')!r} and belongs to "
                f"{str(about.get('weights_sha256'))[:12]}…. Build the bundle again."
            )
        require_tensors(
            tensors, {**_PROMISED, **(_LABELS if HELD_OUT_LABELS in tensors else {})}, sizes=sizes
        )
        return HeldOutOutputs(*(tensors[name] for name in _TENSORS), labels=tensors.get(HELD_OUT_LABELS))
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
    return tensors, json_of(content[8 : 8 + length]).get("__metadata__", {})
