"""The result files of a run: what an evaluation found on one side, and the novelty of each actor.

RUN/results/SIDE.json          measures, intervals, which scores were left out and why (`SideResult`)
           /SIDE.safetensors   the novelty of every actor by every score
           /ava_…, charades_…  scores as the official programs read them (`inference/official.py`)
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import safetensors.numpy
from jaxtyping import Float
from safetensors import SafetensorError

from mule.core.errors import MuleError
from mule.core.files import write_file
from mule.evaluation.open_set import OpenSetMeasures, Result, UndefinedMeasures
from mule.inference.outputs import SideOutputs, judged_rows, read_side_outputs
from mule.systems.catalogue import EvidenceKind

RESULTS_FORMAT = "mule-results-1"
Novelties = Mapping[str, Float[np.ndarray, " actors"]]


class ResultError(MuleError, OSError):
    """A result file cannot be read; the message names it."""


class ScoreResult(Result):
    """How well one score tells the novel actors of a side from the known ones."""

    measures: OpenSetMeasures | UndefinedMeasures
    threshold: float | None
    """Flags at most 5 % of the known actors of validation; None if validation was not looked at."""
    known_flagged: float | None
    """Share of this side's known actors above the threshold; 5 % is the promise."""
    novel_flagged: float | None
    """Share of this side's novel actors above the threshold."""
    tied_share: float
    """Share of actors whose novelty equals another's."""
    place_by_class: dict[str, float]
    """For each action, the median percentile of its actors by novelty: 0 is most familiar, 100 most novel."""


class OfficialResult(Result):
    """What the official program of a published data set measures, over the classes that the network knows."""

    name: str
    """The metric, its classes and its boxes, in words."""
    mean_ap: float
    mean_ap_by_class: dict[str, float | None]
    num_classes: int
    """Known classes that have ground truth; the mean is over these."""
    files: tuple[str, ...]
    """Files in the folder of results, as the official program reads them."""
    convention: str


class DetectedResult(Result):
    """How many true actors the detector lost, and how many detections match nobody."""

    num_known: int
    num_known_lost: int
    num_novel: int
    num_novel_lost: int
    num_detections: int
    num_unmatched: int

    @property
    def sentence(self) -> str:
        """The counts in words."""
        return (
            f"{self.num_known_lost} of {self.num_known} known and {self.num_novel_lost} of {self.num_novel} novel actors "
            f"were not detected; {self.num_unmatched} of {self.num_detections} detections match nobody."
        )


class SideResult(Result):
    """What the evaluation of one run found on one side."""

    format: Literal["mule-results-1"] = RESULTS_FORMAT
    key: str
    """Everything the numbers depend on: the outputs and the evaluation settings."""
    system: str
    kind: EvidenceKind
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
    mean_ap_val: float | None
    """Closed-set mAP on validation; None if validation was not looked at."""
    dead_share: float | None
    """Share of outputs that give no training actor any evidence, where evidence is the ReLU of its own output; None if
    training was not looked at."""
    expected_error: float
    """Expected calibration error (ECE) of the probabilities of known actors."""
    scores: dict[str, ScoreResult]
    left_out: dict[str, str]
    """Scores that do not apply to this network, and why."""
    has_inputs: bool = False
    """Whether it is known what the actors are seen by: then that decides in `mule watch`."""
    convention: str
    official: OfficialResult | None = None
    """Closed-set mAP by the official program; None where the data have none."""
    official_missing: str = ""
    """Why there is none."""
    detected: DetectedResult | None = None
    """None where true boxes, or clips, are judged."""


def write_result(result: SideResult, novelties: Novelties, run_dir: Path) -> None:
    """Write a result into the run's folder.

    The JSON file is written last, so its presence means all is there.
    """
    folder = run_dir / "results"
    folder.mkdir(exist_ok=True)
    table = {name: np.ascontiguousarray(novelty) for name, novelty in novelties.items()}
    write_file(
        folder / f"{result.side}.safetensors", safetensors.numpy.save(table, metadata={"key": result.key})
    )
    write_file(folder / f"{result.side}.json", result.model_dump_json(indent=2) + "\n")


def read_result(run_dir: Path, side: str) -> SideResult | None:
    """Read the result of a side; None if there is none that this version can read."""
    try:
        text = (run_dir / "results" / f"{side}.json").read_text(encoding="utf-8")
        return SideResult.model_validate_json(text)
    except (OSError, ValueError):  # no text, or no result
        return None


def read_novelties(run_dir: Path, side: str) -> Novelties:
    """Read the novelty of every actor of a side, by score.

    Raises:
        ResultError: the run was not evaluated on the side.
    """
    path = run_dir / "results" / f"{side}.safetensors"
    try:
        return safetensors.numpy.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ResultError(f"{path}: must hold the novelty of each actor; cannot read it ({error}).") from None


def kept_outputs(run_dir: Path, side: str) -> SideOutputs:
    """Read the cached outputs of a run that was evaluated, on the judged boxes of a side.

    Raises:
        ResultError: there are none, or they are damaged.
    """
    outputs = read_side_outputs(run_dir, side)
    if outputs is None:
        raise ResultError(
            f"{run_dir / 'outputs' / side}: an evaluated run must have its outputs here; they are missing or damaged. "
            f"Remove {run_dir / 'results'} to evaluate the run again."
        )
    return judged_rows(outputs)
