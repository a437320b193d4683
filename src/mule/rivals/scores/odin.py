"""ODIN: novelty after a small step towards confidence, which known actors answer more than novel ones."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.records import Novelty
from mule.rivals.scores.logits import max_sigmoid_novelty, max_softmax_novelty
from mule.rivals.scores.output_score import OutputScore
from mule.rivals.scores.outputs import StoredOutputs, stored

Probability = Literal["sigmoid", "softmax"]
Head = Callable[[Tensor], Tensor]

NOVELTY_OF_LOGITS: Mapping[Probability, Callable[[Tensor], Novelty]] = {
    "sigmoid": max_sigmoid_novelty,
    "softmax": max_softmax_novelty,
}


class Odin(OutputScore):
    """1 − max_c S_c(x̃; T) with x̃ = x + ε·sign(∇_x log max_c S_c(x; T)) (ODIN, Liang et al. 2018).

    S is the softmax, or one sigmoid per class in the multi-label form (Wang et al. 2021), of the logits over the
    temperature T. ODIN moves the pixels; a pixel belongs to every actor of its clip, and stored outputs have no
    pixels. Our reading for actors moves the *feature*, x = f: exact for what lies behind it, which is the linear
    read-out or any `head` from features to logits. ε is therefore in units of the features.

    The step follows the log-odds of the most probable class, which has the sign of log S everywhere and does not
    vanish where S rounds to 1. Defaults: ε = 0.0014 and, for the softmax, T = 1000 (Liang et al.); for sigmoids
    T = 1 (Wang et al., whose default of ε = 0 leaves `max_sigmoid_novelty`). Neither is tuned, as tuning would need
    novel actors.
    """

    def __init__(
        self,
        probability: Probability = "sigmoid",
        *,
        temperature: float | None = None,
        step: float = 0.0014,
        head: Head | None = None,
    ) -> None:
        super().__init__("features", *(() if head is not None else ("readout",)), learns=False)
        usual = 1.0 if probability == "sigmoid" else 1000.0
        self.temperature = usual if temperature is None else temperature
        if self.temperature <= 0 or step < 0:
            raise RangeError(
                f"ODIN's temperature must be above 0 and its step at least 0; got {self.temperature} and {step}."
            )
        self.novelty_of_logits = NOVELTY_OF_LOGITS[probability]
        self.step = step
        self.head = head

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        features = stored(outputs.features, "features").detach()
        if self.head is None:
            head, features = stored(outputs.readout, "readout"), features.double()
        else:
            head = self.head
        return self._judged(head(self._moved(features, head)))

    def _moved(self, features: Float[Tensor, "actors dim"], head: Head) -> Float[Tensor, "actors dim"]:
        with torch.enable_grad():
            free = features.clone().requires_grad_()
            (uphill,) = torch.autograd.grad(self._judged(head(free)).rank.sum(), free)
        return features - self.step * uphill.sign()

    def _judged(self, logits: Float[Tensor, "actors classes"]) -> Novelty:
        return self.novelty_of_logits(logits.double() / self.temperature)
