import pytest
import torch
from hypothesis import given
from strategies import evidences

from mule.core.records import Evidence
from mule.evidence.head import combined_belief, log_unbelieved, opinion_from
from mule.novelty.scores import belief_novelty

pytestmark = pytest.mark.paper("Eq. 10")


def fold(beliefs):
    total = 0.0
    for b in beliefs:
        total = total + b - total * b
    return total


@given(evidence=evidences())
def test_closed_form_equals_the_printed_fold_in_any_order(evidence):
    belief = opinion_from(evidence).belief
    for actor in range(evidence.num_actors):
        beliefs = belief[actor].tolist()
        for order in (beliefs, beliefs[::-1]):
            assert combined_belief(evidence)[actor].item() == pytest.approx(fold(order), abs=1e-12)


@given(evidence=evidences())
def test_novelty_is_what_no_belief_covers(evidence):
    novelty = belief_novelty(evidence)
    torch.testing.assert_close(novelty.value, 1 - combined_belief(evidence), rtol=0, atol=1e-12)
    torch.testing.assert_close(novelty.rank.exp(), novelty.value)


@pytest.mark.parametrize("base_rate", [0.5, 1.0])
def test_clamped_beliefs_fold_alike_for_the_printed_base_rate(base_rate):
    evidence = Evidence(positive=torch.tensor([[0.2, 3.0, 9.0]]), negative=torch.tensor([[1.0, 0.0, 40.0]]))
    beliefs = opinion_from(evidence, base_rate=base_rate).belief[0].tolist()
    assert combined_belief(evidence, base_rate=base_rate).item() == pytest.approx(fold(beliefs), rel=1e-6)


def test_log_of_disbelief_keeps_its_digits_where_belief_rounds_to_one():
    evidence = Evidence(positive=torch.tensor([[1e6]]), negative=torch.tensor([[0.0]]))
    exact = Evidence(positive=evidence.positive.double(), negative=evidence.negative.double())
    assert log_unbelieved(evidence).item() == pytest.approx(log_unbelieved(exact).item(), rel=1e-6)
    plain = torch.log1p(-opinion_from(evidence).belief).item()
    assert plain != pytest.approx(log_unbelieved(exact).item(), rel=1e-4)
