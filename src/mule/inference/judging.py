"""Evaluate a trained run.

Closed-set mAP, and every open-set measure of every score, with intervals over clips.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float

from mule.core.errors import MuleError, NotFinite, RangeError
from mule.core.settings import Experiment
from mule.evaluation.class_figures import novelty_percentiles, reliability
from mule.evaluation.intervals import ClipDraws, draw_clips, drawn_measures, intervals_of
from mule.evaluation.mean_ap import mean_over_classes, multilabel_average_precision
from mule.evaluation.open_set import (
    OPEN_SET_CONVENTION,
    OpenSetIntervals,
    OpenSetMeasures,
    UndefinedMeasures,
    evaluate_open_set,
)
from mule.evaluation.outcomes import LEVEL
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import reading_of
from mule.inference.results import (
    RESULTS_FORMAT,
    Novelties,
    ScoreResult,
    SideResult,
    read_result,
    write_result,
)
from mule.inference.running import OutputsOf, weights_digest
from mule.inference.score_rules import SCORE_NAMES, ScoreRule, score_rules
from mule.inference.sides import TRAIN, VAL, require_sides, sides_under_test
from mule.inference.tracks import By, by_track
from mule.metrics import threshold_at_false_alarm_rate
from mule.systems.catalogue import find_system
from mule.training.data import Noted
from mule.training.monitor import probability_order

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


@dataclass(frozen=True)
class FittedRule:
    """A score that has learned from known actors, and the novelty it gives those of validation."""

    rule: ScoreRule
    val_novelty: Float[np.ndarray, " actors"]


@dataclass(frozen=True)
class Yardstick:
    """What the evaluation of every side of a run shares."""

    fitted: tuple[FittedRule, ...]
    left_out: Mapping[str, str]
    mean_ap_val: float
    dead_share: float


def judge_run(
    run_dir: Path, experiment: Experiment, *, sides: Sequence[str] = (), judging: Judging, noted: Noted
) -> dict[str, SideResult]:
    """Evaluate a finished run on each side, or read the result if the run's folder has it already.

    Args:
        run_dir: the folder of the run.
        experiment: its experiment, with the present place of the data.
        sides: names of sides; none means validation and every test side.
        judging: settings.
        noted: receives a sentence about each longer step.

    Raises:
        RangeError: there is no side, or no score, of that name.
        WeightsError: the run is not finished.
    """
    wanted = tuple(dict.fromkeys(sides or (VAL, *sides_under_test(experiment))))
    require_sides(experiment, wanted)
    rules = score_rules(judging.scores)
    source = OutputsOf(run_dir, experiment, judging.dropout_passes, judging.test_clips)
    keys = {side: result_key(source, side, judging) for side in wanted}
    results = {side: read_result(run_dir, judging.name_of(side)) for side in wanted}
    missing = [side for side in wanted if (result := results[side]) is None or result.key != keys[side]]
    if missing:
        train, val = (source.on(side, noted=noted) for side in (TRAIN, VAL))
        read = reading_of(experiment.system, train, val, model=weights_digest(run_dir))
        val = read(val)
        yardstick = yardstick_of(rules, train, judging.rows_of(val))
        for side in missing:
            outputs = {TRAIN: train, VAL: val}.get(side) or read(source.on(side, noted=noted))
            facts = {
                "key": keys[side],
                "system": experiment.system,
                "side": judging.name_of(side),
                "side_digest": source.side_digest(side),
                "weights_sha256": weights_digest(run_dir),
            }
            result, novelties = judged(judging.rows_of(outputs), yardstick, judging=judging, facts=facts)
            write_result(result, novelties, run_dir)
            results[side] = result
    return {judging.name_of(side): result for side, result in results.items() if result is not None}


def judge_looks(
    run_dir: Path,
    experiment: Experiment,
    side: str,
    *,
    looks: Sequence[int],
    judging: Judging,
    noted: Noted,
) -> dict[int, SideResult]:
    """Judge the same tracks of a side with their first few looks; returns a result for each number of looks.

    Args:
        run_dir: the folder of the run.
        experiment: its experiment, with the data where they are now.
        side: a side of its data.
        looks: the numbers of looks to use.
        judging: how to judge; always by track.
        noted: receives a sentence about whatever is being computed.

    Raises:
        RangeError: the side has no tracks, or a number of looks is below one.
    """
    results: dict[int, SideResult] = {}
    for number in looks:
        by_tracks = replace(judging, by="track", most_looks=number)
        judged_sides = judge_run(run_dir, experiment, sides=[side], judging=by_tracks, noted=noted)
        results[number] = judged_sides[by_tracks.name_of(side)]
    return results


def result_key(source: OutputsOf, side: str, judging: Judging) -> str:
    """Everything the result of a side depends on."""
    keys = [source.key(each) for each in (TRAIN, VAL, side)]
    judged_how = {"format": RESULTS_FORMAT, "scores": judging.scores, "convention": judging.convention}
    if find_system(source.experiment.system).has_memory:
        judged_how["reads"] = "network and whole memory"
    return hashlib.sha256(json.dumps([keys, judged_how]).encode()).hexdigest()


def facts_unkept(system: str, side: str, *, model: str) -> dict[str, str]:
    """The facts of a result that is shown but not saved, so it needs neither a key nor a digest."""
    return {"key": "", "system": system, "side": side, "side_digest": "", "weights_sha256": model}


def yardstick_of(rules: Sequence[ScoreRule], train: SideOutputs, val: SideOutputs) -> Yardstick:
    """Fit the rules on known actors, and measure what the evaluation of every side needs.

    A rule that does not apply to this network, or cannot learn from these actors, is left out with the
    reason.
    """
    fitted: list[FittedRule] = []
    left_out: dict[str, str] = {}
    for rule in rules:
        try:
            rule.fit(train.deciding, val.deciding)
            fitted.append(FittedRule(rule, ranks(rule, val.deciding)))
        except MuleError as error:
            left_out[rule.name] = str(error)
    return Yardstick(
        tuple(fitted),
        left_out,
        mean_ap_val=mean_over_classes(_average_precisions(val, np.ones(val.num_actors, dtype=bool))),
        dead_share=_dead_share(train),
    )


def _dead_share(train: SideOutputs) -> float:
    """Share of dead outputs.

    Only evidence that is the ReLU of its own output can die: below zero it has no gradient.
    """
    if train.kind != "independent":
        return 0.0
    most = torch.cat([train.evidence.positive, train.evidence.negative], dim=1).amax(dim=0)
    return float((most <= 0).float().mean())


def ranks(rule: ScoreRule, outputs: SideOutputs) -> Float[np.ndarray, " actors"]:
    """The novelty of each actor as a rank, which does not tie by rounding.

    Raises:
        NotFinite: some ranks are not finite.
    """
    rank = rule.novelty(outputs).rank.double().numpy()
    num_wrong = np.count_nonzero(~np.isfinite(rank))
    if num_wrong:
        raise NotFinite(f"novelty must be finite; it is not for {num_wrong} of {len(rank)} actors")
    return rank


def judged(
    outputs: SideOutputs, yardstick: Yardstick, *, judging: Judging, facts: Mapping[str, str]
) -> tuple[SideResult, Novelties]:
    """Evaluate one side; return the result and the novelty of its actors by every score.

    Args:
        outputs: of the side.
        yardstick: of the same run.
        judging: settings.
        facts: fields of the result that identify the run and the side.
    """
    is_known = np.logical_not(outputs.truth.is_novel)
    draws = None
    if judging.resamples and is_known.any() and not is_known.all():
        draws = draw_clips(
            outputs.video_index,
            num_clips=len(outputs.videos),
            resamples=judging.resamples,
            seed=judging.seed,
        )
    scores: dict[str, ScoreResult] = {}
    left_out, novelties = dict(yardstick.left_out), dict[str, Float[np.ndarray, " actors"]]()
    for each in yardstick.fitted:
        try:
            novelties[each.rule.name] = novelty = ranks(each.rule, outputs.deciding)
        except MuleError as error:
            left_out[each.rule.name] = str(error)
            continue
        threshold = threshold_at_false_alarm_rate(each.val_novelty, FALSE_ALARMS)
        scores[each.rule.name] = _score_result(novelty, outputs, threshold=threshold, draws=draws)
    precisions = _average_precisions(outputs, is_known)
    result = SideResult.model_validate(
        {
            **facts,
            "kind": outputs.kind,
            "num_clips": len(outputs.clip_names),
            "num_skipped": outputs.num_skipped,
            "num_known": int(is_known.sum()),
            "num_novel": int(outputs.truth.is_novel.sum()),
            "mean_ap": mean_over_classes(precisions),
            "mean_ap_by_class": dict(zip(outputs.classes, map(_or_none, precisions.tolist()), strict=True)),
            "mean_ap_val": yardstick.mean_ap_val,
            "dead_share": yardstick.dead_share,
            "expected_error": reliability(
                outputs.probability[is_known], outputs.labels[is_known]
            ).expected_error,
            "scores": scores,
            "left_out": left_out,
            "convention": judging.convention,
        }
    )
    return result, novelties


def _score_result(
    novelty: Float[np.ndarray, " actors"],
    outputs: SideOutputs,
    *,
    threshold: float,
    draws: ClipDraws | None,
) -> ScoreResult:
    truth = outputs.truth
    is_flagged = novelty > threshold
    _, counts = np.unique(novelty, return_counts=True)
    places = novelty_percentiles(novelty)
    return ScoreResult(
        measures=_open_set(novelty, truth.is_novel, draws),
        threshold=threshold,
        known_flagged=_share_of(is_flagged[np.logical_not(truth.is_novel)]),
        novel_flagged=_share_of(is_flagged[truth.is_novel]),
        tied_share=float(counts[counts > 1].sum() / len(novelty)),
        place_by_class={
            name: float(np.median(places[does]))
            for name, does in zip(truth.classes, truth.labels.T, strict=True)
            if does.any()
        },
    )


def _open_set(
    novelty: Float[np.ndarray, " actors"], is_novel: Bool[np.ndarray, " actors"], draws: ClipDraws | None
) -> OpenSetMeasures | UndefinedMeasures:
    num_novel = int(np.count_nonzero(is_novel))
    num_known = len(is_novel) - num_novel
    if not (num_novel and num_known):
        missing = "known" if num_novel else "novel"
        return UndefinedMeasures(
            undefined=f"no {missing} actors in this set", num_known=num_known, num_novel=num_novel
        )
    measures = evaluate_open_set(novelty, is_novel, resamples=0)
    ends = None if draws is None else intervals_of(drawn_measures(novelty, is_novel, draws), level=LEVEL)
    intervals = None
    if draws is not None and ends is not None:
        intervals = OpenSetIntervals.model_validate(
            {"level": LEVEL, "resamples": len(draws.counts), "seed": draws.seed, **ends}
        )
    values = {name: getattr(measures, name) for name in OpenSetMeasures.model_fields}
    return OpenSetMeasures.model_validate({**values, "intervals": intervals})


def _average_precisions(
    outputs: SideOutputs, chosen: Bool[np.ndarray, " actors"]
) -> Float[np.ndarray, " classes"]:
    """Average precision per action, ranked by log α/β as in validation.

    A sigmoid's logits have the same order.
    """
    order = probability_order(outputs.evidence).double().numpy()
    return multilabel_average_precision(order[chosen], outputs.labels[chosen])


def _share_of(is_flagged: Bool[np.ndarray, " actors"]) -> float | None:
    return float(is_flagged.mean()) if len(is_flagged) else None


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
