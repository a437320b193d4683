"""How far a long step is. Rooms count what they do; a command that shows it hears of every step below it.

As with logging, nothing is passed through the rooms between, and where nobody listens nothing happens.
"""

from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Hears = Callable[[str, int, int, str], None]
"""Called with the name of a step, how much of it is done, how much there is, and words about how it goes."""

_Item = TypeVar("_Item")
_hears: ContextVar[Hears | None] = ContextVar("hears", default=None)


@contextmanager
def hearing(hears: Hears) -> Generator[None]:
    """Hear of every step for the length of the context.

    >>> heard = []
    >>> with hearing(lambda *step: heard.append(step)):
    ...     advance("maps", 1, 2)
    >>> advance("maps", 2, 2)
    >>> heard
    [('maps', 1, 2, '')]
    """
    token = _hears.set(hears)
    try:
        yield
    finally:
        _hears.reset(token)


def advance(step: str, num_done: int, num_all: int, status: str = "") -> None:
    """Say how much of a step is done."""
    hears = _hears.get()
    if hears is not None:
        hears(step, num_done, num_all, status)


def counted(items: Collection[_Item], step: str) -> Iterator[_Item]:
    """Yield the items, and say how many are done."""
    advance(step, 0, len(items))
    for number, item in enumerate(items, start=1):
        yield item
        advance(step, number, len(items))
