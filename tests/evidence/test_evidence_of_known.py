"""The opinion shown of an actor agrees with the decision about it."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import evidences

from mule.evidence.head import evidence_of_known, opinion_from

RATE = 0.05


@given(evidence=evidences(), p_value=st.floats(0, 1))
def test_belief_turns_into_uncertainty_and_nothing_else_changes(evidence, p_value):
    before = opinion_from(evidence)
    p_values = torch.full((evidence.num_actors,), p_value, dtype=torch.float64)
    after = opinion_from(evidence_of_known(evidence, p_values, alarm_rate=RATE))
    kept = min(1.0, max(0.0, (p_value - RATE) / RATE))
    uncertainty = before.uncertainty + (1 - kept) * before.belief
    torch.testing.assert_close(after.belief, kept * before.belief, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(after.disbelief, before.disbelief, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(after.uncertainty, uncertainty, rtol=1e-9, atol=1e-12)


@given(evidence=evidences(), p_value=st.floats(0, RATE))
def test_nobody_novel_is_believed_to_do_an_action_more_likely_than_not(evidence, p_value):
    p_values = torch.full((evidence.num_actors,), p_value, dtype=torch.float64)
    shown = opinion_from(evidence_of_known(evidence, p_values, alarm_rate=RATE))
    assert (shown.belief == 0).all()
    assert (shown.probability <= 0.5).all()


@given(evidence=evidences(), p_value=st.floats(2 * RATE, 1))
def test_the_opinion_of_a_clearly_known_actor_stays(evidence, p_value):
    p_values = torch.full((evidence.num_actors,), p_value, dtype=torch.float64)
    shown = evidence_of_known(evidence, p_values, alarm_rate=RATE)
    torch.testing.assert_close(shown.positive, evidence.positive, rtol=1e-9, atol=0)
    torch.testing.assert_close(shown.negative, evidence.negative, rtol=1e-9, atol=0)


@given(evidence=evidences(), p_values=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_who_looks_more_novel_is_believed_less(evidence, p_values):
    more_novel, less_novel = (
        opinion_from(
            evidence_of_known(
                evidence,
                torch.full((evidence.num_actors,), p_value, dtype=torch.float64),
                alarm_rate=RATE,
            )
        ).probability
        for p_value in sorted(p_values)
    )
    assert (more_novel <= less_novel + 1e-12).all()
