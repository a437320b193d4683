"""Evidence where a wrong sign, bound or default would show: found by mutation testing."""

import pytest
import torch

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evidence.fusion import along_tracks, strongest_actors
from mule.evidence.head import EvidenceHead, combined_belief, elu_evidence, log_unbelieved


def test_a_track_index_may_not_reach_the_number_of_tracks():
    values = torch.ones(2, 3)
    assert along_tracks(values, torch.tensor([0, 1]), num_tracks=2).shape == (2, 3)
    with pytest.raises(RangeError, match="look 1"):
        along_tracks(values, torch.tensor([0, 2]), num_tracks=2)


def test_an_output_of_minus_infinity_never_speaks_for_its_clip():
    outputs = torch.tensor([[-torch.inf], [3.0], [torch.inf], [5.0]])
    assert strongest_actors(outputs, torch.tensor([0, 0, 1, 1]), num_classes=1).tolist() == [[1], [2]]


def test_belief_is_that_of_the_paper_unless_told_otherwise():
    """W = 2 and a = 1/2: no evidence is no belief, and e⁺ = 2 without e⁻ is a belief of one half."""
    evidence = Evidence(torch.tensor([[0.0, 2.0]]), torch.zeros(1, 2))
    assert torch.allclose(log_unbelieved(evidence).exp(), torch.tensor([[1.0, 0.5]]))
    assert torch.allclose(combined_belief(evidence), torch.tensor([0.5]))


def test_belief_combines_over_classes_of_any_number_of_dimensions():
    evidence = Evidence(torch.rand(4, 3), torch.rand(4, 3))
    expected = 1 - (1 - ((evidence.positive) / (evidence.positive + evidence.negative + 2))).prod(dim=1)
    assert torch.allclose(combined_belief(evidence), expected)


def test_elu_evidence_is_one_at_zero_and_vanishes_far_below():
    found = elu_evidence(torch.tensor([-40.0, 0.0, 2.0]))
    assert torch.allclose(found, torch.tensor([0.0, 1.0, 3.0]))


def test_independent_outputs_are_for_first_then_against():
    head = EvidenceHead(2, 3, parameterisation="independent", function="relu")
    found = head.evidence_from(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]))
    assert found.positive.tolist() == [[1.0, 2.0, 3.0]]
    assert found.negative.tolist() == [[4.0, 5.0, 6.0]]
