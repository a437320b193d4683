"""MULE as in Figure 2, left to right: see, pool, relate, decide.

    clips ─▶ backbone ─▶ feature maps ─┬─ mean over time ───────────▶ context X ─┐
                                       └─ RoIAlign, max ─▶ actors A, objects O ──┴─▶ relations ─▶ head ─▶ evidence
                                                     ▲
    boxes ───────────────────────────────────────────┘

`RelationModel` is everything right of the backbone: it is trained alone on maps that were computed once and kept.
`MuleModel` puts a backbone before it. Both treat one actor with one action and many actors with many actions alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mule.core.errors import ShapeError
from mule.core.records import Evidence
from mule.evidence.fusion import along_tracks, of_strongest, strongest_actors
from mule.features.pooling import (
    DETECTION_HEAD,
    LOOK,
    FeatureMaps,
    RoiSampling,
    box_features,
    context_map,
    roi_align,
)
from mule.features.weights.classifier import LabelClassifier
from mule.novelty.crossfit import CROP, FRAME, LABELS_INPUT, ROI, Inputs
from mule.novelty.pretraining import root_probabilities
from mule.relations.aco import SceneFeatures
from mule.relations.remembered import MemorySpan, RememberedClip


@runtime_checkable
class Relations(Protocol):
    """Turns actors, context and objects into one feature per actor."""

    @property
    def dim(self) -> int:
        """The length of that feature."""
        ...

    def __call__(self, scene: SceneFeatures) -> Float[Tensor, "actors dim"]:
        """Return one relational feature per actor."""
        ...


@runtime_checkable
class RemembersClips(Protocol):
    """Relations that also attend to actors of neighbouring clips, and say what to remember of their own."""

    @property
    def span(self) -> MemorySpan:
        """Which clips are neighbours."""
        ...

    def remembering(
        self, scene: SceneFeatures
    ) -> tuple[Float[Tensor, "actors dim"], tuple[Float[Tensor, "_actors ..."], ...]]:
        """Return one feature per actor, and for each clip what to remember of its actors, without gradients."""
        ...


def neighbourhood(model: nn.Module) -> MemorySpan | None:
    """Return which clips are neighbours for a model that attends to them; None for one that sees each clip alone."""
    return next((module.span for module in model.modules() if isinstance(module, RemembersClips)), None)


@runtime_checkable
class Head(Protocol):
    """Turns a feature into raw outputs, and raw outputs into evidence."""

    def outputs(self, relations: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors outputs"]:
        """Return the raw outputs h."""
        ...

    def evidence_from(self, outputs: Float[Tensor, "actors outputs"]) -> Evidence:
        """Return the evidence that raw outputs stand for."""
        ...


@dataclass(frozen=True)
class SceneBoxes:
    """The boxes of the actors and objects of a batch, in pixels of the network's input, and the clip of each."""

    actors_xyxy_px: Float[Tensor, "actors 4"]
    actor_clip_index: Int[Tensor, " actors"]
    objects_xyxy_px: Float[Tensor, "objects 4"]
    object_clip_index: Int[Tensor, " objects"]
    remembered: tuple[RememberedClip, ...] = ()
    """Neighbouring clips, for networks with a memory of clips; without them a clip stands alone."""

    def __post_init__(self) -> None:
        pairs = ((self.actors_xyxy_px, self.actor_clip_index), (self.objects_xyxy_px, self.object_clip_index))
        if any(len(boxes) != len(clips) for boxes, clips in pairs):
            raise ShapeError(
                f"every box must have a clip; got {[(len(boxes), len(clips)) for boxes, clips in pairs]}."
            )


@dataclass(frozen=True)
class ModelOutput:
    """A model's output for each actor, with what training and scores need besides."""

    outputs: Float[Tensor, "actors outputs"]
    """h: the raw outputs of the last layer."""
    evidence: Evidence
    features: Float[Tensor, "actors dim"]
    """The input of the last layer."""
    context: Float[Tensor, "clips channels"]
    """σ(X): the scene of each clip, its map averaged over cells."""
    actor_clip_index: Int[Tensor, " actors"]
    to_remember: tuple[Float[Tensor, "_actors ..."], ...] = ()
    """What to remember of the actors of each clip, without gradients; empty for networks without a memory of clips."""

    def of_clips(self) -> "ModelOutput":
        """Return one row per clip that has actors: for each action, the output of the actor most sure to do it.

        A clip's feature is the mean of its actors' features; the outputs are not a linear function of it.
        """
        clips, clip = self.actor_clip_index.unique(return_inverse=True)
        strongest = strongest_actors(
            self.outputs, self.actor_clip_index, num_classes=self.evidence.positive.shape[1]
        )
        return replace(
            self,
            outputs=of_strongest(self.outputs, strongest),
            evidence=Evidence(
                positive=of_strongest(self.evidence.positive, strongest),
                negative=of_strongest(self.evidence.negative, strongest),
            ),
            features=along_tracks(self.features, clip, num_tracks=len(clips)),
            actor_clip_index=clips,
        )


class PooledActors(nn.Module):
    """No relations: the actor's own pooled feature (Table 2, "w/o ACO-R"; also the head of SlowFast and X3D)."""

    def __init__(self, channels: int, *, dropout: float = 0.5) -> None:
        super().__init__()
        self.dim = channels
        self.dropout = nn.Dropout(dropout)

    def forward(self, scene: SceneFeatures) -> Float[Tensor, "actors dim"]:
        """Return the features of the actors as they are."""
        return self.dropout(scene.actors)


class RelationModel(nn.Module):
    """Rooms 3 to 5 of the corridor: pooling, relations, evidence."""

    def __init__(
        self,
        relations: Relations,
        head: Head,
        *,
        reduction: nn.Conv2d | None = None,
        sampling: RoiSampling = DETECTION_HEAD,
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.relations = relations
        self.head = head
        self.sampling = sampling

    def forward(
        self, features: Sequence[FeatureMaps], boxes: SceneBoxes, scene: SceneFeatures | None = None
    ) -> ModelOutput:
        """Return the output for each actor. Clips of one size share a map; clips are numbered from first to last.

        Several passes over the same maps and boxes may share a `scene` that was pooled once.
        """
        scene = self.scene(features, boxes) if scene is None else scene
        if isinstance(self.relations, RemembersClips):
            related, to_remember = self.relations.remembering(scene)
        else:
            related, to_remember = self.relations(scene), ()
        outputs = self.head.outputs(related)
        return ModelOutput(
            outputs=outputs,
            evidence=self.head.evidence_from(outputs),
            features=related,
            context=scene.context_means,
            actor_clip_index=scene.actor_clip_index,
            to_remember=to_remember,
        )

    def scene(self, features: Sequence[FeatureMaps], boxes: SceneBoxes) -> SceneFeatures:
        """Pool context, actors and objects from the maps."""
        contexts = [self._context(each) for each in features]
        pooled: list[Tensor] = []
        for boxes_xyxy_px, clip_index in (
            (boxes.actors_xyxy_px, boxes.actor_clip_index),
            (boxes.objects_xyxy_px, boxes.object_clip_index),
        ):
            parts, order = boxes_by_part(features, boxes_xyxy_px, clip_index)
            of_parts = [
                box_features(context, *part, stride=each.stride, sampling=self.sampling)
                for context, each, part in zip(contexts, features, parts, strict=True)
            ]
            pooled.append(torch.cat(of_parts)[order])
        return SceneFeatures(
            context=tuple(clip for each in contexts for clip in each),
            actors=pooled[0],
            actor_clip_index=boxes.actor_clip_index,
            objects=pooled[1],
            object_clip_index=boxes.object_clip_index,
            remembered=boxes.remembered,
        )

    def _context(self, features: FeatureMaps) -> Float[Tensor, "clips channels rows cols"]:
        context = context_map(features)
        return context if self.reduction is None else self.reduction(context)


def per_box(
    features: Sequence[FeatureMaps],
    boxes_xyxy_px: Float[Tensor, "boxes 4"],
    clip_index: Int[Tensor, " boxes"],
    pool: Callable[[int, Tensor, Tensor], Tensor],
) -> Float[Tensor, "boxes ..."]:
    """Pool each box from maps that come in parts of different size; results are in the order of the boxes.

    `pool(part, boxes, clip_index)` gets the boxes of one part, and their clips as numbered within that part.
    """
    parts, order = boxes_by_part(features, boxes_xyxy_px, clip_index)
    return torch.cat([pool(number, *part) for number, part in enumerate(parts)])[order]


def boxes_by_part(
    features: Sequence[FeatureMaps],
    boxes_xyxy_px: Float[Tensor, "boxes 4"],
    clip_index: Int[Tensor, " boxes"],
) -> tuple[list[tuple[Tensor, Tensor]], Int[Tensor, " boxes"]]:
    """Split boxes by the part of the maps that holds their clip.

    Returns:
        The boxes of each part with their clips as numbered within it, and the order that undoes the split.

    Raises:
        ShapeError: a box lies in none of the clips.
    """
    parts: list[tuple[Tensor, Tensor]] = []
    rows: list[Tensor] = []
    first = 0
    for each in features:
        num_clips = len(each.maps[0])
        chosen = torch.nonzero((clip_index >= first) & (clip_index < first + num_clips)).flatten()
        parts.append((boxes_xyxy_px[chosen], clip_index[chosen] - first))
        rows.append(chosen)
        first += num_clips
    if sum(map(len, rows)) != len(boxes_xyxy_px):
        raise ShapeError(
            f"every box must lie in one of the {first} clips; got clips {clip_index.unique().tolist()}."
        )
    return parts, torch.cat(rows).argsort()


def looks_of(
    features: Sequence[FeatureMaps], boxes: SceneBoxes, *, sampling: RoiSampling = LOOK
) -> Float[Tensor, "actors channels"]:
    """Return the backbone's feature of each actor: the mean of its maps within the box."""
    contexts = [context_map(each) for each in features]

    def mean(part: int, boxes_xyxy_px: Tensor, clip_index: Tensor) -> Tensor:
        stride = features[part].stride
        return roi_align(contexts[part], boxes_xyxy_px, clip_index, stride=stride, sampling=sampling).mean(
            dim=(2, 3)
        )

    return per_box(features, boxes.actors_xyxy_px, boxes.actor_clip_index, mean)


def inputs_in_map(
    last_map: Float[Tensor, "clips channels rows cols"],
    boxes_xyxy_px: Float[Tensor, "actors 4"],
    clip_index: Int[Tensor, " actors"],
    *,
    stride: int,
) -> dict[str, Float[Tensor, "actors channels"]]:
    """Return what one pass over the frame shows of each actor: the mean within the box, `roi`, and of the whole, `frame`.

    `last_map` is the temporal mean of the backbone's last map, raw: not standardised, and without the finer map that may
    be kept beside it (`mule.features.weights.classifier.last_channels`).

    >>> seen = inputs_in_map(torch.ones(1, 8, 4, 4), torch.tensor([[0.0, 0, 40, 90]]), torch.tensor([0]), stride=32)
    >>> {name: tuple(each.shape) for name, each in seen.items()}
    {'roi': (1, 8), 'frame': (1, 8)}
    """
    inside = roi_align(last_map, boxes_xyxy_px, clip_index, stride=stride, sampling=LOOK)
    return {ROI: inside.mean(dim=(2, 3)), FRAME: last_map.mean(dim=(2, 3))[clip_index]}


def with_labels(
    seen: Mapping[str, Float[Tensor, "actors channels"]],
    classifier: LabelClassifier | None,
    *,
    has_box: Bool[Tensor, " actors"] | None = None,
) -> Inputs:
    """Add `labels`, what the backbone's own classifier says of each actor: roots of probabilities (`root_probabilities`).

    It reads `roi`, or `frame` where an actor has no box, together with `crop` where there is one: logits of several views
    are averaged, which for a linear classifier is the logit of their average. So average flips and strides first.

    Args:
        seen: features of the actors by name, raw.
        classifier: of the backbone; None adds nothing.
        has_box: which actors have a box of their own; None if all have.
    """
    if classifier is None:
        return dict(seen)
    view = seen[FRAME] if ROI not in seen else seen[ROI]
    if has_box is not None and ROI in seen:
        view = torch.where(has_box[:, None], view, seen[FRAME])
    views = [view, *(seen[name] for name in (CROP,) if name in seen)]
    return {**seen, LABELS_INPUT: root_probabilities(classifier(torch.stack(views).mean(dim=0)))}


class MuleModel(nn.Module):
    """The whole of Figure 2: a backbone, and the network that turns its maps and boxes into a `ModelOutput`.

    `decide` is a `RelationModel` or the network of a rival.
    """

    def __init__(
        self,
        backbone: Callable[[Tensor], FeatureMaps],
        decide: Callable[[Sequence[FeatureMaps], SceneBoxes], ModelOutput],
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.decide = decide

    def forward(
        self, clips: Sequence[Float[Tensor, "_clips _channels _frames _rows _cols"]], boxes: SceneBoxes
    ) -> ModelOutput:
        """Return the output for each actor. Clips of one size share a tensor; clips are numbered from first to last."""
        return self.decide([self.backbone(each) for each in clips], boxes)


class FrozenBackboneMaps(nn.Module):
    """A frozen backbone whose maps look as those that training kept: averaged over time, then standardised."""

    def __init__(self, backbone: nn.Module, kept: Callable[[Tensor], FeatureMaps]) -> None:
        super().__init__()
        self.backbone, self.kept = backbone, kept

    @torch.no_grad()
    def forward(self, clips: Float[Tensor, "clips channels frames rows cols"]) -> FeatureMaps:
        """Return one standardised context map per clip."""
        return self.kept(context_map(self.backbone(clips)).unsqueeze(2))


class KeptMaps(nn.Module):
    """Stands in for a backbone where clips are context maps already: computed once and kept, one frame each.

    Channels are standardised by their mean and deviation over the training clips; in training some are dropped.
    """

    def __init__(self, stride: int, channels: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.stride = stride
        self.mean = nn.Buffer(torch.zeros(channels))
        self.deviation = nn.Buffer(torch.ones(channels))
        self.dropout = nn.Dropout3d(dropout)

    def forward(self, clips: Float[Tensor, "clips channels 1 rows cols"]) -> FeatureMaps:
        """Return the standardised maps and their stride in pixels."""
        kept = self.dropout(clips.new_ones(*clips.shape[:2], 1, 1, 1))  # 0 or 1 / (1 − share)
        scale = kept / self.deviation[:, None, None, None]
        shift = scale * -self.mean[:, None, None, None]
        return FeatureMaps((torch.addcmul(shift, clips, scale),), self.stride)  # one pass over large maps

    def standardise(self, mean: Float[Tensor, " channels"], deviation: Float[Tensor, " channels"]) -> None:
        """Set the mean and deviation of the channels; a channel that never varies is only centred."""
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))
