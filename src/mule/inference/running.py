"""Run a trained network on every actor of a side, once; cache its outputs in the run's folder.

run ─▶ model ─┬─ outputs h ─▶ evidence, logits
side ─ batches┘─ features before the last linear layer, and that layer
              └─ outputs of further passes with dropout on

Passes with dropout cost little more than one: modules before the first dropout always give the same result,
so their outputs of the first pass are reused.
"""

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.core.files import sha256_while_unchanged
from mule.core.processes import own_device
from mule.core.progress import advance
from mule.core.records import Evidence
from mule.core.settings import Experiment, LabelsOf
from mule.data.batches.batches import ActorBatch
from mule.data.batches.loading import ClipLoader
from mule.data.batches.samples import ClipName
from mule.evidence.fusion import along_tracks
from mule.features.pooling import FeatureMaps
from mule.inference.outputs import (
    OUTPUTS_FORMAT,
    SideOutputs,
    cached_key,
    judged_rows,
    one_logit_per_action,
    read_side_outputs,
    write_side_outputs,
)
from mule.inference.sides import RowNumbers, SideBatches, read_side, side_digest
from mule.model import ModelOutput, MuleModel, RelationModel, SceneBoxes, looks_of, neighbourhood
from mule.rivals.scores.outputs import LinearReadout
from mule.training.build import LoadedRun, load_run
from mule.training.choosing import system_of
from mule.training.data import Noted, groups_of, labels_of, tags_of
from mule.training.neighbours import boxes_beside, side_memory
from mule.training.run_folder import MODEL, read_card
from mule.training.step import evaluating, labelled_output, labels_in, scene_boxes

NO_DROPOUT = "this network has no dropout"
NO_PASSES = "passes with dropout are switched off"
NO_READOUT = "each action has a feature of its own, so there is no single last linear layer"
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


@dataclass(frozen=True)
class OutputsOf:
    """A trained run whose outputs are wanted, and how to compute them."""

    run_dir: Path
    experiment: Experiment
    dropout_passes: int = 0
    test_clips: int | None = None
    """Clips in each test set of Stage; None uses the benchmark's number."""

    def key(self, side: str) -> str:
        """Everything the outputs on a side depend on.

        Raises:
            WeightsError: the run is not finished.
        """
        facts = {
            "format": OUTPUTS_FORMAT,
            "weights_sha256": weights_digest(self.run_dir),
            "side": side,
            "side_digest": self.side_digest(side),
            "frozen_sha256": _frozen_digest(self.experiment),
            "dropout_passes": self.dropout_passes,
            **({"inputs": 1} if self.experiment.backbone.frozen else {}),
        }
        return json.dumps(facts, sort_keys=True)

    def side_digest(self, side: str) -> str:
        """Identifies the clips and actors of the side."""
        return side_digest(self.experiment, side, test_clips=self.test_clips)

    def on(self, side: str, *, noted: Noted) -> SideOutputs:
        """Return the outputs on the judged boxes of a side."""
        return judged_rows(self.on_all(side, noted=noted))

    def on_all(self, side: str, *, noted: Noted) -> SideOutputs:
        """Read the outputs on all boxes of a side from the run's folder, or compute and cache them.

        Outputs cached with more passes with dropout are reused: the first passes are the same.
        """
        key = self.key(side)
        outputs = read_side_outputs(self.run_dir, side, key=key) or self._with_more_passes(side, key)
        if outputs is None:
            run = load_run(self.run_dir, device=own_device())._replace(experiment=self.experiment)
            noted(f"network outputs on the {side} set: computed now, kept in {self.run_dir / 'outputs'}")
            batches = read_side(self.experiment, side, test_clips=self.test_clips, noted=noted)
            outputs = outputs_of(run, batches, dropout_passes=self.dropout_passes)
            write_side_outputs(outputs, self.run_dir, side, key=key)
        data, base_rate = self.experiment.data, system_of(self.experiment).base_rate
        return replace(outputs, tags=tags_of(data), group_of=groups_of(data), base_rate=base_rate)

    def _with_more_passes(self, side: str, key: str) -> SideOutputs | None:
        cached = cached_key(self.run_dir, side)
        passes = cached.get("dropout_passes", 0)
        if {**cached, "dropout_passes": self.dropout_passes} != json.loads(
            key
        ) or passes < self.dropout_passes:
            return None
        outputs = read_side_outputs(self.run_dir, side)
        if outputs is None or outputs.dropout_logits is None:
            return outputs
        if self.dropout_passes:
            return replace(outputs, dropout_logits=outputs.dropout_logits[: self.dropout_passes])
        reasons = {**outputs.not_stored, "dropout_logits": NO_PASSES}
        return replace(outputs, dropout_logits=None, not_stored=reasons)


def weights_digest(run_dir: Path) -> str:
    """The SHA-256 of a finished run's weights, as its card states it.

    Raises:
        WeightsError: the run is not finished.
    """
    return read_card(run_dir)["weights_sha256"]


def _frozen_digest(experiment: Experiment) -> str:
    """The SHA-256 of a frozen backbone, whose weights are not part of the run; empty if there is none."""
    weights = experiment.backbone.weights
    if not experiment.backbone.frozen or weights is None:
        return ""
    return sha256_while_unchanged(weights / MODEL if weights.is_dir() else weights)


def outputs_of(run: LoadedRun, side: SideBatches, *, dropout_passes: int, seed: int = 0) -> SideOutputs:
    """Run the network on every actor of the side, on the network's device; return its outputs on the CPU.

    Args:
        run: a trained recogniser.
        side: of the data of its experiment.
        dropout_passes: further passes with dropout, for scores that measure how much passes differ; 0 is none.
        seed: of the dropped units.

    Raises:
        RangeError: the side has no actors.
    """
    model = _model_for(run)
    system, decide, of = run.system, cast(nn.Module, model.decide), labels_of(run.experiment)
    has_dropout = bool(dropout_modules(decide))
    num_passes = dropout_passes if has_dropout else 0
    parts: list[_Part] = []
    names: list[ClipName] = []
    span = neighbourhood(model)
    memory = None if span is None else side_memory(model, span, side.batches, device=run.device)
    with evaluating(model):
        for number, read in enumerate(side.batches):
            advance(f"running the network on the {side.name} set", number, side.batches.sampler.num_batches)
            batch = read.to(run.device, non_blocking=True)
            boxes = scene_boxes(batch) if memory is None else boxes_beside(batch, memory)
            maps = [model.backbone(each) for each in batch.pixels]
            output = labelled_output(model.decide(maps, boxes), of)
            part = _part(output, maps, batch, side, first_clip=len(names), of=of)
            if num_passes and batch.num_actors:
                passes = _passes(run, maps, boxes, num_passes, of=of, seed=seed + number)
                logits = [one_logit_per_action(each, len(run.classes)) for each in passes]
                part = part._replace(dropped=torch.stack(logits).cpu())
            parts.append(part)
            names += batch.clip_names
    advance(f"running the network on the {side.name} set", 1, 1)
    parts = [part for part in parts if len(part.rows)]
    if not parts:
        raise RangeError(f"the {side.name} set must have actors; it has none.")
    readout = last_layer(system.readout_layer(decide), len(run.classes)) if of == "actors" else None
    skipped = side.batches.skipped if isinstance(side.batches, ClipLoader) else []
    rows = np.concatenate([part.rows for part in parts])
    return SideOutputs(
        classes=run.classes,
        kind=system.evidence,
        base_rate=system.base_rate,
        outputs=torch.cat([part.outputs for part in parts]),
        evidence=Evidence(
            torch.cat([part.evidence.positive.float() for part in parts]),
            torch.cat([part.evidence.negative.float() for part in parts]),
        ),
        features=torch.cat([part.features for part in parts]),
        backbone_features=torch.cat([part.backbone_features for part in parts]),
        readout=readout,
        dropout_logits=torch.cat([part.dropped for part in parts], dim=1) if num_passes else None,
        labels=np.concatenate([part.labels for part in parts]),
        truth=side.truth.at(rows),
        clip_names=tuple(names),
        clip_index=np.concatenate([part.clip_index for part in parts]),
        not_stored={
            **({} if readout else {"readout": NO_READOUT}),
            **({} if num_passes else {"dropout_logits": NO_PASSES if has_dropout else NO_DROPOUT}),
        },
        num_skipped=len({clip.position for clip in skipped}),  # a side with a memory is read twice
        box_index=rows if len(np.unique(rows)) < len(rows) else None,
        is_judged=None if side.is_judged is None else side.is_judged[rows],
        inputs={name: each[rows].float() for name, each in (side.inputs() if side.inputs else {}).items()},
    )


def last_layer(linear: nn.Linear | None, num_classes: int) -> LinearReadout | None:
    """Return a network's last linear layer with one logit per action; None if it has no such layer."""
    if linear is None:
        return None
    own_bias = cast(Tensor | None, linear.bias)  # torch declares a Parameter also where a layer has none
    bias = linear.weight.new_zeros(len(linear.weight)) if own_bias is None else own_bias
    layer = torch.cat([linear.weight.detach(), bias.detach()[:, None]], dim=1).cpu()
    joined = one_logit_per_action(layer.T, num_classes).T
    return LinearReadout(joined[:, :-1].contiguous(), joined[:, -1].contiguous())


class _Part(NamedTuple):
    """The outputs of one batch."""

    outputs: Tensor
    evidence: Evidence
    features: Tensor
    backbone_features: Tensor
    dropped: Tensor
    labels: Bool[np.ndarray, "actors classes"]
    rows: RowNumbers
    clip_index: RowNumbers


def _backbone_features(
    maps: Sequence[FeatureMaps], boxes: SceneBoxes, of: LabelsOf
) -> Float[Tensor, "rows channels"]:
    """The pooled feature of each actor; a clip has the mean over its actors."""
    pooled = looks_of(maps, boxes).float()
    if of == "actors":
        return pooled
    clips, clip = boxes.actor_clip_index.unique(return_inverse=True)
    return along_tracks(pooled, clip, num_tracks=len(clips))


def _part(
    output: ModelOutput,
    maps: Sequence[FeatureMaps],
    batch: ActorBatch,
    side: SideBatches,
    *,
    first_clip: int,
    of: LabelsOf,
) -> _Part:
    number = batch.actor_index if of == "actors" else torch.zeros_like(output.actor_clip_index)
    positions = batch.positions[output.actor_clip_index].tolist()
    rows = [side.rows_of(at)[number] for at, number in zip(positions, number.tolist(), strict=True)]
    return _Part(
        outputs=output.outputs.clone().cpu(),
        evidence=Evidence(output.evidence.positive.cpu(), output.evidence.negative.cpu()),
        features=output.features.clone().cpu(),
        backbone_features=_backbone_features(maps, scene_boxes(batch), of).cpu(),
        dropped=torch.zeros(0),
        labels=labels_in(batch, of).cpu().numpy(),
        rows=np.array(rows, dtype=np.int64),
        clip_index=output.actor_clip_index.cpu().numpy() + first_clip,
    )


def _passes(
    run: LoadedRun,
    maps: Sequence[FeatureMaps],
    boxes: SceneBoxes,
    num_passes: int,
    *,
    of: LabelsOf,
    seed: int,
) -> list[Float[Tensor, "actors outputs"]]:
    """Dropout comes after pooling, so all passes share the maps and the pooled scene."""
    decide = cast(RelationModel, run.model.decide)
    decided = partial(decide, maps, boxes)
    if run.system.pools_once:
        decided = partial(decided, scene=decide.scene(maps, boxes))
    return passes_with_dropout(decide, lambda: labelled_output(decided(), of).outputs, num_passes, seed=seed)


def _model_for(run: LoadedRun) -> MuleModel:
    """The network with the backbone its clips need: rendered clips are pixels even if training used cached maps."""
    return run.model if run.experiment.data.kind == "table" else run.model_on_pixels()


def dropout_modules(module: nn.Module) -> list[nn.Module]:
    """The modules that drop units in training mode."""
    return [each for each in module.modules() if isinstance(each, DROPOUT) and each.p > 0]


def passes_with_dropout(
    module: nn.Module, compute: Callable[[], Tensor], num_passes: int, *, seed: int
) -> list[Tensor]:
    """Call `compute`, which runs the module, several times with dropout seeded by `seed`."""
    with _dropout_on(dropout_modules(module), seed=seed):
        with _recording(module) as recorded:
            first = [compute() for _ in range(min(num_passes, 1))]
        with _replaying(recorded):
            return first + [compute() for _ in range(num_passes - 1)]


@contextmanager
def _dropout_on(modules: list[nn.Module], *, seed: int) -> Generator[None]:
    """Switch on dropout and nothing else; restore the state and the random generator afterwards."""
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(seed)
        for module in modules:
            module.train()
        try:
            yield
        finally:
            for module in modules:
                module.eval()


@contextmanager
def _recording(module: nn.Module) -> Generator[dict[nn.Module, list[Any]]]:
    """Record the outputs of parts without dropout, call by call, until the first dropout runs."""
    recorded: dict[nn.Module, list[Any]] = {}
    late: set[nn.Module] = set()
    has_dropped = False

    def record(part: nn.Module, _: object, output: object) -> None:
        if has_dropped:
            late.add(part)
        else:
            recorded.setdefault(part, []).append(deepcopy(output))  # later modules may change it in place

    def stop(*_: object) -> None:
        nonlocal has_dropped
        has_dropped = True

    with ExitStack() as hooks:
        for part in _parts_without_dropout(module):
            hooks.callback(part.register_forward_hook(record).remove)
        for dropout in dropout_modules(module):
            hooks.callback(dropout.register_forward_pre_hook(stop).remove)
        yield recorded
    for part in late & recorded.keys():
        del recorded[part]


@contextmanager
def _replaying(recorded: dict[nn.Module, list[Any]]) -> Generator[None]:
    """Make the parts return their recorded outputs, in order, instead of computing them."""
    with ExitStack() as parts:
        for part, outputs in recorded.items():
            part.forward = partial(_next_of, cycle(outputs))
            parts.callback(delattr, part, "forward")
        yield


def _next_of(outputs: Iterator[Any], *_: object, **__: object) -> Any:  # noqa: ANN401 - whatever the part returns
    return deepcopy(next(outputs))


def _parts_without_dropout(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if not dropout_modules(child):
            yield child
        elif not isinstance(child, DROPOUT):
            yield from _parts_without_dropout(child)
