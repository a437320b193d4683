"""Predict from arrays: one clip and the boxes of its people in, a record for each person out.

clip, boxes ─▶ frames the model needs ─▶ network, memory ─▶ opinions, novelty ─▶ Prediction
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.memory.memory import whole_features
from mule.model import looks_of
from mule.novelty.crossfit import Inputs
from mule.video.clips import exact
from mule.video.transforms import require_boxes, unit_from_px
from mule.watching.engine.bundle import Bundle, ClipNeeds
from mule.watching.engine.showing import in_shares, maps_shown
from mule.watching.engine.telling import action_opinions, agreeing, box_of, novelty_scores
from mule.watching.moments import (
    IDLE_FROM,
    ActionOpinion,
    Decision,
    NoveltyScores,
    Record,
    SoundBox,
    answer,
)

ClipArray = np.ndarray | Tensor
BoxRows = np.ndarray | Tensor | Sequence[object]
"""Rows of x1, y1, x2, y2; any other shape is an error."""


class Prediction(Record):
    """What one person does in one clip, and how novel that is.

    >>> import numpy as np
    >>> from mule import Model
    >>> clip = np.zeros((16, 96, 128, 3), dtype=np.uint8)
    >>> person = Model.load("stage").predict(clip, [[40, 20, 70, 90]])[0]
    >>> sorted(person.to_dict())
    ['actions', 'box_xyxy_px', 'decision', 'novelty', 'opinions']
    """

    box_xyxy_px: SoundBox
    """The box as given, in pixels of the clip."""
    actions: tuple[str, ...]
    """Known actions whose probability is at least `min_probability`, likeliest first."""
    opinions: tuple[ActionOpinion, ...]
    """Belief, disbelief, uncertainty and probability of every known action, likeliest first."""
    novelty: NoveltyScores
    """Novelty by each score; `p_value` is the share of known people that look at least this novel."""
    decision: Decision
    """`idle`, `novel`, `known` or `unsure` (`mule.watching.moments.decide`)."""

    @property
    def is_novel(self) -> bool:
        """Whether the person does something the model was never taught."""
        return self.decision == "novel"


def predict_clip(  # noqa: PLR0913 - the arguments of Model.predict
    bundle: Bundle,
    clip: ClipArray,
    boxes: BoxRows,
    *,
    objects: BoxRows,
    rate: float | None,
    threshold: str,
    min_probability: float | None,
) -> list[Prediction]:
    """Predict every person of a clip; `Model.predict` documents the arguments."""
    frames = _frames(clip)
    boxes_xyxy_px, objects_xyxy_px = (_corners(each, frames) for each in (boxes, objects))
    judged = bundle.judge(*_network_rows(bundle, frames, boxes_xyxy_px, objects_xyxy_px, rate=rate))
    calibrated = bundle.usual.of_one_look(judged.ranks).p_value.clamp(0, 1)
    p_values = calibrated.tolist()
    novelties = novelty_scores(judged.network, p_values, {})
    limit = bundle.usual.threshold(threshold)
    shown = judged.together if bundle.seen is None else agreeing(judged.together, calibrated, limit)
    opinions = action_opinions(shown, bundle.classes)
    least = bundle.card.names_from if min_probability is None else min_probability
    is_idle = [False] * len(p_values) if judged.idle is None else (judged.idle > IDLE_FROM).tolist()
    named = [
        tuple(each.action for each in opinions[at] if each.probability >= least and not is_idle[at])
        for at in range(len(p_values))
    ]
    return [
        Prediction(
            box_xyxy_px=box_of(boxes_xyxy_px[at]),
            actions=actions,
            opinions=opinions[at],
            novelty=novelties[at],
            decision=answer(
                is_idle=is_idle[at], is_novel=1 - p_values[at] > limit.value, has_action=bool(actions)
            ),
        )
        for at, actions in enumerate(named)
    ]


def example_row(
    bundle: Bundle, clip: ClipArray, box: Sequence[object] | np.ndarray | Tensor
) -> tuple[Float[Tensor, "1 dim"], Inputs, Float[Tensor, " 4"]]:
    """Return what a memory keeps of the person in a box, what the person is seen by if that decides, and the box in shares."""
    frames = _frames(clip)
    boxes_xyxy_px = _corners(torch.as_tensor(box)[None], frames)
    rows, cols = frames.shape[2:]
    unit = unit_from_px(boxes_xyxy_px, width_px=cols, height_px=rows)[0].clamp(0, 1)
    _, features, inputs = _network_rows(bundle, frames, boxes_xyxy_px, torch.zeros(0, 4), rate=None)
    seen = {} if inputs is None else {name: each.clone() for name, each in inputs.items()}
    return features.clone(), seen, unit


@torch.inference_mode()
def _network_rows(
    bundle: Bundle,
    frames: UInt8[Tensor, "frames 3 rows cols"],
    boxes_xyxy_px: Float[Tensor, "people 4"],
    objects_xyxy_px: Float[Tensor, "objects 4"],
    *,
    rate: float | None,
) -> tuple[Float[Tensor, "people outputs"], Float[Tensor, "people dim"], Inputs | None]:
    """Return what the network outputs for each person of a clip, what a memory keeps of them, and what they are seen by."""
    size = (frames.shape[2], frames.shape[3])
    actors, objects = (in_shares(each, size) for each in (boxes_xyxy_px, objects_xyxy_px))
    chosen = frames[_chosen(len(frames), bundle.needs, rate)]
    maps, scene, is_actor, is_object = maps_shown(bundle, chosen, actors, objects)
    _require_all(is_actor, boxes_xyxy_px, size)
    if bundle.card.sees == "frame":
        _require_all(is_object, objects_xyxy_px, size)
    output = bundle.model.decide([maps], scene)
    features = whole_features(output.features, looks_of([maps], scene))
    return output.outputs, features, None if bundle.eyes is None else bundle.eyes(maps, scene)


def _require_all(
    is_seen: Bool[Tensor, " boxes"], boxes_xyxy_px: Float[Tensor, "boxes 4"], size: tuple[int, int]
) -> None:
    """Refuse boxes that cover no pixel of what the network sees of a frame of this size."""
    if not is_seen.all():
        first = int(torch.nonzero(~is_seen)[0])
        raise RangeError(
            f"a box must cover at least a pixel of what the network sees of {size[0]} x {size[1]} pixels; box {first}, "
            f"{boxes_xyxy_px[first].tolist()}, does not. Leave it out."
        )


def _corners(boxes: BoxRows, frames: UInt8[Tensor, "frames 3 rows cols"]) -> Float[Tensor, "boxes 4"]:
    """Return the boxes as float32 corners x1, y1, x2, y2 inside the frame."""
    corners = boxes if isinstance(boxes, Tensor) else torch.from_numpy(np.array(boxes, dtype=np.float32))
    corners = corners.detach().cpu().float()
    if corners.numel() == 0:
        return torch.zeros(0, 4)
    if corners.ndim != 2 or corners.shape[1] != 4:
        raise ShapeError(f"boxes must be rows of x1, y1, x2, y2 in pixels; got shape {tuple(corners.shape)}.")
    rows, cols = frames.shape[2:]
    require_boxes(corners, rows, cols)
    return torch.minimum(corners.clamp(min=0), corners.new_tensor([cols, rows, cols, rows]))


def _frames(clip: ClipArray) -> UInt8[Tensor, "frames 3 rows cols"]:
    frames = torch.as_tensor(clip)
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != torch.uint8 or not len(frames):
        raise ShapeError(
            "a clip must be frames x rows x columns x 3 (RGB), uint8, at least one frame; got shape "
            f"{tuple(frames.shape)} of {frames.dtype}."
        )
    return frames.permute(0, 3, 1, 2)


def _chosen(num_frames: int, needs: ClipNeeds, rate: float | None) -> Tensor:
    """Return which frames of a clip the network sees.

    Without a rate the clip is one whole window: its frames are spread over the network's. With a rate the
    network sees a window of its own length about the middle of the clip; frames beyond an end repeat the last
    one.
    """
    if rate is None:
        step = Fraction(num_frames - 1, max(1, needs.shape.num_frames - 1))
    else:
        frames_per_frame = 1 if needs.frame_rate is None else exact(rate) / needs.frame_rate
        step = needs.shape.stride_frames * Fraction(frames_per_frame)
    middle = Fraction(num_frames - 1, 2)
    first = middle - step * (needs.shape.num_frames - 1) / 2
    places = [round(first + number * step) for number in range(needs.shape.num_frames)]
    return torch.tensor([min(max(place, 0), num_frames - 1) for place in places])
