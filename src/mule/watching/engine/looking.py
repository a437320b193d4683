"""Key times of a source, one after another: the clip about each, who is in it, and who is who.

windows   ├── key ──┤├ link ┤├ link ┤├ link ┤├── key ──┤      links: single frames between key times, for a detector
                │       │       │       │         │
          detector and tracker see all of them; the network sees key times alone
"""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.detection.boxes import clip_to_image, has_area
from mule.detection.detections import PERSON, Detections, split_actors_and_objects
from mule.detection.tracks import NO_TRACK, Tracker
from mule.video.clips import ClipShape, ClipWindow, clip_window
from mule.video.reading import Clip, read_clips
from mule.video.sources import DecodeReport, VideoSource
from mule.watching.engine.finding import BoxFinder

MOST_HIDDEN_S = 5.0
"""A track that was not seen for longer is over; who comes back later is somebody else."""
LINK_STEPS = 5
"""A detector looks so often per key time."""


@dataclass(frozen=True)
class Rhythm:
    """When to look, and at how much."""

    every_s: Fraction
    shape: ClipShape
    frame_rate: Fraction
    short_side_px: int | None
    link_steps: int = 1
    """Looks per key time; 1 looks at key times alone."""
    end_s: Fraction | None = None
    """Where the source ends, if that is known."""

    @property
    def link_every_s(self) -> Fraction:
        """From one look to the next."""
        return self.every_s / self.link_steps

    def windows(self, start_s: Fraction = Fraction(0)) -> Iterator[ClipWindow]:
        """Without end: the clip at each key time from `start_s` on, and a single frame at each look between.

        A clip lies inside the source where it can: at both ends it is moved inwards, because a frame that stands still
        for half a clip is nothing a network has seen. A single frame's window begins as early as a clip's would, so that
        windows begin, and end, in the order of key times.
        """
        for number in itertools.count():
            window = self._inside(start_s + number * self.link_every_s)
            is_key = number % self.link_steps == 0
            yield window if is_key else ClipWindow(window.key_time_s, window.times_s[:1])

    def _inside(self, key_time_s: Fraction) -> ClipWindow:
        window = clip_window(key_time_s, self.shape, self.frame_rate)
        begin_s, last_s = window.times_s[0], window.times_s[-1]
        moved_s = Fraction(0)
        if self.end_s is not None and key_time_s < self.end_s:  # key times behind the end stay where they are
            over = math.ceil((last_s - self.end_s) * self.frame_rate) + 1
            moved_s = -max(over, 0) / self.frame_rate
        if begin_s + moved_s < 0:
            moved_s = -begin_s
        return ClipWindow(window.key_time_s, tuple(time_s + moved_s for time_s in window.times_s))


@dataclass(frozen=True)
class Sight:
    """A frame to look at, with the clip about it at a key time."""

    clip: Clip
    key_time_s: Fraction
    """On the clock of the whole watch, which goes on when a stream begins anew."""
    is_key: bool
    arrived_at: float
    """When the last frame of the clip had been seen, on the monotonic clock."""


@dataclass(frozen=True)
class Scene:
    """A key time, and who and what is there, in pixels of the source."""

    sight: Sight
    boxes_xyxy_px: Float[Tensor, "actors 4"]
    scores: Float[Tensor, " actors"]
    track_ids: Int[Tensor, " actors"]
    objects_xyxy_px: Float[Tensor, "objects 4"]
    object_names: tuple[str, ...]
    tracker: Mapping[str, Tensor]
    """The tracker as it is after this look: what a resumed watch goes on from."""


def file_sights(
    source: VideoSource, rhythm: Rhythm, *, start_s: Fraction = Fraction(0), report: DecodeReport
) -> Iterator[Sight]:
    """The sights of a source that waits: a file, images, or a stream that is read to its end."""
    clips = read_clips(
        source,
        rhythm.windows(start_s),
        short_side_px=rhythm.short_side_px,
        keep_key_frames=True,
        report=report,
    )
    yield from sights_of(clips, rhythm)


def sights_of(clips: Iterable[Clip], rhythm: Rhythm, *, offset_s: Fraction = Fraction(0)) -> Iterator[Sight]:
    """The same clips as sights, `offset_s` later on the clock of the watch."""
    for number, clip in enumerate(clips):
        is_key = number % rhythm.link_steps == 0
        yield Sight(clip, clip.window.key_time_s + offset_s, is_key, time.monotonic())


def scenes(
    sights: Iterable[Sight], finder: BoxFinder, rhythm: Rhythm, *, tracker: Mapping[str, Tensor] | None = None
) -> Iterator[Scene]:
    """Who is in each sight, linked over all of them; key times alone are handed on."""
    linker = _Linker(finder, rhythm, tracker)
    for sight in sights:
        scene = linker.look(sight)
        if sight.is_key:
            yield scene


class _Linker:
    def __init__(self, finder: BoxFinder, rhythm: Rhythm, state: Mapping[str, Tensor] | None) -> None:
        self._finder = finder
        self._step_s = rhythm.link_every_s
        self._tracker = Tracker(
            sure_score=finder.actor_score, max_hidden_steps=max(1, round(MOST_HIDDEN_S / float(self._step_s)))
        )
        self._latest_s: Fraction | None = None
        if state:
            self._tracker.restore(state)
            self._latest_s = Fraction(*state["latest_s"].tolist())

    def look(self, sight: Sight) -> Scene:
        frame = sight.clip.key_frame
        if frame is None:
            raise AssertionError("key frames are kept")
        found = self._finder(frame, key_time_s=float(sight.key_time_s))
        persons = torch.nonzero(found.detections.class_index == PERSON)[:, 0]
        boxes, scores = found.detections.boxes_xyxy_px[persons], found.detections.scores[persons]
        if found.track_ids is None:
            elapsed_s = self._step_s if self._latest_s is None else sight.key_time_s - self._latest_s
            track_ids = self._tracker.update(boxes, scores, steps=float(elapsed_s / self._step_s))
        else:
            track_ids = found.track_ids[persons]
        self._latest_s = sight.key_time_s
        return self._scene(sight, found.detections, boxes, scores, track_ids)

    def _scene(
        self, sight: Sight, detections: Detections, boxes: Tensor, scores: Tensor, track_ids: Tensor
    ) -> Scene:
        rows, cols = sight.clip.source_size
        inside = clip_to_image(boxes, width_px=cols, height_px=rows)
        kept = torch.nonzero((track_ids != NO_TRACK) & has_area(inside))[:, 0]
        kept = kept[track_ids[kept].argsort()]
        _, objects = split_actors_and_objects(detections, actor_score=self._finder.actor_score)
        names: tuple[str, ...] = tuple(self._finder.class_names)
        return Scene(
            sight=sight,
            boxes_xyxy_px=inside[kept],
            scores=scores[kept],
            track_ids=track_ids[kept],
            objects_xyxy_px=objects.boxes_xyxy_px,
            object_names=tuple(
                names[number] if number < len(names) else "object" for number in objects.class_index.tolist()
            ),
            tracker={**self._tracker.state, "latest_s": _pair(sight.key_time_s)},
        )


def _pair(time_s: Fraction) -> Int[Tensor, " 2"]:
    return torch.tensor([time_s.numerator, time_s.denominator])
