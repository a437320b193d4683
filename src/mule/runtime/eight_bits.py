"""Networks in eight-bit integers (NNCF, extra `mule-actions[openvino]`): faster than float32 allows, and what it costs.

Ranges of activations are read off example clips, which should show what the network will see. What is lost is measured on
other clips with their people, against the network that was not quantised.
"""

import contextlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import TooFewActors
from mule.model import ModelOutput, MuleModel, SceneBoxes
from mule.runtime.openvino import Network, RuntimeMissing, require_openvino, require_size
from mule.runtime.running import RunningModel

ClipPixels = Float[Tensor, "1 3 _frames _rows _cols"]
ExampleClip = tuple[ClipPixels, Float[Tensor, "_actors 4"]]
"""A clip as the network takes it, and the boxes of its people in pixels."""


@dataclass(frozen=True)
class ExampleClips:
    """Real clips of one size."""

    chosen_on: Sequence[ExampleClip]
    """The ranges of activations are read off these."""
    compared_on: Sequence[ExampleClip]
    """What is lost is measured on these."""


LEAST_SAME_ACTION = 0.9
"""Share of people whose likeliest action eight bits must leave as it is."""


def quantised(network: Network, clips: Iterable[ClipPixels]) -> Network:
    """The network with weights and activations of its convolutions in eight bits, calibrated on the clips.

    A dozen or two are plenty. Biases are corrected layer by layer, which takes twice as long as NNCF's quick way
    and, on I3D with its Kinetics weights, leaves two thirds of the error.

    Raises:
        RuntimeMissing: NNCF is not installed.
        ShapeError: a clip is not of the network's size.
        TooFewActors: there are no clips.
    """
    require_openvino()
    try:
        nncf = import_module("nncf")
    except ImportError as missing:
        raise RuntimeMissing(
            f"Eight bits need NNCF: pip install 'mule-actions[openvino]'. It could not be imported: {missing}"
        ) from missing
    samples = list(clips)
    if not samples:
        raise TooFewActors("calibration needs at least one clip; got none. Bring clips like those to come.")
    for clip in samples:
        require_size(clip, network.size)
    dataset = nncf.Dataset([clip.contiguous().numpy() for clip in samples])
    # NNCF draws progress bars, and averages the lowest numbers with which max pooling pads
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(over="ignore"):
        graph = nncf.quantize(network.graph, dataset, subset_size=len(samples), fast_bias_correction=False)
    return Network(graph, network.size, network.stride)


@dataclass(frozen=True)
class EightBitAgreement:
    """How near the network in eight bits comes to the one on torch, for the people of clips it was not calibrated on."""

    num_clips: int
    num_actors: int
    same_action: float
    """Share of people whose likeliest action is the same."""
    cosine: float
    """Of a person's feature with the exact one: the mean."""
    least_cosine: float
    probability_moved: float
    """The largest change of any action's probability."""

    def __str__(self) -> str:
        return (
            f"{self.num_actors} people in {self.num_clips} other clips: the likeliest action is the same for "
            f"{self.same_action:.0%}; probabilities move by {self.probability_moved:.3f} at most; cosine of features "
            f"{self.cosine:.4f} (least {self.least_cosine:.4f})"
        )


@torch.inference_mode()
def eight_bit_agreement(
    model: MuleModel, running: RunningModel, examples: Sequence[ExampleClip]
) -> EightBitAgreement:
    """Compare a running model with the one on torch, clip by clip.

    Raises:
        TooFewActors: nobody is in the clips.
    """
    pairs: list[tuple[ModelOutput, ModelOutput]] = []
    for clip, boxes in examples:
        scene = _scene(boxes)
        pairs.append((model([clip], scene), running.decide(running.context(clip), scene)))
    if not sum(len(boxes) for _, boxes in examples):
        raise TooFewActors("agreement needs at least one person in a clip; got none. Bring other clips.")
    wanted, got = (_joined([pair[side] for pair in pairs]) for side in (0, 1))
    cosine = F.cosine_similarity(wanted[0], got[0])
    same = wanted[1].argmax(dim=1) == got[1].argmax(dim=1)
    return EightBitAgreement(
        num_clips=len(pairs),
        num_actors=len(same),
        same_action=float(same.float().mean()),
        cosine=float(cosine.mean()),
        least_cosine=float(cosine.min()),
        probability_moved=float((wanted[1] - got[1]).abs().max()),
    )


def _scene(boxes: Tensor) -> SceneBoxes:
    first = torch.zeros(len(boxes), dtype=torch.int64)
    return SceneBoxes(boxes, first, boxes[:0], first[:0])


def _joined(outputs: Sequence[ModelOutput]) -> tuple[Tensor, Tensor]:
    """Features and probabilities of all people."""
    positive = torch.cat([each.evidence.positive for each in outputs])
    negative = torch.cat([each.evidence.negative for each in outputs])
    return torch.cat([each.features for each in outputs]), (positive + 1) / (positive + negative + 2)
