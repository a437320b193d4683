"""A model whose graphs run on ONNX Runtime or OpenVINO, with the calls of the model on torch.

clips ─▶ see ─▶ context map ─▶ decide, with boxes ─▶ ModelOutput

`measured_parity` compares it with torch on synthetic scenes with few and many actors and objects, and with none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import MuleError, ShapeError
from mule.core.records import Evidence
from mule.features.pooling import FeatureMaps
from mule.model import ModelOutput, MuleModel, SceneBoxes
from mule.runtime.engines import Engine
from mule.runtime.graphs import BOXES, CLIPS, CONTEXT, RESULTS
from mule.runtime.openvino import ClipSize, require_size


class RunningModel:
    """Both graphs, open, for clips of one size."""

    def __init__(self, see: Engine, decide: Engine, *, size: ClipSize, stride: int) -> None:
        """Run both once on an empty clip, so that the first real clip is as fast as the others."""
        self.size, self.stride = size, stride
        self._see, self._decide = see, decide
        box = torch.tensor([[0.0, 0.0, stride, stride]])
        first = torch.zeros(1, dtype=torch.int64)
        empty = self.context(torch.zeros(1, 3, *size))
        results = self._results(empty, SceneBoxes(box, first, box[:0], first[:0]))
        self._widths = [each.shape[1] for each in results]

    def context(
        self, clips: Float[Tensor, "clips 3 frames rows cols"]
    ) -> Float[Tensor, "clips channels map_rows map_cols"]:
        """Return the context maps of clips of this size, computed one by one."""
        require_size(clips, self.size)
        return torch.cat([self._see({CLIPS: clip.unsqueeze(0)})[CONTEXT] for clip in clips])

    def see(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the same as feature maps of one frame."""
        return FeatureMaps((self.context(clips).unsqueeze(2),), self.stride)

    def decide(
        self, context: Float[Tensor, "clips channels map_rows map_cols"], boxes: SceneBoxes
    ) -> ModelOutput:
        """Return outputs and evidence for each actor."""
        results = (
            self._results(context, boxes)
            if len(boxes.actors_xyxy_px)
            else [torch.zeros(0, width) for width in self._widths]
        )
        outputs, features, positive, negative = results
        return ModelOutput(
            outputs=outputs,
            evidence=Evidence(positive, negative),
            features=features,
            context=context.mean(dim=(2, 3)),
            actor_clip_index=boxes.actor_clip_index,
        )

    def _results(self, context: Tensor, boxes: SceneBoxes) -> list[Tensor]:
        tensors = (
            boxes.actors_xyxy_px.float(),
            boxes.actor_clip_index,
            boxes.objects_xyxy_px.float(),
            boxes.object_clip_index,
        )
        by_name = self._decide({CONTEXT: context, **dict(zip(BOXES, tensors, strict=True))})
        return [by_name[name] for name in RESULTS]


def running_anywhere(opened: Callable[[ClipSize], RunningModel]) -> MuleModel:
    """Return a model that opens graphs for each size of clip it meets, and keeps the latest open."""
    return MuleModel(*_calls(opened)).eval()


def _calls(
    opened: Callable[[ClipSize], RunningModel],
) -> tuple[Callable[[Tensor], FeatureMaps], Callable[[Sequence[FeatureMaps], SceneBoxes], ModelOutput]]:
    latest: list[RunningModel] = []

    def see(clips: Tensor) -> FeatureMaps:
        frames, rows, cols = clips.shape[2:]
        size = (frames, rows, cols)
        if not latest or latest[0].size != size:
            latest[:] = [opened(size)]
        return latest[0].see(clips)

    def decide(features: Sequence[FeatureMaps], boxes: SceneBoxes) -> ModelOutput:
        if not latest or len(features) != 1 or len(features[0].maps) != 1:
            raise ShapeError(
                "a model on another runtime takes maps that it made itself, of clips of one size; got others."
            )
        return latest[0].decide(features[0].maps[0].squeeze(2), boxes)

    return see, decide


LIMIT = 1e-3
"""The largest accepted difference of any number, as a share of the largest number in the same result."""
SCENES = ((1, 1, 0), (1, 1, 3), (1, 2, 1), (1, 3, 2), (1, 6, 8), (2, 3, 0), (3, 7, 4))
"""Numbers of clips, actors and objects in the synthetic scenes."""
NUM_CLIPS = 2


class ParityError(MuleError, ArithmeticError):
    """A model on another runtime gives other results than on torch."""


@dataclass(frozen=True)
class SceneParity:
    """The largest differences in one scene, as shares of the largest number."""

    num_clips: int
    num_actors: int
    num_objects: int
    outputs: float
    features: float
    evidence: float

    @property
    def largest(self) -> float:
        """The largest of all three."""
        return max(self.outputs, self.features, self.evidence)


@dataclass(frozen=True)
class Parity:
    """Differences of the context maps, and of the results in every scene."""

    context: float
    scenes: tuple[SceneParity, ...]

    @property
    def largest(self) -> float:
        """The largest of all."""
        return max(self.context, *(each.largest for each in self.scenes))


@torch.inference_mode()
def measured_parity(model: MuleModel, running: RunningModel, size: ClipSize) -> Parity:
    """Measure the differences on clips of noise with scattered boxes; scenes of many clips alternate between two."""
    generator = torch.Generator().manual_seed(0)
    clips = torch.randn(NUM_CLIPS, 3, *size, generator=generator)
    maps, context = model.backbone(clips), running.context(clips)
    scenes: list[SceneParity] = []
    for num_clips, num_actors, num_objects in SCENES:
        shown = torch.arange(num_clips) % NUM_CLIPS
        boxes = SceneBoxes(
            _made_boxes(num_actors, size, generator),
            _spread(num_actors, num_clips),
            _made_boxes(num_objects, size, generator),
            _spread(num_objects, num_clips),
        )
        wanted = model.decide([FeatureMaps(tuple(each[shown] for each in maps.maps), maps.stride)], boxes)
        got = running.decide(context[shown], boxes)
        evidence = (
            share_of_largest(got.evidence.positive, wanted.evidence.positive),
            share_of_largest(got.evidence.negative, wanted.evidence.negative),
        )
        scenes.append(
            SceneParity(
                num_clips,
                num_actors,
                num_objects,
                outputs=share_of_largest(got.outputs, wanted.outputs),
                features=share_of_largest(got.features, wanted.features),
                evidence=max(evidence),
            )
        )
    # compare σ(X) of the maps: on torch, the reduction is not a step of its own
    everybody = SceneBoxes(torch.zeros(0, 4), _spread(0, 1), torch.zeros(0, 4), _spread(0, 1))
    seen = share_of_largest(context.mean(dim=(2, 3)), model.decide([maps], everybody).context)
    return Parity(seen, tuple(scenes))


def share_of_largest(got: Tensor, wanted: Tensor) -> float:
    """Return the largest difference as a share of the largest expected number; infinite if a number is not finite."""
    if got.shape != wanted.shape or not torch.isfinite(got).all():
        return float("inf")
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-12))


def _made_boxes(count: int, size: ClipSize, generator: torch.Generator) -> Float[Tensor, "boxes 4"]:
    """Boxes inside the clip; the first covers all of it."""
    _, rows, cols = size
    corners = torch.rand(count, 2, 2, generator=generator).sort(dim=1).values
    corners[:1] = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return (corners * torch.tensor([cols, rows])).flatten(1)


def _spread(count: int, num_clips: int) -> Int[Tensor, " boxes"]:
    """The clip of each box: in turn, not in order; with more clips than boxes, some have none."""
    return (torch.arange(count) * (num_clips - 1)) % max(num_clips, 1)
