"""A control without pixels: how well known and novel are told apart by what a clip is, not by what it shows.

Clips of one source are often alike in length and frame size. If these alone tell novel actors from known ones, a score
that sees pixels may have learnt no more than the source: say so, and match for it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from mule.core.errors import NotFinite, TooFewActors
from mule.metrics import auroc

SUSPICIOUS_AUROC = 0.55
"""A control above this is to be reported beside every score, and matched for."""


class Control(NamedTuple):
    """What a control finds."""

    novelty: Float[np.ndarray, " tested"]
    """The distance to the nearest training clip."""
    auroc: float
    """Of this distance, novel being positive; 0.5 is chance."""

    @property
    def is_suspicious(self) -> bool:
        """Whether clips can be told apart without looking at them."""
        return self.auroc > SUSPICIOUS_AUROC


def control_without_pixels(
    training: Float[np.ndarray, "trained facts"],
    tested: Float[np.ndarray, "tested facts"],
    is_novel: Bool[np.ndarray, " tested"],
) -> Control:
    """Novelty as distance to the nearest training clip in plain facts: length, width, height, number of the scene.

    Each fact is divided by its standard deviation among training clips; one that never varies there counts in its own
    units.

    Args:
        training: the facts of each training clip.
        tested: the same facts of each tested clip.
        is_novel: whether it is novel.

    Raises:
        TooFewActors: there are no training clips, or not both known and novel tested ones.
        NotFinite: a fact is not a finite number.
    """
    if not len(training) or is_novel.all() or not is_novel.any():
        raise TooFewActors(
            "a control needs training clips, and known and novel ones to test; got "
            f"{len(training)} for training, {int((~is_novel).sum())} known and {int(is_novel.sum())} novel."
        )
    if not (np.isfinite(training).all() and np.isfinite(tested).all()):
        raise NotFinite(
            "the facts of clips must be finite numbers; some are not. Leave out what is not known."
        )
    spread = training.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    novelty, _ = KDTree(training / scale).query(tested / scale)
    return Control(np.asarray(novelty), auroc(novelty, is_novel))
