"""Group rows by density in a space where people of one action vary equally.

    features ─▶ whitened, length 1 ─▶ `MOST_DIRECTIONS` main directions ─▶ HDBSCAN ─▶ groups, and rows in none of them

HDBSCAN (Campello, Moulavi and Sander 2013) needs no number of groups, and leaves out rows that resemble nobody. It takes the
square of their number, so of many rows `MOST_CLUSTERED` are clustered, and each other row joins the group of its nearest
one, if that is as near as members of the group are to each other.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import MuleError, RangeError

FEWEST = 5
"""Members of a group, unless said otherwise."""
MOST_DIRECTIONS = 24
MOST_CLUSTERED = 8000
NO_GROUP = -1
MOST_AT_ONCE = 4096


@dataclass(frozen=True)
class Grouping:
    """The group of each row, and how sure that is; rows in no group have −1 and 0."""

    groups: Int[Tensor, " rows"]
    sureness: Float[Tensor, " rows"]

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return int(self.groups.max()) + 1 if len(self.groups) else 0


def grouped(rows: Float[Tensor, "rows dim"], *, fewest: int = FEWEST, fewest_near: int = 2) -> Grouping:
    """Group rows of length 1 by density.

    Args:
        rows: directions, such as `WhitenedCosine.whitened` returns.
        fewest: members that a group has at least.
        fewest_near: neighbours that say how dense it is around a row; more of them leave more rows out.

    >>> draw = torch.Generator().manual_seed(0)
    >>> rows = torch.eye(3, 8).repeat_interleave(20, dim=0) + 0.05 * torch.randn(60, 8, generator=draw)
    >>> sorted(grouped(rows).groups.bincount().tolist())
    [20, 20, 20]
    """
    if fewest < 2:
        raise RangeError(f"a group must have at least 2 members; got {fewest}.")
    if len(rows) < max(fewest, 3):
        nobody = torch.full((len(rows),), NO_GROUP)
        return Grouping(nobody, torch.zeros(len(rows), dtype=torch.float64))
    points = main_directions(rows)
    if len(points) <= MOST_CLUSTERED:
        return _clustered(points, fewest=fewest, fewest_near=fewest_near)
    chosen = torch.linspace(0, len(points) - 1, MOST_CLUSTERED).round().long()
    share = len(chosen) / len(points)
    some = _clustered(points[chosen], fewest=max(2, round(fewest * share)), fewest_near=fewest_near)
    return _joined_by_nearest(points, points[chosen], some)


def main_directions(
    rows: Float[Tensor, "rows dim"], *, most: int = MOST_DIRECTIONS
) -> Float[Tensor, "rows directions"]:
    """Return the rows, length 1, along the directions in which they differ most: fewer numbers, and less noise."""
    unit = F.normalize(rows.float(), dim=1)
    centred = unit - unit.mean(dim=0)
    most = min(most, *centred.shape)
    torch.manual_seed(0)
    _, _, directions = torch.pca_lowrank(centred, q=min(most + 8, *centred.shape), center=False, niter=4)
    return F.normalize(centred @ directions[:, :most], dim=1)


def _clustered(points: Tensor, *, fewest: int, fewest_near: int) -> Grouping:
    try:
        from sklearn.cluster import HDBSCAN
    except ImportError as missing:
        raise MuleError(
            f"Discovering needs scikit-learn: pip install 'mule-actions[discover]'. It could not be imported: {missing}"
        ) from missing
    options: dict[str, Any] = {"min_cluster_size": fewest, "min_samples": fewest_near, "copy": True}
    clusters = HDBSCAN(**options).fit(points.double().numpy())
    groups = torch.from_numpy(clusters.labels_).long().clamp(min=NO_GROUP)
    return Grouping(groups, torch.from_numpy(clusters.probabilities_).double())


def _joined_by_nearest(points: Tensor, clustered: Tensor, some: Grouping) -> Grouping:
    """Give each point the group of its nearest clustered point, if it is as near as members of that group are."""
    reach = torch.zeros(some.num_groups + 1)  # the last is of those in no group
    for group in range(some.num_groups):
        members = clustered[some.groups == group]
        near = (members @ members.T).fill_diagonal_(-1).amax(dim=1)
        reach[group] = near.quantile(0.05)
    groups, sureness = [], []
    for part in points.split(MOST_AT_ONCE):
        cosine, nearest = (part @ clustered.T).max(dim=1)
        group = some.groups[nearest]
        is_near = cosine >= reach[group]
        groups.append(torch.where(is_near, group, NO_GROUP))
        sureness.append(torch.where(is_near, some.sureness[nearest], 0.0))
    return Grouping(torch.cat(groups), torch.cat(sureness))
