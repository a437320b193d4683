"""Whether the promised false-alarm rate holds: the share of known actors flagged, overall and in every group."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import beta, betabinom

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.evaluation.intervals import ConfidenceInterval
from mule.novelty.odds import fewest_held_out, num_allowed


@dataclass(frozen=True)
class GroupCoverage:
    """How many known actors of one group were flagged, and whether that breaks the promise."""

    num_known: int
    num_flagged: int
    interval: ConfidenceInterval
    """Clopper-Pearson interval of the share flagged."""
    p_value: float
    """Probability of so many flags or more if the group is exchangeable with the held-out actors."""
    is_off: bool
    """Whether more actors are flagged than promised, after Holm's correction for the number of groups."""

    @property
    def share(self) -> float:
        """The share of known actors flagged; NaN where there are none."""
        return self.num_flagged / self.num_known if self.num_known else float("nan")


@dataclass(frozen=True)
class Coverage:
    """The share of known actors flagged, overall and by group, against the rate that was promised."""

    alarm_rate: float
    num_held_out: int
    level: float
    overall: GroupCoverage
    groups: Mapping[str, GroupCoverage]


def coverage(
    is_flagged: Bool[np.ndarray, " actors"],
    *,
    alarm_rate: float,
    num_held_out: int,
    groups: Mapping[str, Int[np.ndarray, " members"]] | None = None,
    level: float = 0.95,
) -> Coverage:
    """The share of known test actors flagged, with intervals, and which groups are off the promise.

    A threshold set on n held-out actors flags a share that is itself a draw from Beta(j, n + 1 − j), j =
    ⌊a·(n + 1)⌋; so the number flagged among m exchangeable test actors is *beta-binomial*, and that is what a
    group is tested against. A binomial test would call a large group off the promise for the luck of the
    held-out actors alone. The promise is an average over all known actors: it never said anything about one
    camera or class, and a group that is off is a finding, not an error of arithmetic.

    Actors are assumed independent. Give one per track; otherwise intervals are too narrow and groups too
    often off.

    Args:
        is_flagged: for each known test actor, whether it was called novel.
        alarm_rate: a, the promised share.
        num_held_out: n, how many actors the threshold was set on.
        groups: positions of the actors of each group (camera, class, video); groups may overlap.
        level: of the intervals; 1 − level is also the probability that any group is wrongly called off.

    >>> found = coverage(np.arange(100) < 5, alarm_rate=0.05, num_held_out=200)
    >>> found.overall.share, found.overall.is_off
    (0.05, False)
    """
    if not 0 < alarm_rate < 1:
        raise RangeError(f"alarm_rate must lie between 0 and 1; got {alarm_rate}.")
    if not 0 < level < 1:
        raise RangeError(f"the confidence level must lie between 0 and 1; got {level}.")
    if num_held_out < fewest_held_out(alarm_rate):
        raise TooFewActors(
            f"a promise of at most {100 * alarm_rate:.4g} % false alarms needs at least "
            f"{fewest_held_out(alarm_rate)} held-out known actors; got {num_held_out}."
        )
    allowed = num_allowed(alarm_rate, num_held_out)
    members = {name: _checked_members(name, where, len(is_flagged)) for name, where in (groups or {}).items()}
    flags = [is_flagged, *(is_flagged[where] for where in members.values())]
    num_known, num_flagged = np.array(list(map(len, flags))), np.array(list(map(np.count_nonzero, flags)))
    p_values = betabinom.sf(num_flagged - 1, num_known, allowed, num_held_out + 1 - allowed)
    is_off = np.append(p_values[:1] <= 1 - level, holm_rejects(p_values[1:], 1 - level))
    ends = np.stack(clopper_pearson(num_flagged, num_known, level=level), axis=1)
    columns = (num_known, num_flagged, ends, p_values, is_off)
    overall, *by_group = [
        GroupCoverage(known, flagged, ConfidenceInterval(*interval), p_value, off)
        for known, flagged, interval, p_value, off in zip(*(c.tolist() for c in columns), strict=True)
    ]
    return Coverage(alarm_rate, num_held_out, level, overall, dict(zip(members, by_group, strict=True)))


def clopper_pearson(
    num_flagged: Int[np.ndarray, " groups"], num_known: Int[np.ndarray, " groups"], *, level: float
) -> tuple[Float[np.ndarray, " groups"], Float[np.ndarray, " groups"]]:
    """Lower and upper ends of intervals that cover the true share with probability `level` or more (Clopper-Pearson).

    At the ends, so many flags, or so few, have a probability of (1 − level)/2. Without actors the interval is
    0 to 1.
    """
    tail, passed = (1 - level) / 2, num_known - num_flagged
    low = np.where(num_flagged > 0, beta.ppf(tail, np.maximum(num_flagged, 1), passed + 1), 0.0)
    high = np.where(passed > 0, beta.ppf(1 - tail, num_flagged + 1, np.maximum(passed, 1)), 1.0)
    return low, high


def holm_rejects(p_values: Float[np.ndarray, " tests"], risk: float) -> Bool[np.ndarray, " tests"]:
    """Which of several tests reject when the probability of any false rejection is at most `risk` (Holm 1979).

    From the smallest p-value up, the i-th of k must be at most risk/(k − i + 1); stop at the first that is
    not. Valid for dependent tests too.
    """
    order = np.argsort(p_values, kind="stable")
    passes = p_values[order] <= risk / np.arange(len(p_values), 0, -1)
    rejected = np.zeros(len(p_values), dtype=bool)
    rejected[order] = np.logical_and.accumulate(passes)
    return rejected


def _checked_members(
    name: str, members: Int[np.ndarray, " members"], num_actors: int
) -> Int[np.ndarray, " members"]:
    if len(members) and not (members.min() >= 0 and members.max() < num_actors):
        raise ShapeError(
            f"the members of group {name!r} must be positions from 0 to {num_actors - 1}; got {members.min()} to "
            f"{members.max()}."
        )
    return members
