"""The part of a network behind the backbone, in the form that is exported: flat tensors and masks, no padded tables.

    context map, boxes ─▶ RoIAlign by two matrices ─▶ relations, clips kept apart by a mask ─▶ outputs, evidence

Weights and sums are those of the model it was made from; `mule.runtime.running` measures how close the results are. The
padded tables of `mule.relations` have sizes that depend on the boxes and would be fixed in the graph; a mask has none.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.features.pooling import RoiSampling
from mule.model import PooledActors, RelationModel
from mule.relations.aco import FactoredRelations, FeatureMixing, GridRelations
from mule.relations.maps import MapRelations, RelationBlock
from mule.rivals.networks.acar import AcarRelations

MapSize = tuple[int, int]
"""Rows and columns of a context map."""


class FlatHead(nn.Module):
    """Pooling, relations and evidence for maps of one size and any number of clips, actors and objects, including none.

    Boxes must lie inside the clip: where the samples per bin depend on the size of a box, no box may exceed the map.
    """

    def __init__(self, model: RelationModel, *, stride: int, map_size: MapSize) -> None:
        """Use the model's own layers.

        Raises:
            RangeError: its relations cannot be exported.
        """
        super().__init__()
        self.related = related_by(model.relations)
        self.model, self.stride, self.map_size = model, stride, map_size

    def forward(
        self, context: Tensor, actors: Tensor, actor_clip: Tensor, objects: Tensor, object_clip: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return raw outputs, features of the last layer, evidence for and evidence against, one row per actor.

        Args:
            context: maps of all clips, (clips, channels, rows, cols), after the reduction.
            actors: boxes in pixels of the clip, (actors, 4).
            actor_clip: the clip of each actor.
            objects: boxes, (objects, 4).
            object_clip: the clip of each object.
        """
        of_actors = self._pooled(context, actors, actor_clip)
        of_objects = self._pooled(context, objects, object_clip)
        features = self.related(context, of_actors, actor_clip, of_objects, object_clip)
        outputs = self.model.head.outputs(features)
        evidence = self.model.head.evidence_from(outputs)
        return outputs, features, evidence.positive, evidence.negative

    def _pooled(self, context: Tensor, boxes: Tensor, clip: Tensor) -> Tensor:
        """`mule.features.pooling.box_features`, with as many samples as the largest possible box needs."""
        sampling = self.model.sampling
        start, end = (boxes / self.stride - (0.5 if sampling.aligned else 0.0)).split(2, dim=1)
        length = end - start if sampling.aligned else (end - start).clamp(min=1)
        rows, cols = self.map_size
        mix_cols = _mixing(start[:, 0], length[:, 0], cols, sampling).unsqueeze(1)
        mix_rows = _mixing(start[:, 1], length[:, 1], rows, sampling).unsqueeze(1)
        return (mix_rows @ (context[clip] @ mix_cols.transpose(2, 3))).amax(dim=(2, 3))


def _mixing(start: Tensor, length: Tensor, num_cells: int, sampling: RoiSampling) -> Tensor:
    """The weight of each cell of an axis in each bin, (boxes, bins, cells)."""
    bin_length = length / sampling.bins
    if sampling.samples:
        most, num_samples = sampling.samples, torch.full_like(length, sampling.samples)
    else:
        most = math.ceil((num_cells + 1) / sampling.bins)
        num_samples = bin_length.ceil().clamp(min=0)
    num_samples = num_samples[:, None, None]
    sample, bins, cell = (torch.arange(count).float() for count in (most, sampling.bins, num_cells))
    start, bin_length = start[:, None, None], bin_length[:, None, None]
    position = start + bins[:, None] * bin_length + (sample + 0.5) * bin_length / num_samples.clamp(min=1)
    counts = (sample < num_samples) & (position >= -1) & (position <= num_cells)
    distance = (position.clamp(0, num_cells - 1)[..., None] - cell).abs()
    weight = (1 - distance).clamp(min=0) * counts[..., None]
    return weight.sum(dim=2) / num_samples.clamp(min=1)


Related = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def related_by(relations: object) -> Related:
    """Return the same relations on flat tensors: context maps, actors and their clips, objects and their clips.

    Raises:
        RangeError: these relations cannot be exported.
    """
    match relations:
        case FactoredRelations():
            return _Factored(relations)
        case GridRelations():
            return _Grid(relations)
        case AcarRelations():
            return _Acar(relations)
        case PooledActors():
            return lambda context, actors, actor_clip, objects, object_clip: actors  # noqa: ARG005 - one signature for all
    raise RangeError(
        "only factored relations, grids, ACAR's relations or none can be exported; got "
        f"{type(relations).__name__}. Use --runtime torch."
    )


class _Factored(nn.Module):
    def __init__(self, relations: FactoredRelations) -> None:
        super().__init__()
        self.relations = relations

    def forward(
        self, context: Tensor, actors: Tensor, actor_clip: Tensor, objects: Tensor, object_clip: Tensor
    ) -> Tensor:
        of_context, of_actors, of_objects, object_clip = _mixed(
            self.relations.mixing, context, actors, objects, object_clip
        )
        chosen = self.relations.choice(of_actors, actor_clip, of_objects, object_clip)
        related = _attended(
            self.relations.maps,
            torch.cat([of_actors + chosen, of_objects]),
            torch.cat([actor_clip, object_clip]),
            of_context,
            num_asking=of_actors.shape[0],
        )
        return self.relations.actor(related, actors)


class _Grid(nn.Module):
    def __init__(self, relations: GridRelations) -> None:
        super().__init__()
        self.relations = relations

    def forward(
        self, context: Tensor, actors: Tensor, actor_clip: Tensor, objects: Tensor, object_clip: Tensor
    ) -> Tensor:
        of_context, of_actors, of_objects, object_clip = _mixed(
            self.relations.mixing, context, actors, objects, object_clip
        )
        pair_actor, pair_object = (actor_clip[:, None] == object_clip).nonzero().unbind(1)
        of_pair = _attended(
            self.relations.maps,
            of_actors[pair_actor] + of_objects[pair_object],
            actor_clip[pair_actor],
            of_context,
            num_asking=pair_actor.shape[0],
        )
        is_of = torch.arange(actors.shape[0])[:, None] == pair_actor
        lowest = torch.finfo(of_pair.dtype).min
        return self.relations.actor(torch.where(is_of[..., None], of_pair, lowest).amax(dim=1), actors)


class _Acar(nn.Module):
    def __init__(self, relations: AcarRelations) -> None:
        super().__init__()
        self.relations = relations

    def forward(
        self,
        context: Tensor,
        actors: Tensor,
        actor_clip: Tensor,
        objects: Tensor,  # noqa: ARG002 - one signature for all
        object_clip: Tensor,  # noqa: ARG002
    ) -> Tensor:
        of_actors, of_context = (
            self.relations.mixing.weight.flatten(1).split(self.relations.channels, dim=1)
        )  # fmt: skip
        related = _attended(
            self.relations.maps,
            F.linear(actors, of_actors),
            actor_clip,
            F.linear(context.movedim(1, 3), of_context),
            num_asking=actors.shape[0],
        )
        return self.relations.actor(related, actors)


def _mixed(
    mixing: FeatureMixing, context: Tensor, actors: Tensor, objects: Tensor, object_clip: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W_X·X channels last, W_A·A, W_O·O with a null object for each clip without any, and the clips of these."""
    of_actors, of_context, of_objects = mixing.convolution.weight.flatten(1).split(mixing.channels, dim=1)
    is_of_clip = torch.arange(context.shape[0])[:, None] == object_clip
    without = (is_of_clip.float().sum(dim=1) == 0).nonzero().squeeze(1)
    nulls = mixing.null_object.expand(without.shape[0], -1)
    return (
        F.linear(context.movedim(1, 3), of_context),
        F.linear(actors, of_actors),
        F.linear(torch.cat([objects, nulls]), of_objects),
        torch.cat([object_clip, without]),
    )


def _attended(
    relations: MapRelations, vectors: Tensor, clip: Tensor, context: Tensor, *, num_asking: int | Tensor
) -> Tensor:
    """`MapRelations`: the first maps, after all blocks, averaged over cells. Numbers are tensors while they are traced."""
    slope = relations.settings.slope
    maps = F.leaky_relu(context[clip] + vectors[:, None, None], slope)
    maps = relations.pool(F.leaky_relu(relations.norm(relations.convolution(maps.movedim(3, 1))), slope))
    is_same_clip = clip[:, None] == clip
    for block in relations.blocks[:-1]:
        maps = _block(block, maps, maps, is_same_clip)
    maps = _block(relations.blocks[-1], maps[:num_asking], maps, is_same_clip[:num_asking])
    return maps.mean(dim=(2, 3))


def _block(block: nn.Module, asking: Tensor, asked: Tensor, is_same_clip: Tensor) -> Tensor:
    """`RelationBlock`: the asking maps, after attending to all of their clip at every cell."""
    assert isinstance(block, RelationBlock)  # noqa: S101 - nothing else is in MapRelations.blocks
    rows, cols = asking.shape[2:]
    query = block.query(asking).flatten(2).permute(2, 0, 1)  # (cells, asking, width)
    key, value = (layer(asked).flatten(2).permute(2, 0, 1) for layer in (block.key, block.value))
    likeness = query @ key.transpose(1, 2) / query.shape[2] ** 0.5
    lowest = torch.finfo(likeness.dtype).min
    weights = likeness.masked_fill(~is_same_clip, lowest).softmax(dim=2)
    seen = (weights @ value).permute(1, 2, 0).unflatten(2, (rows, cols))
    return asking + block.out(F.leaky_relu(block.norm(seen), block.slope))
