import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import unchecked

from mule.core.errors import RangeError
from mule.evidence.head import EVIDENCE_FUNCTIONS, EvidenceHead, exp_evidence


def test_no_actors_are_an_ordinary_case():
    evidence = EvidenceHead(4, 3)(torch.zeros(0, 4))
    assert evidence.positive.shape == evidence.negative.shape == (0, 3)


@pytest.mark.parametrize("function", EVIDENCE_FUNCTIONS)
@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=6))
def test_tied_evidence_is_the_function_of_an_output_and_of_its_opposite(function, values):
    head = EvidenceHead(1, len(values), function=function)
    outputs = torch.tensor([values])
    evidence = head.evidence_from(outputs)
    torch.testing.assert_close(evidence.positive, EVIDENCE_FUNCTIONS[function](outputs))
    torch.testing.assert_close(evidence.negative, EVIDENCE_FUNCTIONS[function](-outputs))
    assert torch.isfinite(evidence.positive).all()


@pytest.mark.parametrize("function", EVIDENCE_FUNCTIONS)
def test_independent_evidence_uses_two_outputs_a_class(function):
    head = EvidenceHead(3, 2, parameterisation="independent", function=function)
    outputs = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
    evidence = head.evidence_from(outputs)
    torch.testing.assert_close(evidence.positive, EVIDENCE_FUNCTIONS[function](outputs[:, :2]))
    torch.testing.assert_close(evidence.negative, EVIDENCE_FUNCTIONS[function](outputs[:, 2:]))
    assert head.linear.out_features == 4


def test_default_is_tied_exponential_and_the_paper_is_one_setting_away():
    assert repr(EvidenceHead(2, 2)).startswith("EvidenceHead(\n  parameterisation='tied', function='exp'")
    paper = EvidenceHead(2, 2, parameterisation="independent", function="relu")
    assert (paper.evidence_from(torch.full((1, 4), -1.0)).positive == 0).all()


def test_exponential_evidence_is_exact_up_to_ten_and_keeps_a_gradient_beyond():
    outputs = torch.tensor([-30.0, 0.0, 10.0, 12.0, 1e4], dtype=torch.float64, requires_grad=True)
    evidence = exp_evidence(outputs)
    torch.testing.assert_close(evidence[:3], outputs[:3].exp())
    assert torch.isfinite(evidence).all()
    evidence.sum().backward()
    assert outputs.grad is not None
    assert (outputs.grad > 0).all()
    assert outputs.grad[3] == pytest.approx(torch.tensor(10.0).exp().item(), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_outputs_give_finite_single_precision_evidence(dtype):
    head = EvidenceHead(1, 3)
    evidence = head.evidence_from(torch.tensor([[-20.0, 0.0, 20.0]], dtype=dtype))
    assert evidence.positive.dtype == torch.float32
    assert evidence.positive.max() > 65504  # float16 ends there


def test_unknown_choices_are_refused_with_the_known_ones():
    build = unchecked(EvidenceHead.__init__)
    with pytest.raises(RangeError, match="'tied' or 'independent'; got 'shared'"):
        build(EvidenceHead.__new__(EvidenceHead), 2, 2, parameterisation="shared")
    with pytest.raises(RangeError, match="one of exp, softplus, relu, elu; got 'sigmoid'"):
        build(EvidenceHead.__new__(EvidenceHead), 2, 2, function="sigmoid")


def test_head_survives_compilation_of_its_forward():
    head = EvidenceHead(3, 2)
    exported = torch.export.export(head.linear, (torch.zeros(2, 3),))
    torch.testing.assert_close(exported.module()(torch.ones(2, 3)), head.outputs(torch.ones(2, 3)))
