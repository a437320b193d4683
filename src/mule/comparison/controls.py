"""The control without pixels as one more line of a table: are known and novel told apart by what their clips are?

Only where clips come from videos; those of Stage are all of one length and size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from mule.comparison.sheets import Findings
from mule.core.config import TableData
from mule.data.table.table import ActorTable
from mule.evaluation.control import SUSPICIOUS_AUROC, control_without_pixels
from mule.evaluation.open_set import evaluate_open_set
from mule.evaluation.outcomes import Comparison, MethodRow, Outcome, Trial
from mule.inference.sides import table_actors
from mule.metrics import MEASURES
from mule.training.data import root_of, table_sides, videos_of
from mule.video.reading import video_facts

CONTROL, FACTS = "control without pixels", "length, width, height"


def with_control(comparison: Comparison, findings: Findings, side: str) -> Comparison:
    """The same table with the control as its last line; as it is where all clips are alike."""
    data = {each.row.trial: each.row.experiment.data for each in findings.rows}
    outcomes = [
        outcome
        for trial, its in data.items()
        if isinstance(its, TableData)
        for outcome in _control_outcomes(trial, its, side)  # pyright: ignore[reportArgumentType] - frozen, so it has a hash
    ]
    if not outcomes:
        return comparison
    return replace(
        comparison,
        rows=(*comparison.rows, MethodRow(CONTROL)),
        outcomes=(*comparison.outcomes, *outcomes),
    )


def control_note(comparison: Comparison) -> str | None:
    """What the control says in words; None where there is none."""
    found = [each.value for each in comparison.outcomes if (each.method, each.measure) == (CONTROL, "auroc")]
    if not found:
        return None
    auroc = float(np.mean(found))
    if auroc > SUSPICIOUS_AUROC:
        return (
            f"The control tells novel from known clips with AUROC {auroc:.2f}, without a look at them: above "
            f"{SUSPICIOUS_AUROC:g}, so the other numbers hold some of what clips are, not of what they show. Match for it."
        )
    return (
        f"The control, the distance of a clip to the nearest training clip in {FACTS}, is at AUROC {auroc:.2f}; up to "
        f"{SUSPICIOUS_AUROC:g} counts as chance."
    )


@cache
def _control_outcomes(trial: Trial, data: TableData, side: str) -> list[Outcome]:
    """The measures of the control. Files of a comparison do not change while it is written down."""
    found = table_sides(data)
    tested, is_novel = table_actors(side, found.sides)
    trained = found.train_actors
    videos = videos_of({*trained.video_names, *tested.video_names}, root_of(data) / data.videos)
    facts = {name: _facts(path) for name, path in videos.items()}
    control = control_without_pixels(_of(trained, facts), _of(tested, facts), is_novel)
    measures = evaluate_open_set(control.novelty, is_novel, resamples=0)
    return [Outcome(CONTROL, name, getattr(measures, name), trial, FACTS) for name in MEASURES]


def _of(actors: ActorTable, facts: Mapping[str, Sequence[float]]) -> Float[np.ndarray, "actors facts"]:
    return np.array([facts[name] for name in actors.video_names], dtype=np.float64)


@cache
def _facts(path: Path) -> tuple[float, float, float]:
    """Length in seconds, width and height. Files of a comparison do not change while it is written down."""
    facts = video_facts(path)
    return float(facts.duration_s or 0), float(facts.cols), float(facts.rows)
