"""From an experiment to what it speaks of: model, data, optimiser, run. The only place that knows both."""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mule.core.config import (
    BackboneSettings,
    ConfigError,
    Experiment,
    OptimizerSettings,
    ScheduleSettings,
    TableData,
    differences,
    experiment_toml,
    load_experiment,
)
from mule.core.errors import FileError, WeightsError
from mule.core.processes import is_first, num_ranks, processes, wait_for_all
from mule.core.records import Evidence
from mule.features.backbones.tiny import TinySlowFast
from mule.features.weights.cards import NORMALISATIONS, Backbone, build_backbone, find_card
from mule.features.weights.loading import load_weights
from mule.model import FrozenBackboneMaps, KeptMaps, MuleModel
from mule.objective.primal_dual import Constraint
from mule.systems.catalogue import SIZES, System, find_system
from mule.training.checkpoint import CheckpointError, seed_chance
from mule.training.data import RunData, build_data, known_classes, labels_of
from mule.training.kept_maps import KeptBatches
from mule.training.loop import TrainingRun, TrainingStopped
from mule.training.maps import build_kept_data
from mule.training.monitor import Watched
from mule.training.run_folder import CARD, CARD_FORMAT, EXPERIMENT, MODEL, RunFolder
from mule.training.step import Listener, Parts, Progress, Schedule, mixed_precision, trained_parameters
from mule.video.transforms import SLOWFAST, Normalisation

TINY = "tiny"
CHANGEABLE = ("optimizer.lr", "optimizer.clip_norm", "schedule.", "training.")
FIXED = ("training.batch_clips", "training.average_decay", "training.precision")
"""Of an experiment that is resumed: what may be set anew, and what of it may not."""
_WARMUP_SHARE = 0.01


class LoadedRun(NamedTuple):
    """A trained recogniser, in evaluation mode, the experiment it comes from, and the actions it knows."""

    model: MuleModel
    experiment: Experiment
    classes: tuple[str, ...]

    @property
    def system(self) -> System:
        """What the recogniser states about itself."""
        return find_system(self.experiment.system)

    @property
    def pair_evidence(self) -> Callable[[Tensor], Evidence] | None:
        """How two outputs per action become evidence; None where an action has one logit."""
        return self.system.pair_evidence(cast(nn.Module, self.model.decide))

    def model_on_pixels(self) -> MuleModel:
        """Return the network from pixels to evidence; one trained on kept maps gets its frozen backbone back.

        Raises:
            WeightsError: the backbone's weights are missing or do not fit.
        """
        if not self.experiment.backbone.frozen:
            return self.model
        _, backbone = build_networks(self.experiment)
        initialise(backbone, self.experiment)
        return MuleModel(FrozenBackboneMaps(backbone, self.model.backbone), self.model.decide).eval()


def run_experiment(
    experiment: Experiment, run_dir: Path, *, listener: Listener, resumes: bool = False
) -> Progress:
    """Trains what an experiment describes, in a folder of its own; under `torchrun`, on all processes together.

    Raises:
        ConfigError: the folder holds a run and it is not to be resumed, or it is another experiment's.
        TrainingStopped: training cannot go on; the message says what is safe and what to do.
    """
    folder = RunFolder(run_dir)
    with processes() as device:
        changed = _require_same_run(experiment, folder, resumes=resumes)
        for key, (old, new) in changed.items():
            listener.noted(f"{key} was {old} and is {new} from here on")
        wait_for_all()
        parts, data = build_parts(experiment, device=device, listener=listener)
        facts = {
            "experiment": experiment.model_dump(mode="json"),
            "data_digests": dict(data.digests),
            "num_classes": len(data.classes),
            "num_parameters": sum(p.numel() for p in parts.model.parameters()),
            "num_processes": num_ranks(),
        }
        if is_first():
            folder.begin(experiment_toml(experiment), facts)
        return _trained(experiment, parts, data, folder=folder, listener=listener)


def _trained(
    experiment: Experiment, parts: Parts, data: RunData, *, folder: RunFolder, listener: Listener
) -> Progress:
    run = TrainingRun(parts, experiment.training, folder=folder, listener=listener)
    try:
        progress = run.train()
    except TrainingStopped as error:
        if is_first():
            with suppress(FileError, CheckpointError):  # the disk may be full
                folder.update(status="stopped", reason=str(error), session=run.timings())
        raise
    if is_first():
        card = {
            "system": experiment.system,
            "classes": list(data.classes),
            "step": progress.best_step if experiment.training.keeps == "best" else progress.step,
            "validation_mean_ap": progress.best_mean_ap,
            "backbone": experiment.backbone.name,
            "data_digests": dict(data.digests),
            "normalisation": asdict(normalisation(experiment)),
        }
        folder.write_model(parts.model, card)
        folder.update(
            status="finished",
            progress=asdict(progress),
            warnings=run.monitor.said,
            session=run.timings(),
        )
    wait_for_all()
    return progress


def build_parts(experiment: Experiment, *, device: torch.device, listener: Listener) -> tuple[Parts, RunData]:
    """All that a training needs, on this process: the data, and what learns from it."""
    settings, system = experiment.training, find_system(experiment.system)
    seed_chance(experiment.seed)
    model, backbone = build_networks(experiment)
    if not (experiment.backbone.frozen and isinstance(experiment.data, TableData)):
        initialise(backbone, experiment)  # else it is loaded when a map is missing, and most often none is
    pixels = normalisation(experiment)
    data = (
        build_kept_data(experiment, backbone, normalisation=pixels, noted=listener.noted)
        if experiment.backbone.frozen
        else build_data(experiment, normalisation=pixels, noted=listener.noted)
    )
    if isinstance(model.backbone, KeptMaps) and isinstance(data.train, KeptBatches):
        model.backbone.standardise(*data.train.channel_statistics())
    model = _synchronised(model, experiment, device).to(device)
    precision, why_not = (None, "") if settings.precision == "float32" else mixed_precision(device)
    if why_not:
        listener.noted(why_not)
    optimizer = build_optimizer(model, experiment.optimizer)
    parts = Parts(
        model=model,
        objective=system.objective,
        constraints=build_constraints(system, experiment),
        optimizer=optimizer,
        schedule=build_schedule(
            experiment.schedule,
            lr=experiment.optimizer.lr,
            epochs=settings.epochs,
            epoch_steps=data.train.sampler.num_batches,
        ),
        train=data.train,
        val=data.val,
        watched=Watched(
            constraints=build_constraints(system, experiment),
            learns_evidence=system.learns_evidence,
            outputs_can_die=system.outputs_can_die,
        ),
        device=device,
        seed=experiment.seed,
        inner_steps=experiment.objective.inner_steps,
        measures_with=experiment.objective.measures_with,
        clip_norm=experiment.optimizer.clip_norm,
        freezes_norms=experiment.backbone.norm == "frozen",
        precision=precision,
        labels_of=labels_of(experiment),
    )
    return parts, data


def build_model(experiment: Experiment) -> MuleModel:
    """The network of an experiment, with weights of chance; on the meta device it costs nothing."""
    return build_networks(experiment)[0]


def build_networks(experiment: Experiment) -> tuple[MuleModel, Backbone | TinySlowFast]:
    """What is trained, and the backbone, which is no part of it where it is frozen."""
    settings, num_classes = experiment.backbone, known_classes(experiment)
    backbone = _backbone(settings)
    channels = backbone.channels
    sizes = replace(SIZES[experiment.sizes](channels, num_classes), aco_r=experiment.relations)
    system = find_system(experiment.system).build(sizes)
    kept = KeptMaps(backbone.stride, channels, dropout=settings.map_dropout)
    return MuleModel(kept if settings.frozen else backbone, system), backbone


def _backbone(settings: BackboneSettings) -> Backbone | TinySlowFast:
    options: dict[str, Any] = dict(settings.options)
    try:
        if settings.name == TINY:
            return TinySlowFast(**options)
        return build_backbone(find_card(settings.name), **options)
    except TypeError as error:
        raise ConfigError(
            f"backbone.options must be arguments of {settings.name}'s backbone; {error}."
        ) from None


def initialise(backbone: nn.Module, experiment: Experiment) -> None:
    """Puts published weights, or those of an earlier run, into the backbone; the tiny one may do without.

    Raises:
        WeightsError: the weights do not fit, or there are none.
    """
    settings = experiment.backbone
    if settings.weights is None:
        if settings.name != TINY and not settings.from_chance:
            raise WeightsError(
                f"the weights of {settings.name} must be at hand; they are not. Run `mule weights pull {settings.name}`, "
                "add --set backbone.weights=FILE, or train from chance with --set backbone.from_chance=true."
            )
    elif settings.weights.is_dir():
        backbone.load_state_dict(backbone_weights(settings.weights))
    else:
        load_weights(backbone, settings.weights, find_card(settings.name))


def backbone_weights(run_dir: Path) -> dict[str, Tensor]:
    """The weights of the backbone that a run has trained."""
    weights = _run_weights(run_dir, _card(run_dir))
    own = {name.removeprefix("backbone."): w for name, w in weights.items() if name.startswith("backbone.")}
    if not own:
        raise WeightsError(f"{run_dir / MODEL}: must hold a backbone; this run was trained on kept maps.")
    return own


def build_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """What moves the parameters of a model that are to be trained."""
    parameters = trained_parameters(model)
    if settings.kind == "adamw":
        return torch.optim.AdamW(parameters, lr=settings.lr, weight_decay=settings.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.momentum > 0,
        weight_decay=settings.weight_decay,
    )


def build_schedule(settings: ScheduleSettings, *, lr: float, epochs: int, epoch_steps: int) -> Schedule:
    """The learning rate in steps, from settings in epochs."""
    return Schedule(
        lr=lr,
        num_steps=epochs * epoch_steps,
        kind=settings.kind,
        warmup_steps=round(settings.warmup_epochs * epoch_steps),
        warmup_lr=_WARMUP_SHARE * lr if settings.warmup_lr is None else settings.warmup_lr,
        milestones=tuple(round(epoch * epoch_steps) for epoch in settings.milestones),
        factor=settings.factor,
        final_share=settings.final_share,
    )


def build_constraints(system: System, experiment: Experiment) -> dict[str, Constraint]:
    """The constraints of a system, with the experiment's tolerance and steps."""
    return {name: Constraint(**experiment.objective.dual.model_dump()) for name in system.constraints}


def normalisation(experiment: Experiment) -> Normalisation:
    """What the backbone's weights expect of pixels."""
    name = experiment.backbone.name
    return SLOWFAST if name == TINY else NORMALISATIONS[find_card(name).clip.normalisation]


def load_run(run_dir: Path) -> LoadedRun:
    """The recogniser that a run has trained, in evaluation mode.

    Raises:
        WeightsError: the run is not finished, or its files do not belong together.
        ConfigError: its experiment cannot be read.
    """
    card = _card(run_dir)
    experiment = load_experiment(run_dir / EXPERIMENT)
    weights = _run_weights(run_dir, card)
    with torch.device("meta"):
        model = build_model(experiment)
    model.to_empty(device="cpu").load_state_dict(weights)  # the layout of the network's own, not of the file
    return LoadedRun(model.eval(), experiment, tuple(card["classes"]))


def _card(run_dir: Path) -> dict[str, Any]:
    path = run_dir / CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(
            f"{path}: a finished run must have a card; this one has none. Finish it with `mule train … --resume`."
        ) from None
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: cannot be read ({error}).") from error
    if card.get("format") != CARD_FORMAT:
        raise WeightsError(f"{path}: format must be {CARD_FORMAT!r}; got {card.get('format')!r}.")
    return card


def _run_weights(run_dir: Path, card: Mapping[str, Any]) -> dict[str, Tensor]:
    path = run_dir / MODEL
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != card["weights_sha256"]:
            raise WeightsError(f"{path}: must be the weights its card vouches for; they are others.")
        return safetensors.torch.load(content)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: cannot be read ({error}).") from error


def _synchronised(model: nn.Module, experiment: Experiment, device: torch.device) -> nn.Module:
    if experiment.backbone.norm != "synchronised" or num_ranks() == 1:
        return model
    if device.type != "cuda":
        raise ConfigError(
            "backbone.norm = 'synchronised' needs GPUs: torch synchronises batch statistics there alone. On CPUs set it to "
            "'frozen' or 'batch', or use one process."
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def _require_same_run(
    experiment: Experiment, folder: RunFolder, *, resumes: bool
) -> dict[str, tuple[Any, Any]]:
    """What is set anew in a run that is resumed."""
    path = folder.path / EXPERIMENT
    if not path.exists():
        return {}
    if not resumes:
        raise ConfigError(
            f"{folder.path}: a new run needs a new folder; there is a run in this one. Go on with it (--resume), choose "
            "another (--out), or remove it."
        )
    changed = differences(load_experiment(path), experiment)
    fixed = {key: pair for key, pair in changed.items() if not key.startswith(CHANGEABLE) or key in FIXED}
    if fixed:
        told = "; ".join(f"{key} was {old!r}, is {new!r}" for key, (old, new) in fixed.items())
        raise ConfigError(
            f"{path}: a run goes on with the experiment it began with; {told}. Restore these, or begin a new run (--out)."
        )
    return changed
