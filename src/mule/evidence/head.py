"""Evidence for and against each known action, the Beta(α, β) it describes, and the subjective opinion."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.defaults import BASE_RATE
from mule.core.errors import RangeError
from mule.core.records import Evidence, Opinion, at_least_single


def beta_parameters(
    evidence: Evidence,
) -> tuple[Float[Tensor, "actors classes"], Float[Tensor, "actors classes"]]:
    """The Beta's parameters are the evidence plus one each: α = e⁺ + 1, β = e⁻ + 1, in float32 or finer."""
    return at_least_single(evidence.positive) + 1, at_least_single(evidence.negative) + 1


def opinion_from(evidence: Evidence, *, prior_weight: float = 2.0, base_rate: float = BASE_RATE) -> Opinion:
    """Evidence divides one unit of mass between belief, disbelief and uncertainty (Eq. 1).

        b = (α − aW) / (α + β)      d = (β − aW) / (α + β)      u = W / (α + β)

    a is `base_rate`, W is `prior_weight`. With a = 1/2 and W = 2 this is b = e⁺/S, d = e⁻/S, u = 2/S with
    S = e⁺ + e⁻ + 2: no mass is negative and b + d + u = 1.

    The paper prints a = 1. Then b and d are negative while α < 2 or β < 2; the masses are clamped to [0, 1], and
    two things break: they no longer sum to one (b + d + u = 1 − (2a − 1)·W/(α + β) before the clamp), and all
    evidence below one counts as none.

    >>> opinion = opinion_from(Evidence(torch.tensor([[6.0]]), torch.tensor([[0.0]])))
    >>> opinion.belief.item(), opinion.disbelief.item(), opinion.uncertainty.item()
    (0.75, 0.0, 0.25)
    """
    alpha, beta = beta_parameters(evidence)
    total = alpha + beta
    return Opinion(
        belief=((alpha - base_rate * prior_weight) / total).clamp(0, 1),
        disbelief=((beta - base_rate * prior_weight) / total).clamp(0, 1),
        uncertainty=(prior_weight / total).clamp(0, 1),
        base_rate=base_rate,
    )


def log_unbelieved(
    evidence: Evidence, *, prior_weight: float = 2.0, base_rate: float = BASE_RATE
) -> Float[Tensor, "actors classes"]:
    """log(1 − b) for each action, to full precision however close belief comes to 0 or 1.

    From Eq. 1, b / (1 − b) = (α − aW) / (β + aW), so log(1 − b) = −log(1 + (α − aW) / (β + aW)); b itself, which
    rounds to 1, is never formed.
    """
    alpha, beta = beta_parameters(evidence)
    prior = base_rate * prior_weight
    return -torch.log1p((alpha - prior).clamp(min=0) / (beta + prior))


def combined_belief(
    evidence: Evidence, *, prior_weight: float = 2.0, base_rate: float = BASE_RATE
) -> Float[Tensor, " actors"]:
    """Belief that the actor does at least one known action: the co-multiplication b₁ ∗ … ∗ b_K (Eq. 10).

    Folding bᵢ ∗ bⱼ = bᵢ + bⱼ − bᵢ·bⱼ over the actions gives 1 − Π(1 − bᵢ), whatever the order.

    >>> evidence = Evidence(torch.tensor([[2.0, 2.0]]), torch.tensor([[0.0, 0.0]]))
    >>> round(combined_belief(evidence).item(), 4)
    0.75
    """
    return -torch.expm1(log_unbelieved(evidence, prior_weight=prior_weight, base_rate=base_rate).sum(dim=-1))


def evidence_of_known(
    evidence: Evidence, p_value: Float[Tensor, " actors"], *, alarm_rate: float
) -> Evidence:
    """Return the evidence whose opinion agrees with the decision: nobody is novel and believed to do a known action.

        b' = w·b      d' = d      u' = u + (1 − w)·b      w = (p − a) / a, within 0 and 1

    p is the share of known actors that look at least this novel, a the share that may be flagged. Where p ≤ a an actor is
    novel: all belief becomes uncertainty, and no action is likelier than not. From p = 2a on nothing changes. Disbelief
    stays: who does nothing known does not do this either. As evidence, with Eq. 1 for W = 2 and base rate 1/2:

        e⁺' = w·e⁺ / r      e⁻' = e⁻ / r      r = 1 + (1 − w)·e⁺/2

    >>> evidence = Evidence(torch.full((3, 1), 6.0, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64))
    >>> opinion = opinion_from(evidence_of_known(evidence, torch.tensor([0.01, 0.08, 0.5]), alarm_rate=0.05))
    >>> [round(belief, 2) for belief in opinion.belief.flatten().tolist()]
    [0.0, 0.4, 0.67]
    """
    if not 0 < alarm_rate <= 1:
        raise RangeError(f"the share that may be flagged must be above 0 and at most 1; got {alarm_rate}.")
    kept = ((p_value.to(evidence.positive) - alarm_rate) / alarm_rate).clamp(0, 1)[:, None]
    excess = 1 + (1 - kept) * evidence.positive / 2
    return Evidence(kept * evidence.positive / excess, evidence.negative / excess)


Parameterisation = Literal["tied", "independent"]
EvidenceFunction = Literal["exp", "softplus", "relu", "elu"]

LARGEST_EXPONENT = 10.0


def exp_evidence(outputs: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """e^h with the exponent clamped at 10; beyond it the function continues along its tangent.

    A hard clamp would leave a confidently wrong output without a gradient.
    """
    clamped = outputs.clamp(max=LARGEST_EXPONENT)
    return clamped.exp() * (1 + outputs - clamped)


def elu_evidence(outputs: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """ELU(h) + 1, as in the authors' released code: e^h below zero, h + 1 above."""
    return F.elu(outputs) + 1


EVIDENCE_FUNCTIONS: Mapping[EvidenceFunction, Callable[[Tensor], Tensor]] = {
    "exp": exp_evidence,
    "softplus": F.softplus,
    "relu": torch.relu,
    "elu": elu_evidence,
}


class EvidenceHead(nn.Module):
    """One linear layer whose outputs h become evidence e = s(h) for and against each known action.

    `parameterisation` sets the number of outputs per class:

    * ``"tied"``: one signed output; e⁺ = s(h), e⁻ = s(−h). What speaks for an action does not speak against it,
      so neither side can die alone or drift freely. The default.
    * ``"independent"``: two outputs; e⁺ = s(h⁺), e⁻ = s(h⁻). The paper's. With ReLU its positive outputs die early
      in training and stay dead, because most labels are negative.

    `function` is s: ``"exp"`` (the default: a missed positive keeps a full gradient), ``"softplus"``, ``"relu"``
    (the paper's), ``"elu"`` (the released code's ELU + 1). `bias` is the linear layer's; the released code has none. The
    paper, literally: ``EvidenceHead(dim, num_classes, parameterisation="independent", function="relu", bias=False)``.

    >>> head = EvidenceHead(dim=8, num_classes=3)
    >>> evidence = head(torch.zeros(2, 8))
    >>> tuple(evidence.positive.shape), bool((evidence.positive >= 0).all())
    ((2, 3), True)
    """

    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        parameterisation: Parameterisation = "tied",
        function: EvidenceFunction = "exp",
        bias: bool = True,
    ) -> None:
        super().__init__()
        if parameterisation not in ("tied", "independent"):
            raise RangeError(f"parameterisation must be 'tied' or 'independent'; got {parameterisation!r}.")
        if function not in EVIDENCE_FUNCTIONS:
            raise RangeError(f"function must be one of {', '.join(EVIDENCE_FUNCTIONS)}; got {function!r}.")
        self.num_classes = num_classes
        self.parameterisation: Parameterisation = parameterisation
        self.function: EvidenceFunction = function
        self.linear = nn.Linear(
            dim, num_classes if parameterisation == "tied" else 2 * num_classes, bias=bias
        )

    def outputs(self, relations: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors outputs"]:
        """Return the raw outputs h: K when tied, h⁺ then h⁻ (2K) when independent. HSIC constrains these (Eq. 4)."""
        return self.linear(relations)

    def evidence_from(self, outputs: Float[Tensor, "actors outputs"]) -> Evidence:
        """Return the evidence that raw outputs stand for, in float32 or finer."""
        outputs = at_least_single(outputs)
        evidence = EVIDENCE_FUNCTIONS[self.function]
        if self.parameterisation == "tied":
            return Evidence(positive=evidence(outputs), negative=evidence(-outputs))
        positive, negative = outputs.split(self.num_classes, dim=-1)
        return Evidence(positive=evidence(positive), negative=evidence(negative))

    def forward(self, relations: Float[Tensor, "actors dim"]) -> Evidence:
        """Return evidence for and against each action of each actor."""
        return self.evidence_from(self.outputs(relations))

    def extra_repr(self) -> str:
        """Return the settings, for `print(head)`."""
        return f"parameterisation={self.parameterisation!r}, function={self.function!r}"
