import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from mule.core.records import Evidence
from mule.evidence.head import EvidenceHead
from mule.objective.beta_loss import beta_loss, expected_cross_entropy

pytestmark = pytest.mark.paper("Eq. 3")


def single(positive, negative, dtype=torch.float64):
    return Evidence(
        positive=torch.tensor([[positive]], dtype=dtype), negative=torch.tensor([[negative]], dtype=dtype)
    )


@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize(("positive", "negative"), [(2.2, 0.7), (0.0, 0.0), (0.1, 30.0), (80.0, 4.0)])
def test_equals_the_integral_of_cross_entropy_against_the_beta(label, positive, negative):
    def integrand(p):
        density = stats.beta.pdf(p, positive + 1, negative + 1)
        return -(np.log(p) if label else np.log1p(-p)) * density

    expected = sum(integrate.quad(integrand, a, b, limit=400)[0] for a, b in [(0, 0.5), (0.5, 1)])
    found = expected_cross_entropy(single(positive, negative), torch.tensor([[label]]))
    assert found.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_equals_expected_cross_entropy_under_the_beta(label):
    p = np.random.default_rng(5).beta(3.2, 1.7, size=1_000_000)
    expected = -np.mean(np.log(p) if label else np.log1p(-p))
    found = expected_cross_entropy(single(2.2, 0.7), torch.tensor([[label]]))
    assert found.item() == pytest.approx(expected, rel=1e-2)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.booleans())
def test_swapping_evidence_and_label_changes_nothing(positive, negative, label):
    y = torch.tensor([[float(label)]])
    one = expected_cross_entropy(single(positive, negative), y)
    other = expected_cross_entropy(single(negative, positive), 1 - y)
    assert one.item() == other.item()
    assert one.item() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_evidence_up_to_a_million_keeps_its_digits(dtype):
    # float16 ends at 65504; the others carry a million
    largest = 6e4 if dtype == torch.float16 else 1e6
    evidence = single(largest, 3.0, dtype)
    exact = Evidence(positive=evidence.positive.double(), negative=evidence.negative.double())
    for label in (0.0, 1.0):
        y = torch.tensor([[label]])
        found, expected = expected_cross_entropy(evidence, y), expected_cross_entropy(exact, y)
        assert found.dtype == torch.float32
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("parameterisation", ["tied", "independent"])
@pytest.mark.parametrize("function", ["exp", "softplus", "elu"])
def test_gradient_through_the_head_matches_finite_differences(parameterisation, function):
    head = EvidenceHead(3, 4, parameterisation=parameterisation, function=function).double()
    generator = torch.Generator().manual_seed(3)
    actors = torch.randn(5, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    targets = (torch.rand(5, 4, generator=generator) < 0.4).double()
    assert torch.autograd.gradcheck(lambda x: beta_loss(head(x), targets), (actors,))
    assert torch.autograd.gradgradcheck(lambda x: beta_loss(head(x), targets), (actors,))


def test_a_confidently_missed_positive_keeps_a_full_gradient_only_with_tied_exponential_evidence():
    def gradient(function):
        output = torch.tensor([[-9.0]], dtype=torch.float64, requires_grad=True)
        head = EvidenceHead(1, 1, function=function).double()
        beta_loss(head.evidence_from(output), torch.ones(1, 1)).backward()
        assert output.grad is not None
        return -output.grad.item()

    assert gradient("exp") == pytest.approx(1.0, abs=0.01)
    assert gradient("softplus") < 0.2
    assert gradient("relu") < 0.2
