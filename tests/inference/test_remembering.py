"""A network read with its memory, runs that share weights, and several runs as one network."""

from dataclasses import replace

import pytest
import torch
from made_outputs import made_outputs
from tiny_rows import JUDGING, contestants, silent, times_of, watched_by_nobody

from mule.comparison.compare import ComparisonPlan, run_comparison
from mule.comparison.rows import planned_rows, take_over
from mule.core.errors import MissingOutputs, WeightsError
from mule.evidence.head import exp_evidence
from mule.inference.remembering import reading_of, remembered_of
from mule.inference.running import OutputsOf
from mule.inference.score_rules import SCORE_NAMES, FisherRule, score_rules
from mule.memory.search import weigh
from mule.novelty.combining import DECIDING_SCORE, NETWORK_PARTS, deciding_ranks, largest_logit_novelty
from mule.rivals.scores.logits import joint_energy_novelty
from mule.systems.catalogue import SYSTEMS
from mule.watching.engine.judging import Judge

MODEL = "0" * 64


@pytest.fixture(scope="module")
def sides():
    return made_outputs(90, seed=0), made_outputs(60, seed=1), made_outputs(30, seed=2, shift=0.5)


@pytest.mark.parametrize("kind", ["tied", "read"])
def test_evidence_of_neighbours_adds_to_the_networks(sides, kind):
    train, val, test = (replace(each, kind=kind) for each in sides)
    memory = remembered_of(train, val, model=MODEL).memory
    weighed = weigh(memory, test.remembered)
    near = memory.labels[weighed.neighbours.index]  # actors × neighbours × classes
    weight = weighed.weight[:, :, None]
    scale = memory.kernel.calibrated_evidence_scale()
    read = reading_of("mule-memory", train, val, model=MODEL)(test)
    for found, network, said in (
        (read.evidence.positive, test.outputs, near),
        (read.evidence.negative, -test.outputs, 1 - near),
    ):
        expected = exp_evidence(network) + scale * (weight * said).mean(dim=1)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(read.outputs, test.outputs)


def test_a_system_without_a_memory_is_read_as_it_is(sides):
    assert reading_of("mule", sides[0], sides[1], model=MODEL)(sides[2]) is sides[2]
    two = [replace(each, kind="independent") for each in sides]
    with pytest.raises(MissingOutputs, match="one logit per action"):
        remembered_of(two[0], two[1], model=MODEL)


def test_what_decides_is_the_same_in_a_table_and_when_watching(sides):
    """The parts a judge of watched actors combines are those of the score that tables are judged by."""
    train, val, test = sides
    content = remembered_of(train, val, model=MODEL)
    ranks = Judge(None, train.classes, content)(test.outputs, test.remembered).ranks
    rule = score_rules([DECIDING_SCORE])[0]
    assert isinstance(rule, FisherRule)
    rule.fit(train, val)
    for column, part in zip(ranks.T, rule.parts, strict=True):
        torch.testing.assert_close(column, part.novelty(test).rank.double(), rtol=1e-5, atol=1e-6)
    trust = torch.zeros(30).double()
    assert deciding_ranks(test.outputs, trust).shape == (30, len(rule.parts))
    ours, rival = NETWORK_PARTS["exp-pe"](test.outputs).rank, joint_energy_novelty(test.outputs).rank
    torch.testing.assert_close(-torch.log(-ours), rival)  # one order, and the same number but for a logarithm
    largest = NETWORK_PARTS["max-logit"](test.outputs).rank
    assert torch.equal(largest, largest_logit_novelty(test.outputs).rank.double())
    assert DECIDING_SCORE in SCORE_NAMES


def test_the_default_and_its_twin_differ_in_their_network_alone():
    ours, twin = SYSTEMS["mule-memory"], SYSTEMS["bce-aco-r-memory"]
    assert ours.decides_by == twin.decides_by == DECIDING_SCORE
    assert (ours.trained_as, twin.trained_as) == ("mule", "bce-aco-r")
    assert ours.objective is SYSTEMS["mule"].objective
    assert ours.build is SYSTEMS["mule"].build
    assert not SYSTEMS["mule"].has_memory


def test_rows_that_differ_in_their_memory_alone_share_a_training(root, tmp_path):
    asked = contestants(root, "mule-memory", "mule", "bce-aco-r-memory")
    rows = planned_rows(asked, tmp_path, seeds=(0, 1), judging=JUDGING)
    shared = {row.name: row.trained_in and row.trained_in.name for row in rows}
    assert shared == {
        "mule-memory-A-s0": "mule-A-s0",
        "mule-A-s0": None,
        "bce-aco-r-memory-A-s0": None,  # nobody else trains its network here
        "mule-memory-A-s1": "mule-A-s1",
        "mule-A-s1": None,
        "bce-aco-r-memory-A-s1": None,
    }
    longer = contestants(root, "mule", training__epochs=2)
    rows = planned_rows((asked[0], *longer), tmp_path, seeds=(0,), judging=JUDGING)
    assert rows[0].trained_in is None


def test_an_unfinished_run_is_not_taken_over(root, tmp_path):
    (asked,) = contestants(root, "mule-memory")
    with pytest.raises(WeightsError, match="which is not finished"):
        take_over(tmp_path / "nobody", tmp_path / "row", asked.experiment)
    assert not (tmp_path / "row").exists()


@pytest.mark.slow
def test_a_row_with_a_memory_is_judged_from_the_weights_of_its_twin(root, tmp_path):
    asked = ComparisonPlan(
        contestants(root, "mule-memory", "mule", data__train_clips=24, data__val_clips=16),
        tmp_path / "out",
        judging=replace(JUDGING, scores=("PE of log", "memory", DECIDING_SCORE), dropout_passes=0),
        num_workers=0,
    )
    done = run_comparison(asked, watch=watched_by_nobody, noted=silent)
    assert not done.failures
    assert done.findings is not None
    assert done.findings.judged_by == {"mule-memory": DECIDING_SCORE, "mule": "PE of log"}
    ours, plain = (done.findings.of(name)[0].results["test-uniform"] for name in ("mule-memory", "mule"))
    assert ours.weights_sha256 == plain.weights_sha256
    assert ours.scores["memory"] == plain.scores["memory"]  # the same features
    assert ours.expected_error != plain.expected_error  # other evidence
    folder = tmp_path / "out" / "rows" / "mule-memory-A-s0"
    assert not (folder / "checkpoints").exists()
    assert (folder / "model.safetensors").samefile(folder.parent / "mule-A-s0" / "model.safetensors")
    before = times_of(tmp_path / "out" / "rows")
    assert not run_comparison(asked, watch=watched_by_nobody, noted=silent).failures
    assert times_of(tmp_path / "out" / "rows") == before


def test_outputs_with_more_passes_hold_those_with_fewer(done):
    row = done.rows[1].folder, done.rows[1].experiment
    before = times_of(row[0] / "outputs")
    three, two, none = (OutputsOf(*row, passes, 8).on("val", noted=silent) for passes in (3, 2, 0))
    assert three.dropout_logits is not None
    assert two.dropout_logits is not None
    assert torch.equal(two.dropout_logits, three.dropout_logits[:2])
    assert none.dropout_logits is None
    assert "switched off" in none.not_stored["dropout_logits"]
    assert torch.equal(none.outputs, three.outputs)
    assert times_of(row[0] / "outputs") == before
