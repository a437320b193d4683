"""Backbones in the form in which they are converted: plain tensors out, and SlowFast prepared, wherever it is.

clips ─┬─ chosen positions ─▶ slow ─┐
       └─ pairs of frames ──▶ fast ─┴─▶ maps
"""

from copy import deepcopy
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mule.features.backbones.slowfast import SlowFast, Stem, slow_frame_positions
from mule.features.maps import FeatureMaps
from mule.features.pooling import context_map
from mule.features.weights.cards import Backbone

TEMPORAL_AXIS = 2


def exportable(backbone: Backbone, num_frames: int) -> nn.Module:
    """A module in evaluation mode that gives the maps of clips of so many frames, as a tuple."""
    return _Maps(_prepared(backbone, num_frames)).eval()


class ContextMaps(nn.Module):
    """What a head is shown of clips of so many frames: their maps averaged over time, and reduced where it wants that.

    The backbone may stand inside another module, as one does whose maps training kept.
    """

    def __init__(self, backbone: nn.Module, reduction: nn.Conv2d | None, *, num_frames: int) -> None:
        super().__init__()
        self.backbone, self.reduction = _prepared(backbone, num_frames), reduction
        self.eval()

    def forward(self, clips: Tensor) -> Tensor:
        """The context map of each clip."""
        context = context_map(self.backbone(clips))
        return context if self.reduction is None else self.reduction(context)


def _prepared(backbone: nn.Module, num_frames: int) -> nn.Module:
    """The same with every SlowFast in it prepared; what has none is not copied."""
    if isinstance(backbone, SlowFast):
        return _PreparedSlowFast(backbone, num_frames)
    if not any(isinstance(each, SlowFast) for each in backbone.modules()):
        return backbone
    backbone = deepcopy(backbone)
    for name, child in backbone.named_children():
        setattr(backbone, name, _prepared(child, num_frames))
    return backbone


class _Maps(nn.Module):
    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, clips: Tensor) -> tuple[Tensor, ...]:
        return self.backbone(clips).maps


class _PreparedSlowFast(nn.Module):
    """SlowFast with its Slow frames chosen beforehand: OpenVINO's linspace ends a rounding error short."""

    def __init__(self, backbone: SlowFast, num_frames: int) -> None:
        super().__init__()
        self.backbone, self.stride = deepcopy(backbone), backbone.stride
        if num_frames % 2 == 0:
            self.backbone.fast["conv1"] = PairedStem(cast("Stem", backbone.fast["conv1"]))
        self.slow_positions = nn.Buffer(slow_frame_positions(num_frames, backbone.variant))

    def forward(self, clips: Tensor) -> FeatureMaps:
        return self.backbone.from_pathways(clips.index_select(TEMPORAL_AXIS, self.slow_positions), clips)


class PairedStem(nn.Module):
    """conv1 and pool1 of the Fast pathway for an even number of frames, two frames at a time.

    Its 8 channels fill half of a processor's vectors of 16; those of two frames fill them. A kernel one frame
    longer, with a zero at one end or the other, makes both frames of a pair: the same sums, some with a zero more.
    """

    def __init__(self, stem: Stem) -> None:
        super().__init__()
        earlier, later = (F.pad(stem.conv.weight, (0, 0, 0, 0, *ends)) for ends in ((0, 1), (1, 0)))
        self.weight = nn.Parameter(torch.cat([earlier, later]))
        self.padding = stem.conv.padding
        self.norm = nn.BatchNorm3d(len(self.weight), eps=stem.norm.eps)
        once = stem.norm.state_dict()
        self.norm.load_state_dict(
            {name: value.repeat(2) if value.dim() else value for name, value in once.items()}
        )

    def forward(self, x: Tensor) -> Tensor:
        """The first feature map of the pathway, frames in order again."""
        x = F.relu(self.norm(F.conv3d(x, self.weight, stride=2, padding=self.padding)))
        x = F.max_pool3d(x, kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)).unflatten(1, (2, -1))
        return x.permute(0, 2, 3, 1, 4, 5).flatten(2, 3)  # (clips, channels, pairs · 2, rows, cols)
