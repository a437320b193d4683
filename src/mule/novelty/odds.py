"""A p-value in words, and what a promised false-alarm rate allows. Without torch, so that reports need none."""

import math
import re
from decimal import Decimal

from mule.core.errors import RangeError

IDLE_FROM = 0.5
"""Above this share, a person resembles idle people more than people who act."""
LARGEST_ODDS = 10_000
"""The largest odds that words claim."""

_PROMISE = re.compile(r"known-(\d{1,2}(?:\.\d+)?)")
_STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def in_words(p_value: float, *, num_held_out: int) -> str:
    """Say how rare this much novelty is among known actors.

    Odds are rounded to the nearest of 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, … Anything rarer than 1 in
    10,000, or than one of the held-out actors behind the p-value, is "fewer than": the sentence claims no
    more than was measured.

    >>> in_words(0.0024, num_held_out=2000)
    'only 1 in 400 known actors looks this strange'
    >>> in_words(0.05, num_held_out=100)
    'only 1 in 20 known actors looks this strange'
    >>> in_words(1e-9, num_held_out=50_000)
    'fewer than 1 in 10,000 known actors look this strange'
    >>> in_words(0.3, num_held_out=100)
    '1 in 3 known actors looks this strange'
    """
    if not 0 <= p_value <= 1:
        raise RangeError(f"a p-value must lie between 0 and 1; got {p_value}.")
    if num_held_out < 1:
        raise RangeError(f"num_held_out must be at least 1; got {num_held_out}.")
    most = float(min(LARGEST_ODDS, num_held_out + 1))
    if p_value * most < 1 - 1e-9:
        return f"fewer than 1 in {_rounded_odds(most, down=True):,} known actors look this strange"
    odds = _rounded_odds(1 / p_value)
    if odds == 1:
        return "most known actors look at least this strange"
    return f"{'only ' if odds >= 10 else ''}1 in {odds:,} known actors looks this strange"


def _rounded_odds(odds: float, *, down: bool = False) -> int:
    """Return the nearest round number by ratio, or the next one below; whole numbers under ten."""
    if odds < 10:
        return int(odds) if down else math.floor(odds + 0.5)
    power = 10.0 ** math.floor(math.log10(odds) + 1e-12)
    leading = odds / power
    steps = [step for step in _STEPS if step <= leading * (1 + 1e-9)] if down else _STEPS
    return round(power * min(steps, key=lambda step: abs(math.log(leading / step))))


def num_allowed(alarm_rate: float, num_held_out: int) -> int:
    """Return the largest j with j/(n + 1) ≤ a, that is ⌊a·(n + 1)⌋ without its rounding error."""
    allowed = int(alarm_rate * (num_held_out + 1)) + 1
    while allowed / (num_held_out + 1) > alarm_rate:
        allowed -= 1
    return allowed


def fewest_held_out(alarm_rate: float) -> int:
    """Return the smallest n for which one of n + 1 actors may be flagged."""
    fewest = max(1, math.ceil(1 / alarm_rate) - 1)
    return fewest + (num_allowed(alarm_rate, fewest) == 0)


def is_promise(name: str) -> bool:
    """Whether a threshold is named by its promise, such as `known-95`."""
    return _PROMISE.fullmatch(name) is not None


def promised_alarm_rate(name: str) -> float:
    """Return the share of known actors that a promise such as `known-95` allows to be flagged.

    >>> promised_alarm_rate("known-95"), promised_alarm_rate("known-99.9")
    (0.05, 0.001)
    """
    found = _PROMISE.fullmatch(name)
    if not found or Decimal(found[1]) == 0:
        raise RangeError(
            f"a promise must be known- and the share of known actors that pass, above 0 and below 100 %, such as "
            f"known-95 or known-99.5; got {name!r}."
        )
    return float((100 - Decimal(found[1])) / 100)


MOST_SHARES = 0.9
"""How many of all calibrations `shares_flagged` covers."""


def shares_flagged(alarm_rate: float, num_groups: int, *, level: float = MOST_SHARES) -> tuple[float, float]:
    """Return between which shares of known actors a promised false-alarm rate lies, by the luck of those that calibrate it.

    With n exchangeable actors the share flagged is a draw from Beta(j, n + 1 − j), j = ⌊a·(n + 1)⌋, whose distribution is
    a binomial tail, P(share ≤ x) = P(Bin(n, x) ≥ j). Actors of one film resemble each other and count as one here, so n is
    the number of groups: exact for groups of one actor, and wide rather than narrow otherwise. j is at least 1.

    >>> [round(share, 3) for share in shares_flagged(0.05, 400)]
    [0.033, 0.069]
    >>> [round(share, 3) for share in shares_flagged(0.05, 40)]
    [0.009, 0.113]
    """
    if num_groups < 1:
        raise RangeError(f"num_groups must be at least 1; got {num_groups}.")
    num_flagged = max(1, num_allowed(alarm_rate, num_groups))
    tail = (1 - level) / 2
    return _share_at(tail, num_flagged, num_groups), _share_at(1 - tail, num_flagged, num_groups)


def _share_at(probability: float, num_flagged: int, num_groups: int) -> float:
    """Return x with P(Bin(n, x) ≥ j) = probability, by bisection: the left side grows with x."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        fewer = sum(
            math.exp(
                _log_choose(num_groups, count)
                + count * math.log(middle)
                + (num_groups - count) * math.log1p(-middle)
            )
            for count in range(num_flagged)
        )
        low, high = (middle, high) if 1 - fewer < probability else (low, middle)
    return (low + high) / 2


def _log_choose(total: int, count: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
