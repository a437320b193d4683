"""From an experiment to its model, data, optimiser and run: the only module that knows both sides."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mule.core.config import ConfigError, differences, experiment_toml, load_experiment
from mule.core.errors import FileError, ShapeError, WeightsError
from mule.core.processes import is_first, num_ranks, only_writers, processes, wait_for_all
from mule.core.records import Evidence
from mule.core.settings import BackboneSettings, Experiment, OptimizerSettings, ScheduleSettings, TableData
from mule.core.tensors import require_tensors
from mule.data.batches.loading import WorkerLost
from mule.features.backbones.tiny import TinySlowFast
from mule.features.weights.card import NORMALISATIONS, Backbone, build_backbone
from mule.features.weights.cards import find_card
from mule.features.weights.loading import load_weights
from mule.model import FrozenBackboneMaps, KeptMaps, MuleModel
from mule.objective.primal_dual import Constraint
from mule.systems.catalogue import System
from mule.training.checkpoint import CheckpointError, seed_chance
from mule.training.choosing import inner_steps_of, require_family, settled, sizes_of, system_of
from mule.training.data import RunData, build_data, known_classes, labels_of, with_known_classes
from mule.training.device import deterministic, moved_to
from mule.training.kept_maps import KeptBatches
from mule.training.loop import TrainingRun, TrainingStopped
from mule.training.maps import build_kept_data
from mule.training.monitor import Watched
from mule.training.run_folder import CARD, EXPERIMENT, MODEL, RunFolder, read_card, trained_experiment
from mule.training.step import Listener, Parts, Progress, Schedule, trained_parameters
from mule.video.transforms import SLOWFAST, Normalisation

CPU = torch.device("cpu")
TINY = "tiny"
CHANGEABLE = ("optimizer.lr", "optimizer.clip_norm", "schedule.", "training.")
FIXED = ("training.batch_clips", "training.average_decay", "training.precision")
"""When a run is resumed: settings that may change, and those among them that may not."""
_WARMUP_SHARE = 0.01


class LoadedRun(NamedTuple):
    """A trained recogniser in evaluation mode, the experiment it comes from, and the actions it knows."""

    model: MuleModel
    experiment: Experiment
    classes: tuple[str, ...]

    @property
    def system(self) -> System:
        """What the recogniser states about itself."""
        return system_of(self.experiment)

    @property
    def device(self) -> torch.device:
        """Where the recogniser computes."""
        return next(self.model.parameters()).device

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
        backbone.to(self.device)
        return MuleModel(FrozenBackboneMaps(backbone, self.model.backbone), self.model.decide).eval()


def run_experiment(
    experiment: Experiment, run_dir: Path, *, listener: Listener, resumes: bool = False
) -> Progress:
    """Train what an experiment describes, in a folder of its own; under `torchrun`, on all processes together.

    Raises:
        FolderInUseError: another process trains in this folder, or changes it.
        ConfigError: the folder holds a run and `resumes` is not set, or it holds a run of another experiment.
        TrainingStopped: training cannot continue; the message says what is safe and what to do.
    """
    folder = RunFolder(run_dir)
    experiment = settled(with_known_classes(experiment))
    with (
        processes() as device,
        deterministic(device, is_wanted=experiment.training.deterministic),
        only_writers(run_dir) as notes,
    ):
        changed = _require_same_run(experiment, folder, resumes=resumes)
        for sentence in (
            *notes,
            *(f"{key} was {old} and is {new} from here on" for key, (old, new) in changed.items()),
        ):
            listener.noted(sentence)
        wait_for_all()
        parts, data = build_parts(experiment, device=device, listener=listener)
        if is_first():
            for sentence in folder.begin(experiment_toml(experiment), _facts(experiment, parts, data)):
                listener.noted(sentence)
        run = TrainingRun(parts, experiment.training, folder=folder, listener=listener)
        try:
            try:
                progress = run.train()
            except TrainingStopped as error:
                _require_lost_worker(error)
                listener.noted(f"{error}\nContinuing now, try 2 of 2.")
                parts, _ = build_parts(experiment, device=device, listener=listener)
                run = TrainingRun(parts, experiment.training, folder=folder, listener=listener)
                progress = run.train()
        except TrainingStopped as error:
            if is_first():
                with suppress(FileError, CheckpointError):  # the disk may be full
                    folder.update(status="stopped", reason=str(error), session=run.timings())
            raise
        if is_first():
            folder.write_model(parts.model, _model_card(experiment, data, progress))
            folder.update(
                status="finished",
                progress=asdict(progress),
                warnings=run.monitor.warnings,
                session=run.timings(),
            )
        wait_for_all()
        return progress


def _require_lost_worker(error: TrainingStopped) -> None:
    """Raise the error unless a killed worker process is its cause, after which one process can continue."""
    if not isinstance(error.__cause__, WorkerLost) or num_ranks() > 1:
        raise error


def _facts(experiment: Experiment, parts: Parts, data: RunData) -> dict[str, Any]:
    """What `run.json` records about a run when it begins."""
    return {
        "experiment": experiment.model_dump(mode="json"),
        "data_digests": dict(data.digests),
        "num_classes": len(data.classes),
        "num_parameters": sum(p.numel() for p in parts.model.parameters()),
        "num_processes": num_ranks(),
    }


def _model_card(experiment: Experiment, data: RunData, progress: Progress) -> dict[str, Any]:
    """What `card.json` records about trained weights."""
    return {
        "system": experiment.system,
        "classes": list(data.classes),
        "step": progress.best_step if experiment.training.keeps == "best" else progress.step,
        "validation_mean_ap": progress.best_mean_ap,
        "backbone": experiment.backbone.name,
        "data_digests": dict(data.digests),
        "normalisation": asdict(normalisation(experiment)),
    }


def build_parts(experiment: Experiment, *, device: torch.device, listener: Listener) -> tuple[Parts, RunData]:
    """Build everything a training needs, on this process."""
    settings, system = experiment.training, system_of(experiment)
    seed_chance(experiment.seed)
    model, backbone = build_networks(experiment)
    if not (experiment.backbone.frozen and isinstance(experiment.data, TableData)):
        initialise(backbone, experiment)  # a frozen backbone is loaded only if a kept map is missing
    pixels = normalisation(experiment)
    data = (
        build_kept_data(experiment, backbone.to(device), normalisation=pixels, noted=listener.noted)
        if experiment.backbone.frozen
        else build_data(experiment, normalisation=pixels, noted=listener.noted)
    )
    if isinstance(model.backbone, KeptMaps) and isinstance(data.train, KeptBatches):
        model.backbone.standardise(*data.train.channel_statistics())
    model, precision = moved_to(device, model, settings, experiment.backbone, noted=listener.noted)
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
        inner_steps=inner_steps_of(experiment),
        measures_with=experiment.objective.measures_with,
        clip_norm=experiment.optimizer.clip_norm,
        freezes_norms=experiment.backbone.norm == "frozen",
        precision=precision.autocast,
        scaler=precision.scaler,
        labels_of=labels_of(experiment),
    )
    return parts, data


def build_model(experiment: Experiment) -> MuleModel:
    """Build the network of an experiment with random weights; on the meta device this costs nothing."""
    return build_networks(experiment)[0]


def build_networks(experiment: Experiment) -> tuple[MuleModel, Backbone | TinySlowFast]:
    """Build the network to train, and the backbone; a frozen backbone is not part of the network."""
    settings, num_classes = experiment.backbone, known_classes(experiment)
    system = system_of(experiment)
    require_family(system, settings)
    backbone = _backbone(settings)
    channels = backbone.channels
    decide = system.build(sizes_of(experiment, channels=channels, num_classes=num_classes))
    kept = KeptMaps(backbone.stride, channels, dropout=settings.map_dropout)
    return MuleModel(kept if settings.frozen else backbone, decide), backbone


def _backbone(settings: BackboneSettings) -> Backbone | TinySlowFast:
    options: dict[str, Any] = dict(settings.options)
    try:
        if settings.name == TINY:
            return TinySlowFast(**options)
        return build_backbone(find_card(settings.name), **options)
    except TypeError as error:
        raise ConfigError(
            f"backbone.options must be arguments of the {settings.name} backbone; {error}."
        ) from None


def initialise(backbone: nn.Module, experiment: Experiment) -> None:
    """Load published weights, or those of an earlier run, into the backbone; the tiny one may start without.

    Raises:
        WeightsError: the weights are missing or do not fit.
    """
    settings = experiment.backbone
    if settings.weights is None:
        if settings.name != TINY and not settings.from_chance:
            raise WeightsError(
                f"the backbone {settings.name} needs weights; backbone.weights is not set. Run `mule weights pull "
                f"{settings.name}`, add --set backbone.weights=FILE, or train from random weights with "
                "--set backbone.from_chance=true."
            )
    elif settings.weights.is_dir():
        backbone.load_state_dict(backbone_weights(settings.weights))
    else:
        load_weights(backbone, settings.weights, find_card(settings.name))


def backbone_weights(run_dir: Path) -> dict[str, Tensor]:
    """Return the weights of the backbone that a run has trained."""
    weights = _run_weights(run_dir, read_card(run_dir))
    own = {name.removeprefix("backbone."): w for name, w in weights.items() if name.startswith("backbone.")}
    if not own:
        raise WeightsError(
            f"{run_dir / MODEL}: must hold a backbone; this run was trained on kept maps. Use another run."
        )
    return own


def build_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return the optimiser of the parameters to train."""
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
    """Return the learning-rate schedule in steps, from settings in epochs."""
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
    """Return the constraints of a system with the experiment's tolerance, step size and damping."""
    return {name: Constraint(**experiment.objective.dual.model_dump()) for name in system.constraints}


def normalisation(experiment: Experiment) -> Normalisation:
    """Return the pixel normalisation that the backbone's weights expect."""
    name = experiment.backbone.name
    return SLOWFAST if name == TINY else NORMALISATIONS[find_card(name).clip.normalisation]


def load_run(run_dir: Path, *, device: torch.device = CPU) -> LoadedRun:
    """Load the recogniser that a run has trained, in evaluation mode, onto a device.

    Raises:
        WeightsError: the run is not finished, or its files do not belong together.
        ConfigError: its experiment cannot be read.
    """
    card = read_card(run_dir)
    experiment = trained_experiment(run_dir)
    if len(card["classes"]) != known_classes(experiment):
        raise WeightsError(
            f"{run_dir / CARD}: must name the {known_classes(experiment)} classes of {EXPERIMENT}; it names "
            f"{len(card['classes'])}. Copy both again."
        )
    weights = _run_weights(run_dir, card)
    with torch.device("meta"):
        model, _ = build_networks(experiment)
    _require_tensors_of(model, weights, run_dir / MODEL)
    model.to_empty(device=device).load_state_dict(
        weights
    )  # keeps the network's memory layout, not the file's
    return LoadedRun(model.eval(), experiment, tuple(card["classes"]))


def _run_weights(run_dir: Path, card: Mapping[str, Any]) -> dict[str, Tensor]:
    path = run_dir / MODEL
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != card["weights_sha256"]:
            raise WeightsError(
                f"{path}: must be the weights its card vouches for; the checksum differs. Copy both again."
            )
        return safetensors.torch.load(content)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: cannot be read ({error}).") from error


def _require_tensors_of(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    promised = {
        name: (None if each.is_floating_point() else each.dtype, tuple(each.shape))
        for name, each in model.state_dict().items()
    }
    try:
        require_tensors(weights, promised)
    except ShapeError as error:
        raise WeightsError(
            f"{path}: must be the weights of the network in {EXPERIMENT}: {str(error).rstrip('.')}. Copy both again."
        ) from None


def _require_same_run(
    experiment: Experiment, folder: RunFolder, *, resumes: bool
) -> dict[str, tuple[Any, Any]]:
    """Return the settings that a resumed run changes, as (old, new)."""
    path = folder.path / EXPERIMENT
    if not path.exists():
        return {}
    if not resumes:
        raise ConfigError(
            f"{folder.path}: a new run needs a new folder; this one holds a run. Continue it (--resume), choose another "
            "folder (--out), or remove it."
        )
    changed = differences(load_experiment(path), experiment)
    fixed = {key: pair for key, pair in changed.items() if not key.startswith(CHANGEABLE) or key in FIXED}
    if fixed:
        differing = "; ".join(f"{key} was {old!r}, is {new!r}" for key, (old, new) in fixed.items())
        raise ConfigError(
            f"{path}: a resumed run must keep its experiment; {differing}. Restore these, or start a new run (--out)."
        )
    return changed
