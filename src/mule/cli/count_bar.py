"""How far a command has come, where it counts what it does."""

from rich import progress as rich_progress
from rich.console import Console


class CountBar:
    """A progress bar on a terminal that goes when it is done; silence anywhere else."""

    def __init__(self, title: str) -> None:
        console = Console(stderr=True)
        self._progress = rich_progress.Progress(
            console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> "CountBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, num_done: int, num_expected: int) -> None:
        """So many of so many are done."""
        self._progress.update(self._task, completed=num_done, total=num_expected)
