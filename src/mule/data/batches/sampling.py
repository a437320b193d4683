"""Which clips make which batch: arithmetic on seeds and numbers, without a single pixel.

One order of draws per epoch, from the seed and the epoch alone. Consecutive draws make global batches, and rank r
of R takes draws r, r + R, r + 2R, … of each. So every global batch is the same for any number of ranks, all ranks
have the same number of batches, and no clip is read twice or forgotten.

The last global batch may be smaller. It is kept and spread like the others, and a rank that finds nothing left in
it gets an empty batch; or it is dropped on all ranks.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import RangeError


@dataclass(frozen=True)
class BatchOrder:
    """One rank's share of one global batch: positions in the data set, and the number of each draw in its epoch."""

    epoch: int
    number: int
    positions: tuple[int, ...]
    draws: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ClipSampler:
    """The batches of every epoch, for one rank."""

    num_clips: int
    batch_clips: int
    """Clips of a global batch, on all ranks together."""
    seed: int = 0
    is_shuffled: bool = True
    """Whether an epoch visits the clips in a new order, else in that of the data set."""
    weights: Float[np.ndarray, " clips"] | None = field(default=None, repr=False)
    """How likely each clip is drawn. An epoch then is `num_clips` draws with replacement: some clips come several
    times, others not at all. None visits every clip exactly once."""
    drops_last: bool = False
    """Whether a last global batch with fewer clips is left out."""
    rank: int = 0
    num_ranks: int = 1

    def __post_init__(self) -> None:
        if self.num_clips < 0 or self.seed < 0 or not 0 <= self.rank < self.num_ranks:
            raise RangeError(
                "num_clips and seed must not be below zero, and rank must be one of num_ranks, from 0; got "
                f"{self.num_clips}, {self.seed}, and rank {self.rank} of {self.num_ranks}."
            )
        if self.batch_clips < self.num_ranks:
            raise RangeError(
                f"batch_clips counts the clips of all ranks and must be at least {self.num_ranks}, one for each; got "
                f"{self.batch_clips}."
            )
        if self.weights is not None:
            _require_weights(self.weights, self.num_clips, is_shuffled=self.is_shuffled)

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, the same on every rank."""
        return (
            self.num_clips // self.batch_clips if self.drops_last else -(-self.num_clips // self.batch_clips)
        )

    @property
    def num_own_clips(self) -> int:
        """Clips of an epoch that this rank reads."""
        whole, rest = divmod(self.num_clips, self.batch_clips)
        in_last = 0 if self.drops_last else len(range(self.rank, rest, self.num_ranks))
        return whole * len(range(self.rank, self.batch_clips, self.num_ranks)) + in_last

    def order(self, epoch: int) -> Int[np.ndarray, " draws"]:
        """The position of every draw of an epoch, for all ranks together."""
        if not self.is_shuffled:
            return np.arange(self.num_clips)
        generator = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(epoch,)))
        if self.weights is None:
            return generator.permutation(self.num_clips)
        shares = self.weights / self.weights.sum()
        return generator.choice(self.num_clips, size=self.num_clips, replace=True, p=shares)

    def batches(self, epoch: int, *, first: int = 0) -> Iterator[BatchOrder]:
        """This rank's batches of an epoch, from number `first` on."""
        order = self.order(epoch)
        for number in range(first, self.num_batches):
            end = min((number + 1) * self.batch_clips, self.num_clips)
            draws = range(number * self.batch_clips + self.rank, end, self.num_ranks)
            yield BatchOrder(epoch, number, tuple(order[list(draws)].tolist()), tuple(draws))

    def draw_seed(self, epoch: int, draw: int) -> int:
        """The seed of all chance in one draw: the same wherever and whenever it is read."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(epoch, draw))
        return int(sequence.generate_state(1, np.uint32)[0])

    def settings(self) -> dict[str, int | bool | str]:
        """All that decides which clips make which global batch; ranks do not, so their number may change."""
        weights = (
            b"" if self.weights is None else np.ascontiguousarray(self.weights, dtype=np.float64).tobytes()
        )
        return {
            "num_clips": self.num_clips,
            "batch_clips": self.batch_clips,
            "seed": self.seed,
            "is_shuffled": self.is_shuffled,
            "drops_last": self.drops_last,
            "weights_sha256": hashlib.sha256(weights).hexdigest() if weights else "",
        }


def class_balanced_weights(
    labels: Bool[np.ndarray, "actors classes"],
    clip_index: Int[np.ndarray, " actors"],
    *,
    num_clips: int,
    over_actors: Literal["max", "mean"] = "max",
) -> Float[np.ndarray, " clips"]:
    """How likely to draw each clip so that rare classes are met about as often as common ones; they sum to one.

    A class weighs 1 / (actors that do it), an actor the mean of its classes, a clip the largest or the mean of its
    actors. An actor that does none of the classes weighs nothing, and so does a clip of such actors or of none: it
    is never drawn.

    Raises:
        RangeError: nobody does anything, so there is nothing to balance.
    """
    frequency = labels.sum(axis=0)
    class_weight = np.divide(1.0, frequency, out=np.zeros(len(frequency)), where=frequency > 0)
    actor_weight = labels @ class_weight / np.maximum(labels.sum(axis=1), 1)
    weights = np.zeros(num_clips)
    if over_actors == "max":
        np.maximum.at(weights, clip_index, actor_weight)
    else:
        num_actors = np.bincount(clip_index, minlength=num_clips)
        weights = np.bincount(clip_index, weights=actor_weight, minlength=num_clips) / np.maximum(
            num_actors, 1
        )
    if not weights.sum() > 0:
        raise RangeError(
            f"class-balanced drawing needs actors with labels; none of {len(labels)} actors in {num_clips} clips has "
            "any of the classes."
        )
    return weights / weights.sum()


def _require_weights(weights: Float[np.ndarray, " clips"], num_clips: int, *, is_shuffled: bool) -> None:
    if not is_shuffled:
        raise RangeError("weights need draws by chance; got weights with is_shuffled=False. Leave one out.")
    is_usable = len(weights) == num_clips and np.isfinite(weights).all() and (weights >= 0).all()
    if not (is_usable and weights.sum() > 0):
        raise RangeError(
            f"weights must be {num_clips} numbers of zero or more, one per clip, not all zero; got {len(weights)}, "
            f"from {weights.min(initial=np.inf)} to {weights.max(initial=-np.inf)}."
        )
