"""From outputs to results: the numbers are those of the metrics on the same arrays, and nothing is left out silently."""

import numpy as np
import pytest
import torch
from tiny_rows import JUDGING, TEST_CLIPS, run_of_chance, silent, times_of, tiny_experiment

from mule.core.errors import RangeError, WeightsError
from mule.core.records import Novelty
from mule.evaluation.mean_ap import mean_average_precision
from mule.evaluation.open_set import OpenSetMeasures, UndefinedMeasures
from mule.inference.judging import Judging, judge_run, judged, yardstick_of
from mule.inference.remembering import MEMORY_SCORES
from mule.inference.results import kept_outputs, read_novelties, read_result
from mule.inference.running import outputs_of
from mule.inference.score_rules import (
    COMBINED_SCORES,
    LEFT_OUT,
    SCORE_NAMES,
    ScoreRule,
    score_rules,
)
from mule.inference.seen import SEEN_SCORE
from mule.inference.sides import read_side
from mule.metrics import MEASURES, operating_curve, threshold_at_false_alarm_rate
from mule.novelty.scores import NOVELTY_BY_KIND, NoveltyKind
from mule.rivals.scores.by_name import SCORE_BY_NAME
from mule.training.monitor import probability_order

FACTS = {"key": "", "system": "", "side": "test-uniform", "side_digest": "", "weights_sha256": ""}


@pytest.fixture(scope="module")
def outputs(root):
    """Outputs of training, validation and test by system, with weights of chance."""

    def of(system):
        experiment = tiny_experiment(root, system=system)
        run = run_of_chance(experiment)
        return [
            outputs_of(
                run, read_side(experiment, side, test_clips=TEST_CLIPS, noted=silent), dropout_passes=3
            )
            for side in ("train", "val", "test-uniform")
        ]

    return {system: of(system) for system in ("mule-without-aco-r", "dear-pooled", "slowfast", "afac")}


def row_of(done, system):
    return next(each for each in done.rows if each.contestant == system)


def test_every_measure_is_that_of_the_metrics_on_the_same_arrays(done):
    row = row_of(done, "slowfast")
    for side in row.sides[1:]:
        result, novelties = read_result(row.folder, side), read_novelties(row.folder, side)
        shown, val = kept_outputs(row.folder, side), read_novelties(row.folder, "val")
        assert result is not None
        assert set(result.scores) == set(novelties)
        assert (result.num_known, result.num_novel) == (
            (~shown.truth.is_novel).sum(),
            shown.truth.is_novel.sum(),
        )
        for name, novelty in novelties.items():
            curve = operating_curve(novelty, shown.truth.is_novel)
            score = result.scores[name]
            assert isinstance(score.measures, OpenSetMeasures)
            for measure, function in MEASURES.items():
                assert getattr(score.measures, measure) == float(function(curve))
            assert score.threshold == threshold_at_false_alarm_rate(val[name], 0.05)
            assert score.known_flagged == (novelty[~shown.truth.is_novel] > score.threshold).mean()
            assert score.tied_share == np.mean([(novelty == each).sum() > 1 for each in novelty])
            assert score.measures.intervals is not None
            assert score.measures.intervals.auroc.low <= score.measures.intervals.auroc.high


def test_closed_set_map_is_of_known_actors_alone(done):
    row = row_of(done, "slowfast")
    found, shown = read_result(row.folder, "test-uniform"), kept_outputs(row.folder, "test-uniform")
    assert found is not None
    is_known = ~shown.truth.is_novel
    order = probability_order(shown.evidence).double().numpy()
    assert found.mean_ap == mean_average_precision(order[is_known], shown.labels[is_known])
    val = kept_outputs(row.folder, "val")
    assert found.mean_ap_val == mean_average_precision(
        probability_order(val.evidence).double().numpy(), val.labels
    )


def test_validation_has_no_novel_actors_and_says_so(done):
    result = read_result(row_of(done, "slowfast").folder, "val")
    assert result is not None
    assert result.num_novel == 0
    for score in result.scores.values():
        assert isinstance(score.measures, UndefinedMeasures)
        assert score.measures.undefined == "no novel actors in this set"
        assert score.known_flagged is not None
        assert score.known_flagged <= 0.05


def test_dead_outputs_are_told_of_evidence_that_can_die(done):
    dead = {row.contestant: read_result(row.folder, "val") for row in done.rows}
    shares = {name: each.dead_share for name, each in dead.items() if each is not None}
    assert shares["slowfast"] == shares["bce-aco-r"] == 0
    train = kept_outputs(row_of(done, "mule-literal-without-aco-r").folder, "train")
    assert shares["mule-literal-without-aco-r"] == (train.outputs.amax(dim=0) <= 0).float().mean().item()


def test_scores_that_learn_have_seen_training_actors_and_nobody_else(outputs):
    train, val, test = outputs["slowfast"]
    assert not train.truth.is_novel.any()
    assert not val.truth.is_novel.any()
    for name in ("knn", "vim", "mahalanobis", "openmax-above-least", "informed-democracy"):
        rule = score_rules([name])[0]
        rule.fit(train, val)
        direct = SCORE_BY_NAME[name]()
        direct.fit(train.stored, torch.from_numpy(train.labels))
        assert torch.equal(rule.novelty(test).rank, direct(test.stored).rank)


def test_scores_of_evidence_are_those_of_the_network_s_own(outputs):
    _, _, test = outputs["mule-without-aco-r"]
    kinds: dict[str, NoveltyKind] = {
        "PE": "pe", "NE": "ne", "PNE": "pne", "Belief": "belief", "PE of log": "pe_log", "NE inverse": "ne_inverse",
    }  # fmt: skip
    for name, kind in kinds.items():
        assert torch.equal(
            score_rules([name])[0].novelty(test).rank, NOVELTY_BY_KIND[kind](test.evidence).rank
        )
    by_value = score_rules(["PE by value"])[0].novelty(test)
    assert torch.equal(by_value.rank, NOVELTY_BY_KIND["pe"](test.evidence).value)


@pytest.mark.parametrize(
    ("system", "left_out"),
    [
        ("mule-without-aco-r", {"vacuity"}),
        ("dear-pooled", {*LEFT_OUT["dirichlet"], "exp-pe", "exp-belief"}),
        (
            "afac",
            {*LEFT_OUT["read"], "odin", "odin-softmax", "vim", "vim-softmax", "vim-residual", "dropout-mean"}
            | {"dropout-variance", "bald", "informed-democracy"},
        ),
    ],
)
def test_every_score_is_judged_or_left_out_with_a_reason(outputs, system, left_out):
    train, val, test = outputs[system]
    yardstick = yardstick_of(score_rules(), train, val)
    result, novelties = judged(test, yardstick, judging=Judging(resamples=0), facts=FACTS)
    left_out = left_out | {*MEMORY_SCORES, *COMBINED_SCORES}  # a few actors are no memory
    left_out = left_out | {SEEN_SCORE}  # their backbone is not frozen
    assert set(result.left_out) == left_out
    assert set(result.scores) == set(novelties) == set(SCORE_NAMES) - left_out
    assert all(result.left_out.values())
    for each in result.scores.values():
        assert isinstance(each.measures, OpenSetMeasures)
        assert each.measures.intervals is None


def test_a_rule_of_one_s_own_takes_part_and_one_that_fails_is_named(outputs):
    class HeldOut:
        """Compares with held-out known actors; what issue it has with others is its own affair."""

        name = "held-out"
        learns_from = frozenset({"val"})

        def fit(self, train, held_out):  # noqa: ARG002
            self.least = held_out.stored.logits.amax(dim=1).mean()

        def novelty(self, outputs):
            rank = (self.least - outputs.stored.logits.amax(dim=1)).double()
            return Novelty(value=torch.sigmoid(rank), rank=rank)

    class Infinite(HeldOut):
        name = "infinite"

        def novelty(self, outputs):
            found = super().novelty(outputs)
            return Novelty(value=found.value, rank=found.rank / 0)

    train, val, test = outputs["slowfast"]
    assert isinstance(HeldOut(), ScoreRule)
    yardstick = yardstick_of([HeldOut(), Infinite()], train, val)
    result, novelties = judged(test, yardstick, judging=Judging(resamples=0), facts=FACTS)
    assert set(novelties) == {"held-out"}
    assert "must be finite" in result.left_out["infinite"]


def test_a_judged_run_is_not_judged_again(done):
    row = row_of(done, "slowfast")
    before = times_of(row.folder)
    judge_run(row.folder, row.experiment, judging=JUDGING, noted=pytest.fail)
    assert times_of(row.folder) == before


def test_wrong_names_and_unfinished_runs_are_refused(root, tmp_path):
    experiment = tiny_experiment(root)
    for sides, judging, told in (
        (["test"], JUDGING, "must be one of train, val, test-uniform"),
        ([], Judging(scores=("PE", "magic")), "a score must be one of PE, .*; got 'magic'"),
    ):
        with pytest.raises(RangeError, match=told):
            judge_run(tmp_path, experiment, sides=sides, judging=judging, noted=silent)
    with pytest.raises(WeightsError, match="a finished run must have a card"):
        judge_run(tmp_path, experiment, judging=JUDGING, noted=silent)
    assert list(tmp_path.iterdir()) == []
