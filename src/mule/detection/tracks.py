"""Track actors over time: two-stage association of person boxes by overlap and predicted motion.

Boxes with a high score are matched first, to all live tracks including hidden ones. The remaining tracks may then
continue with low-score boxes, because an actor who is being covered is still there, only harder to see (ByteTrack,
Zhang et al. 2022; unlike there, a low-score box may bring back a hidden track, which measured better). Motion is a
Kalman filter of constant velocity for each of centre x, centre y, width and height.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.tensors import Promised, require_tensors
from mule.detection.boxes import Boxes, cxcywh_from_xyxy, iou_matrix, xyxy_from_cxcywh
from mule.detection.detections import PERSON, Detections

NO_TRACK = -1
NO_BOX = -1

SURE_IOU = 0.2  # least overlap of a high-score box with the predicted box of its track
UNSURE_IOU = 0.4  # the same for a low-score box
TENTATIVE_IOU = 0.3  # the same for a track seen only once

POSITION_NOISE = 1 / 20  # standard deviations per step, as fractions of the box's width (x) or height (y)
VELOCITY_NOISE = 1 / 160


@dataclass(frozen=True)
class Motion:
    """Estimate of each track's box (cxcywh, px) and its velocity (px per step).

    The four numbers move independently, so each has a state (value, velocity) and a 2 × 2 covariance.
    """

    mean: Float[Tensor, "tracks 4 2"]
    covariance: Float[Tensor, "tracks 4 2 2"]

    @property
    def boxes_xyxy_px(self) -> Float[Tensor, "tracks 4"]:
        """Estimated boxes."""
        return xyxy_from_cxcywh(self.mean[..., 0])


def motion_from_boxes(boxes_xyxy_px: Boxes) -> Motion:
    """Return the motion of new boxes: at rest, with an uncertain velocity."""
    values = cxcywh_from_xyxy(boxes_xyxy_px).double()
    spread = torch.stack([2 * POSITION_NOISE * _scale(values), 10 * VELOCITY_NOISE * _scale(values)], dim=-1)
    mean = torch.stack([values, torch.zeros_like(values)], dim=-1)
    return Motion(mean, torch.diag_embed(spread.square()))


def predicted(motion: Motion, steps: float) -> Motion:
    """Return the motion `steps` later, with more uncertainty."""
    transition = motion.mean.new_tensor([[1.0, steps], [0.0, 1.0]])
    scale = _scale(motion.mean[..., 0])
    noise = torch.stack([POSITION_NOISE * scale, VELOCITY_NOISE * scale], dim=-1).square() * steps
    return Motion(
        mean=motion.mean @ transition.T,
        covariance=transition @ motion.covariance @ transition.T + torch.diag_embed(noise),
    )


def corrected(motion: Motion, boxes_xyxy_px: Float[Tensor, "tracks 4"]) -> Motion:
    """Return the motion updated with each track's observed box."""
    seen = cxcywh_from_xyxy(boxes_xyxy_px).double()
    noise = (POSITION_NOISE * _scale(motion.mean[..., 0])).square()
    gain = motion.covariance[..., 0] / (motion.covariance[..., 0, 0] + noise)[..., None]  # (tracks, 4, 2)
    return Motion(
        mean=motion.mean + gain * (seen - motion.mean[..., 0])[..., None],
        covariance=motion.covariance - gain[..., :, None] * motion.covariance[..., None, 0, :],
    )


def _scale(cxcywh: Float[Tensor, "tracks 4"]) -> Float[Tensor, "tracks 4"]:
    return cxcywh[:, [2, 3, 2, 3]].clamp(min=1.0)


def best_pairs(
    overlap: Float[Tensor, "tracks boxes"], *, min_iou: float
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Return the one-to-one pairs of tracks and boxes with the largest total overlap, each at least `min_iou`."""
    is_allowed = overlap >= min_iou
    rows, cols = linear_sum_assignment(torch.where(is_allowed, overlap, 0.0).numpy(), maximize=True)
    tracks, boxes = torch.from_numpy(rows), torch.from_numpy(cols)
    kept = is_allowed[tracks, boxes]
    return tracks[kept], boxes[kept]


@dataclass(frozen=True)
class _Tracks:
    """The live tracks: a track is tentative until seen twice, and hidden while it is not seen."""

    track_id: Int[Tensor, " tracks"]
    motion: Motion
    times_seen: Int[Tensor, " tracks"]
    hidden_steps: Float[Tensor, " tracks"]

    @property
    def is_confirmed(self) -> Bool[Tensor, " tracks"]:
        return self.times_seen >= 2


_STATE: Mapping[str, Promised] = {
    "track_id": (torch.int64, ("tracks",)),
    "mean": (torch.float64, ("tracks", 4, 2)),
    "covariance": (torch.float64, ("tracks", 4, 2, 2)),
    "times_seen": (torch.int64, ("tracks",)),
    "hidden_steps": (None, ("tracks",)),
    "next_id": (torch.int64, ()),
}


class Tracker:
    """Assigns track ids to the person boxes of one frame after another. Keeps only live tracks."""

    def __init__(self, *, sure_score: float, max_hidden_steps: int = 30) -> None:
        """Start without tracks.

        Args:
            sure_score: Boxes with at least this score are matched first and start tracks: the detector's actor score.
            max_hidden_steps: End a track that was not seen for longer than this.
        """
        self._sure_score = sure_score
        self._max_hidden_steps = max_hidden_steps
        self._tracks = _new_tracks(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 4))
        self._next_id = 0

    def update(
        self, boxes_xyxy_px: Boxes, scores: Float[Tensor, " boxes"], *, steps: float = 1.0
    ) -> Int[Tensor, " boxes"]:
        """Return the track id of each box of the next frame, `steps` after the last; -1 for boxes in no track.

        An id is assigned at first sight and never reused.
        """
        if steps <= 0:
            raise RangeError(f"frames must come in the order of time: steps must be above 0; got {steps}.")
        tracks = replace(self._tracks, motion=predicted(self._tracks.motion, steps))
        box_of_track = self._match(tracks, boxes_xyxy_px, scores)
        is_seen = box_of_track != NO_BOX
        track_id = torch.full((len(scores),), NO_TRACK)
        track_id[box_of_track[is_seen]] = tracks.track_id[is_seen]
        is_new = (track_id == NO_TRACK) & (scores >= self._sure_score)
        track_id[is_new] = self._next_id + torch.arange(int(is_new.sum()))
        self._next_id += int(is_new.sum())
        alive = _seen_or_hidden(tracks, box_of_track, boxes_xyxy_px, steps)
        alive = _select(alive, alive.hidden_steps <= self._max_hidden_steps)
        self._tracks = _joined(alive, _new_tracks(track_id[is_new], boxes_xyxy_px[is_new]))
        return track_id

    @property
    def state(self) -> dict[str, Tensor]:
        """The tracker's state as tensors, for `restore`; later updates do not change them."""
        tracks = self._tracks
        return {
            "track_id": tracks.track_id,
            "mean": tracks.motion.mean,
            "covariance": tracks.motion.covariance,
            "times_seen": tracks.times_seen,
            "hidden_steps": tracks.hidden_steps,
            "next_id": torch.tensor(self._next_id),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the `state` of another tracker.

        Raises:
            ShapeError: it is not such a state.
        """
        require_tensors(state, _STATE)
        motion = Motion(state["mean"], state["covariance"])
        self._tracks = _Tracks(state["track_id"], motion, state["times_seen"], state["hidden_steps"])
        self._next_id = int(state["next_id"])

    def _match(
        self, tracks: _Tracks, boxes_xyxy_px: Boxes, scores: Float[Tensor, " boxes"]
    ) -> Int[Tensor, " tracks"]:
        overlap = iou_matrix(tracks.motion.boxes_xyxy_px, boxes_xyxy_px.double())
        is_sure = scores >= self._sure_score
        box_of_track = torch.full((len(tracks.track_id),), NO_BOX)
        is_taken = torch.zeros(len(scores), dtype=torch.bool)
        for may_track, may_box, min_iou in (
            (tracks.is_confirmed, is_sure, SURE_IOU),
            (tracks.is_confirmed, ~is_sure, UNSURE_IOU),
            (~tracks.is_confirmed, is_sure, TENTATIVE_IOU),
        ):
            track_rows = torch.nonzero(may_track & (box_of_track == NO_BOX))[:, 0]
            box_rows = torch.nonzero(may_box & ~is_taken)[:, 0]
            matched, boxes = best_pairs(overlap[track_rows][:, box_rows], min_iou=min_iou)
            box_of_track[track_rows[matched]] = box_rows[boxes]
            is_taken[box_rows[boxes]] = True
        return box_of_track


def link_actors(
    detections: Detections, *, actor_score: float, max_hidden_images: int = 30
) -> Int[Tensor, " boxes"]:
    """Return the track id of every person in images evenly spaced in time; -1 for boxes in no track.

    Ids count from 0 in order of first sight. A track of a single box is dropped, unless the box is in the last image.

    >>> box = torch.tensor([[10.0, 10.0, 30.0, 60.0]])
    >>> people = Detections(
    ...     box.repeat(3, 1), torch.full((3,), 0.9), torch.zeros(3).long(), torch.arange(3), num_images=3
    ... )
    >>> link_actors(people, actor_score=0.5).tolist()
    [0, 0, 0]
    """
    track_id = torch.full((len(detections),), NO_TRACK)
    tracker = Tracker(sure_score=actor_score, max_hidden_steps=max_hidden_images)
    persons = torch.nonzero(detections.class_index == PERSON)[:, 0]
    persons = persons[torch.argsort(detections.image_index[persons], stable=True)]
    per_image = torch.bincount(detections.image_index[persons], minlength=detections.num_images)
    for rows in torch.split(persons, per_image.tolist()):
        track_id[rows] = tracker.update(detections.boxes_xyxy_px[rows], detections.scores[rows])
    in_track = track_id != NO_TRACK
    times_seen = torch.bincount(track_id[in_track], minlength=1)
    in_track &= (times_seen[track_id] >= 2) | (detections.image_index == detections.num_images - 1)
    _, track_id[in_track] = torch.unique(track_id[in_track], return_inverse=True)
    return torch.where(in_track, track_id, NO_TRACK)


def _new_tracks(track_id: Int[Tensor, " tracks"], boxes_xyxy_px: Float[Tensor, "tracks 4"]) -> _Tracks:
    return _Tracks(
        track_id=track_id,
        motion=motion_from_boxes(boxes_xyxy_px),
        times_seen=torch.ones_like(track_id),
        hidden_steps=torch.zeros(len(track_id)),
    )


def _seen_or_hidden(
    tracks: _Tracks, box_of_track: Int[Tensor, " tracks"], boxes_xyxy_px: Boxes, steps: float
) -> _Tracks:
    """Return the tracks updated with this frame; tentative tracks that were not seen end."""
    is_seen = box_of_track != NO_BOX
    seen, hidden = _select(tracks, is_seen), _select(tracks, ~is_seen & tracks.is_confirmed)
    still = hidden.motion.mean.clone()
    still[:, 2:, 1] = 0  # a hidden actor may move but is not assumed to grow or shrink
    return _joined(
        replace(
            seen,
            motion=corrected(seen.motion, boxes_xyxy_px[box_of_track[is_seen]]),
            times_seen=seen.times_seen + 1,
            hidden_steps=torch.zeros_like(seen.hidden_steps),
        ),
        replace(hidden, motion=replace(hidden.motion, mean=still), hidden_steps=hidden.hidden_steps + steps),
    )


def _select(tracks: _Tracks, rows: Bool[Tensor, " tracks"]) -> _Tracks:
    return _Tracks(
        track_id=tracks.track_id[rows],
        motion=Motion(tracks.motion.mean[rows], tracks.motion.covariance[rows]),
        times_seen=tracks.times_seen[rows],
        hidden_steps=tracks.hidden_steps[rows],
    )


def _joined(first: _Tracks, second: _Tracks) -> _Tracks:
    return _Tracks(
        track_id=torch.cat([first.track_id, second.track_id]),
        motion=Motion(
            mean=torch.cat([first.motion.mean, second.motion.mean]),
            covariance=torch.cat([first.motion.covariance, second.motion.covariance]),
        ),
        times_seen=torch.cat([first.times_seen, second.times_seen]),
        hidden_steps=torch.cat([first.hidden_steps, second.hidden_steps]),
    )
