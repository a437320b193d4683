"""The settings of an evaluation: which scores, how many resamples, single looks or tracks, and what the numbers mean."""

from dataclasses import dataclass

from mule.core.errors import RangeError
from mule.evaluation.open_set import OPEN_SET_CONVENTION
from mule.evaluation.outcomes import LEVEL
from mule.inference.outputs import SideOutputs
from mule.inference.score_rules import SCORE_NAMES
from mule.inference.tracks import By, by_track

FALSE_ALARMS = 0.05


@dataclass(frozen=True)
class Judging:
    """Settings of an evaluation."""

    scores: tuple[str, ...] = SCORE_NAMES
    dropout_passes: int = 10
    resamples: int = 1000
    """Bootstrap resamples for confidence intervals; 0 disables them."""
    seed: int = 0
    test_clips: int | None = None
    """Clips in each test set of Stage; None uses the benchmark's number."""
    by: By = "look"
    """Evaluate every look at an actor on its own, or all looks of a track together."""
    most_looks: int | None = None
    """Use only the first so many looks of each track; None uses all."""
    looks_at_least: bool = False
    """Look only at the sides to judge and those that a score is fitted on, not always at training and validation too."""

    def __post_init__(self) -> None:
        if self.most_looks is not None and (self.by == "look" or self.most_looks < 1):
            raise RangeError(
                f"most_looks must be at least 1 and needs by='track'; got most_looks={self.most_looks}, by={self.by!r}."
            )

    def rows_of(self, outputs: SideOutputs) -> SideOutputs:
        """The rows to evaluate: looks as they are, or tracks."""
        return outputs if self.by == "look" else by_track(outputs, most_looks=self.most_looks)

    def name_of(self, side: str) -> str:
        """The name of the result and its file; tracks are a result of their own."""
        looks = "" if self.most_looks is None else f"-{self.most_looks}"
        return side if self.by == "look" else f"{side}-by-track{looks}"

    @property
    def convention(self) -> str:
        """What the numbers mean, in words; readers of results see it."""
        drawn = (
            f" intervals: {100 * LEVEL:g} % percentile bootstrap over clips, keeping clips of one video together, "
            f"{self.resamples} resamples, seed {self.seed}."
            if self.resamples
            else ""
        )
        return (
            f"{OPEN_SET_CONVENTION}{drawn} threshold: flags at most {FALSE_ALARMS:.0%} of the known actors of validation, "
            "which is not used for training. Scores that learn use training actors only."
        ) + self._by_track

    @property
    def _by_track(self) -> str:
        if self.by == "look":
            return ""
        taken = "all" if self.most_looks is None else f"the first {self.most_looks}"
        return (
            f" tracks: {taken} looks at an actor are evaluated together; evidence is fused, rivals get the mean output and "
            "feature. Scores learn from single looks; thresholds and p-values come from validation tracks of equal length."
        )
