"""The settings of an experiment: every key of its file, with type, default and meaning.

Rooms receive plain values. Only `cli` and `training.build` read a whole experiment; training receives its part.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from mule.core.defaults import (
    BOX_JITTER,
    DUAL_DAMPING,
    DUAL_STEP_SIZE,
    FLIP_PROBABILITY,
    HSIC_TOLERANCE,
    INNER_STEPS,
    MILESTONE_FACTOR,
    PAPER_ACTOR_SCORE,
    PREFETCH_BATCHES,
    READ_WORKERS,
    UNREADABLE_SHARE,
)

LONGEST_NAME_BYTES = 255
"""Bytes of the name of a file or folder: that of common file systems."""
MOST_WORKERS = 256
"""Processes that read clips ahead."""
MOST_CLIP_FRAMES = 1024
"""Frames of a clip."""
LARGEST_SIDE_PX = 8192
"""Rows or columns that frames may be scaled to."""


class Settings(BaseModel):
    """Frozen values; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _require_nameable(cls, value: object) -> object:
        """Refuse text that no system takes as a name; it would fail where nobody expects it."""
        if isinstance(value, str | Path) and "\0" in str(value):
            raise ValueError("Text must not contain the character NUL")
        longest = (
            max((len(os.fsencode(part)) for part in value.parts), default=0) if isinstance(value, Path) else 0
        )
        if longest > LONGEST_NAME_BYTES:
            raise ValueError(
                f"Every name in a path must have at most {LONGEST_NAME_BYTES} bytes; one has {longest}"
            )
        return value


Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
ClipFrames = Annotated[int, Field(ge=1, le=MOST_CLIP_FRAMES)]
SidePx = Annotated[int, Field(ge=1, le=LARGEST_SIDE_PX)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
LabelsOf = Literal["actors", "clips"]


def _word_of(value: object) -> object:
    """Return the word true for the value true: `--set data.test_boxes=true` reads it as TOML."""
    return "true" if value is True else value


class StageData(Settings):
    """Rendered clips of the benchmark."""

    kind: Literal["stage"]
    root: Path | None = None
    """Folder of rendered clips; the default is `stage` in the user's cache folder."""
    split: Literal["A", "B", "C"] = "A"
    """The class split: which actions are known."""
    seed: Seed = 0
    """Another seed renders other clips."""
    train_clips: Count = 2000
    val_clips: Count = 300
    bias: Share = 0.95
    """Share of training clips whose actors all do actions typical of their scene."""
    rows: SidePx = 96
    cols: SidePx = 128
    num_frames: ClipFrames = 32
    """Frames of a rendered clip."""
    stride_frames: Count = 2
    """The network sees every n-th frame."""


class TableData(Settings):
    """Videos, a table of actors and a split. File names are relative to `root`."""

    kind: Literal["table"]
    root: Path | None = None
    """Folder of the data. Set it with `--set data.root=DIR` rather than in the experiment file."""
    num_known: Count | None = None
    """Number of actions that the split teaches. By default the split decides; if given, it is checked."""
    actors: str = "actors.csv"
    labels_of: LabelsOf = "actors"
    """Whether labels are of actors or of whole clips. The actors of a labelled clip are trained and judged together."""
    objects: str | None = None
    """Table of objects; by default there are none."""
    persons: str | None = None
    """Table of detected persons (objects of class person), or a published AVA file of them. In training, those that
    overlap an actor get its labels; where labels are of clips, they are the actors of their clip."""
    person_score: Share = 0.9
    """Smallest score of a detected person in training."""
    test_boxes: Annotated[Literal["true", "detected"], BeforeValidator(_word_of)] = "true"
    """What validation and test judge: the actors of the table, or detected persons with the truth of their match."""
    test_person_score: Share = PAPER_ACTOR_SCORE
    """Smallest score of a detected person in validation and test."""
    complete: bool = False
    """Whether the table names what everybody does at its times: then people without a row or an action there do nothing, and
    a bundle learns from them who is idle."""
    videos: str = "videos"
    split: str = "split.toml"
    train_novel: Literal["drop", "unlabel"] | None = None
    """Whether training actors with a novel action are dropped, or lose that label only. The default is what the split says."""
    features: str = "features"
    """Folder of the maps of a frozen backbone."""
    num_frames: ClipFrames = 32
    stride_frames: Count = 2
    frame_rate: str | None = None
    """Frames per second of the grid of times, such as "30" or "30000/1001"; the default is each video's own rate."""
    val_views: Count = 1
    """Clips per video in validation, where actors have no time of their own."""
    test_views: Count | None = None
    """The same in test; by default as many as in validation. Evidence is the mean over the clips of a video."""
    test_crops: Count | None = None
    """Squares of each such clip in test, evenly from one end of the long side to the other (SlowFast takes 3); the default
    shows the whole frame. The actors of a square are the persons seen in it or, without any, the whole square."""
    draws_evenly: bool = False
    """Whether clips with rare actions are drawn more often."""
    person_labels: Literal["best", "all"] = "best"
    """Whose labels a detected person gets: the actor's that it overlaps most, or all actors' that it overlaps enough."""


class ViewSettings(Settings):
    """What the network sees of a clip: a random view in training, the whole frame in validation."""

    short_sides_px: tuple[SidePx, SidePx] | None = None
    """Training: the short side is drawn between these; the default keeps the size of frames."""
    crop_px: SidePx | None = None
    """Training: side of a random square crop; the default keeps the whole frame."""
    val_short_side_px: SidePx | None = None
    """Validation: the short side of frames; the default keeps their size."""
    flip_probability: Share = FLIP_PROBABILITY
    box_jitter: Annotated[float, Field(ge=0, lt=0.5)] = BOX_JITTER
    brightness: NotNegative = 0.0
    contrast: NotNegative = 0.0
    saturation: NotNegative = 0.0
    other_background: Share = 0.0
    """Training: share of clips that get the static background of another clip; not with kept maps."""
    undone_motion: Share = 0.0
    """Training: share of clips frozen or shuffled in time, as examples without any action; not with kept maps."""


class BackboneSettings(Settings):
    """The backbone: the network that turns pixels into feature maps."""

    name: str = "tiny"
    """A card of `mule weights list`, or `tiny`, the small SlowFast of the rendered benchmark."""
    weights: Path | None = None
    """A file of weights for the card, or the folder of an earlier run."""
    from_chance: bool = False
    """Whether training may start from random weights; the tiny backbone always may."""
    options: dict[str, bool | int | float | tuple[float, ...]] = {}
    """Arguments of the backbone that override its card, such as res5_stride or factors."""
    norm: Literal["batch", "frozen", "synchronised"] = "batch"
    """Statistics of batch norms: of each process's batch, frozen as loaded, or of all processes (GPUs only)."""
    frozen: bool = False
    """Whether the backbone stays untrained; its maps are then computed once and kept."""
    map_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout probability of the channels of kept maps, in training."""
    runtime: Literal["torch", "openvino"] = "torch"
    """Runtime for the maps of a frozen backbone; OpenVINO (an extra) is two to three times as fast on a CPU."""


class DualSettings(Settings):
    """The debiasing constraint g(θ) ≤ γ and its multiplier λ."""

    tolerance: NotNegative = HSIC_TOLERANCE
    """γ: the largest HSIC that counts as debiased."""
    step_size: NotNegative = DUAL_STEP_SIZE
    """η₂: the step size of the multiplier's ascent."""
    damping: NotNegative = DUAL_DAMPING
    """δ: how strongly the multiplier is drawn back to zero."""
    initial_multiplier: NotNegative = 0.0
    """λ⁽⁰⁾: the multiplier at the start."""


class EvidenceSettings(Settings):
    """The head that turns features into evidence; a key that is left out keeps the system's own statement."""

    parameterisation: Literal["tied", "independent"] | None = None
    """One signed output per action, or two: one for and one against it."""
    function: Literal["exp", "softplus", "relu", "elu"] | None = None
    """The function that turns outputs into evidence; elu is ELU + 1."""
    bias: bool | None = None
    """Whether the last layer has a bias."""
    base_rate: Share | None = None
    """a of Eq. 1: how much of the prior is taken off the evidence in the Belief score. The paper prints 1."""


class PoolingSettings(Settings):
    """RoIAlign of actors and objects; a key that is left out keeps what `sizes` says."""

    samples: Annotated[int, Field(ge=0)] | None = None
    """Samples along each side of a bin; 0 uses one per cell."""
    aligned: bool | None = None
    """Whether cell centres are at half a cell."""


class ObjectiveSettings(Settings):
    """How the system's objective is minimised."""

    inner_steps: Annotated[int, Field(ge=0)] = INNER_STEPS
    """m: optimiser steps on each mini-batch, averaged; 0 is one step with a fixed multiplier."""
    measures_with: Literal["own_pass", "next_batch"] = "own_pass"
    """Where the constraint that raises the multiplier is measured: in an extra forward pass after each mini-batch, as in
    the paper, or in the first pass of the next mini-batch, at no cost."""
    dual: DualSettings = DualSettings()
    reduction: Literal["mean", "sum", "class_mean"] | None = None
    """The loss: summed over classes with the mean over actors, summed over both, or the mean over both. By default the
    system's own."""
    estimator: Literal["unbiased", "biased", "cka", "debiased_cka"] | None = None
    """How HSIC is estimated; by default as the system states."""
    bandwidth: Literal["median", "root_dim"] | Positive | None = None
    """σ of HSIC's kernels: by the median distance, the root of the dimension, or a number. By default the system's own."""
    within_clips: bool | None = None
    """Whether HSIC also compares actors of one clip; by default as the system states."""


class OptimizerSettings(Settings):
    """The optimiser."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: Positive
    """The learning rate after warm-up."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """SGD only; Nesterov momentum, as published."""
    weight_decay: NotNegative = 1e-7
    clip_norm: Positive | None = None
    """Clip gradients to this norm; by default they are not clipped."""


class ScheduleSettings(Settings):
    """The learning rate over time, in epochs; fractions are allowed."""

    kind: Literal["constant", "step", "cosine"] = "constant"
    warmup_epochs: NotNegative = 0.0
    """Length of the linear warm-up."""
    warmup_lr: Positive | None = None
    """Rate at the start of the warm-up; the default is a hundredth of the rate."""
    milestones: tuple[Positive, ...] = ()
    """Step only: epochs after which the rate is multiplied by `factor`."""
    factor: Positive = MILESTONE_FACTOR
    final_share: Share = 0.0
    """Cosine only: share of the rate that is left at the end."""


PrecisionName = Literal["float32", "bfloat16", "float16"]


class TrainingSettings(Settings):
    """Length of the training, batch size, and what to keep."""

    epochs: Count
    batch_clips: Count = 32
    """Clips per batch, all processes together."""
    accumulate_batches: Count = 1
    """Parts in which each process computes its share of a batch, one after the other, to save memory. Loss and constraint
    are those of the whole batch; the price is a second forward pass of each part."""
    precision: PrecisionName = "float32"
    """Precision of the network on a GPU; losses, HSIC and evidence stay in float32, and so does everything on a CPU. A GPU
    without bfloat16 uses float16 instead, which scales gradients and leaves out steps in which they overflow."""
    compile: bool = False
    """Whether torch compiles the backbone, which pays in long trainings on a GPU."""
    deterministic: bool = True
    """Whether torch uses algorithms that give the same bits every time; on a GPU it warns where it has none."""
    average_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an exponential moving average of the weights, which is then validated and kept."""
    patience_epochs: Count | None = None
    """Stop after this many epochs without a better validation; by default training runs to the end."""
    validate_every_epochs: Count = 1
    checkpoint_every_steps: Count = 200
    """Steps between checkpoints; one is also written after every epoch."""
    log_every_steps: Count = 10
    tensorboard: bool = True
    """Whether to write TensorBoard event files besides the other curves."""
    keeps: Literal["best", "last"] = "best"
    """Which weights to keep: the best in validation, the later of equally good ones, or the last."""


class LoadingSettings(Settings):
    """How clips are read. The batches do not depend on it."""

    workers: Annotated[int, Field(ge=0, le=MOST_WORKERS)] = READ_WORKERS
    """Processes that read ahead; 0 reads in the training process."""
    prefetch_batches: Count = PREFETCH_BATCHES
    """Batches that each worker reads ahead."""
    unreadable_share: Share = UNREADABLE_SHARE
    """Training stops if more than this share of an epoch's clips cannot be read."""


class Experiment(Settings):
    """One complete experiment."""

    seed: Seed = 10
    system: str
    """A system of `mule models`: mule, mule-literal, slowfast, dear, …"""
    sizes: Literal["published", "acar-r101", "medium", "small", "tiny"] = "published"
    """Sizes of everything after the backbone; acar-r101 are those of ACAR with R-101."""
    relations: Literal["grid", "factored"] | None = None
    """The form of actor-context-object relations: a map for every pair, as in the paper, or one for every actor and
    object. The default is the system's own form; systems without relations ignore it."""
    data: Annotated[StageData | TableData, Field(discriminator="kind")]
    view: ViewSettings = ViewSettings()
    backbone: BackboneSettings = BackboneSettings()
    pooling: PoolingSettings = PoolingSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    optimizer: OptimizerSettings
    schedule: ScheduleSettings = ScheduleSettings()
    training: TrainingSettings
    loading: LoadingSettings = LoadingSettings()
