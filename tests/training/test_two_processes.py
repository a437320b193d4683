"""Two processes with half the batch each train as one process with all of it."""

import pytest
from shared_training import exchange, train_together, train_with_batch_statistics, without_batch_statistics
from tiny_runs import Heard, curves_of
from two_ranks import on_two_ranks  # pyright: ignore[reportMissingImports] - in tests/distributed

from mule.training.build import run_experiment

pytestmark = pytest.mark.distributed


@pytest.mark.slow
def test_loss_constraint_multiplier_and_validation_are_those_of_one_process(tmp_path):
    alone = run_experiment(without_batch_statistics(tmp_path / "stage"), tmp_path / "one", listener=Heard())
    first, second = on_two_ranks(train_together, tmp_path)
    assert first[1:] == (True, 6)
    assert second[1:] == (True, 0)  # one process talks
    assert first[0] == second[0]
    assert first[0].best_mean_ap == pytest.approx(alone.best_mean_ap, abs=1e-6)
    one, two = curves_of(tmp_path / "one"), curves_of(tmp_path / "two")
    assert len(one) == len(two) == 8
    for expected, found in zip(one, two, strict=True):
        assert_close(found, expected)
    multipliers = [line["multipliers"]["static_bias"] for line in one if line["kind"] == "step"]
    assert len(set(multipliers)) == 6  # it moved


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            assert_close(found[key], value)
        elif isinstance(value, str):
            assert found[key] == value
        else:
            rel = 1e-5 if key == "gradient_norm" else 1e-6  # a sum over parameters, in another order
            assert found[key] == pytest.approx(value, rel=rel, abs=1e-6), key


def test_batch_statistics_are_averaged_over_processes_and_training_says_what_differs(tmp_path):
    (first, notes), (second, no_notes) = on_two_ranks(train_with_batch_statistics, tmp_path)
    assert first
    assert any(value for values in first.values() for value in values)  # they moved
    assert first == second
    assert sum("normalises by its own clips" in note for note in notes) == 1
    assert sum("drops other units" in note for note in notes) == 1
    assert no_notes == []


def test_gradients_are_means_and_a_rank_without_one_counts_as_zero(tmp_path):
    first, second = on_two_ranks(exchange, tmp_path)
    assert first == second
    assert first["gradients"] == [[0.5, 0.5], [0.5, 0.5], None]
    assert first["buffers"] == [0.5, 0.5]
    assert first["weights"] == [3.0, 3.0]
    assert (first["sum"], first["least"]) == (3.0, 1.0)
    assert first["things"] == [{"rank": 0}, {"rank": 1}]
    assert first["labels"] == [[False], [True], [True]]
