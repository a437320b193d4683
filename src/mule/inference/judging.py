"""Evaluate a trained run.

Closed-set mAP, and every open-set measure of every score, with intervals over clips.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float

from mule.core.errors import MuleError, NotFinite
from mule.core.locks import only_writer
from mule.core.progress import counted
from mule.core.settings import Experiment, TableData
from mule.data.convert.origin import read_origin
from mule.evaluation.class_figures import novelty_percentiles, reliability
from mule.evaluation.intervals import ClipDraws, draw_clips, drawn_measures, intervals_of
from mule.evaluation.mean_ap import mean_over_classes, multilabel_average_precision
from mule.evaluation.open_set import (
    OpenSetIntervals,
    OpenSetMeasures,
    UndefinedMeasures,
    evaluate_open_set,
)
from mule.evaluation.outcomes import LEVEL
from mule.inference.judging_settings import FALSE_ALARMS, Judging
from mule.inference.official import official_result
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import Reading, reading_of
from mule.inference.results import (
    RESULTS_FORMAT,
    DetectedResult,
    Novelties,
    ScoreResult,
    SideResult,
    read_result,
    write_result,
)
from mule.inference.running import OutputsOf, weights_digest
from mule.inference.score_rules import ScoreRule, score_rules
from mule.inference.seen import SeenRule
from mule.inference.sides import TRAIN, VAL, require_sides, sides_under_test
from mule.metrics import threshold_at_false_alarm_rate
from mule.systems.catalogue import find_system
from mule.training.data import Noted, root_of, table_sides
from mule.training.monitor import probability_order


@dataclass(frozen=True)
class FittedRule:
    """A score that has learned from known actors, and the novelty it gives those of validation."""

    rule: ScoreRule
    val_novelty: Float[np.ndarray, " actors"] | None
    """None if validation was not looked at."""


@dataclass(frozen=True)
class Yardstick:
    """What the evaluation of every side of a run shares."""

    fitted: tuple[FittedRule, ...]
    left_out: Mapping[str, str]
    mean_ap_val: float | None
    dead_share: float | None


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
        FolderInUseError: another process writes into its folder.
    """
    wanted = tuple(dict.fromkeys(sides or (VAL, *sides_under_test(experiment))))
    require_sides(experiment, wanted)
    rules = score_rules(judging.scores)
    source = OutputsOf(run_dir, experiment, judging.dropout_passes, judging.test_clips)
    fitted_on = sides_fitted_on(rules, experiment, judging, wanted)
    keys = {side: result_key(source, side, judging, fitted_on) for side in wanted}
    results = {side: read_result(run_dir, judging.name_of(side)) for side in wanted}
    missing = [side for side in wanted if (result := results[side]) is None or result.key != keys[side]]
    if missing:
        with only_writer(run_dir):
            known = {side: source.on(side, noted=noted) for side in fitted_on}
            read = _reading(experiment, known, model=weights_digest(run_dir))
            train, val = known.get(TRAIN), known.get(VAL)
            val = None if val is None else read(val)
            yardstick = yardstick_of(rules, train, None if val is None else judging.rows_of(val))
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
                if judging.by == "look" and side != TRAIN and isinstance(experiment.data, TableData):
                    result = with_protocol(
                        result, read(source.on_all(side, noted=noted)), experiment, side, run_dir
                    )
                write_result(result, novelties, run_dir)
                results[side] = result
    return {judging.name_of(side): result for side, result in results.items() if result is not None}


def with_protocol(
    result: SideResult, outputs: SideOutputs, experiment: Experiment, side: str, run_dir: Path
) -> SideResult:
    """Return a result with what the published protocols add: the official metric, and whom the detector lost.

    Args:
        result: of the side.
        outputs: on all its boxes, judged or not.
        experiment: names the data.
        side: a side of its data.
        run_dir: where the official files go.
    """
    if not isinstance(experiment.data, TableData):
        return result
    official, counts = (
        official_result(experiment, side, outputs, run_dir / "results"),
        table_sides(experiment.data).boxes(side).counts,
    )
    found = {"detected": None if counts is None else DetectedResult(**asdict(counts))}
    if isinstance(official, str):
        return result.model_copy(update={**found, "official_missing": official})
    return result.model_copy(update={**found, "official": official})


def sides_fitted_on(
    rules: Sequence[ScoreRule], experiment: Experiment, judging: Judging, wanted: Sequence[str]
) -> tuple[str, ...]:
    """Return the sides of known actors to look at: training and validation, or only what is needed.

    Needed is what a score learns from, what the system's memory remembers, and validation if it is judged anyway. Shares
    flagged need validation, dead outputs need training; they are left out where that side is not looked at.
    """
    if not judging.looks_at_least or find_system(experiment.system).has_memory:
        return TRAIN, VAL
    needed = frozenset(wanted).union(*(rule.learns_from for rule in rules))
    return tuple(side for side in (TRAIN, VAL) if side in needed)


def _reading(experiment: Experiment, known: Mapping[str, SideOutputs], *, model: str) -> Reading:
    """How to read outputs; a system without a memory reads them as they are."""
    if not find_system(experiment.system).has_memory:
        return lambda outputs: outputs
    return reading_of(experiment.system, known[TRAIN], known[VAL], model=model)


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


def result_key(
    source: OutputsOf, side: str, judging: Judging, fitted_on: Sequence[str] = (TRAIN, VAL)
) -> str:
    """Everything the result of a side depends on."""
    keys = [source.key(each) for each in (*fitted_on, side)]
    judged_how = {"format": RESULTS_FORMAT, "scores": judging.scores, "convention": judging.convention}
    if isinstance(source.experiment.data, TableData):
        judged_how["protocol"] = _protocol_digest(source.experiment.data)
    if find_system(source.experiment.system).has_memory:
        judged_how["reads"] = "network and whole memory"
    return hashlib.sha256(json.dumps([keys, judged_how]).encode()).hexdigest()


def _protocol_digest(data: TableData) -> str:
    """What the official metric depends on beside the outputs: the published class numbers."""
    origin = read_origin(root_of(data) / data.actors)
    return "official 1" + ("" if origin is None else origin.model_dump_json())


def facts_unkept(system: str, side: str, *, model: str) -> dict[str, str]:
    """The facts of a result that is shown but not saved, so it needs neither a key nor a digest."""
    return {"key": "", "system": system, "side": side, "side_digest": "", "weights_sha256": model}


def yardstick_of(rules: Sequence[ScoreRule], train: SideOutputs | None, val: SideOutputs | None) -> Yardstick:
    """Fit the rules on known actors, and measure what the evaluation of every side needs.

    A rule that does not apply to this network, or cannot learn from these actors, is left out with the
    reason. A side may be None if no rule learns from it; what else needs it is then left out.
    """
    fitted: list[FittedRule] = []
    left_out: dict[str, str] = {}
    for rule in counted(rules, "fitting scores"):
        try:
            _fit(rule, train, val)
            known = None if val is None else ranks(rule, val.deciding)  # or all that a rule was calibrated on
            fitted.append(
                FittedRule(rule, rule.known_novelty.numpy() if isinstance(rule, SeenRule) else known)
            )
        except MuleError as error:
            left_out[rule.name] = str(error)
    return Yardstick(
        tuple(fitted),
        left_out,
        mean_ap_val=None
        if val is None
        else mean_over_classes(_average_precisions(val, np.ones(val.num_actors, dtype=bool))),
        dead_share=None if train is None else _dead_share(train),
    )


def _fit(rule: ScoreRule, train: SideOutputs | None, val: SideOutputs | None) -> None:
    known = train or val
    if known is not None:  # a rule ignores the side it does not learn from, so the other may stand in for it
        rule.fit((train or known).deciding, (val or known).deciding)


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
    for each in counted(yardstick.fitted, "judging by every score"):
        try:
            novelties[each.rule.name] = novelty = ranks(each.rule, outputs.deciding)
        except MuleError as error:
            left_out[each.rule.name] = str(error)
            continue
        threshold = None
        if each.val_novelty is not None:
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
            "has_inputs": bool(outputs.inputs),
            "convention": judging.convention,
        }
    )
    return result, novelties


def _score_result(
    novelty: Float[np.ndarray, " actors"],
    outputs: SideOutputs,
    *,
    threshold: float | None,
    draws: ClipDraws | None,
) -> ScoreResult:
    truth = outputs.truth
    is_flagged = None if threshold is None else novelty > threshold
    _, counts = np.unique(novelty, return_counts=True)
    places = novelty_percentiles(novelty)
    return ScoreResult(
        measures=_open_set(novelty, truth.is_novel, draws),
        threshold=threshold,
        known_flagged=_share_of(is_flagged, np.logical_not(truth.is_novel)),
        novel_flagged=_share_of(is_flagged, truth.is_novel),
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
    """Average precision per action, ranked by log α/β as in validation; a sigmoid's logits have the same order."""
    order = probability_order(outputs.evidence).double().numpy()
    return multilabel_average_precision(order[chosen], outputs.labels[chosen])


def _share_of(
    is_flagged: Bool[np.ndarray, " actors"] | None, among: Bool[np.ndarray, " actors"]
) -> float | None:
    return None if is_flagged is None or not among.any() else float(is_flagged[among].mean())


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
