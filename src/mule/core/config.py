"""The typed experiment file: one experiment is one TOML file, complete apart from the defaults written here.

Rooms receive plain values. Only `cli` and `training.build` read a whole experiment; training receives its part.
"""

import difflib
import json
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mule.core.defaults import (
    BOX_JITTER,
    DUAL_DAMPING,
    DUAL_STEP_SIZE,
    FLIP_PROBABILITY,
    HSIC_TOLERANCE,
    INNER_STEPS,
    MILESTONE_FACTOR,
    PREFETCH_BATCHES,
    READ_WORKERS,
    UNREADABLE_SHARE,
)
from mule.core.errors import MuleError
from mule.core.files import os_reason


class ConfigError(MuleError, ValueError):
    """An experiment file, or an override of it, cannot be used; the message names the key."""


class Settings(BaseModel):
    """Frozen values; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
LabelsOf = Literal["actors", "clips"]


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
    rows: Count = 96
    cols: Count = 128
    num_frames: Count = 32
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
    """Table of detected persons (objects of class person). In training, those that overlap an actor get its labels."""
    person_score: Share = 0.9
    """Smallest score of a detected person."""
    videos: str = "videos"
    split: str = "split.toml"
    features: str = "features"
    """Folder of the maps of a frozen backbone."""
    num_frames: Count = 32
    stride_frames: Count = 2
    frame_rate: str | None = None
    """Frames per second of the grid of times, such as "30" or "30000/1001"; the default is each video's own rate."""
    val_views: Count = 1
    """Clips per video in validation, where actors have no time of their own."""
    draws_evenly: bool = False
    """Whether clips with rare actions are drawn more often."""


class ViewSettings(Settings):
    """What the network sees of a clip: a random view in training, the whole frame in validation."""

    short_sides_px: tuple[Count, Count] | None = None
    """Training: the short side is drawn between these; the default keeps the size of frames."""
    crop_px: Count | None = None
    """Training: side of a random square crop; the default keeps the whole frame."""
    val_short_side_px: Count | None = None
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
    options: dict[str, bool | int] = {}
    """Arguments of the backbone that override its card, such as res5_stride."""
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


class ObjectiveSettings(Settings):
    """How the system's objective is minimised."""

    inner_steps: Annotated[int, Field(ge=0)] = INNER_STEPS
    """m: optimiser steps on each mini-batch, averaged; 0 is one step with a fixed multiplier."""
    measures_with: Literal["own_pass", "next_batch"] = "own_pass"
    """Where the constraint that raises the multiplier is measured: in an extra forward pass after each mini-batch, as in
    the paper, or in the first pass of the next mini-batch, at no cost."""
    dual: DualSettings = DualSettings()


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


class TrainingSettings(Settings):
    """Length of the training, batch size, and what to keep."""

    epochs: Count
    batch_clips: Count = 32
    """Clips per batch, all processes together."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the network. bfloat16 is used on GPUs that support it; losses stay in float32."""
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
    """Which weights to keep: the best in validation, or the last."""


class LoadingSettings(Settings):
    """How clips are read. The batches do not depend on it."""

    workers: Annotated[int, Field(ge=0)] = READ_WORKERS
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
    sizes: Literal["published", "medium", "small", "tiny"] = "published"
    """Sizes of everything after the backbone."""
    relations: Literal["grid", "factored"] | None = None
    """The form of actor-context-object relations: a map for every pair, as in the paper, or one for every actor and
    object. The default is the system's own form; systems without relations ignore it."""
    data: Annotated[StageData | TableData, Field(discriminator="kind")]
    view: ViewSettings = ViewSettings()
    backbone: BackboneSettings = BackboneSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    optimizer: OptimizerSettings
    schedule: ScheduleSettings = ScheduleSettings()
    training: TrainingSettings
    loading: LoadingSettings = LoadingSettings()


PACKAGED = Path(__file__).resolve().parents[1] / "experiments"
"""The experiments that come with the package."""


def experiment_file(name: Path) -> Path:
    """Return the file of an experiment: the packaged one for a bare name such as `stage`, else the path itself."""
    packaged = PACKAGED / f"{name}.toml"
    is_bare = len(name.parts) == 1 and not name.suffix and not name.is_file()
    return packaged if is_bare and packaged.is_file() else name


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Load an experiment from a file, or by the name of a packaged one, with `a.b=c` set on top of it.

    Raises:
        ConfigError: the file cannot be read, or keys or values are wrong; the message names all of them.
    """
    try:
        content = tomllib.loads(experiment_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        names = ", ".join(sorted(each.stem for each in PACKAGED.glob("*.toml")))
        raise ConfigError(
            f"{path}: must be an experiment in TOML that can be read; {os_reason(error)}. Give a file, or one of {names}."
        ) from None
    for override in overrides:
        _set(content, override)
    return experiment_from(content, source=path.name)


def experiment_from(content: Mapping[str, Any], *, source: str) -> Experiment:
    """Return the experiment that plain values describe; messages call it `source`."""
    try:
        return Experiment.model_validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        problems = "\n  ".join(_explained(problem) for problem in error.errors())
        raise ConfigError(f"{source}: every key must be known and of its type.\n  {problems}") from None


def experiment_toml(experiment: Experiment) -> str:
    """Return the whole experiment as TOML, defaults included; `load_experiment` reads the same one back."""
    return tomli_w.dumps(experiment.model_dump(mode="json", exclude_none=True))


def differences(first: Experiment, second: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two experiments differ, by dotted key.

    The data's folder and the loading settings are ignored, and so is `data.num_known` where one of them leaves it out.
    """
    pair = [dict(_leaves(each.model_dump(mode="json"), ())) for each in (first, second)]
    keys = [key for key in {**pair[0], **pair[1]} if key != "data.root" and not key.startswith("loading.")]
    both = {key: (pair[0].get(key), pair[1].get(key)) for key in keys}
    if None in both.get("data.num_known", ()):
        del both["data.num_known"]
    return {key: (old, new) for key, (old, new) in both.items() if old != new}


def _set(content: dict[str, Any], override: str) -> None:
    """Set one key; without a value the key returns to its default."""
    key, is_set, text = override.partition("=")
    *tables, name = key.strip().split(".")
    if not is_set or not all((*tables, name)):
        raise ConfigError(f"--set must look like optimizer.lr=1e-3; got {override!r}.")
    for table in tables:
        within: Any = content.setdefault(table, {})
        if not isinstance(within, dict):
            raise ConfigError(f"--set {override}: {table!r} is a value, not a table of settings.")
        content = within
    if text.strip():
        content[name] = _value(text.strip())
    else:
        content.pop(name, None)


def _value(text: str) -> Any:  # noqa: ANN401 - whatever TOML has
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a bare word or a path; the type of the key decides whether that is allowed


def _explained(problem: Any) -> str:  # noqa: ANN401 - pydantic's own record
    *path, key = problem["loc"] or ("",)
    place = [str(part) for part in path if part not in ("stage", "table")]
    table = f"[{'.'.join(place)}]: " if place else ""
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(key), _known_keys(problem["loc"][:-1]), n=1, cutoff=0.5)
        return f"{table}unknown key {str(key)!r}." + (f" Did you mean {near[0]!r}?" if near else "")
    if problem["type"] == "missing":
        return f"{table}{key!r} must be given."
    return f"{table}{key} = {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}."


def _known_keys(path: Sequence[str | int]) -> list[str]:
    """Return the keys of the table at a path; a tag selects the kind of data."""
    model: type[BaseModel] = Experiment
    for part in path:
        models = _models_within(model, str(part))
        if models:
            model = models[0]
    return list(model.model_fields)


def _models_within(model: type[BaseModel], part: str) -> list[type[BaseModel]]:
    chosen = {"stage": StageData, "table": TableData}.get(part)
    if chosen is not None:
        return [chosen]
    field = model.model_fields.get(part)
    return [] if field is None else list(_models_of(field.annotation))


def _models_of(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - an annotation
    if get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _models_of(each)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def _leaves(content: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield ".".join((*path, key)), value
