"""Novelty scores of the logits.

    energy, joint energy        free energy of one softmax, or of one sigmoid per class
    max softmax                 no action is probable
    ODIN                        the same after a small step towards confidence, to which known actors respond more
    OpenMax                     logits lose what is extreme for their class, and the unknown class gains it
    ReLU evidence               the paper's rule for rivals: any network's logits read as evidence

`novelty.combining.largest_logit_novelty` is MaxLogit, and also the lack of any probable action, 1 − max_c σ(h_c): the
maximum softmax probability of the multi-label case, where each class has its own sigmoid.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from scipy.stats import gumbel_l
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.records import Evidence, Novelty
from mule.novelty.combining import largest_logit_novelty
from mule.novelty.scores import NOVELTY_BY_KIND, NoveltyKind
from mule.rivals.scores.outputs import OutputScore, StoredOutputs, stored

Activations = Literal["as_given", "above_least"]
Probability = Literal["sigmoid", "softmax"]

_NEGLIGIBLE = -30.0
"""Below this, log(softplus(h)) is h to the last digit of a double."""
TRANSLATION = 10_000.0
"""libMR moves the tail this far from zero before fitting a Weibull without location."""
FEWEST_IN_TAIL = 3
EUCLIDEAN_SHARE = 1 / 200
"""Bendale and Boult's weight of the Euclidean distance beside the cosine one ("eucos")."""


def energy_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """The free energy of the logits, −log Σ_c e^{h_c} (Energy, Liu et al. 2020).

    The value is its logistic function, 1 / (1 + Σ e^h): the share the softmax would give one more class whose
    logit is 0.
    """
    rank = -logits.double().logsumexp(dim=1)
    return Novelty(value=torch.sigmoid(rank), rank=rank)


def joint_energy(logits: Float[Tensor, "actors classes"]) -> Float[Tensor, " actors"]:
    """Σ_c log(1 + e^{h_c}), the label-wise energies together (JointEnergy, Wang et al. 2021); in double."""
    return label_energy(logits).sum(dim=1)


def label_energy(logits: Float[Tensor, "actors classes"]) -> Float[Tensor, "actors classes"]:
    """log(1 + e^h) for each class, exact where e^h overflows; in double."""
    wide = logits.double()
    return torch.logaddexp(wide, torch.zeros_like(wide))


def joint_energy_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """The lack of joint energy Σ_c log(1 + e^{h_c}) (JointEnergy, Wang et al. 2021).

    The value is e^{−JointEnergy} = Π_c (1 − σ(h_c)), the probability of no known action when classes are
    independent. The rank is −log JointEnergy, which keeps the order where all logits are so low that the sum
    underflows.
    """
    wide = logits.double()
    log_energy = torch.where(wide < _NEGLIGIBLE, wide, label_energy(wide).clamp(min=1e-300).log())
    return Novelty(value=torch.exp(-joint_energy(wide)), rank=-log_energy.logsumexp(dim=1))


def max_softmax_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """The lack of a confident class under the softmax (Hendrycks and Gimpel 2017).

    1 − max_c p_c with p = softmax(h). The rank is the log-odds log((1 − p)/p) = logsumexp over the other
    classes − max h, which still varies where p rounds to 1.
    """
    if logits.shape[1] < 2:
        raise RangeError(
            "max-softmax needs at least 2 classes: over one class the softmax is always 1. Use max-sigmoid."
        )
    ordered = logits.double().sort(dim=1, descending=True).values
    rank = ordered[:, 1:].logsumexp(dim=1) - ordered[:, 0]
    return Novelty(value=torch.sigmoid(rank), rank=rank)


def relu_evidence(logits: Float[Tensor, "actors classes"]) -> Evidence:
    """Evidence of a network that was not trained to give any: α = ReLU(h) + 1, so e⁺ = ReLU(h).

    The paper defines the positive evidence only. A rival has one signed output per class, so we read a
    negative output as evidence against the action: e⁻ = ReLU(−h). With e⁻ = 0, NE would be the same for
    everybody and PNE would equal PE.
    """
    wide = logits.double()
    return Evidence(positive=wide.relu(), negative=(-wide).relu())


def relu_evidence_novelty(logits: Float[Tensor, "actors classes"], *, kind: NoveltyKind) -> Novelty:
    """PE, NE, PNE or Belief of ReLU evidence.

    Actors whose logits are all at or below zero have no positive evidence and tie in PE and Belief.
    """
    return NOVELTY_BY_KIND[kind](relu_evidence(logits))


NOVELTY_OF_LOGITS: Mapping[Probability, Callable[[Tensor], Novelty]] = {
    "sigmoid": largest_logit_novelty,
    "softmax": max_softmax_novelty,
}


class Odin(OutputScore):
    """1 − max_c S_c(x̃; T) with x̃ = x + ε·sign(∇_x log max_c S_c(x; T)) (ODIN, Liang et al. 2018).

    S is the softmax, or one sigmoid per class in the multi-label form (Wang et al. 2021), of the logits over
    the temperature T. ODIN moves the pixels; a pixel belongs to every actor of its clip, and stored outputs
    have no pixels. Our reading for actors moves the *feature*, x = f: exact for what lies behind it, which is
    the linear read-out. ε is therefore in units of the features.

    The step follows the log-odds of the most probable class, which has the sign of log S everywhere and does
    not vanish where S rounds to 1. Defaults: ε = 0.0014 and, for the softmax, T = 1000 (Liang et al.); for
    sigmoids T = 1 (Wang et al., whose default of ε = 0 leaves `largest_logit_novelty`). Neither is tuned, as
    tuning would need novel actors.
    """

    def __init__(
        self,
        probability: Probability = "sigmoid",
        *,
        temperature: float | None = None,
        step: float = 0.0014,
    ) -> None:
        super().__init__("features", "readout", learns=False)
        usual = 1.0 if probability == "sigmoid" else 1000.0
        self.temperature = usual if temperature is None else temperature
        if self.temperature <= 0 or step < 0:
            raise RangeError(
                f"ODIN's temperature must be above 0 and its step at least 0; got {self.temperature} and {step}."
            )
        self.novelty_of_logits = NOVELTY_OF_LOGITS[probability]
        self.step = step

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        features = stored(outputs.features, "features").detach().double()
        readout = stored(outputs.readout, "readout")
        with torch.enable_grad():
            free = features.clone().requires_grad_()
            (uphill,) = torch.autograd.grad(self._judged(readout(free)).rank.sum(), free)
        return self._judged(readout(features - self.step * uphill.sign()))

    def _judged(self, logits: Float[Tensor, "actors classes"]) -> Novelty:
        return self.novelty_of_logits(logits.double() / self.temperature)


class OpenMax(OutputScore):
    """Probability of the unknown class after the logits of the top classes were revised (Bendale and Boult 2016).

        v̂_c = v_c·(1 − w_c·α_c)      v̂_unknown = Σ_c v_c − v̂_c      novelty = softmax(v̂_unknown, v̂_1, …, v̂_K)_unknown

    α_c = (A + 1 − i)/A for the class at place i of the `num_revised` = A largest logits, 0 for the others.
    w_c is the Weibull probability that an actor of class c is nearer to its mean activation vector (MAV) than
    this one, with the distance ‖v − MAV_c‖/200 + cosine distance; the Weibull is fitted to the `tail_size`
    largest distances of training actors. Original: A = 10, tail 20; DEAR uses A = 1.

    Our reading for several labels. An actor is *recognised* as c if it does c and its logit is above 0. MAV
    and tail of c come from its recognised training actors; if there are fewer than three, from all that do c;
    if those are fewer than three too, or all equally far, the class is never revised: w_c = 0,
    and `has_tail` is false.

    Revision assumes logits above zero: a negative v_c *rises* to v̂_c and the unknown class loses. Networks
    with one sigmoid per class give mostly negative logits. `activations="above_least"` first subtracts each
    actor's smallest logit, which a softmax cannot see, so that revision always feeds the unknown class;
    ``"as_given"`` is the letter.

    The rank is the log-odds of the unknown class, v̂_unknown − logsumexp(v̂).
    """

    mean_activation: Tensor
    tail_start: Tensor
    tail_location: Tensor
    tail_spread: Tensor
    has_tail: Tensor

    def __init__(
        self, *, tail_size: int = 20, num_revised: int = 10, activations: Activations = "as_given"
    ) -> None:
        super().__init__("logits", learns=True)
        if tail_size < FEWEST_IN_TAIL or num_revised < 1:
            raise RangeError(
                f"tail_size must be at least {FEWEST_IN_TAIL} and num_revised at least 1; got {tail_size} and "
                f"{num_revised}."
            )
        self.tail_size = tail_size
        self.num_revised = num_revised
        self.activations: Activations = activations
        for name in ("mean_activation", "tail_start", "tail_location", "tail_spread"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        self.register_buffer("has_tail", torch.zeros(0, dtype=torch.bool))

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        logits = train.logits.double()
        recognised = does & (logits > 0)
        members = torch.where(recognised.sum(dim=0) >= FEWEST_IN_TAIL, recognised, does)
        share = members.double() / members.sum(dim=0).clamp(min=1)
        self.mean_activation = share.T @ logits
        distances = eucos_distance(logits, self.mean_activation)
        tails = [self._tail_of(distances[members[:, c], c]) for c in range(train.num_classes)]
        fitted = torch.tensor([tail or (0.0, 0.0, 1.0) for tail in tails], dtype=torch.float64).to(logits)
        self.tail_start, self.tail_location, self.tail_spread = fitted.unbind(dim=1)
        self.has_tail = torch.tensor([tail is not None for tail in tails], device=logits.device)

    def _tail_of(self, distances: Float[Tensor, " members"]) -> tuple[float, float, float] | None:
        tail = distances.sort().values[-self.tail_size :].cpu().numpy()
        if len(tail) < FEWEST_IN_TAIL or tail[-1] - tail[0] <= 1e-12 * tail[-1]:
            return None
        return tail[0].item(), *weibull_tail(tail)

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        logits = outputs.logits.double()
        activation = logits
        if self.activations == "above_least":
            activation = logits - logits.amin(dim=1, keepdim=True)
        lost = activation * self._extremeness(logits) * self._place_weight(logits)
        rank = lost.sum(dim=1) - (activation - lost).logsumexp(dim=1)
        return Novelty(value=torch.sigmoid(rank), rank=rank)

    def _extremeness(self, logits: Float[Tensor, "actors classes"]) -> Float[Tensor, "actors classes"]:
        beyond = eucos_distance(logits, self.mean_activation) - self.tail_start
        position = TRANSLATION * torch.log1p((beyond / TRANSLATION).clamp(min=-1))
        nearer = -torch.expm1(-torch.exp((position - self.tail_location) / self.tail_spread))
        return torch.where(self.has_tail, nearer, 0.0)

    def _place_weight(self, logits: Float[Tensor, "actors classes"]) -> Float[Tensor, "actors classes"]:
        revised = min(self.num_revised, logits.shape[1])
        weights = torch.arange(revised, 0, -1).to(logits) / revised
        top = logits.topk(revised, dim=1).indices
        return torch.zeros_like(logits).scatter(1, top, weights.expand(len(logits), -1))


def eucos_distance(
    activations: Float[Tensor, "actors dim"], means: Float[Tensor, "classes dim"]
) -> Float[Tensor, "actors classes"]:
    """Euclidean distance over 200 plus cosine distance, from every actor to every class's mean."""
    euclidean = torch.cdist(activations, means, compute_mode="donot_use_mm_for_euclid_dist")
    cosine = F.normalize(activations, dim=1) @ F.normalize(means, dim=1).T
    return EUCLIDEAN_SHARE * euclidean + (1 - cosine)


def weibull_tail(tail: Float[np.ndarray, " distances"]) -> tuple[float, float]:
    """Where and how wide the Weibull of these distances is, by maximum likelihood, as libMR's fit_high.

    libMR fits shape k and scale λ to x = d − min d + 10,000. If x is Weibull then log x is Gumbel (of minima)
    with location log λ and spread 1/k; both are given here for 10,000·log(x / 10,000), which is near d − min
    d, because k itself is so large that fitting it directly is ill-conditioned.
    """
    location, spread = gumbel_l.fit(TRANSLATION * np.log1p((tail - tail.min()) / TRANSLATION))
    return float(location), float(spread)
