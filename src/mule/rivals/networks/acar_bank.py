"""ACAR with its actor-context feature bank (Pan et al., CVPR 2021): actors attend to those of neighbouring clips too.

    own first-order maps ──────────────┬─ queries ─┐
                                       └─ keys ────┤ HR2O blocks at every cell ─ mean over cells
    first-order maps of neighbours ───── values ───┘

A first-order map is an actor beside its context, after the 3×3 convolution and the max pool. The maps of neighbours within
10 s are keys and values of every block; they are never queries and stay as they were remembered. Without neighbours this is
`AcarRelations`, with the same weights.

The authors fill the bank once, by an ACAR that was trained without it, and did not release that part. Here the network
fills the bank itself: each training step writes the maps of its clips, as AIA's asynchronous memory update does. It needs
one training instead of two. Maps of another size than the clip's own are resampled to it.

At published sizes a map of 7 × 7 cells takes 50 176 bytes. Checkpoints hold the bank.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mule.relations.aco import SceneFeatures
from mule.relations.maps import Seats, clips_alike
from mule.relations.remembered import MemorySpan, RememberedClip
from mule.rivals.networks.acar import AcarRelations

FirstOrder = Float[Tensor, "_actors width _rows _cols"]


class AcarBankRelations(AcarRelations):
    """One feature per actor, after actors have attended to each other and to the bank at every cell of the context."""

    span = MemorySpan(seconds=10, actors_per_clip=5)

    def forward(self, scene: SceneFeatures) -> Float[Tensor, "actors dim"]:
        """Return one relational feature per actor, in the scene's order."""
        return self.remembering(scene)[0]

    def remembering(self, scene: SceneFeatures) -> tuple[Float[Tensor, "actors dim"], tuple[FirstOrder, ...]]:
        """Return one feature per actor; what is remembered of an actor is its first-order map."""
        of_actors, context = self.mixing(scene)
        clip_index = scene.actor_clip_index
        to_remember: dict[int, FirstOrder] = {}
        related = of_actors
        for part in context:
            rows = torch.isin(clip_index, part.clips).nonzero().squeeze(1)
            maps = self.maps.mapped(of_actors[rows], part, clip_index[rows])
            clips = part.clips.tolist()
            near = [each for each in scene.remembered if each.near_clip in clips]
            means = self._related(maps, clip_index[rows], part.clips, near)
            related = related.to(means.dtype).index_copy(0, rows, means)  # norms widen under autocast
            to_remember |= {clip: maps.detach()[clip_index[rows] == clip] for clip in clips}
        remembered = tuple(to_remember[clip] for clip in range(scene.num_clips))
        return self.actor(related, scene.actors), remembered

    def _related(
        self,
        maps: Float[Tensor, "maps width rows cols"],
        clip_index: Int[Tensor, " maps"],
        clips: Int[Tensor, " clips"],
        near: list[RememberedClip],
    ) -> Float[Tensor, "maps width"]:
        """Relate the maps of clips of one size to each other and to the bank; return their means over cells."""
        bank = torch.cat([maps[:0], *(_resampled(each.actors.to(maps), maps.shape[2:]) for each in near)])
        bank_index = torch.cat(
            [clip_index[:0], *(clip_index.new_full((len(each.actors),), each.near_clip) for each in near)]
        )
        means = maps.mean(dim=(2, 3))
        for alike in clips_alike(torch.cat([clip_index, bank_index]), clips):
            rows = torch.isin(clip_index, alike)
            asked = torch.isin(bank_index, alike)
            related = self._blocks(
                maps[rows],
                bank[asked],
                torch.searchsorted(alike, torch.cat([clip_index[rows], bank_index[asked]])),
                num_clips=len(alike),
            )
            means = means.to(related.dtype).index_copy(0, rows.nonzero().squeeze(1), related)
        return means

    def _blocks(
        self,
        maps: Float[Tensor, "maps width rows cols"],
        bank: Float[Tensor, "banked width rows cols"],
        clip_index: Int[Tensor, " all"],
        *,
        num_clips: int,
    ) -> Float[Tensor, "maps width"]:
        asking, asked = Seats.of(clip_index[: len(maps)], num_clips), Seats.of(clip_index, num_clips)
        for block in self.maps.blocks:
            maps, _ = block(torch.cat([maps, bank]), asking=asking, asked=asked)
        return maps.mean(dim=(2, 3))


def _resampled(
    maps: Float[Tensor, "maps width rows cols"], size: torch.Size
) -> Float[Tensor, "maps width new_rows new_cols"]:
    """Return the maps at another size, bilinearly; maps of that size are returned as they are."""
    if maps.shape[2:] == size:
        return maps
    return F.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=False)
