"""The result files of a run: what a judgement found on one side, and the novelty of each of its actors.

RUN/results/SIDE.json          measures, intervals, what was left out and why (`SideResult`)
           /SIDE.safetensors   the novelty of every actor by every score
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import safetensors.numpy
from jaxtyping import Float
from pydantic import ValidationError
from safetensors import SafetensorError

from mule.core.errors import MuleError
from mule.core.files import write_file
from mule.evaluation.open_set import OpenSetMeasures, Result, UndefinedMeasures
from mule.systems.catalogue import EvidenceKind

FORMAT = "mule-results-1"
Novelties = Mapping[str, Float[np.ndarray, " actors"]]


class ResultError(MuleError, OSError):
    """A result file cannot be read; the message names it."""


class ScoreResult(Result):
    """How well one score tells novel actors of one side from known ones."""

    measures: OpenSetMeasures | UndefinedMeasures
    threshold: float
    """Flags at most 5 % of the known actors of validation."""
    known_flagged: float | None
    """Share of this side's known actors above the threshold: 5 % is what was promised."""
    novel_flagged: float | None
    tied_share: float
    """Actors who share their novelty with another."""
    place_by_class: dict[str, float]
    """The middle place, from 0 (most familiar) to 100 (most novel), of the actors of each action."""


class SideResult(Result):
    """What a judgement of one run found on one side."""

    format: Literal["mule-results-1"] = FORMAT
    key: str
    """All that the numbers depend on: the outputs, and how they were judged."""
    system: str
    kind: EvidenceKind
    """Where its evidence comes from."""
    side: str
    side_digest: str
    weights_sha256: str
    num_clips: int
    num_skipped: int
    num_known: int
    num_novel: int
    mean_ap: float
    """Closed-set mAP of this side's known actors, over the actions that occur among them."""
    mean_ap_by_class: dict[str, float | None]
    mean_ap_val: float
    """The same on validation."""
    dead_share: float
    """Outputs that give no training actor any evidence, where evidence is the ReLU of an output of its own."""
    expected_error: float
    """ECE of the probabilities of known actors."""
    scores: dict[str, ScoreResult]
    left_out: dict[str, str]
    """Scores that this network cannot be judged by, and why."""
    convention: str


def write_result(result: SideResult, novelties: Novelties, run_dir: Path) -> None:
    """Keeps a judgement; the result comes last, so that what has one is whole."""
    folder = run_dir / "results"
    folder.mkdir(exist_ok=True)
    table = {name: np.ascontiguousarray(novelty) for name, novelty in novelties.items()}
    write_file(
        folder / f"{result.side}.safetensors", safetensors.numpy.save(table, metadata={"key": result.key})
    )
    write_file(folder / f"{result.side}.json", result.model_dump_json(indent=2) + "\n")


def read_result(run_dir: Path, side: str) -> SideResult | None:
    """The judgement of a side; None if there is none that can be read by this version."""
    try:
        text = (run_dir / "results" / f"{side}.json").read_text(encoding="utf-8")
        return SideResult.model_validate_json(text)
    except (OSError, ValidationError):
        return None


def read_novelties(run_dir: Path, side: str) -> Novelties:
    """The novelty of every actor of a side, by score.

    Raises:
        ResultError: the side was not judged.
    """
    path = run_dir / "results" / f"{side}.safetensors"
    try:
        return safetensors.numpy.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ResultError(
            f"{path}: must hold the novelty of each actor; it cannot be read ({error})."
        ) from None
