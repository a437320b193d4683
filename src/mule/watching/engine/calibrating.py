"""Held-out known actors as they are watched: found by the detector, followed by the tracker, in the video's own size.

Calibrated on clips with exact boxes, a promise of 5 % became 10 % on takes that were watched. What is promised of
watching must be set by watching: same detector, tracker, sizes, compression and rhythm.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.watching.engine.bundle import HeldOutOutputs
from mule.watching.engine.watch import Watch
from mule.watching.moments import Moment

IsHeldOut = Callable[[Moment], Bool[Tensor, " actors"]]
"""Which actors of a moment are known ones; others, such as what is no person at all, are left out."""


@dataclass
class WatchedActors:
    """Looks at known actors of several videos, one after another."""

    _outputs: list[Float[Tensor, "actors outputs"]] = field(default_factory=list)
    _features: list[Float[Tensor, "actors dim"]] = field(default_factory=list)
    _videos: list[Int[Tensor, " actors"]] = field(default_factory=list)
    _tracks: list[Int[Tensor, " actors"]] = field(default_factory=list)
    _num_videos: int = 0
    _num_tracks: int = 0

    def add(self, watch: Watch, *, is_held_out: IsHeldOut) -> Iterable[Moment]:
        """Goes through a watch and keeps its known actors; the moments are handed on."""
        numbers: dict[int, int] = {}
        for moment in watch:
            if watch.looks is not None and moment.actors:
                chosen = is_held_out(moment)
                ids = [actor.track_id for actor in moment.actors]
                tracks = [numbers.setdefault(number, self._num_tracks + len(numbers)) for number in ids]
                self._outputs.append(watch.looks.outputs[chosen].float())
                self._features.append(watch.looks.features[chosen])
                self._tracks.append(torch.tensor(tracks, dtype=torch.int64)[chosen])
                self._videos.append(torch.full((int(chosen.sum()),), self._num_videos))
            yield moment
        self._num_videos += 1
        self._num_tracks += len(numbers)

    @property
    def held_out(self) -> HeldOutOutputs:
        """All of them; what is crossed over when scores are combined is videos, not clips of one video."""
        outputs, features, videos, tracks = (
            torch.cat(parts) for parts in (self._outputs, self._features, self._videos, self._tracks)
        )
        return HeldOutOutputs(outputs, features, videos, tracks)
