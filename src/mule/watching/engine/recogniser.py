"""A clip and the boxes in it become, for every actor: evidence, trust, calibrated novelty and reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mule.detection.boxes import px_from_unit, unit_from_px
from mule.features.maps import FeatureMaps
from mule.memory.memory import whole_features
from mule.memory.reasons import Reason
from mule.memory.reasons import reasons as remembered_reasons
from mule.model import SceneBoxes, looks_of
from mule.novelty.calibration import CalibratedNovelty
from mule.video.transforms import clip_boxes
from mule.watching.engine.bundle import Bundle
from mule.watching.engine.contributing import Contribution, contributions
from mule.watching.engine.judging import Judged
from mule.watching.engine.looking import Scene

MOST_REMEMBERED = 3


@dataclass(frozen=True)
class Looks:
    """One look at each actor that the network could see."""

    is_seen: Bool[Tensor, " actors"]
    """Of the scene's actors: false for a sliver that covers no pixel of what the network sees; it has no row below."""
    outputs: Float[Tensor, "seen outputs"]
    """As the network gave them: what calibration keeps of held-out actors, with the features below."""
    features: Float[Tensor, "seen whole"]
    """What a memory keeps of each."""
    judged: Judged
    calibrated: CalibratedNovelty
    statistic: Float[Tensor, " seen"]
    remembered: list[list[Reason]]
    contributions: list[Contribution | None]
    """Indices are those of the scene's actors and objects."""


class Recogniser:
    """A bundle at work."""

    def __init__(self, bundle: Bundle, *, explains: bool = True) -> None:
        """Nothing is computed yet; without `explains` nobody is left out to see what contributed."""
        self._bundle = bundle
        self._explains = explains

    @torch.inference_mode()
    def __call__(self, scene: Scene) -> Looks:
        """What is to be said of each actor of the scene by this look alone."""
        judge, usual = self._bundle.judge, self._bundle.usual
        pixels = self._bundle.needs.pixels(scene.sight.clip.frames)
        boxes, is_seen, objects = _network_boxes(scene, (pixels.shape[3], pixels.shape[4]))
        maps = self._bundle.model.backbone(pixels)
        outputs, features = self._said([maps], boxes)
        judged = judge(outputs, features)
        found: list[Contribution | None] = [None] * len(boxes.actors_xyxy_px)
        if self._explains:
            found = contributions(
                maps, boxes, judged.network, read=lambda *each: judge(*self._said(*each)).network
            )
        return Looks(
            is_seen=is_seen,
            outputs=outputs,
            features=features,
            judged=judged,
            calibrated=usual.of_one_look(judged.ranks),
            statistic=usual.statistic(judged.ranks),
            remembered=self._remembered(judged),
            contributions=[_in_scene(each, is_seen, objects) for each in found],
        )

    def _said(self, maps: Sequence[FeatureMaps], boxes: SceneBoxes) -> tuple[Tensor, Tensor]:
        """The raw outputs for each actor, and what a memory keeps of it."""
        output = self._bundle.model.decide(maps, boxes)
        return output.outputs, whole_features(output.features, looks_of(maps, boxes))

    def _remembered(self, judged: Judged) -> list[list[Reason]]:
        remembered = self._bundle.judge.remembered
        if remembered is None or judged.weighed is None:
            return [[] for _ in range(judged.network.num_actors)]
        return remembered_reasons(remembered.memory, judged.weighed, at_most=MOST_REMEMBERED)


def _network_boxes(
    scene: Scene, size: tuple[int, int]
) -> tuple[SceneBoxes, Bool[Tensor, " actors"], Bool[Tensor, " objects"]]:
    """Boxes in pixels of what the network sees, and which of the scene's are among them."""
    (rows, cols), (source_rows, source_cols) = size, scene.sight.clip.source_size

    def moved(boxes_xyxy_px: Float[Tensor, "boxes 4"]) -> tuple[Tensor, Tensor]:
        unit = unit_from_px(boxes_xyxy_px, width_px=source_cols, height_px=source_rows)
        return clip_boxes(px_from_unit(unit, width_px=cols, height_px=rows), rows, cols)

    actors, is_seen = moved(scene.boxes_xyxy_px)
    objects, is_there = moved(scene.objects_xyxy_px)
    actors, objects = actors[is_seen], objects[is_there]
    boxes = SceneBoxes(
        actors,
        torch.zeros(len(actors), dtype=torch.int64),
        objects,
        torch.zeros(len(objects), dtype=torch.int64),
    )
    return boxes, is_seen, is_there


def _in_scene(
    found: Contribution | None, is_seen: Bool[Tensor, " actors"], is_there: Bool[Tensor, " objects"]
) -> Contribution | None:
    if found is None:
        return None
    places = torch.nonzero(is_seen if found.is_actor else is_there)[:, 0]
    return Contribution(found.is_actor, int(places[found.index]), found.share)
