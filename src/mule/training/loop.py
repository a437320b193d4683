"""The training loop: epochs of steps, validation, checkpoints, and news for a listener.

    restore ─▶ ╭─ batch ─▶ step ─▶ every n steps: checkpoint ─╮ ─▶ validate ─▶ checkpoint ─▶ next epoch
               ╰──────────────────────────────────────────────╯                       └─▶ done: the run's weights

The same experiment gives the same bits every time on one machine, also when it is killed at any moment and resumed.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mule.core.errors import MuleError, NotFinite, RangeError
from mule.core.processes import (
    average_buffers,
    everyones,
    gathered,
    is_first,
    num_ranks,
    over_ranks,
    own_rank,
    share_weights,
    wait_for_all,
)
from mule.core.records import Evidence
from mule.core.settings import LabelsOf, TrainingSettings
from mule.core.signals import StopRequest
from mule.data.batches.batches import ActorBatch
from mule.data.batches.loading import worker_loss_explained
from mule.model import ModelOutput, neighbourhood
from mule.objective.primal_dual import PrimalDual, StepReport
from mule.rivals.networks.clip_memory import ClipMemory
from mule.training.checkpoint import Checkpoint, Checkpoints, chance_state, seed_chance, set_chance_state
from mule.training.monitor import Monitor, Validation, validation_of
from mule.training.neighbours import Beside, boxes_beside, side_memory
from mule.training.run_folder import NO_TENSORBOARD, Curves, RunFolder
from mule.training.sharing import in_parts, what_differs
from mule.training.step import (
    Backward,
    Batches,
    BatchObjective,
    Listener,
    Parts,
    Progress,
    evaluating,
    freeze_norms,
    labelled_output,
    labels_in,
    scene_boxes,
    trained_parameters,
)


def validated(
    model: nn.Module,
    batches: Batches,
    *,
    device: torch.device,
    precision: AbstractContextManager[object] | None = None,
    outputs_can_die: bool = False,
    labels_of: LabelsOf = "actors",
) -> Validation:
    """Validate a model on one epoch of batches; the result covers all processes and is the same on each.

    Raises:
        RangeError: a process has no clip, or no actor does any of the actions.
    """
    outputs: list[ModelOutput] = []
    labels: list[Tensor] = []
    span = neighbourhood(model)
    memory = None if span is None else side_memory(model, span, batches, device=device, precision=precision)
    with evaluating(model):
        for batch in batches:
            if batch.num_clips:
                here = batch.to(device, non_blocking=True)
                with precision or nullcontext():
                    boxes = scene_boxes(here) if memory is None else boxes_beside(here, memory)
                    output = model(here.pixels, boxes)
                outputs.append(labelled_output(output, labels_of))
                labels.append(labels_in(here, labels_of))
    batches.close()
    if not over_ranks(float(len(outputs)), device, least=True):
        raise RangeError(
            "every process must have clips to validate on; at least one has none. Use more clips or fewer processes."
        )
    evidence = Evidence(
        positive=gathered(torch.cat([each.evidence.positive for each in outputs])),
        negative=gathered(torch.cat([each.evidence.negative for each in outputs])),
    )
    raw = gathered(torch.cat([each.outputs for each in outputs]))
    everyones_labels = gathered(torch.cat(labels))
    return validation_of(raw, evidence, everyones_labels, outputs_can_die=outputs_can_die)


class TrainingStopped(MuleError, RuntimeError):  # noqa: N818 - names the fact, as the messages do
    """Training cannot continue; the message says why, what is safe, and what to do."""


class TrainingRun:
    """One training run, from its first step or its last checkpoint to the end."""

    def __init__(
        self, parts: Parts, settings: TrainingSettings, *, folder: RunFolder, listener: Listener
    ) -> None:
        self.parts, self.settings, self.folder, self.listener = parts, settings, folder, listener
        self.checkpoints = Checkpoints(folder.checkpoints)
        self.progress = Progress()
        self.monitor = Monitor(parts.watched)
        self.backward = Backward(
            parts.optimizer, trained_parameters(parts.model), parts.clip_norm, parts.scaler
        )
        num_parts = settings.accumulate_batches
        self._forward = parts.model if num_parts == 1 else in_parts(parts.model, num_parts)
        self.primal_dual = PrimalDual(
            parts.model,
            parts.optimizer,
            parts.constraints,
            inner_steps=parts.inner_steps,
            measures_with=parts.measures_with,
            backward=self.backward,
        )
        span = neighbourhood(parts.model)
        self.memory = None if span is None else ClipMemory(span)
        self.average: AveragedModel | None = None
        if settings.average_decay is not None:
            self.average = AveragedModel(
                parts.model, multi_avg_fn=get_ema_multi_avg_fn(settings.average_decay)
            )
        self._curves: Curves | None = None
        self._seconds = {"step_s": 0.0, "wait_s": 0.0, "validate_s": 0.0, "checkpoint_s": 0.0}
        if parts.train.sampler.num_batches == 0:
            raise RangeError(
                f"an epoch must have at least one batch; there are {parts.train.sampler.num_clips} clips, and a batch takes "
                f"{parts.train.sampler.batch_clips}. Lower training.batch_clips."
            )

    @property
    def num_steps(self) -> int:
        """The number of steps of the whole training."""
        return self.settings.epochs * self.parts.train.sampler.num_batches

    def train(self) -> Progress:
        """Train to the end, and leave the model with the weights to keep.

        Raises:
            TrainingStopped: training cannot continue; the last checkpoint is intact.
        """
        parts, settings = self.parts, self.settings
        try:
            with worker_loss_explained(), StopRequest() as stop:
                self._restore()
                self._switch_to_training()
                while parts.train.epoch < settings.epochs and not self._is_out_of_patience():
                    waits_since = perf_counter()
                    stop.waits = num_ranks() == 1  # several processes would stop at different steps
                    for batch in parts.train:
                        here = batch.to(parts.device, non_blocking=True)
                        self._step(here, wait_s=perf_counter() - waits_since)
                        is_due = self.progress.step % settings.checkpoint_every_steps == 0
                        # the epoch's last batch is saved with the validation
                        if stop.was_made or (is_due and len(parts.train) > 0):
                            self._save()
                        if stop.was_made:
                            raise KeyboardInterrupt
                        waits_since = perf_counter()
                    stop.waits = False
                    epoch = parts.train.epoch
                    if epoch == settings.epochs or epoch % settings.validate_every_epochs == 0:
                        self._note_validation(epoch, self.validate())
                    self._save()
                self._take_kept_weights()
        except MuleError as error:
            raise TrainingStopped(self._explained(error)) from error
        finally:
            parts.train.close()
            parts.val.close()
            if self._curves is not None:
                self._curves.close()
        return self.progress

    def _switch_to_training(self) -> None:
        model, freezes_norms = self.parts.model.train(), self.parts.freezes_norms
        if freezes_norms:
            freeze_norms(model.modules())
        num_parts = self.settings.accumulate_batches
        if num_parts > 1 or num_ranks() > 1:
            for sentence in what_differs(model, num_parts=num_parts, freezes_norms=freezes_norms):
                self._note(sentence)

    def timings(self) -> dict[str, float]:
        """Return the seconds spent since the start, or since resuming, on steps, waits, validations and checkpoints."""
        return {name: round(seconds, 3) for name, seconds in self._seconds.items()}

    def _step(self, batch: ActorBatch, *, wait_s: float) -> None:
        started_at = perf_counter()
        parts, step = self.parts, self.progress.step
        lr = parts.schedule.rate(step)
        for group in parts.optimizer.param_groups:
            group["lr"] = lr
        if over_ranks(float(batch.num_clips), parts.device, least=True) == 0:
            self.progress = replace(self.progress, step=step + 1, num_empty=self.progress.num_empty + 1)
            return
        beside = None if self.memory is None else Beside(self._forward, batch, self.memory)
        objective = BatchObjective(
            beside or self._forward,
            batch,
            parts.objective,
            progress=step / self.num_steps,
            precision=parts.precision,
            labels_of=parts.labels_of,
        )
        report = self.primal_dual.step(objective)
        if beside is not None:
            beside.remember(loss=report.loss)
        average_buffers(parts.model)
        if self.average is not None:
            self.average.update_parameters(parts.model)
        self.progress = replace(self.progress, step=step + 1)
        step_s = perf_counter() - started_at
        self._seconds["step_s"] += step_s
        self._seconds["wait_s"] += wait_s
        self._note_step(batch, report, lr=lr, times_s=(step_s, wait_s))

    def _note_step(
        self, batch: ActorBatch, report: StepReport, *, lr: float, times_s: tuple[float, float]
    ) -> None:
        for sentence in self.monitor.after_step(report):
            self._note(sentence)
        step = self.progress.step
        if step % self.settings.log_every_steps and step != self.num_steps:
            return
        num_actors = over_ranks(float(batch.num_actors), self.parts.device)
        if not is_first():
            return
        values = {
            "epoch": self.parts.train.epoch,
            "lr": lr,
            **asdict(report),
            "gradient_norm": self.backward.norm if math.isfinite(self.backward.norm) else None,
            "num_actors": int(num_actors),
            **({} if self.parts.scaler is None else {"num_skipped": self.primal_dual.num_skipped}),
            "step_s": times_s[0],
            "wait_s": times_s[1],
        }
        if self._curves is not None:
            self._curves.add("step", step, values)
        self.listener.stepped(step, self.num_steps, values)

    def validate(self) -> Validation:
        """Validate the weights that would be kept now."""
        started_at = perf_counter()
        model = self.parts.model if self.average is None else self.average.module
        validation = validated(
            model,
            self.parts.val,
            device=self.parts.device,
            precision=self.parts.precision,
            outputs_can_die=self.parts.watched.outputs_can_die,
            labels_of=self.parts.labels_of,
        )
        self._seconds["validate_s"] += perf_counter() - started_at
        return validation

    def _note_validation(self, epoch: int, validation: Validation) -> None:
        progress = self.progress
        is_better = progress.best_mean_ap is None or validation.mean_ap > progress.best_mean_ap
        is_best = (
            is_better or validation.mean_ap == progress.best_mean_ap
        )  # of equal ones, who learnt longest
        self.progress = replace(
            progress,
            best_step=progress.step if is_best else progress.best_step,
            best_mean_ap=validation.mean_ap if is_best else progress.best_mean_ap,
            epochs_since_best=0
            if is_better
            else progress.epochs_since_best + self.settings.validate_every_epochs,
        )
        if is_first() and self._curves is not None:
            values = {"epoch": epoch, "is_best": is_best, **asdict(validation)}
            self._curves.add("validation", progress.step, values)
            self.listener.validated(progress.step, epoch, validation)
        for sentence in self.monitor.after_validation(validation):
            self._note(sentence)

    def _is_out_of_patience(self) -> bool:
        patience = self.settings.patience_epochs
        return patience is not None and self.progress.epochs_since_best >= patience

    def _save(self) -> None:
        started_at = perf_counter()
        states = everyones(chance_state())
        if is_first():
            checkpoint = Checkpoint(
                step=self.progress.step,
                model=self.parts.model.state_dict(),
                average=None if self.average is None else self.average.state_dict(),
                state={
                    "progress": asdict(self.progress),
                    "optimizer": self.parts.optimizer.state_dict(),
                    "primal_dual": self.primal_dual.state_dict(),
                    "scaler": None if self.parts.scaler is None else self.parts.scaler.state_dict(),
                    "batches": self.parts.train.state_dict(),
                    "monitor": self.monitor.state_dict(),
                    "chance": states,
                    "clip_memory": None if self.memory is None else self.memory.state_dict(),
                },
            )
            self.checkpoints.save(checkpoint, best_step=self.progress.best_step)
        wait_for_all()
        self._seconds["checkpoint_s"] += perf_counter() - started_at

    def _restore(self) -> None:
        """Continue from the last intact checkpoint, or start from the first step."""
        seed_chance(self.parts.seed, rank=own_rank())
        if is_first():
            self.checkpoints.sweep()
        wait_for_all()
        checkpoint, wrong = self.checkpoints.last()
        for sentence in wrong:
            self._note(f"{sentence} Using the checkpoint before it.")
        if checkpoint is None:
            share_weights(self.parts.model)
        else:
            self._take(checkpoint)
        if is_first():
            self._curves = Curves(
                self.folder.path,
                last_step=self.progress.step,
                has_events=self.settings.tensorboard,
            )
            if self._curves.lacks_events:
                self._note(NO_TENSORBOARD)

    def _take(self, checkpoint: Checkpoint) -> None:
        with self.checkpoints.explaining(checkpoint.step):
            self._take_all(checkpoint, checkpoint.state)
        self._note(f"resuming after step {checkpoint.step} of {self.num_steps}")

    def _take_all(self, checkpoint: Checkpoint, state: Mapping[str, Any]) -> None:
        self.parts.model.load_state_dict(checkpoint.model)
        if self.average is not None and checkpoint.average is not None:
            self.average.load_state_dict(checkpoint.average)
        self.parts.optimizer.load_state_dict(state["optimizer"])
        self.primal_dual.load_state_dict(state["primal_dual"])
        if self.parts.scaler is not None and state.get("scaler"):
            self.parts.scaler.load_state_dict(state["scaler"])
        self.parts.train.load_state_dict(state["batches"])
        self.monitor.load_state_dict(state["monitor"])
        if self.memory is not None:
            self.memory.load_state_dict(state["clip_memory"])
        self.progress = Progress(**state["progress"])
        if own_rank() < len(state["chance"]):
            set_chance_state(state["chance"][own_rank()])

    def _take_kept_weights(self) -> None:
        """Load the weights to keep, the best or the last, into the model."""
        best = self.progress.best_step
        if self.settings.keeps == "best" and best is not None and best != self.progress.step:
            checkpoint = self.checkpoints.load(best)
            self.parts.model.load_state_dict(checkpoint.model)
            if self.average is not None and checkpoint.average is not None:
                self.average.load_state_dict(checkpoint.average)
        if self.average is not None:
            self.parts.model.load_state_dict(self.average.module.state_dict())
        self.parts.model.eval()

    def _note(self, sentence: str) -> None:
        if is_first():
            self.listener.noted(sentence)

    def _explained(self, error: MuleError) -> str:
        step = self.progress.step
        steps = self.checkpoints.steps()
        safe = (
            f"The last checkpoint, {self.checkpoints.path_of(steps[-1])}, is intact; run the same command with --resume to "
            "continue from it."
            if steps
            else "There is no checkpoint yet; the same command with --resume starts from the beginning."
        )
        advice = (
            " The same settings would fail again: lower optimizer.lr, warm up longer or set optimizer.clip_norm "
            "(--set works with --resume)."
            if isinstance(error, NotFinite)
            else ""
        )
        return (
            f"training stopped at step {step} of {self.num_steps} (lr {self.parts.schedule.rate(step):.3g}): {error}\n"
            f"{safe}{advice}"
        )
