"""Numbers as people write them on a command line."""

from fractions import Fraction

import typer


def positive(text: str | Fraction) -> Fraction:
    """A number above zero, exactly: a decimal or a ratio."""
    try:
        number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        number = Fraction(0)
    if number <= 0:
        raise typer.BadParameter(f"must be a number above zero, such as 0.5, 30 or 30000/1001; got '{text}'.")
    return number
