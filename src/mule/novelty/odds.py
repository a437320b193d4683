"""A p-value as a person would say it. No torch: what is written for people is written without."""

import math

from mule.core.errors import RangeError

LARGEST_ODDS = 10_000
"""Nothing rarer than 1 in this many is claimed in words."""

_STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def in_words(p_value: float, *, num_held_out: int) -> str:
    """How rare this much novelty is among known actors, as a person would say it.

    Odds are rounded to the nearest of 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, … What is rarer than 1 in 10,000, or
    than one of the held-out actors the p-value rests on, is "fewer than": no more is claimed than was seen.

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
        raise RangeError(f"a p-value lies between 0 and 1; got {p_value}.")
    if num_held_out < 1:
        raise RangeError(
            f"a p-value rests on at least one held-out actor; got num_held_out = {num_held_out}."
        )
    most = float(min(LARGEST_ODDS, num_held_out + 1))
    if p_value * most < 1 - 1e-9:
        return f"fewer than 1 in {_rounded_odds(most, down=True):,} known actors look this strange"
    odds = _rounded_odds(1 / p_value)
    if odds == 1:
        return "most known actors look at least this strange"
    return f"{'only ' if odds >= 10 else ''}1 in {odds:,} known actors looks this strange"


def _rounded_odds(odds: float, *, down: bool = False) -> int:
    """The nearest round number by ratio, or the next one below; whole numbers under ten."""
    if odds < 10:
        return int(odds) if down else math.floor(odds + 0.5)
    power = 10.0 ** math.floor(math.log10(odds) + 1e-12)
    leading = odds / power
    steps = [step for step in _STEPS if step <= leading * (1 + 1e-9)] if down else _STEPS
    return round(power * min(steps, key=lambda step: abs(math.log(leading / step))))
