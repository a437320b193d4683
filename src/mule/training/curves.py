"""The curves of a run: a JSON object per line in `metrics.jsonl`, and event files where TensorBoard is installed."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mule.training.checkpoint import CheckpointError, write_whole

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

METRICS, EVENTS = "metrics.jsonl", "events"
NO_TENSORBOARD = "Event files for TensorBoard need its package: pip install 'mule[tensorboard]'. metrics.jsonl has the same curves."


class Curves:
    """Where the numbers of a run go."""

    def __init__(self, run_dir: Path, *, last_step: int, has_events: bool) -> None:
        """What an earlier session wrote about steps after `last_step` is taken back: they will come again."""
        self._path = run_dir / METRICS
        lines = [line for line in read_metrics(self._path) if line["step"] <= last_step]
        write_whole(self._path, "".join(f"{json.dumps(line)}\n" for line in lines))
        self._events = _event_writer(run_dir / EVENTS, next_step=last_step + 1) if has_events else None
        self.lacks_events = has_events and self._events is None
        """Whether event files were wanted, but TensorBoard is not installed."""

    def add(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """One more point of every curve.

        Raises:
            CheckpointError: the disk is full.
        """
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            if self._events is not None:
                _write_numbers(self._events, values, step, prefix=f"{kind}/")
        except OSError as error:
            raise CheckpointError(
                f"{self._path}: must be written; {(error.strerror or str(error)).lower()}."
            ) from error

    def close(self) -> None:
        """Brings the last points to the disk."""
        if self._events is not None:
            self._events.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of curves, without a last one that was cut short."""
    return list(_whole_lines(path)) if path.exists() else []


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def _event_writer(folder: Path, *, next_step: int) -> "SummaryWriter | None":
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=next_step)


def _write_numbers(writer: "SummaryWriter", values: Mapping[str, Any], step: int, *, prefix: str) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping):
            _write_numbers(writer, value, step, prefix=f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            writer.add_scalar(f"{prefix}{name}", value, step)
