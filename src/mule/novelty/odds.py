"""A p-value in words, and the flags that a promise allows. Without torch, so that reports need none."""

import math

from mule.core.errors import RangeError

LARGEST_ODDS = 10_000
"""The largest odds that words claim."""

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
