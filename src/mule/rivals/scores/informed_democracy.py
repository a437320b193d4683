"""Informed Democracy: output neurons vote on novelty by their uncertainty, but only those that know the leader."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.records import Novelty
from mule.rivals.scores.mc_dropout import log_variance, mean_log_odds
from mule.rivals.scores.output_score import OutputScore
from mule.rivals.scores.outputs import StoredOutputs, stored


class InformedDemocracy(OutputScore):
    """Mean uncertainty of the leader's council, ν(x) = mean over j in C(leader) of Var_t σ(h_tj) (Roitberg et al. 2018).

    A re-implementation from the paper's description, not from its code. With dropout on, every output neuron has a
    mean and a variance over passes. The *leader* is the class of highest mean. Voting is for those neurons that can
    best tell novel from known when that leader wins: its *council*, chosen on training actors.

    How to choose it, and the bound of 0.001, are our reading, for several labels. An actor is *rightly led* if it does the leading action, *wrongly led* if not.
    Neuron j sits in the council of leader i if, among training actors led by i, its mean variance

    * is at most `most_variance` over the rightly led: it is calm when the leader is right; and
    * is higher over the wrongly led: it is upset when the leader is wrong. A leader never wrong in training is
      not asked this.

    A leader that was never right in training, or whose council would be empty, is judged by all neurons;
    `num_uninformed` counts such leaders. The value is 4·ν, which is at most 1; the
    rank is log ν.
    """

    council: Tensor
    is_informed: Tensor

    def __init__(self, *, most_variance: float = 0.001) -> None:
        super().__init__("dropout_logits", learns=True)
        self.most_variance = most_variance
        self.register_buffer("council", torch.zeros(0, 0, dtype=torch.bool))
        self.register_buffer("is_informed", torch.zeros(0, dtype=torch.bool))

    @property
    def num_uninformed(self) -> int:
        """How many leaders are judged by all neurons, because training could not tell which ones know."""
        return int((~self.is_informed).sum())

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        leader, log_spread = self._led(train)
        spread = log_spread.exp()
        led_by = torch.nn.functional.one_hot(leader, train.num_classes).bool()
        calm, num_right = _mean_when(led_by & does, spread)
        upset, num_wrong = _mean_when(led_by & ~does, spread)
        knows = (calm <= self.most_variance) & ((upset > calm) | (num_wrong == 0)[:, None])
        self.is_informed = (num_right > 0) & knows.any(dim=1)
        self.council = knows | ~self.is_informed[:, None]

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        leader, log_spread = self._led(outputs)
        votes = self.council[leader]
        rank = log_spread.masked_fill(~votes, -torch.inf).logsumexp(dim=1) - votes.sum(dim=1).log()
        return Novelty(value=(4 * rank.exp()).clamp(max=1), rank=rank)

    @staticmethod
    def _led(outputs: StoredOutputs) -> tuple[Tensor, Float[Tensor, "actors classes"]]:
        dropout_logits = stored(outputs.dropout_logits, "dropout_logits")
        return mean_log_odds(dropout_logits).argmax(dim=1), log_variance(dropout_logits)


def _mean_when(
    led: Bool[Tensor, "actors classes"], spread: Float[Tensor, "actors classes"]
) -> tuple[Float[Tensor, "classes classes"], Float[Tensor, " classes"]]:
    """For each leader (row) every neuron's mean spread over the actors it leads, and how many those are."""
    count = led.sum(dim=0).double()
    return led.double().T @ spread / count.clamp(min=1)[:, None], count
