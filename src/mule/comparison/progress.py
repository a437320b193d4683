"""How far rows have come, read off their folders: rows may run in other processes, and on other machines."""

from dataclasses import dataclass

from mule.comparison.equal import batches_per_epoch
from mule.comparison.rows import LOG, Row
from mule.training.run_folder import CARD, METRICS, read_metrics

TRAINING_SHARE = 0.9
"""Of a row's time, about; the rest is judging."""


@dataclass(frozen=True)
class WatchedRow:
    """A row, and how many steps its training has."""

    row: Row
    num_steps: int

    def was_begun_after(self, moment: float) -> bool:
        """Whether somebody has begun with it, or gone on, since that moment (seconds since 1970)."""
        log = self.row.folder / LOG
        return log.exists() and log.stat().st_mtime >= moment

    def done_share(self) -> float:
        """From 0 to less than 1; a finished row says so itself."""
        if (self.row.folder / CARD).exists():
            return TRAINING_SHARE
        steps = [line["step"] for line in read_metrics(self.row.folder / METRICS) if line["kind"] == "step"]
        return TRAINING_SHARE * min(max(steps, default=0) / max(self.num_steps, 1), 1.0)


def watched(row: Row) -> WatchedRow:
    """The row, to be watched."""
    return WatchedRow(row, row.experiment.training.epochs * batches_per_epoch(row.experiment))
