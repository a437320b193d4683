"""What people in a video are seen by at every look: the first half of watching, without any judgement.

source ─▶ clips ─▶ boxes ─▶ tracks ─▶ backbone ─▶ `Looks`

Calibration and idle examples come from here, so that both meet the detector, the key times and the tracks of `mule watch`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.features.pooling import FeatureMaps
from mule.model import SceneBoxes
from mule.novelty.crossfit import Inputs
from mule.video.clips import exact
from mule.video.reading import video_facts
from mule.video.sources import DecodeReport, VideoSource
from mule.video.transforms import unit_from_px
from mule.watching.engine.bundle import ClipNeeds
from mule.watching.engine.finding import BoxFinder, scenes
from mule.watching.engine.kept import as_kept
from mule.watching.engine.key_times import LINK_STEPS, Rhythm, open_clips, sights_of
from mule.watching.engine.recognising import visible


@dataclass(frozen=True)
class Sighting:
    """How people are seen: the clips, the backbone, and what it shows of an actor."""

    needs: ClipNeeds
    backbone: Callable[[Tensor], FeatureMaps]
    eyes: Callable[[FeatureMaps, SceneBoxes], Inputs]


@dataclass(frozen=True)
class Looks:
    """Looks at the people of one video, in the order of time."""

    key_times_s: Float[Tensor, " times"]
    """All key times, also those with nobody."""
    time_index: Int[Tensor, " looks"]
    track_ids: Int[Tensor, " looks"]
    boxes_xyxy_unit: Float[Tensor, "looks 4"]
    inputs: Inputs

    def __len__(self) -> int:
        """Return the number of looks."""
        return len(self.track_ids)


@torch.inference_mode()
def looks_at(source: VideoSource, sighting: Sighting, finder: BoxFinder, *, every_s: Fraction) -> Looks:
    """Look at everybody in a video, at the key times of `mule watch`."""
    needs, facts = sighting.needs, video_facts(source)
    rhythm = Rhythm(
        every_s=every_s,
        shape=needs.shape,
        frame_rate=needs.frame_rate or facts.frame_rate,
        short_side_px=needs.short_side_px,
        link_steps=LINK_STEPS if finder.links_between else 1,
        end_s=None if facts.duration_s is None else exact(facts.duration_s),
    )
    times: list[float] = []
    rows: list[tuple[int, Tensor, Tensor, Inputs]] = []
    clips = open_clips(source, rhythm, Fraction(0), DecodeReport())
    try:
        for scene in scenes(sights_of(clips, rhythm), finder, rhythm):
            times.append(float(scene.sight.key_time_s))
            if not len(scene.track_ids):
                continue
            pixels = needs.pixels(scene.sight.clip.frames)
            scene, boxes = visible(scene, rows=pixels.shape[3], cols=pixels.shape[4])
            if not len(scene.track_ids):
                continue
            height, width = scene.sight.clip.source_size
            unit = unit_from_px(scene.boxes_xyxy_px.double(), width_px=width, height_px=height)
            seen = as_kept(sighting.eyes(sighting.backbone(pixels), boxes))
            rows.append((len(times) - 1, scene.track_ids, unit, seen))
    finally:
        clips.close()
    return _joined(times, rows)


def _joined(times: list[float], rows: list[tuple[int, Tensor, Tensor, Inputs]]) -> Looks:
    names = rows[0][3] if rows else {}
    index = [torch.full((len(tracks),), at, dtype=torch.int64) for at, tracks, _, _ in rows]
    return Looks(
        torch.tensor(times, dtype=torch.float64),
        torch.cat([torch.zeros(0, dtype=torch.int64), *index]),
        torch.cat([torch.zeros(0, dtype=torch.int64), *(tracks for _, tracks, _, _ in rows)]),
        torch.cat([torch.zeros(0, 4, dtype=torch.float64), *(boxes for _, _, boxes, _ in rows)]),
        {name: torch.cat([seen[name] for *_, seen in rows]) for name in names},
    )
