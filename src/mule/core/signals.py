"""What Ctrl-C and a request to end (SIGTERM) do: stop at a place where nothing is lost.

A command takes SIGTERM for Ctrl-C. Work that must not be cut in the middle asks for a `StopRequest`: the first signal is
kept until the work asks for it, the second one interrupts at once. Processes of a pool are started with Ctrl-C blocked,
so that only their parent answers it.
"""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)


def take_sigterm_for_ctrl_c() -> None:
    """Raise KeyboardInterrupt in the main thread on SIGTERM too; for programs, not for the library."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def without_ctrl_c() -> Generator[None]:
    """Block Ctrl-C in this thread; processes that start meanwhile never see it, and a signal to this one waits."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopRequest:
    """Keeps the first signal to end while it `waits`; at any other time, and the second time, a signal interrupts.

    Only signals that would raise KeyboardInterrupt are kept, and only in the main thread, where Python handles signals.
    """

    def __init__(self) -> None:
        self.waits = False
        """Whether a signal has to wait now."""
        self.was_made = False
        """Whether a signal has come."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            kept = [each for each in _ENDING if signal.getsignal(each) is signal.default_int_handler]
            self._before = {each: signal.signal(each, self._note) for each in kept}
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.was_made or not self.waits:
            signal.default_int_handler(signum, frame)
        self.was_made = True
