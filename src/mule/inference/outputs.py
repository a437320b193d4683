"""What one trained run says of every actor of one side: all that any score can ask for, and what is true of the actor.

run ─▶ model ─┬─ outputs h ─▶ evidence, logits
side ─ batches┘─ features before the last linear layer, and that layer
              └─ outputs of further passes with dropout on
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mule.core.config import LabelsOf
from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.data.batches.batches import ActorBatch
from mule.data.batches.loading import ClipLoader
from mule.data.batches.samples import ClipName
from mule.evidence.fusion import along_tracks
from mule.evidence.head import beta_parameters
from mule.features.pooling import FeatureMaps
from mule.inference.dropping import droppers_in, passes_with_dropout
from mule.inference.sides import ActorTruth, Rows, Side
from mule.memory.memory import whole_features
from mule.model import MuleModel, RelationModel, SceneBoxes, looks_of
from mule.objective.dirichlet_loss import dirichlet_parameters
from mule.rivals.scores.outputs import LinearReadout, StoredOutputs
from mule.systems.catalogue import EvidenceKind
from mule.training.build import LoadedRun
from mule.training.data import labels_of
from mule.training.step import evaluating, labels_in, said_of, scene_boxes

NO_DROPOUT = "this network drops no units"
NO_PASSES = "no passes with dropout on were asked for"
NO_READOUT = "each action has a feature of its own, so there is no one last linear layer"


@dataclass(frozen=True)
class SideOutputs:
    """One row per actor, or per clip where labels are of clips. `truth` has these rows too; `labels` are those of the actions the network was taught."""

    classes: tuple[str, ...]
    kind: EvidenceKind
    outputs: Float[Tensor, "actors outputs"]
    """h, as the last layer gives it."""
    evidence: Evidence
    features: Float[Tensor, "actors dim"]
    looks: Float[Tensor, "actors channels"]
    """What the backbone saw of each."""
    readout: LinearReadout | None
    dropout_logits: Float[Tensor, "passes actors classes"] | None
    labels: Bool[np.ndarray, "actors classes"]
    truth: ActorTruth
    clip_names: tuple[ClipName, ...]
    clip_index: Int[np.ndarray, " actors"]
    not_stored: Mapping[str, str]
    """What a score may need and this network cannot give, with the reason."""
    num_skipped: int = 0
    """Clips that could not be read."""
    tags: tuple[str, ...] = ()
    """Taught labels that say nothing about whether an actor is novel."""

    @property
    def num_actors(self) -> int:
        """How many actors there are."""
        return len(self.clip_index)

    def at(self, rows: Bool[np.ndarray, " actors"]) -> "SideOutputs":
        """Some of the actors, without passes with dropout on."""
        chosen = torch.from_numpy(rows)
        return replace(
            self,
            outputs=self.outputs[chosen],
            evidence=Evidence(self.evidence.positive[chosen], self.evidence.negative[chosen]),
            features=self.features[chosen],
            looks=self.looks[chosen],
            dropout_logits=None,
            labels=self.labels[rows],
            truth=self.truth.at(np.flatnonzero(rows)),
            clip_index=self.clip_index[rows],
        )

    @cached_property
    def does_known(self) -> Bool[np.ndarray, " actors"]:
        """Who does a taught action; a tag is none."""
        return np.asarray(self.labels[:, self._is_action].any(axis=1))

    @cached_property
    def deciding(self) -> "SideOutputs":
        """What novelty is read from: the same actors, and of the labels those that are no tags.

        A tag, such as the view from behind, is recognised in novel actors as well. Read as evidence of an action it would
        make them known.
        """
        if not self.tags:
            return self
        kept, num_classes = torch.from_numpy(np.flatnonzero(self._is_action)), len(self.classes)
        columns = torch.cat([kept + first for first in range(0, self.outputs.shape[1], num_classes)])
        readout = self.readout and LinearReadout(self.readout.weight[kept], self.readout.bias[kept])
        return replace(
            self,
            classes=tuple(name for name in self.classes if name not in self.tags),
            outputs=self.outputs[:, columns],
            evidence=Evidence(self.evidence.positive[:, kept], self.evidence.negative[:, kept]),
            readout=readout,
            dropout_logits=None if self.dropout_logits is None else self.dropout_logits[..., kept],
            labels=self.labels[:, self._is_action],
            tags=(),
        )

    @cached_property
    def _is_action(self) -> Bool[np.ndarray, " classes"]:
        return np.array([name not in self.tags for name in self.classes], dtype=bool)

    @cached_property
    def video_index(self) -> Int[np.ndarray, " actors"]:
        """The video of each actor by number; clips of one video share it. Rendered clips are videos of their own."""
        videos = {name: number for number, name in enumerate(self.videos)}
        return np.array([videos[name.video] for name in self.clip_names], dtype=np.int64)[self.clip_index]

    @cached_property
    def videos(self) -> tuple[str, ...]:
        """The names of the videos, in the order in which they come."""
        return tuple(dict.fromkeys(name.video for name in self.clip_names))

    @cached_property
    def stored(self) -> StoredOutputs:
        """The same for rivals' scores."""
        logits = one_logit_per_action(self.outputs, len(self.classes))
        return StoredOutputs(logits, self.features, self.readout, self.dropout_logits)

    @cached_property
    def remembered(self) -> Float[Tensor, "actors whole"]:
        """What a memory keeps of each actor."""
        return whole_features(self.features.float(), self.looks.float())

    @cached_property
    def probability(self) -> Float[np.ndarray, "actors classes"]:
        """The expected probability of each action: of the Beta, of the Dirichlet, or the sigmoid's."""
        if self.kind == "read":
            return torch.sigmoid(self.stored.logits.double()).numpy()
        if self.kind == "dirichlet":
            alpha, total = dirichlet_parameters(self.evidence.positive.double())
            return (alpha / total).numpy()
        alpha, beta = beta_parameters(self.evidence)
        return (alpha.double() / (alpha.double() + beta.double())).numpy()


def one_logit_per_action(
    outputs: Float[Tensor, "rows outputs"], num_classes: int
) -> Float[Tensor, "rows classes"]:
    """The outputs themselves; where each action has two, what speaks for it less what speaks against it."""
    if outputs.shape[1] == num_classes:
        return outputs
    return outputs[:, :num_classes] - outputs[:, num_classes:]


def last_layer(linear: nn.Linear | None, num_classes: int) -> LinearReadout | None:
    """Return a network's last linear layer with one logit per action; None if it has no such layer."""
    if linear is None:
        return None
    layer = torch.cat([linear.weight.detach(), linear.bias.detach()[:, None]], dim=1)
    joined = one_logit_per_action(layer.T, num_classes).T
    return LinearReadout(joined[:, :-1].contiguous(), joined[:, -1].contiguous())


def outputs_of(run: LoadedRun, side: Side, *, dropout_passes: int, seed: int = 0) -> SideOutputs:
    """What the run says of every actor of the side.

    Args:
        run: a trained recogniser.
        side: of the data of its experiment.
        dropout_passes: further passes with dropout on, for scores that ask how much passes differ; 0 is none.
        seed: of what is dropped in them.

    Raises:
        RangeError: the side has no actors.
    """
    model = _seeing(run)
    system, decide, of = run.system, cast(nn.Module, model.decide), labels_of(run.experiment)
    has_droppers = bool(droppers_in(decide))
    num_passes = dropout_passes if has_droppers else 0
    parts: list[_Part] = []
    names: list[ClipName] = []
    with evaluating(model):
        for number, batch in enumerate(side.batches):
            maps = [model.backbone(each) for each in batch.pixels]
            part = _part(model, maps, batch, side, first_clip=len(names), of=of)
            if num_passes and batch.num_actors:
                passes = _passes(run, maps, scene_boxes(batch), num_passes, of=of, seed=seed + number)
                logits = [one_logit_per_action(each, len(run.classes)) for each in passes]
                part = part._replace(dropped=torch.stack(logits))
            parts.append(part)
            names += batch.clip_names
    parts = [part for part in parts if len(part.rows)]
    if not parts:
        raise RangeError(f"the {side.name} side must have actors; it has none.")
    readout = last_layer(system.readout_layer(decide), len(run.classes)) if of == "actors" else None
    skipped = side.batches.skipped if isinstance(side.batches, ClipLoader) else []
    rows = np.concatenate([part.rows for part in parts])
    return SideOutputs(
        classes=run.classes,
        kind=system.evidence,
        outputs=torch.cat([part.outputs for part in parts]),
        evidence=Evidence(
            torch.cat([part.evidence.positive.float() for part in parts]),
            torch.cat([part.evidence.negative.float() for part in parts]),
        ),
        features=torch.cat([part.features for part in parts]),
        looks=torch.cat([part.looks for part in parts]),
        readout=readout,
        dropout_logits=torch.cat([part.dropped for part in parts], dim=1) if num_passes else None,
        labels=np.concatenate([part.labels for part in parts]),
        truth=side.truth.at(rows),
        clip_names=tuple(names),
        clip_index=np.concatenate([part.clip_index for part in parts]),
        not_stored={
            **({} if readout else {"readout": NO_READOUT}),
            **({} if num_passes else {"dropout_logits": NO_PASSES if has_droppers else NO_DROPOUT}),
        },
        num_skipped=len(skipped),
    )


class _Part(NamedTuple):
    """What one batch gives."""

    outputs: Tensor
    evidence: Evidence
    features: Tensor
    looks: Tensor
    dropped: Tensor
    labels: Bool[np.ndarray, "actors classes"]
    rows: Rows
    clip_index: Rows


def _looks(maps: Sequence[FeatureMaps], boxes: SceneBoxes, of: LabelsOf) -> Float[Tensor, "rows channels"]:
    """Those of each actor; a clip's are the mean of its actors'."""
    looks = looks_of(maps, boxes).float()
    if of == "actors":
        return looks
    clips, clip = boxes.actor_clip_index.unique(return_inverse=True)
    return along_tracks(looks, clip, num_tracks=len(clips))


def _part(
    model: MuleModel,
    maps: Sequence[FeatureMaps],
    batch: ActorBatch,
    side: Side,
    *,
    first_clip: int,
    of: LabelsOf,
) -> _Part:
    boxes = scene_boxes(batch)
    output = said_of(model.decide(maps, boxes), of)
    number = batch.actor_index if of == "actors" else torch.zeros_like(output.actor_clip_index)
    positions = batch.positions[output.actor_clip_index].tolist()
    rows = [side.rows_of(at)[number] for at, number in zip(positions, number.tolist(), strict=True)]
    return _Part(
        outputs=output.outputs.clone(),
        evidence=output.evidence,
        features=output.features.clone(),
        looks=_looks(maps, boxes, of),
        dropped=output.outputs.new_zeros(0),
        labels=labels_in(batch, of).numpy(),
        rows=np.array(rows, dtype=np.int64),
        clip_index=output.actor_clip_index.numpy() + first_clip,
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
    """Only what is right of the pooling drops units, so all passes see the same maps and the same pooled scene."""
    decide = cast(RelationModel, run.model.decide)
    decided = (
        partial(decide.decided, decide.scene(maps, boxes))
        if run.system.pools_once
        else partial(decide, maps, boxes)
    )
    return passes_with_dropout(decide, lambda: said_of(decided(), of).outputs, num_passes, seed=seed)


def _seeing(run: LoadedRun) -> MuleModel:
    """The network with the backbone its clips need: rendered ones are pixels, also where training kept their maps."""
    return run.model if run.experiment.data.kind == "table" else run.model_on_pixels()
