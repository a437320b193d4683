"""The typed experiment file: one experiment is one TOML file, complete apart from the defaults written here.

Rooms receive values. Only `cli` and `build` read the whole; training receives its part.
"""

import difflib
import json
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mule.core.errors import MuleError


class ConfigError(MuleError, ValueError):
    """An experiment file, or what was set on top of it, cannot be used; the message names the key."""


class Settings(BaseModel):
    """Frozen values; a key that nobody reads is an error."""

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
    """Where rendered clips are kept; without it, in `stage` of the user's cache folder."""
    split: Literal["A", "B", "C"] = "A"
    """Which actions are known."""
    seed: Seed = 0
    """Other seeds, other clips."""
    train_clips: Count = 2000
    val_clips: Count = 300
    bias: Share = 0.95
    """Share of training clips whose actors all do what is at home in one scene."""
    rows: Count = 96
    cols: Count = 128
    num_frames: Count = 32
    """Frames of a rendered clip."""
    stride_frames: Count = 2
    """The network sees every n-th of them."""


class TableData(Settings):
    """Videos, a table of actors and a split. Names of files are within `root`."""

    kind: Literal["table"]
    root: Path | None = None
    """Where the data lies. Say it with `--set data.root=DIR`; no experiment file should."""
    num_known: Count
    """Actions that the split teaches: the outputs of the network. Checked against the split."""
    actors: str = "actors.csv"
    labels_of: LabelsOf = "actors"
    """Who does what; or, where nobody said it, what is done in a clip: then its actors speak for it, and are trained and
    judged together."""
    objects: str | None = None
    """Without a table of objects there are none."""
    persons: str | None = None
    """A table of detected persons (objects of class person): in training, those that overlap an actor learn with it."""
    person_score: Share = 0.9
    """Least score of such a person."""
    videos: str = "videos"
    split: str = "split.toml"
    features: str = "features"
    """Where the maps of a frozen backbone are kept."""
    num_frames: Count = 32
    stride_frames: Count = 2
    frame_rate: str | None = None
    """Of the grid of times, such as "30" or "30000/1001"; without it each video's own."""
    val_views: Count = 1
    """Clips that cover a whole video in validation, where actors have no time of their own."""
    draws_evenly: bool = False
    """Whether clips with rare actions are drawn more often."""


class ViewSettings(Settings):
    """What the network sees of a clip: by chance in training, the whole frame in validation."""

    short_sides_px: tuple[Count, Count] | None = None
    """Training: the short side is drawn between these; without them frames stay in their size."""
    crop_px: Count | None = None
    """Training: side of the square that is cut out; without it the whole frame is seen."""
    val_short_side_px: Count | None = None
    flip_probability: Share = 0.5
    box_jitter: Annotated[float, Field(ge=0, lt=0.5)] = 0.075
    brightness: NotNegative = 0.0
    contrast: NotNegative = 0.0
    saturation: NotNegative = 0.0
    other_background: Share = 0.0
    """Training: share of clips that are shown before what stands still in another clip; not on kept maps."""
    undone_motion: Share = 0.0
    """Training: share of clips that are held still or shown out of order, as examples of nothing taught; not on kept maps."""


class BackboneSettings(Settings):
    """What sees."""

    name: str = "tiny"
    """A card of `mule weights list`, or `tiny`, the small SlowFast of the rendered benchmark."""
    weights: Path | None = None
    """A file of weights for the card, or the folder of an earlier run."""
    from_chance: bool = False
    """Whether training may begin without weights; the tiny backbone always may."""
    options: dict[str, bool | int] = {}
    """Arguments of the backbone that differ from its card's, such as res5_stride."""
    norm: Literal["batch", "frozen", "synchronised"] = "batch"
    """Batch statistics: of each process, those of the weights for good, or of all processes (GPUs alone have it)."""
    frozen: bool = False
    """Whether the backbone is not trained: its maps are computed once and kept."""
    map_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of a frozen backbone: the share of its channels that are left out of each training clip."""
    runtime: Literal["torch", "openvino"] = "torch"
    """What computes the maps of a frozen backbone; OpenVINO (an extra) is two to three times as fast on a CPU."""


class DualSettings(Settings):
    """The debiasing constraint g(θ) ≤ γ and its multiplier λ."""

    tolerance: NotNegative = 1e-3
    """γ: the largest HSIC that counts as debiased."""
    step_size: NotNegative = 10.0
    """η₂: the step of the multiplier's ascent."""
    damping: NotNegative = 1e-4
    """δ: how strongly the multiplier is drawn back to zero."""
    initial_multiplier: NotNegative = 0.0
    """λ⁽⁰⁾."""


class ObjectiveSettings(Settings):
    """What is minimised, beyond what the system itself says."""

    inner_steps: Annotated[int, Field(ge=0)] = 1
    """m: optimiser steps on each mini-batch, averaged; 0 is one step with the multiplier held fixed."""
    measures_with: Literal["own_pass", "next_batch"] = "own_pass"
    """What measures the constraint that raises the multiplier: a forward pass of its own at the end of each mini-batch, as
    printed, or the first pass of the next one, at no cost."""
    dual: DualSettings = DualSettings()


class OptimizerSettings(Settings):
    """How parameters move."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: Positive
    """The learning rate after warm-up."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """SGD only; Nesterov's, as published."""
    weight_decay: NotNegative = 1e-7
    clip_norm: Positive | None = None
    """The largest length of the gradient; longer ones are shortened. Without it nothing is."""


class ScheduleSettings(Settings):
    """The learning rate over time, in epochs; fractions of an epoch are fine."""

    kind: Literal["constant", "step", "cosine"] = "constant"
    warmup_epochs: NotNegative = 0.0
    """The rate rises linearly for so long."""
    warmup_lr: Positive | None = None
    """Where it rises from; without it a hundredth of the rate."""
    milestones: tuple[Positive, ...] = ()
    """Step only: epochs after which the rate is multiplied by `factor`."""
    factor: Positive = 0.1
    final_share: Share = 0.0
    """Cosine only: the share of the rate that is left at the end."""


class TrainingSettings(Settings):
    """How long, how much at once, and what is kept."""

    epochs: Count
    batch_clips: Count = 32
    """Clips of a batch, on all processes together."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What networks compute in. bfloat16 is used on GPUs that multiply in it; losses stay in float32."""
    average_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of an exponential moving average of the weights, which is then what is validated and kept."""
    patience_epochs: Count | None = None
    """Stop after so many epochs without a better validation; without it training goes to the end."""
    validate_every_epochs: Count = 1
    checkpoint_every_steps: Count = 200
    """Checkpoints are also written after every epoch."""
    log_every_steps: Count = 10
    tensorboard: bool = True
    """Whether event files for TensorBoard are written beside the other curves."""
    keeps: Literal["best", "last"] = "best"
    """Which weights become the run's: those best in validation, or the last."""


class LoadingSettings(Settings):
    """Who reads clips. The batches do not depend on it."""

    workers: Annotated[int, Field(ge=0)] = 1
    prefetch_batches: Count = 2
    unreadable_share: Share = 0.01
    """Of an epoch's clips: if more cannot be read, training stops."""


class Experiment(Settings):
    """One experiment, whole."""

    seed: Seed = 10
    system: str
    """A recogniser of `mule models`: mule, mule-literal, slowfast, dear, …"""
    sizes: Literal["published", "medium", "small", "tiny"] = "published"
    """How large the parts right of the backbone are."""
    relations: Literal["grid", "factored"] | None = None
    """The form of actor-context-object relations: a map for every pair, as printed, or one for every actor and object.
    Without it the system's own; systems that have none are as they are."""
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
        ConfigError: the file cannot be read, or some keys or values are wrong; all of them are named.
    """
    try:
        content = tomllib.loads(experiment_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        names = ", ".join(sorted(each.stem for each in PACKAGED.glob("*.toml")))
        raise ConfigError(
            f"{path}: must be an experiment in TOML that can be read; {error}. Give a file, or one of {names}."
        ) from None
    for override in overrides:
        _set(content, override)
    return experiment_from(content, source=path.name)


def experiment_from(content: Mapping[str, Any], *, source: str) -> Experiment:
    """The experiment that plain values describe; `source` is what messages call it."""
    try:
        return Experiment.model_validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        problems = "\n  ".join(_told(problem) for problem in error.errors())
        raise ConfigError(f"{source}: every key must be known and of its type.\n  {problems}") from None


def experiment_toml(experiment: Experiment) -> str:
    """The whole experiment as TOML, defaults written out; `load_experiment` gives the same one back."""
    return "\n".join(_tables(experiment.model_dump(mode="json", exclude_none=True), ())).lstrip() + "\n"


def differences(first: Experiment, second: Experiment) -> dict[str, tuple[Any, Any]]:
    """What two experiments disagree about, by dotted key; where data lies and who reads it do not count."""
    pair = [dict(_leaves(each.model_dump(mode="json"), ())) for each in (first, second)]
    keys = [key for key in {**pair[0], **pair[1]} if key != "data.root" and not key.startswith("loading.")]
    return {key: values for key in keys if (values := (pair[0].get(key), pair[1].get(key)))[0] != values[1]}


def _set(content: dict[str, Any], override: str) -> None:
    """Sets one key; without a value the key goes back to its default."""
    key, is_set, text = override.partition("=")
    *tables, name = key.strip().split(".")
    if not is_set or not all((*tables, name)):
        raise ConfigError(f"what is set must read like optimizer.lr=1e-3; got {override!r}.")
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
        return text  # a bare word or a path; the type of the key decides whether it may be one


def _told(problem: Any) -> str:  # noqa: ANN401 - pydantic's own record
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
    """The keys of the table at a place; a tag stands for the kind of data it chooses."""
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


def _tables(content: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table: its own values first, then the tables within it."""
    values = {key: value for key, value in content.items() if not isinstance(value, dict)}
    if path and (values or not content):
        yield f"\n[{'.'.join(path)}]"
    yield from (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _tables(value, (*path, key))


def _leaves(content: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield ".".join((*path, key)), value
