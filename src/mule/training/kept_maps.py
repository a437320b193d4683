"""Training on maps that were computed once: batches of a frozen backbone's context maps instead of pixels.

Maps stay in their files, memory-mapped, until a batch needs them; nothing is decoded and no worker is needed. They are
maps of the whole frame, so there is no cropping, mirroring or colour jitter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError, VideoError
from mule.data.batches.batches import ActorBatch, ClipSampler
from mule.data.batches.samples import WHOLE_FRAME, ClipName, ClipSamples
from mule.data.batches.video_clips import ClipObjects
from mule.data.table.table import ActorTable
from mule.features.feature_files import VideoFeatures
from mule.video.transforms import px_from_unit

SAME_TIME_S = 1e-3


@dataclass(frozen=True)
class KeptClip:
    """One clip as a frozen backbone saw it. Boxes are in pixels of the backbone's input."""

    name: ClipName
    context: Float[Tensor, "channels rows cols"]
    actor_boxes_xyxy_px: Float[Tensor, "actors 4"]
    labels: Bool[Tensor, "actors classes"]
    actor_ids: tuple[str, ...]
    object_boxes_xyxy_px: Float[Tensor, "objects 4"]
    object_class: Int[Tensor, " objects"]
    object_scores: Float[Tensor, " objects"]


def kept_samples(samples: ClipSamples, features: VideoFeatures) -> list[KeptClip]:
    """Return the clips of a data set with their maps, which are in the same order."""
    return [_kept_sample(samples, position, features) for position in range(len(samples))]


def _kept_sample(samples: ClipSamples, position: int, features: VideoFeatures) -> KeptClip:
    sample = samples[position]
    return KeptClip(
        name=sample.name,
        context=features.context[position],
        actor_boxes_xyxy_px=_in_pixels(sample.actor_boxes_xyxy_unit, features),
        labels=sample.labels,
        actor_ids=sample.actor_ids,
        object_boxes_xyxy_px=_in_pixels(sample.object_boxes_xyxy_unit, features),
        object_class=sample.object_class,
        object_scores=sample.object_scores,
    )


def kept_table(
    table: ActorTable,
    features: Mapping[str, VideoFeatures],
    *,
    classes: Sequence[str],
    objects: ClipObjects | None,
) -> list[KeptClip]:
    """Return the clips of a table with their maps, by video and then by time.

    Raises:
        RangeError: a row is about a whole video; maps are of single times.
        VideoError: a video ends before one of its key times.
    """
    if not table.has_time.all():
        raise RangeError(
            "training on kept maps needs a time in every row of the table; some rows are about whole videos. Write one row "
            "per key time, or train end to end."
        )
    labels = table.labels_of(classes)
    boxes = np.where(table.has_box[:, None], table.boxes_xyxy_unit, WHOLE_FRAME).astype(np.float32)
    first, clip_of_row = table.clips()
    order = np.argsort(clip_of_row, kind="stable")
    bounds = np.searchsorted(clip_of_row[order], np.arange(len(first) + 1))
    clips: list[KeptClip] = []
    for clip, row in enumerate(first.tolist()):
        rows = order[bounds[clip] : bounds[clip + 1]]
        name = ClipName(table.videos[table.video_index[row]], float(table.time_s[row]))
        maps = features[name.video]
        object_boxes, object_class, object_scores = (
            objects.at(name) if objects else (np.zeros((0, 4), np.float32), np.zeros(0, int), np.zeros(0))
        )
        clips.append(
            KeptClip(
                name=name,
                context=maps.context[map_at(name, maps)],
                actor_boxes_xyxy_px=_in_pixels(torch.from_numpy(boxes[rows]), maps),
                labels=torch.from_numpy(labels[rows]),
                actor_ids=tuple(table.actor_id[i] for i in rows.tolist()),
                object_boxes_xyxy_px=_in_pixels(torch.from_numpy(object_boxes), maps),
                object_class=torch.from_numpy(object_class),
                object_scores=torch.from_numpy(object_scores).float(),
            )
        )
    return clips


class KeptBatches:
    """Batches of kept clips, epoch by epoch, in the order of a sampler."""

    def __init__(self, clips: Sequence[KeptClip], sampler: ClipSampler, *, num_classes: int) -> None:
        self.sampler = sampler
        self._clips, self._num_classes = clips, num_classes
        self._epoch, self._num_batches = 0, 0

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self._epoch

    def __len__(self) -> int:
        """Return how many batches are left in this epoch."""
        return self.sampler.num_batches - self._num_batches

    def __iter__(self) -> Iterator[ActorBatch]:
        """Yield the batches left in this epoch."""
        for order in self.sampler.batches(self._epoch, first=self._num_batches):
            self._num_batches += 1
            yield kept_batch([self._clips[i] for i in order.positions], order.positions, self._num_classes)
        self._epoch, self._num_batches = self._epoch + 1, 0

    def channel_statistics(self) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
        """Return the mean and standard deviation of each channel over the cells of all clips."""
        total, square, num_cells = torch.zeros(()), torch.zeros(()), 0
        for clip in self._clips:
            cells = clip.context.flatten(1).double()
            total, square = total + cells.sum(dim=1), square + (cells**2).sum(dim=1)
            num_cells += cells.shape[1]
        mean = total / num_cells
        return mean.float(), (square / num_cells - mean**2).clamp(min=0).sqrt().float()

    def close(self) -> None:
        """Do nothing: no process reads ahead."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the next batch."""
        return {
            "epoch": self._epoch,
            "num_batches": self._num_batches,
            "sampler": self.sampler.settings(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where other batches of the same clips in the same order were."""
        if dict(state["sampler"]) != self.sampler.settings():
            raise RangeError(
                f"to resume, the batches must be those of the earlier run; they were of {state['sampler']} and are of "
                f"{self.sampler.settings()}. Restore the old settings, or start a new run."
            )
        self._epoch, self._num_batches = int(state["epoch"]), int(state["num_batches"])


def kept_batch(clips: Sequence[KeptClip], positions: Sequence[int], num_classes: int) -> ActorBatch:
    """Return the batch of these clips, in their order; maps are clips of one frame."""
    maps = [clip.context.unsqueeze(1) for clip in clips]
    num_actors, num_objects = [len(clip.labels) for clip in clips], [len(clip.object_class) for clip in clips]
    return ActorBatch(
        pixels=tuple(_together(list(run)) for _, run in groupby(maps, key=lambda each: each.shape)),
        clip_names=tuple(clip.name for clip in clips),
        positions=torch.tensor(positions, dtype=torch.int64),
        actor_boxes_xyxy_px=torch.cat([torch.zeros(0, 4), *(clip.actor_boxes_xyxy_px for clip in clips)]),
        actor_clip_index=_repeated(num_actors),
        actor_index=torch.cat([_repeated([]), *(torch.arange(num) for num in num_actors)]),
        labels=torch.cat([torch.zeros(0, num_classes, dtype=torch.bool), *(clip.labels for clip in clips)]),
        actor_ids=tuple(name for clip in clips for name in clip.actor_ids),
        object_boxes_xyxy_px=torch.cat([torch.zeros(0, 4), *(clip.object_boxes_xyxy_px for clip in clips)]),
        object_clip_index=_repeated(num_objects),
        object_class=torch.cat([_repeated([]), *(clip.object_class for clip in clips)]),
        object_scores=torch.cat([torch.zeros(0), *(clip.object_scores for clip in clips)]),
    )


def _together(
    maps: list[Float[Tensor, "channels 1 rows cols"]],
) -> Float[Tensor, "clips channels 1 rows cols"]:
    """Return the maps in one tensor, channels last in memory, as pooling and relations read them."""
    shape = (len(maps), *maps[0].shape)
    together = torch.empty(shape, memory_format=torch.channels_last_3d)
    for place, each in zip(together, maps, strict=True):
        place.copy_(each)
    return together


def labelled_actors(
    clips: Sequence[KeptClip], num_classes: int
) -> tuple[Bool[np.ndarray, "actors classes"], Int[np.ndarray, " actors"]]:
    """Return the labels of all actors and each one's clip, for class-balanced drawing."""
    none = np.zeros((0, num_classes), dtype=bool)
    labels = np.concatenate([none, *(clip.labels.numpy() for clip in clips)])
    return labels, np.repeat(np.arange(len(clips)), [len(clip.labels) for clip in clips])


def _in_pixels(boxes_unit: Float[Tensor, "boxes 4"], features: VideoFeatures) -> Float[Tensor, "boxes 4"]:
    rows, cols = features.input_size
    return px_from_unit(boxes_unit, width_px=cols, height_px=rows)


def map_at(name: ClipName, features: VideoFeatures) -> int:
    """Return the place of a clip's map among those of its video.

    Raises:
        VideoError: the video ends before.
    """
    distance = (features.key_time_s - name.key_time_s).abs()
    if not len(distance) or float(distance.min()) > SAME_TIME_S:
        end = f"the last is at {float(features.key_time_s[-1]):g} s" if len(distance) else "there are none"
        raise VideoError(
            f"{name}: there must be a map of every clip; {end}. Does the video end before? `mule data check` finds such "
            "rows."
        )
    return int(distance.argmin())


def _repeated(numbers: Sequence[int]) -> Int[Tensor, " rows"]:
    return torch.repeat_interleave(torch.tensor(numbers, dtype=torch.int64))
