"""From outputs to results: closed-set mAP, and every open-set measure of every score, with intervals over clips."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float

from mule.core.config import Experiment
from mule.core.errors import MuleError, NotFinite, RangeError
from mule.evaluation.class_figures import novelty_percentiles, reliability
from mule.evaluation.intervals import ClipDraws, draw_clips, drawn_measures, intervals_of
from mule.evaluation.mean_ap import mean_over_classes, multilabel_average_precision
from mule.evaluation.open_set import (
    CONVENTION,
    OpenSetIntervals,
    OpenSetMeasures,
    UndefinedMeasures,
    evaluate_open_set,
)
from mule.inference.output_files import OutputsOf, weights_digest
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import reading_of
from mule.inference.results import FORMAT, Novelties, ScoreResult, SideResult, read_result, write_result
from mule.inference.score_rules import SCORE_NAMES, ScoreRule, score_rules
from mule.inference.sides import TRAIN, VAL, require_sides, sides_under_test
from mule.inference.tracks import By, by_track
from mule.metrics import threshold_at_false_alarm_rate
from mule.systems.catalogue import find_system
from mule.training.data import Noted
from mule.training.monitor import probability_order

FALSE_ALARMS = 0.05
LEVEL = 0.95


@dataclass(frozen=True)
class Judging:
    """How outputs are judged."""

    scores: tuple[str, ...] = SCORE_NAMES
    dropout_passes: int = 10
    resamples: int = 1000
    """Draws of clips for the intervals; 0 leaves them out."""
    seed: int = 0
    test_clips: int | None = None
    """Of each test side of Stage; None is as many as the benchmark has."""
    by: By = "look"
    """Whether every look at an actor is judged, or all looks along a track together."""
    most_looks: int | None = None
    """Of each track the first so many; None is all."""

    def __post_init__(self) -> None:
        if self.most_looks is not None and (self.by == "look" or self.most_looks < 1):
            raise RangeError(
                f"a number of looks must be at least 1 and goes with judging by track; got {self.most_looks}, by {self.by}."
            )

    def shown(self, outputs: SideOutputs) -> SideOutputs:
        """What is judged of these outputs."""
        return outputs if self.by == "look" else by_track(outputs, most_looks=self.most_looks)

    def name_of(self, side: str) -> str:
        """What the result of a side is called, and its file: judged another way it is another result."""
        looks = "" if self.most_looks is None else f"-{self.most_looks}"
        return side if self.by == "look" else f"{side}-by-track{looks}"

    @property
    def convention(self) -> str:
        """What the numbers mean, in words."""
        drawn = (
            f" intervals: {100 * LEVEL:g} % percentile bootstrap over clips, those of one video together, {self.resamples} draws, seed {self.seed}."
            if self.resamples
            else ""
        )
        return (
            f"{CONVENTION}{drawn} threshold: flags at most {FALSE_ALARMS:.0%} of the known actors of validation, who "
            "were not trained on. Scores that learn did so on training actors."
        ) + self._by_track

    @property
    def _by_track(self) -> str:
        if self.by == "look":
            return ""
        taken = "all" if self.most_looks is None else f"the first {self.most_looks}"
        return (
            f" tracks: {taken} looks at one actor together; evidence is fused, rivals get the mean output and feature. "
            "Scores learned from single looks; threshold and p-values are of validation tracks of as many looks."
        )


@dataclass(frozen=True)
class FittedScore:
    """A score that has seen known actors, and what it says of those of validation."""

    rule: ScoreRule
    val_novelty: Float[np.ndarray, " actors"]


@dataclass(frozen=True)
class Yardstick:
    """What every side of a run is judged with."""

    fitted: tuple[FittedScore, ...]
    left_out: Mapping[str, str]
    mean_ap_val: float
    dead_share: float


def judge_run(
    run_dir: Path, experiment: Experiment, *, sides: Sequence[str] = (), judging: Judging, noted: Noted
) -> dict[str, SideResult]:
    """The judgement of a finished run on each side, from its folder or made now and kept there.

    Args:
        run_dir: the folder of the run.
        experiment: its experiment, with the data where they now lie.
        sides: which; none is validation and every test side.
        judging: how.
        noted: is told what is being computed.

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
    missing = [side for side in wanted if (found := results[side]) is None or found.key != keys[side]]
    if missing:
        train, val = (source.on(side, noted=noted) for side in (TRAIN, VAL))
        read = reading_of(experiment.system, train, val, model=weights_digest(run_dir))
        val = read(val)
        yardstick = yardstick_of(rules, train, judging.shown(val))
        for side in missing:
            outputs = {TRAIN: train, VAL: val}.get(side) or read(source.on(side, noted=noted))
            facts = {
                "key": keys[side],
                "system": experiment.system,
                "side": judging.name_of(side),
                "side_digest": source.side_digest(side),
                "weights_sha256": weights_digest(run_dir),
            }
            result, novelties = judged(judging.shown(outputs), yardstick, judging=judging, facts=facts)
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
    """All that the result of a side depends on."""
    keys = [source.key(each) for each in (TRAIN, VAL, side)]
    judged_how = {"format": FORMAT, "scores": judging.scores, "convention": judging.convention}
    if find_system(source.experiment.system).has_memory:
        judged_how["reads"] = "network and whole memory"
    return hashlib.sha256(json.dumps([keys, judged_how]).encode()).hexdigest()


def facts_unkept(system: str, side: str, *, model: str) -> dict[str, str]:
    """The facts of a judgement that is shown and not kept: nothing asks for its key or for the digest of its side."""
    return {"key": "", "system": system, "side": side, "side_digest": "", "weights_sha256": model}


def yardstick_of(rules: Sequence[ScoreRule], train: SideOutputs, val: SideOutputs) -> Yardstick:
    """Rules that have learned from known actors, and what else the judgement of a run rests on.

    A rule that this network cannot give what it needs, or that cannot learn from these actors, is left out with the
    reason.
    """
    fitted: list[FittedScore] = []
    left_out: dict[str, str] = {}
    for rule in rules:
        try:
            rule.fit(train.deciding, val.deciding)
            fitted.append(FittedScore(rule, ranks(rule, val.deciding)))
        except MuleError as error:
            left_out[rule.name] = str(error)
    return Yardstick(
        tuple(fitted),
        left_out,
        mean_ap_val=mean_over_classes(_average_precisions(val, np.ones(val.num_actors, dtype=bool))),
        dead_share=_dead_share(train),
    )


def _dead_share(train: SideOutputs) -> float:
    """Only evidence that is the ReLU of an output of its own can die: below zero it has no gradient to come back with."""
    if train.kind != "independent":
        return 0.0
    most = torch.cat([train.evidence.positive, train.evidence.negative], dim=1).amax(dim=0)
    return float((most <= 0).float().mean())


def ranks(rule: ScoreRule, outputs: SideOutputs) -> Float[np.ndarray, " actors"]:
    """The novelty of each actor, in the form that never ties by rounding.

    Raises:
        NotFinite: some are not finite.
    """
    found = rule.novelty(outputs).rank.double().numpy()
    wrong = np.count_nonzero(~np.isfinite(found))
    if wrong:
        raise NotFinite(f"novelty must be finite; that of {wrong} of {len(found)} actors is not")
    return found


def judged(
    outputs: SideOutputs, yardstick: Yardstick, *, judging: Judging, facts: Mapping[str, str]
) -> tuple[SideResult, Novelties]:
    """The judgement of one side, and the novelty of its actors by every score.

    Args:
        outputs: of the side.
        yardstick: of the same run.
        judging: how.
        facts: what the result says of the run.
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
        lacking = "known" if num_novel else "novel"
        return UndefinedMeasures(
            undefined=f"no {lacking} actors on this side", num_known=num_known, num_novel=num_novel
        )
    found = evaluate_open_set(novelty, is_novel, resamples=0)
    ends = None if draws is None else intervals_of(drawn_measures(novelty, is_novel, draws), level=LEVEL)
    intervals = None
    if draws is not None and ends is not None:
        intervals = OpenSetIntervals.model_validate(
            {"level": LEVEL, "resamples": len(draws.counts), "seed": draws.seed, **ends}
        )
    values = {name: getattr(found, name) for name in OpenSetMeasures.model_fields}
    return OpenSetMeasures.model_validate({**values, "intervals": intervals})


def _average_precisions(
    outputs: SideOutputs, chosen: Bool[np.ndarray, " actors"]
) -> Float[np.ndarray, " classes"]:
    """Ranked as validation ranks: by the logarithm of α/β, which is in the order of a sigmoid's logits too."""
    order = probability_order(outputs.evidence).double().numpy()
    return multilabel_average_precision(order[chosen], outputs.labels[chosen])


def _share_of(is_flagged: Bool[np.ndarray, " actors"]) -> float | None:
    return float(is_flagged.mean()) if len(is_flagged) else None


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
