"""A model whose graphs run elsewhere than on torch, behind the calls of the model it was.

clips ─▶ see ─▶ context map ─▶ decide, with boxes ─▶ ModelOutput
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import ShapeError
from mule.core.records import Evidence
from mule.features.maps import FeatureMaps
from mule.model import ModelOutput, MuleModel, SceneBoxes
from mule.runtime.engines import Engine
from mule.runtime.graphs import BOXES, CLIPS, CONTEXT, SAID
from mule.runtime.openvino import ClipSize, require_size


class RunningModel:
    """Both graphs, opened, for clips of one size."""

    def __init__(self, see: Engine, decide: Engine, *, size: ClipSize, stride: int) -> None:
        """Tries both once, on nothing: so what the first clip takes later is what every clip takes."""
        self.size, self.stride = size, stride
        self._see, self._decide = see, decide
        box = torch.tensor([[0.0, 0.0, stride, stride]])
        first = torch.zeros(1, dtype=torch.int64)
        said = self._said(self.context(torch.zeros(1, 3, *size)), SceneBoxes(box, first, box[:0], first[:0]))
        self._widths = [each.shape[1] for each in said]

    def context(
        self, clips: Float[Tensor, "clips 3 frames rows cols"]
    ) -> Float[Tensor, "clips channels map_rows map_cols"]:
        """The context maps of clips of this size, one clip after the other."""
        require_size(clips, self.size)
        return torch.cat([self._see({CLIPS: clip.unsqueeze(0)})[CONTEXT] for clip in clips])

    def see(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """The same as feature maps of one frame."""
        return FeatureMaps((self.context(clips).unsqueeze(2),), self.stride)

    def decide(
        self, context: Float[Tensor, "clips channels map_rows map_cols"], boxes: SceneBoxes
    ) -> ModelOutput:
        """What is said of each actor; of nobody, nothing."""
        said = (
            self._said(context, boxes)
            if len(boxes.actors_xyxy_px)
            else [torch.zeros(0, width) for width in self._widths]
        )
        outputs, features, positive, negative = said
        return ModelOutput(
            outputs=outputs,
            evidence=Evidence(positive, negative),
            features=features,
            context=context.mean(dim=(2, 3)),
            actor_clip_index=boxes.actor_clip_index,
        )

    def _said(self, context: Tensor, boxes: SceneBoxes) -> list[Tensor]:
        given = (
            boxes.actors_xyxy_px.float(),
            boxes.actor_clip_index,
            boxes.objects_xyxy_px.float(),
            boxes.object_clip_index,
        )
        found = self._decide({CONTEXT: context, **dict(zip(BOXES, given, strict=True))})
        return [found[name] for name in SAID]


def running_anywhere(opened: Callable[[ClipSize], RunningModel]) -> MuleModel:
    """A model that opens graphs for every size of clip it meets, and keeps the latest."""
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
                "a model that runs elsewhere decides about maps that it made itself, of clips of one size."
            )
        return latest[0].decide(features[0].maps[0].squeeze(2), boxes)

    return see, decide
