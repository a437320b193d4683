"""Read the numbers of every trial that `mule compare` writes to `outcomes-SIDE.csv`."""

import csv
import io

from mule.core.errors import AnnotationError
from mule.evaluation.formats import OUTCOME_COLUMNS
from mule.evaluation.outcomes import Outcome, Trial


def read_outcomes(text: str, *, name: str = "outcomes") -> tuple[Outcome, ...]:
    """Return the outcomes in a text that `mule compare` wrote; error messages call the text `name`."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if reader.fieldnames != OUTCOME_COLUMNS:
        raise AnnotationError(
            f"{name}, line 1: the columns must be {OUTCOME_COLUMNS}; got {reader.fieldnames}."
        )
    found: list[Outcome] = []
    wrong: list[str] = []
    for row in reader:
        try:
            found.append(_outcome(row))
        except (ValueError, TypeError) as error:
            wrong.append(f"{name}, line {reader.line_num}: {error}")
    if wrong:
        raise AnnotationError(
            f"outcomes must be numbers in {len(OUTCOME_COLUMNS)} columns: {'; '.join(wrong[:5])}."
        )
    return tuple(found)


def _outcome(row: dict[str, str]) -> Outcome:
    ends = (row["low"], row["high"])
    return Outcome(
        method=row["method"],
        measure=row["measure"],
        value=float(row["value"] or "nan"),
        trial=Trial(row["split"], int(row["seed"])),
        score=row["score"],
        interval=(float(ends[0]), float(ends[1])) if any(ends) else None,
    )
