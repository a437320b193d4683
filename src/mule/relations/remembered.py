"""Actors of neighbouring clips: what a network that looks beyond its own clip attends to."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from mule.core.errors import RangeError


@dataclass(frozen=True)
class MemorySpan:
    """Which clips of a video are neighbours, and how much of each is remembered."""

    seconds: int
    """Clips at most this far from a clip's key time, before or after it, are its neighbours."""
    actors_per_clip: int
    """Of a clip with more actors, the first ones are remembered."""
    fades: bool = False
    """Whether a memory counts less the more the training loss has changed since it was written."""

    def __post_init__(self) -> None:
        if self.seconds < 0 or self.actors_per_clip < 1:
            raise RangeError(
                "a memory must span 0 seconds or more and keep at least one actor per clip; got "
                f"{self.seconds} and {self.actors_per_clip}."
            )


@dataclass(frozen=True)
class RememberedClip:
    """The actors of another clip of the same video, as the network remembered them."""

    near_clip: int
    """The clip of the batch whose neighbour it is."""
    offset_s: int
    """Whole seconds from that clip's key time to this one's; negative if this clip is earlier."""
    actors: Float[Tensor, "actors ..."]
    """One row per actor, without gradients."""
