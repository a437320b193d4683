"""Held-out known actors as watching sees them: found by the detector, followed by the tracker, in the video's own size.

Calibrated on clips with exact boxes, a promise of 5 % false alarms became 10 % on watched takes. A promise about watching
must be calibrated by watching: same detector, tracker, sizes, compression and key times.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.watching.engine.bundle import HeldOutOutputs
from mule.watching.engine.watch import Watcher
from mule.watching.moments import Moment

IsHeldOut = Callable[[Moment], Bool[Tensor, " actors"]]
"""Which actors of a moment are known; others, such as boxes without a person, are left out."""


@dataclass
class WatchedActors:
    """Looks at known actors of several videos, collected one video after another."""

    _outputs: list[Float[Tensor, "actors outputs"]] = field(default_factory=list)
    _features: list[Float[Tensor, "actors dim"]] = field(default_factory=list)
    _videos: list[Int[Tensor, " actors"]] = field(default_factory=list)
    _tracks: list[Int[Tensor, " actors"]] = field(default_factory=list)
    _num_videos: int = 0
    _num_tracks: int = 0

    def add(self, watcher: Watcher, *, is_held_out: IsHeldOut) -> Iterable[Moment]:
        """Yield the moments of a watcher and keep their known actors."""
        numbers: dict[int, int] = {}
        for moment in watcher:
            if watcher.recognised is not None and moment.actors:
                chosen = is_held_out(moment)
                ids = [actor.track_id for actor in moment.actors]
                tracks = [numbers.setdefault(number, self._num_tracks + len(numbers)) for number in ids]
                self._outputs.append(watcher.recognised.kept.outputs[chosen].float())
                self._features.append(watcher.recognised.looks.features[chosen])
                self._tracks.append(torch.tensor(tracks, dtype=torch.int64)[chosen])
                self._videos.append(torch.full((int(chosen.sum()),), self._num_videos))
            yield moment
        self._num_videos += 1
        self._num_tracks += len(numbers)

    @property
    def held_out(self) -> HeldOutOutputs:
        """All of them. Scores are crossed over videos, not over clips of one video."""
        outputs, features, videos, tracks = (
            torch.cat(parts) for parts in (self._outputs, self._features, self._videos, self._tracks)
        )
        return HeldOutOutputs(outputs, features, videos, tracks)
