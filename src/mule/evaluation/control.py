"""A control without pixels: how well the length and size of clips alone separate novel from known.

Clips of one source often share their length and frame size. If these alone separate novel from known actors,
a score that sees pixels may have learned no more than the source. Report it, and match the clips for it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from mule.core.errors import NotFinite, TooFewActors
from mule.metrics import auroc

SUSPICIOUS_AUROC = 0.55
"""Above this, report the control beside every score and match the clips for it."""


class Control(NamedTuple):
    """The result of a control."""

    novelty: Float[np.ndarray, " tested"]
    """The distance of each tested clip to the nearest training clip."""
    auroc: float
    """AUROC of this distance, with novel as the positive class; 0.5 is chance."""


def control_without_pixels(
    training: Float[np.ndarray, "trained facts"],
    tested: Float[np.ndarray, "tested facts"],
    is_novel: Bool[np.ndarray, " tested"],
) -> Control:
    """Score each clip by its distance to the nearest training clip in facts such as length and height.

    Each fact is divided by its standard deviation over training clips; a constant fact keeps its own units.

    Args:
        training: the facts of each training clip.
        tested: the same facts of each tested clip.
        is_novel: whether each tested clip is novel.

    Raises:
        TooFewActors: there are no training clips, or the tested clips are not both known and novel.
        NotFinite: a fact is not a finite number.
    """
    if not len(training) or is_novel.all() or not is_novel.any():
        raise TooFewActors(
            "a control needs training clips, and both known and novel clips to test; got "
            f"{len(training)} for training, {int((~is_novel).sum())} known and {int(is_novel.sum())} novel."
        )
    if not (np.isfinite(training).all() and np.isfinite(tested).all()):
        raise NotFinite("the facts of clips must be finite numbers; some are not. Leave out unknown facts.")
    spread = training.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    novelty, _ = KDTree(training / scale).query(tested / scale)
    return Control(np.asarray(novelty), auroc(novelty, is_novel))
