"""ODIN on features: the closed form of a linear read-out, other heads, and recorded numbers of pytorch-ood."""

import pytest
import torch

from mule.core.errors import RangeError
from mule.novelty.combining import largest_logit_novelty
from mule.rivals.scores.logits import Odin, max_softmax_novelty
from mule.rivals.scores.outputs import LinearReadout, StoredOutputs


def waves(rows, cols, step):
    return torch.sin(step * torch.arange(rows * cols, dtype=torch.float64)).reshape(rows, cols)


READOUT = LinearReadout(waves(3, 6, 0.7), torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64))
FEATURES = 2 * waves(5, 6, 0.9)
OUTPUTS = StoredOutputs(READOUT(FEATURES), FEATURES, READOUT)

PYTORCH_OOD = {
    (1000.0, 0.0014): [0.3347094, 0.3346327, 0.3349841, 0.3354605, 0.3343156],
    (2.0, 0.05): [0.8152526, 0.8865039, 0.8985142, 0.9854914, 0.7079396],
}
"""Largest softmax by pytorch-ood 0.4.0's ODIN on the module x ↦ READOUT(x) at x = FEATURES (torchvision stubbed)."""


@pytest.mark.parametrize(("temperature", "step"), PYTORCH_OOD)
def test_the_softmax_form_is_pytorch_oods_on_the_last_layer(temperature, step):
    novelty = Odin("softmax", temperature=temperature, step=step)(OUTPUTS)
    expected = 1 - torch.tensor(PYTORCH_OOD[temperature, step], dtype=torch.float64)
    torch.testing.assert_close(novelty.value, expected, rtol=0, atol=1e-7)


def test_one_step_raises_the_largest_logit_by_the_sum_of_its_weights():
    """sign(∇ log σ(h_top)) = sign(w_top), so h_top rises by ε·‖w_top‖₁ and h_c by ε·w_c·sign(w_top)."""
    step = 0.1
    top = OUTPUTS.logits.argmax(dim=1)
    moved = OUTPUTS.logits + step * READOUT.weight[top].sign() @ READOUT.weight.T
    torch.testing.assert_close(Odin(step=step)(OUTPUTS).rank, -moved.amax(dim=1))


def test_a_step_of_zero_leaves_the_plain_probability():
    torch.testing.assert_close(Odin(step=0.0)(OUTPUTS).rank, largest_logit_novelty(OUTPUTS.logits).rank)
    plain = Odin("softmax", step=0.0, temperature=1.0)(OUTPUTS)
    torch.testing.assert_close(plain.rank, max_softmax_novelty(OUTPUTS.logits).rank)


def test_the_step_does_not_die_where_the_probability_rounds_to_one():
    sure = StoredOutputs(
        1e4 * OUTPUTS.logits, 1e4 * FEATURES, LinearReadout(READOUT.weight, 1e4 * READOUT.bias)
    )
    for probability in ("sigmoid", "softmax"):
        still, moved = (Odin(probability, temperature=1.0, step=step)(sure).rank for step in (0.0, 0.5))
        assert (moved < still).all()


def test_settings_out_of_range_are_refused():
    with pytest.raises(
        RangeError, match=r"temperature must be above 0 and its step at least 0; got 0.0 and 0.1"
    ):
        Odin(temperature=0.0, step=0.1)
    with pytest.raises(RangeError, match=r"got 1.0 and -0.1"):
        Odin(step=-0.1)
