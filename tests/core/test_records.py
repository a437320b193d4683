import pytest
import torch
from strategies import unchecked

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.core.records import Evidence, Novelty


def born(kind, **fields):
    """A record as users make it: with its own checks, not the test-time shape checker's."""
    record = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(record, name, value)
    unchecked(kind.__post_init__)(record)
    return record


def evidence(positive, negative):
    return born(Evidence, positive=positive, negative=negative)


def test_counts_come_from_the_tensors():
    record = Evidence(positive=torch.zeros(0, 3), negative=torch.zeros(0, 3))
    assert (record.num_actors, record.num_classes) == (0, 3)


def test_evidence_of_two_shapes_or_types_is_refused():
    with pytest.raises(ShapeError, match=r"one shape; got \(1, 2\) and \(1, 3\)"):
        evidence(torch.zeros(1, 2), torch.zeros(1, 3))
    with pytest.raises(
        ShapeError, match=r"device and type; got torch.float32 on cpu and torch.float64 on cpu"
    ):
        evidence(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.float64))
    for bad in (torch.zeros(3), torch.zeros(2, 0), torch.zeros(2, 2, dtype=torch.int64)):
        with pytest.raises(ShapeError, match="at least one class"):
            evidence(bad, bad)


def test_negative_evidence_is_refused_where_it_stands():
    wrong = torch.tensor([[1.0, 2.0], [3.0, -0.5]])
    with pytest.raises(
        RangeError, match=r"negative evidence must not be below zero; actor 1, class 1 has -0.5"
    ):
        Evidence(positive=torch.ones(2, 2), negative=wrong)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_evidence_that_is_not_finite_is_refused_where_it_stands(bad):
    wrong = torch.tensor([[1.0, bad]])
    with pytest.raises(NotFinite, match="positive evidence must be finite; actor 0, class 1 has"):
        Evidence(positive=wrong, negative=torch.ones(1, 2))


def test_value_and_rank_are_of_the_same_actors():
    with pytest.raises(ShapeError, match="value and rank must have one shape"):
        born(Novelty, value=torch.zeros(2), rank=torch.zeros(3))
