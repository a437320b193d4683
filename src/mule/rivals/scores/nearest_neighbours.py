"""Distance to the nearest training actors."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import RangeError, TooFewActors
from mule.core.records import Novelty, at_least_single
from mule.rivals.scores.output_score import OutputScore
from mule.rivals.scores.outputs import StoredOutputs, stored

ACTORS_AT_ONCE = 1024


class NearestNeighbours(OutputScore):
    """Novel is whose k-th nearest training actor is far: ‖z − z_(k)‖ with z = f/‖f‖ (Sun et al. 2022).

    Labels are not used beyond refusing novel actors, so several labels change nothing. The search is exact. The
    distance of unit vectors is at most 2; the value is half of it.
    """

    memory: Tensor

    def __init__(self, k: int = 10) -> None:
        super().__init__("features", learns=True)
        if k < 1:
            raise RangeError(f"k must be at least 1; got {k}.")
        self.k = k
        self.register_buffer("memory", torch.zeros(0, 0))

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        if len(does) < self.k:
            raise TooFewActors(
                f"the {self.k}th nearest actor needs {self.k} of them; got {len(does)}. Lower k."
            )
        self.memory = _on_the_sphere(stored(train.features, "features"))

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        queries = _on_the_sphere(stored(outputs.features, "features"))
        memory = self.memory.to(queries)
        distance = torch.cat([self._kth_distance(some, memory) for some in queries.split(ACTORS_AT_ONCE)])
        return Novelty(value=(distance / 2).clamp(max=1), rank=distance)

    def _kth_distance(
        self, queries: Float[Tensor, "actors dim"], memory: Float[Tensor, "known dim"]
    ) -> Float[Tensor, " actors"]:
        kth = (queries @ memory.T).topk(self.k, dim=1).indices[:, -1]
        # from the difference, not from 2 − 2·cosine, which loses the digits of near neighbours
        return (queries.double() - memory[kth].double()).norm(dim=1)


def _on_the_sphere(features: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors dim"]:
    features = at_least_single(features)
    # the largest entry first, so that neither huge nor tiny features square out of range
    largest = features.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(features.dtype).tiny)
    return F.normalize(features / largest, dim=1)
