"""The default against every other method and score: the pre-registered test, paired over trials and clips.

    for each resample: trials with replacement, and in each of them clips with replacement ─▶ mean of AUROC − AUROC

Both methods of a difference see the same resampled clips. A trial is a seed, with its own data, or a class
split.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from jaxtyping import Bool

from mule.comparison.sheets import Findings, FinishedRow
from mule.core.errors import RangeError
from mule.evaluation.intervals import (
    ClipDraws,
    ConfidenceInterval,
    PerDraw,
    draw_clips,
    drawn_auroc,
    interval_of,
)
from mule.evaluation.open_set import OpenSetMeasures
from mule.evaluation.outcomes import LEVEL, Difference, Measure, Trial
from mule.evaluation.tables import ARROWS, Line, Sheet, TableNumber, difference_number
from mule.inference.results import Novelties, kept_outputs, read_novelties
from mule.inference.score_rules import LEFT_OUT

DEFAULT = "mule-memory"
AUROC = Measure("auroc", "AUROC", "higher")


@dataclass(frozen=True)
class Tested:
    """The default minus another method, over the trials both have."""

    auroc: float
    """AUROC of the other, mean over trials."""
    difference: float
    interval: ConfidenceInterval | None
    num_trials: int
    num_won: int
    """Trials in which the default is better."""


def over_trials(differences: Sequence[PerDraw]) -> PerDraw:
    """Return resamples of the mean over trials: trials are drawn, and for each of them one resample of its clips."""
    if not differences:
        raise RangeError("a mean over trials needs at least one trial; got none.")
    rng = np.random.default_rng(0)
    drawn = np.stack(differences)
    num_trials, num_draws = drawn.shape
    trials = rng.integers(num_trials, size=(num_draws, num_trials))
    clips = rng.integers(num_draws, size=(num_draws, num_trials))
    return drawn[trials, clips].mean(axis=1)


class PairedTest:
    """AUROC of rows and scores under the same resamples of clips, each computed once."""

    def __init__(self, findings: Findings, side: str, *, resamples: int) -> None:
        self.findings, self.side, self.resamples = findings, side, resamples
        self._drawn: dict[tuple[str, str], PerDraw] = {}
        self._judged: dict[str, _JudgedActors] = {}
        self._clips: dict[tuple[Trial, str], ClipDraws] = {}

    @property
    def can_be_made(self) -> bool:
        """Whether there is a default, another method, and known and novel actors."""
        has_others = DEFAULT in self.findings.methods and len(self.findings.methods) > 1
        return has_others and self.resamples > 0 and self.findings.tells_apart(self.side)

    def against(self, method: str, score: str) -> Tested | None:
        """The default by its own score minus a method by some score; None if no trial has both."""
        ours = {each.row.trial: each for each in self.findings.of(DEFAULT)}
        own_score = self.findings.judged_by[DEFAULT]
        pairs: list[tuple[float, float, PerDraw]] = []
        for each in self.findings.of(method):
            twin = ours.get(each.row.trial)
            if (
                twin is None
                or not self._is_same_side(twin, each)
                or score not in each.results[self.side].scores
            ):
                continue
            ours_here, theirs = _auroc(twin, self.side, own_score), _auroc(each, self.side, score)
            if ours_here is not None and theirs is not None:
                drawn = self._draws(twin, own_score) - self._draws(each, score)
                pairs.append((ours_here, theirs, drawn))
        if not pairs:
            return None
        own, other = (np.array([each[at] for each in pairs]) for at in (0, 1))
        return Tested(
            auroc=float(other.mean()),
            difference=float((own - other).mean()),
            interval=interval_of(over_trials([each[2] for each in pairs]), level=LEVEL),
            num_trials=len(pairs),
            num_won=int((own > other).sum()),
        )

    def _is_same_side(self, first: FinishedRow, other: FinishedRow) -> bool:
        return first.results[self.side].side_digest == other.results[self.side].side_digest

    def _draws(self, each: FinishedRow, score: str) -> PerDraw:
        key = (each.row.name, score)
        if key not in self._drawn:
            actors = self._actors(each)
            self._drawn[key] = drawn_auroc(actors.novelties[score], actors.is_novel, actors.draws)
        return self._drawn[key]

    def _actors(self, each: FinishedRow) -> "_JudgedActors":
        if each.row.name not in self._judged:
            outputs = kept_outputs(each.row.folder, self.side)
            which = (each.row.trial, each.results[self.side].side_digest)
            if which not in self._clips:
                self._clips[which] = draw_clips(
                    outputs.video_index,
                    num_clips=len(outputs.videos),
                    resamples=self.resamples,
                    seed=_seed_of(each.row.trial),
                )
            self._judged[each.row.name] = _JudgedActors(
                read_novelties(each.row.folder, self.side), outputs.truth.is_novel, self._clips[which]
            )
        return self._judged[each.row.name]


@dataclass(frozen=True)
class _JudgedActors:
    """The actors of a row's side: their novelty by every score, and the resamples of their clips."""

    novelties: Novelties
    is_novel: Bool[np.ndarray, " actors"]
    draws: ClipDraws


def default_against_others(test: PairedTest) -> Sheet | None:
    """Compare the default with every other method by its score, and with every other score; None without a default."""
    if not test.can_be_made:
        return None
    findings, side = test.findings, test.side
    lines: list[Line] = []
    for method in findings.methods:
        for score in _scores_tested(findings, method, side):
            found = test.against(method, score)
            if found is not None:
                lines.append(_line(method, score, found))
    titles = ("Against", "Score", f"AUROC{ARROWS['higher']}", f"{DEFAULT} minus this", "Trials won")
    notes = (
        f"{DEFAULT} by {findings.judged_by[DEFAULT]}, in percent, with the {100 * LEVEL:g} % interval of {test.resamples} paired "
        "bootstrap resamples: trials with replacement, and in each its clips, the same for both. Bold: the interval excludes "
        "zero. The intervals are not adjusted for multiple comparisons.",
    )
    return Sheet(titles, tuple(lines), notes=notes)


def _scores_tested(findings: Findings, method: str, side: str) -> tuple[str, ...]:
    """Return the score a method is compared by, then every score of the reference, or those the reference lacks.

    If the reference has no dropout, MC-dropout is tested on a network that has. Scores that cannot apply to
    the reference at all are not tested on others.
    """
    own, reference = (findings.of(each)[0].results[side] for each in (method, findings.reference))
    if method == DEFAULT:
        return tuple(own.scores) if method == findings.reference else ()
    covered = () if method == findings.reference else (*reference.scores, *LEFT_OUT[reference.kind])
    return tuple(
        dict.fromkeys([findings.judged_by[method], *(name for name in own.scores if name not in covered)])
    )


def default_in_short(test: PairedTest) -> str | None:
    """Say which methods the default is better than, indistinguishable from and worse than; None if untested.

    Better and worse mean that the paired interval excludes zero.
    """
    if not test.can_be_made:
        return None
    findings, side = test.findings, test.side
    groups: dict[str, list[str]] = {"better than": [], "indistinguishable from": [], "worse than": []}
    for method in findings.methods:
        found = None if method == DEFAULT else test.against(method, findings.judged_by[method])
        if found is not None and found.interval is not None:
            groups[_standing(found.interval)].append(
                f"{method} ({AUROC.shown(found.auroc)}, won {found.num_won} of {found.num_trials})"
            )
    own = [
        value
        for each in findings.of(DEFAULT)
        if (value := _auroc(each, side, findings.judged_by[DEFAULT])) is not None
    ]
    standing = "; ".join(f"{name} {', '.join(methods)}" for name, methods in groups.items() if methods)
    if not standing:
        return None
    return (
        f"{DEFAULT} by {findings.judged_by[DEFAULT]}: AUROC {AUROC.shown(float(np.mean(own)))}, mean over {len(own)} "
        f"trial{'s' * (len(own) > 1)}. By paired {100 * LEVEL:g} % intervals it is {standing}."
    )


def _standing(difference: ConfidenceInterval) -> str:
    if difference.low > 0:
        return "better than"
    return "worse than" if difference.high < 0 else "indistinguishable from"


def _line(method: str, score: str, found: Tested) -> Line:
    difference = Difference(found.difference, *(found.interval or (nan, nan)), found.num_trials, "seed")
    return Line(
        (
            method,
            score,
            (TableNumber(AUROC.shown(found.auroc)),),
            (difference_number(difference, AUROC),),
            f"{found.num_won} of {found.num_trials}",
        )
    )


def _auroc(each: FinishedRow, side: str, score: str) -> float | None:
    measures = each.results[side].scores[score].measures
    return measures.auroc if isinstance(measures, OpenSetMeasures) else None


def _seed_of(trial: Trial) -> int:
    """Every trial has a seed of its own."""
    return zlib.crc32(f"{trial.split} {trial.seed}".encode())
