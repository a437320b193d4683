"""What every backbone returns: feature maps, and how they lie over the pixels."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from mule.core.errors import ShapeError


@dataclass(frozen=True)
class FeatureMaps:
    """One map per pathway, all on one grid of cells; a cell covers `stride` × `stride` pixels of the input."""

    maps: tuple[Float[Tensor, "clips _channels _frames rows cols"], ...]
    stride: int

    def __post_init__(self) -> None:
        grids = [(each.shape[0], each.shape[3], each.shape[4]) for each in self.maps]
        if any(grid != grids[0] for grid in grids):
            raise ShapeError(
                "the maps of all pathways must share clips, rows and columns; got "
                f"{[tuple(each.shape) for each in self.maps]}. Give both pathways frames of one size."
            )

    @property
    def channels(self) -> int:
        """The channels of all pathways together: the length of an actor's feature."""
        return sum(each.shape[1] for each in self.maps)

    def without_time(self) -> "FeatureMaps":
        """The temporal mean of each map, as one frame."""
        return FeatureMaps(tuple(each.mean(dim=2, keepdim=True) for each in self.maps), self.stride)
