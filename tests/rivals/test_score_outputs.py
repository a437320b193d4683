"""The record every rival's score reads."""

import pytest
import torch
from strategies import unchecked

from mule.core.errors import MissingOutputs, NotFinite, RangeError, ShapeError
from mule.rivals.scores.outputs import LinearReadout, StoredOutputs, require_stored, stored

READOUT = LinearReadout(weight=torch.eye(2, 3), bias=torch.zeros(2))


def born(**fields):
    """A record as users make it: with its own checks, not the test-time shape checker's."""
    record = object.__new__(StoredOutputs)
    for name in ("logits", "features", "readout", "dropout_logits"):
        object.__setattr__(record, name, fields.get(name))
    unchecked(StoredOutputs.__post_init__)(record)
    return record


def test_no_actors_are_ordinary():
    outputs = StoredOutputs(torch.zeros(0, 2), torch.zeros(0, 3), READOUT, torch.zeros(4, 0, 2))
    assert (outputs.num_actors, outputs.num_classes) == (0, 2)
    assert outputs.missing(["logits", "features", "readout", "dropout_logits"]) == []


def test_everything_that_does_not_fit_is_said_at_once():
    with pytest.raises(ShapeError) as caught:
        born(
            logits=torch.zeros(5, 2),
            features=torch.zeros(4, 3),
            readout=LinearReadout(weight=torch.zeros(2, 3), bias=torch.zeros(2)),
            dropout_logits=torch.zeros(7, 5, 3),
        )
    assert "features must be (5, 3), got (4, 3)" in str(caught.value)
    assert "dropout_logits must be (7, 5, 2), got (7, 5, 3)" in str(caught.value)
    assert "readout" not in str(caught.value)


@pytest.mark.parametrize("shape", [(3,), (3, 0), (1, 3, 2)])
def test_logits_are_one_row_per_actor(shape):
    with pytest.raises(ShapeError, match="logits must be \\(actors, classes\\) with at least one class"):
        born(logits=torch.zeros(shape))


def test_a_readout_of_other_features_is_refused():
    with pytest.raises(ShapeError, match=r"readout.weight must be \(2, 4\), got \(2, 3\)"):
        born(logits=torch.zeros(1, 2), features=torch.zeros(1, 4), readout=READOUT)


def test_whole_numbers_are_refused():
    with pytest.raises(ShapeError, match=r"features must be floating-point on cpu, got torch.int64"):
        born(logits=torch.zeros(1, 2), features=torch.zeros(1, 4, dtype=torch.int64))


def test_what_is_not_finite_is_named_where_it_stands():
    with pytest.raises(
        NotFinite, match=r"features must be finite; 1 of 6 are not, the first is nan at \(1, 2\)"
    ):
        StoredOutputs(torch.zeros(2, 2), torch.tensor([[0.0, 1, 2], [3, 4, torch.nan]]))


def test_features_that_are_not_what_the_last_layer_sees_are_refused():
    features = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    StoredOutputs(READOUT(features), features, READOUT)
    with pytest.raises(RangeError, match="readout\\(features\\) must be the logits; they differ by up to"):
        StoredOutputs(READOUT(features), 2 * features, READOUT)


def test_half_precision_is_near_enough():
    draw = torch.Generator().manual_seed(0)
    wide = LinearReadout(torch.randn(5, 512, generator=draw) / 20, torch.randn(5, generator=draw))
    features = torch.randn(100, 512, generator=draw)
    for kind in (torch.float16, torch.bfloat16):
        StoredOutputs(wide(features).to(kind), features.to(kind), wide)


def test_all_that_is_missing_is_named_with_what_to_do():
    outputs = StoredOutputs(torch.zeros(1, 2))
    needs = ("readout", "logits", "features")
    assert outputs.missing(needs) == ["features", "readout"]
    with pytest.raises(MissingOutputs) as caught:
        require_stored(outputs, needs, score="ViM")
    assert str(caught.value) == (
        "ViM needs features and readout; these outputs do not have them. In the forward pass, keep what the last "
        "linear layer sees; keep LinearReadout(weight, bias) of the last linear layer."
    )
    with pytest.raises(MissingOutputs, match="dropout_logits was not stored"):
        stored(outputs.dropout_logits, "dropout_logits")
