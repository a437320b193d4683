"""The numbers of the studies, read from CSV files beside this module.

    STUDY.csv           means over trials: method, score, measure, mean, deviation, low, high, trials;
                        or the outcomes of single trials, as `mule compare --out OUT` writes them to
                        OUT/outcomes-SIDE.csv
    judged_by.csv       study, method, score: the one score that each method is compared by, fixed beforehand
    paired_tests.csv    study, against, score, auroc, difference, low, high, won, trials:
                        the default minus another method

Means, deviations and differences are fractions, 0.7866 for 78.66 %. `low` and `high` are 95 % intervals.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from statistics import mean, stdev
from typing import Literal, NamedTuple

from mule.core.errors import AnnotationError
from mule.evaluation.formats import OUTCOME_COLUMNS
from studies.outcomes import read_outcomes

FOLDER = Path(__file__).parent
MEAN_COLUMNS = ["method", "score", "measure", "mean", "deviation", "low", "high", "trials"]
JUDGED_COLUMNS = ["study", "method", "score"]
TEST_COLUMNS = ["study", "against", "score", "auroc", "difference", "low", "high", "won", "trials"]

Standing = Literal["better than", "level with", "worse than"]


class Mean(NamedTuple):
    """A measure of a method, averaged over trials; the deviation is NaN for a single trial."""

    value: float
    deviation: float
    num_trials: int


class PairedTest(NamedTuple):
    """The AUROC of the default minus that of another method, on the same trials and clips."""

    auroc: float
    """Of the other method."""
    difference: float
    low: float
    high: float
    num_won: int
    """Trials in which the default has the larger AUROC."""
    num_trials: int

    @property
    def standing(self) -> Standing:
        """How the default compares: level where the 95 % interval contains zero."""
        if self.low > 0:
            return "better than"
        return "worse than" if self.high < 0 else "level with"


@dataclass(frozen=True)
class Numbers:
    """All numbers of one study."""

    means: Mapping[tuple[str, str, str], Mean]
    """By method, score and measure; closed-set mAP (`map`) has no score."""
    judged_by: Mapping[str, str]
    tests: Mapping[tuple[str, str], PairedTest]
    """By the other method and its score."""

    def auroc(self, method: str, score: str = "") -> float:
        """Return the mean AUROC of a method, by its own score unless one is given; NaN if unknown."""
        key = (method, score or self.judged_by.get(method, ""), "auroc")
        return self.means[key].value if key in self.means else nan

    def mean_ap(self, method: str) -> float:
        """Return the mean closed-set mAP of a method; NaN if unknown."""
        key = (method, "", "map")
        return self.means[key].value if key in self.means else nan

    def aurocs_of_scores(self, method: str) -> dict[str, float]:
        """Return the mean AUROC of every score on a method."""
        return {
            score: each.value
            for (name, score, measure), each in self.means.items()
            if (name, measure) == (method, "auroc")
        }

    @property
    def num_trials(self) -> int:
        """The largest number of trials behind a mean."""
        return max(each.num_trials for each in self.means.values())


def read_numbers(study: str, *, folder: Path = FOLDER) -> Numbers:
    """Read all numbers of a study.

    Raises:
        AnnotationError: a file cannot be read, or a line is wrong; the message names both.
    """
    judged = [row for row in _rows(folder / "judged_by.csv", JUDGED_COLUMNS) if row["study"] == study]
    tests = [row for row in _rows(folder / "paired_tests.csv", TEST_COLUMNS) if row["study"] == study]
    return Numbers(
        means=read_means(folder / f"{study}.csv"),
        judged_by={row["method"]: row["score"] for row in judged},
        tests={(row["against"], row["score"]): _paired_test(row) for row in tests},
    )


def read_means(path: Path) -> dict[tuple[str, str, str], Mean]:
    """Read the means of a study, by method, score and measure; outcomes of single trials are averaged.

    Raises:
        AnnotationError: the file cannot be read, or a line is wrong; the message names both.
    """
    text = _text(path)
    if text.splitlines()[:1] == [",".join(OUTCOME_COLUMNS)]:
        return _means_of_trials(text, path)
    return {
        (row["method"], row["score"], row["measure"]): Mean(
            _number(row["mean"]), _number(row["deviation"]), int(row["trials"])
        )
        for row in _rows(path, MEAN_COLUMNS)
    }


def _means_of_trials(text: str, path: Path) -> dict[tuple[str, str, str], Mean]:
    trials: dict[tuple[str, str, str], list[float]] = {}
    for each in read_outcomes(text, name=str(path)):
        if isfinite(each.value):
            trials.setdefault((each.method, each.score, each.measure), []).append(each.value)
    return {
        key: Mean(mean(values), stdev(values) if len(values) > 1 else nan, len(values))
        for key, values in trials.items()
    }


def _paired_test(row: Mapping[str, str]) -> PairedTest:
    auroc, difference, low, high = (_number(row[name]) for name in ("auroc", "difference", "low", "high"))
    return PairedTest(auroc, difference, low, high, int(row["won"]), int(row["trials"]))


def _rows(path: Path, columns: list[str]) -> list[dict[str, str]]:
    reader = csv.DictReader(_text(path).splitlines())
    if reader.fieldnames != columns:
        raise AnnotationError(f"{path}, line 1: the columns must be {columns}; got {reader.fieldnames}.")
    rows = list(reader)
    for line, row in enumerate(rows, start=2):
        if None in row.values() or None in row:
            raise AnnotationError(f"{path}, line {line}: a row must have {len(columns)} cells.")
    return rows


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotationError(f"{path}: must be a readable CSV file of results; {error}.") from None


def _number(cell: str) -> float:
    return float(cell) if cell else nan
