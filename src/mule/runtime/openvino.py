"""Backbones compiled by OpenVINO (extra `mule-actions[openvino]`): the same clips in, the same feature maps out.

    backbone ─ converted ─▶ Network ─┬─▶ CompiledNetwork      clips ─▶ feature maps
                                     └─▶ CompiledBoxFeatures  clips, boxes ─▶ one feature per box

A network takes clips of one number of frames, rows and columns: they determine which frames the Slow pathway takes and where
I3D pads, and fixed sizes run fastest. CompiledBackbone makes one network for each size it meets. Clips run one by one; on a
processor whose cores one clip keeps busy, batches gain nothing.

Before conversion, outputs become plain tensors and every SlowFast is prepared:

clips ─┬─ chosen positions ─▶ slow ─┐
       └─ pairs of frames ──▶ fast ─┴─▶ maps
"""

import warnings
from collections import OrderedDict
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mule.core.compiling import RuntimeMissing as RuntimeMissing
from mule.core.compiling import compiled_for_cpu, require_openvino
from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.features.backbones.slowfast import SlowFast, Stem, slow_frame_positions
from mule.features.extraction import FrozenBackbone
from mule.features.pooling import DETECTION_HEAD, FeatureMaps, RoiSampling, context_map
from mule.features.weights.card import Backbone

TEMPORAL_AXIS = 2


def exportable(backbone: Backbone, num_frames: int) -> nn.Module:
    """Return a module in evaluation mode whose output is a tuple of maps, for clips of `num_frames` frames."""
    return _Maps(_prepared(backbone, num_frames)).eval()


class ContextMaps(nn.Module):
    """The input of a head for clips of `num_frames` frames: maps averaged over time, and reduced if the head wants it.

    The backbone may be inside another module, as a frozen one is.
    """

    def __init__(self, backbone: nn.Module, reduction: nn.Conv2d | None, *, num_frames: int) -> None:
        super().__init__()
        self.backbone, self.reduction = _prepared(backbone, num_frames), reduction
        self.eval()

    def forward(self, clips: Tensor) -> Tensor:
        """Return the context map of each clip."""
        context = context_map(self.backbone(clips))
        return context if self.reduction is None else self.reduction(context)


def _prepared(backbone: nn.Module, num_frames: int) -> nn.Module:
    """The module with every SlowFast in it prepared; one without SlowFast is not copied."""
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
    """SlowFast with its Slow frames chosen in advance: OpenVINO's linspace ends a rounding error short."""

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
        """Return the first feature map of the pathway, frames in order again."""
        x = F.relu(self.norm(F.conv3d(x, self.weight, stride=2, padding=self.padding)))
        x = F.max_pool3d(x, kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)).unflatten(1, (2, -1))
        return x.permute(0, 2, 3, 1, 4, 5).flatten(2, 3)  # (clips, channels, pairs · 2, rows, cols)


ClipSize = tuple[int, int, int]
"""Frames, rows and columns of a clip."""
CLIPS_INPUT, BOXES_INPUT = "clips", "boxes_xyxy_px"


@dataclass(frozen=True)
class Network:
    """A backbone as an OpenVINO graph for one clip of one size at a time; not yet compiled."""

    graph: Any
    """An `openvino.Model`: input `clips`, one output per feature map."""
    size: ClipSize
    stride: int


def converted(backbone: Backbone, size: ClipSize) -> Network:
    """Convert a backbone in evaluation mode.

    Raises:
        RangeError: the backbone is in training mode.
        RuntimeMissing: OpenVINO is not installed.
    """
    openvino = require_openvino()
    if backbone.training:
        raise RangeError(
            "a backbone must be in evaluation mode to be converted; it is in training mode. Call eval()."
        )
    clip = torch.zeros(1, 3, *size)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's, about its own internals
        graph = openvino.convert_model(torch.export.export(exportable(backbone, num_frames=size[0]), (clip,)))
    graph.reshape(list(clip.shape))  # the conversion loses the sizes that torch fixed
    graph.input(0).get_tensor().set_names({CLIPS_INPUT})
    return Network(graph, size, backbone.stride)


class CompiledNetwork:
    """A network on this machine's processor, called like the backbone: clips in, maps out."""

    def __init__(self, network: Network, *, num_threads: int | None = None) -> None:
        self.size = network.size
        self.stride = network.stride
        self._run = compiled_for_cpu(network.graph, num_threads)

    def __call__(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the feature maps of clips of this network's size.

        Raises:
            ShapeError: the clips have another size.
        """
        require_size(clips, self.size)
        results = [self._run({CLIPS_INPUT: clip.unsqueeze(0).contiguous().numpy()}) for clip in clips]
        maps = tuple(_joined(results, output) for output in self._run.outputs)
        return FeatureMaps(maps=maps, stride=self.stride)


class CompiledBackbone:
    """A backbone that is compiled once for each size of clip it meets."""

    def __init__(
        self, backbone: Backbone, *, num_threads: int | None = None, num_remembered: int = 2
    ) -> None:
        require_openvino()
        self.stride = backbone.stride
        self._backbone, self._num_threads, self._num_remembered = backbone, num_threads, num_remembered
        self._by_size: OrderedDict[ClipSize, CompiledNetwork] = OrderedDict()

    def __call__(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the feature maps of clips of any size; the first of a size takes seconds longer."""
        frames, rows, cols = clips.shape[2:]
        return self._compiled_for((frames, rows, cols))(clips)

    def _compiled_for(self, size: ClipSize) -> CompiledNetwork:
        network = self._by_size.pop(size, None) or CompiledNetwork(
            converted(self._backbone, size), num_threads=self._num_threads
        )
        self._by_size[size] = network  # the last to be dropped
        if len(self._by_size) > self._num_remembered:
            self._by_size.popitem(last=False)
        return network


def compiled_frozen(backbone: FrozenBackbone) -> FrozenBackbone:
    """Return the same frozen backbone, compiled. Its recipe records that, because the last digits of features differ.

    Raises:
        RangeError: it is no backbone of `mule.features`, or it is not on the CPU.
        RuntimeMissing: OpenVINO is not installed.
    """
    model = backbone.forward
    if not isinstance(model, Backbone):
        raise RangeError(f"only a backbone of mule.features can be compiled; got {type(model).__name__}.")
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise RangeError(f"a backbone must be on the CPU to be compiled; this one is on {device}. Move it.")
    recipe = replace(backbone.recipe, runtime="openvino")
    return replace(backbone, forward=CompiledBackbone(model), recipe=recipe)


class CompiledBoxFeatures:
    """A network with box pooling in its graph, for any number of boxes, including none."""

    def __init__(
        self,
        network: Network,
        *,
        num_threads: int | None = None,
        sampling: RoiSampling = DETECTION_HEAD,
    ) -> None:
        self.size = network.size
        self._run = compiled_for_cpu(_with_box_features(network, sampling), num_threads)

    def __call__(
        self,
        clips: Float[Tensor, "clips 3 frames rows cols"],
        boxes_xyxy_px: Float[Tensor, "boxes 4"],
        clip_index: Int[Tensor, " boxes"],
    ) -> Float[Tensor, "boxes channels"]:
        """Return what `box_features` makes of the context maps of these clips.

        Raises:
            ShapeError: the clips have another size than the network.
            NotFinite: a box has a corner that is not finite.
            RangeError: a box belongs to a clip that does not exist.
        """
        require_size(clips, self.size)
        _require_usable(boxes_xyxy_px, clip_index, num_clips=len(clips))
        (output,) = self._run.outputs
        features = torch.empty(len(boxes_xyxy_px), output.partial_shape[1].get_length())
        for index, clip in enumerate(clips):
            is_here = clip_index == index
            boxes = boxes_xyxy_px[is_here].float().contiguous()
            inputs = {CLIPS_INPUT: clip.unsqueeze(0).contiguous().numpy(), BOXES_INPUT: boxes.numpy()}
            features[is_here] = torch.from_numpy(self._run(inputs)[output])
        return features


def require_size(clips: Float[Tensor, "clips 3 frames rows cols"], size: ClipSize) -> None:
    """Check that the clips have the frames, rows and columns that a network was made for.

    Raises:
        ShapeError: they have not.
    """
    if tuple(clips.shape[2:]) != size:
        raise ShapeError(
            f"this network was made for clips of {size} frames, rows and columns; got {tuple(clips.shape[2:])}. "
            "Convert the backbone for that size, or use CompiledBackbone, which takes any."
        )


def _joined(results: list[Any], output: Any) -> Tensor:  # noqa: ANN401 - OpenVINO's own types
    """One output of all clips; an empty map with the right channels if there are none."""
    if not results:
        return torch.empty(0, *list(output.shape)[1:])
    return torch.cat([torch.from_numpy(each[output]) for each in results])


def _with_box_features(network: Network, sampling: RoiSampling) -> Any:  # noqa: ANN401 - an openvino.Model
    """Append `context_map` and `box_features`, for one clip, to the network's graph."""
    openvino = require_openvino()
    ops = import_module("openvino.opset15")
    graph = network.graph.clone()
    maps = [each.get_node().input_value(0) for each in graph.outputs]
    time, place = ops.constant([TEMPORAL_AXIS]), ops.constant([2, 3])
    context = ops.concat([ops.reduce_mean(each, time, keep_dims=False) for each in maps], axis=1)
    boxes = ops.parameter([-1, 4], openvino.Type.f32, name=BOXES_INPUT)
    boxes.output(0).get_tensor().set_names({BOXES_INPUT})
    num_boxes = ops.gather(ops.shape_of(boxes), ops.constant([0]), ops.constant(0))
    first_clip = ops.broadcast(ops.constant(0), num_boxes)
    pooled = ops.roi_align(
        context,
        boxes,
        first_clip,
        pooled_h=sampling.bins,
        pooled_w=sampling.bins,
        sampling_ratio=sampling.samples,
        spatial_scale=1 / network.stride,
        mode="avg",
        aligned_mode="half_pixel_for_nn" if sampling.aligned else "asymmetric",
    )
    return openvino.Model([ops.reduce_max(pooled, place, keep_dims=False)], [*graph.get_parameters(), boxes])


def _require_usable(boxes_xyxy_px: Tensor, clip_index: Tensor, *, num_clips: int) -> None:
    if not torch.isfinite(boxes_xyxy_px).all():
        raise NotFinite(f"box corners must be finite; got {boxes_xyxy_px.tolist()}. Drop the box.")
    if ((clip_index < 0) | (clip_index >= num_clips)).any():
        raise RangeError(f"clip_index must name one of {num_clips} clips, from 0; got {clip_index.tolist()}.")
