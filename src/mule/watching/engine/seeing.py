"""What a trained recogniser wants of a video: which frames, how large, and the network that sees them.

video ─▶ windows by `ClipNeeds` ─▶ frames, short side as in validation ─▶ pixels ─▶ backbone ─▶ maps ─▶ what decides
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from jaxtyping import Float, UInt8
from torch import Tensor

from mule.core.config import Experiment, StageData
from mule.core.errors import WeightsError
from mule.features.backbones.tiny import STRIDE
from mule.features.weights.cards import find_card
from mule.model import MuleModel
from mule.stage.plans import FRAME_RATE
from mule.training.build import TINY, LoadedRun, normalisation
from mule.training.data import frame_rate
from mule.video.clips import ClipShape
from mule.video.transforms import Normalisation, normalised, resized


@dataclass(frozen=True)
class ClipNeeds:
    """How clips must be cut and scaled so that they look as those did that the network was validated on."""

    shape: ClipShape
    frame_rate: Fraction | None
    """Of the grid of times; None is each video's own."""
    short_side_px: int | None
    """None leaves frames in their size."""
    multiple_px: int
    """Rows and columns must be multiples of this."""
    normalisation: Normalisation

    def pixels(
        self, frames: UInt8[Tensor, "frames channels rows cols"]
    ) -> Float[Tensor, "1 channels frames fitted_rows fitted_cols"]:
        """The clip as the backbone takes it; sides that fit no multiple are rounded to the nearest that does."""
        rows, cols = (self._fitting(side) for side in frames.shape[2:])
        return normalised(resized(frames, (rows, cols)), self.normalisation)[None]

    def _fitting(self, side_px: int) -> int:
        return max(1, round(side_px / self.multiple_px)) * self.multiple_px


def clip_needs(experiment: Experiment) -> ClipNeeds:
    """What the recogniser of an experiment wants of a video."""
    data, view = experiment.data, experiment.view
    is_tiny = experiment.backbone.name == TINY
    short_side_px = view.val_short_side_px
    if isinstance(data, StageData):
        num_frames = math.ceil(data.num_frames / data.stride_frames)
        shape = ClipShape(num_frames, data.stride_frames, num_slow_frames=num_frames)
        rate, short_side_px = Fraction(FRAME_RATE), short_side_px or min(data.rows, data.cols)
    else:
        shape = ClipShape(data.num_frames, data.stride_frames, num_slow_frames=data.num_frames)
        rate = frame_rate(data)
        if experiment.backbone.frozen:  # without a size of the experiment's own, maps are kept in the card's
            short_side_px = short_side_px or find_card(experiment.backbone.name).clip.short_side_px
    return ClipNeeds(shape, rate, short_side_px, STRIDE if is_tiny else 1, normalisation(experiment))


def seeing_model(run: LoadedRun) -> MuleModel:
    """The network from pixels to evidence; one that was trained on kept maps gets its frozen backbone back.

    Raises:
        WeightsError: the backbone's weights are not at hand, or the network has no opinion of each action by itself.
    """
    if run.system.evidence == "dirichlet":
        raise WeightsError(
            f"to watch, a network must have evidence for and against each action; '{run.experiment.system}' divides one "
            "Dirichlet among them. Use mule, or any system of one logit per action (`mule models`)."
        )
    return run.model_on_pixels()
