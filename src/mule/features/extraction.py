"""Frozen backbones, and the extraction of features from whole videos into the cache.

A video is processed in parts, so that an interrupted run loses at most one part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from inspect import signature
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import FeatureFileError, NotFinite, RangeError, VideoError, WeightsError
from mule.core.files import sha256_while_unchanged
from mule.features.backbones.slowfast import Variant
from mule.features.cache import (
    CacheEntry,
    Every,
    KeyTimes,
    Recipe,
    feature_key,
    times_from,
    video_sha256,
    video_stamp,
)
from mule.features.feature_files import VideoFeatures
from mule.features.pooling import FeatureMaps, context_map
from mule.features.weights.card import BACKBONES, NORMALISATIONS, WeightCard
from mule.features.weights.checkpoints import read_checkpoint
from mule.features.weights.loading import fitting_cards, load_backbone
from mule.video.clips import ClipShape, clip_windows
from mule.video.reading import Clip, read_clips, video_facts
from mule.video.sources import DecodeReport, VideoFacts, VideoSource, video_source
from mule.video.transforms import normalised, short_side_size


@dataclass(frozen=True)
class FrozenBackbone:
    """A backbone in evaluation mode, and the recipe of its features."""

    forward: Callable[[Float[Tensor, "clips 3 frames rows cols"]], FeatureMaps]
    recipe: Recipe

    def __post_init__(self) -> None:
        if isinstance(self.forward, nn.Module) and self.forward.training:
            raise RangeError(
                "a frozen backbone must be in evaluation mode; this one is in training mode. Call eval()."
            )

    @torch.inference_mode()
    def features(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the feature maps, computed on the device of the backbone's weights."""
        weights = self.forward.parameters() if isinstance(self.forward, nn.Module) else iter(())
        return self.forward(clips.to(next(weights, clips).device))


def frozen_backbone(
    path: Path,
    card: WeightCard | None = None,
    *,
    short_side_px: int | None = None,
    frame_rate: Fraction | None = None,
    half: bool = False,
    device: str = "cpu",
) -> FrozenBackbone:
    """Load a frozen backbone from a file of weights.

    Args:
        path: the weights.
        card: their card; may be left out if only one card fits.
        short_side_px: short side of the frames; None uses the publisher's test size.
        frame_rate: frame rate of the clips; None uses each video's own.
        half: whether to store features in half precision. They are computed in single precision.
        device: torch device of the backbone.

    Raises:
        RangeError: there is no such device.
        WeightsError: the file is damaged or does not fit the card; no card fits, or more than one.
    """
    card = _only_card(path) if card is None else card
    model = _moved(load_backbone(path, card), device)
    recipe = recipe_of(path, card, short_side_px=short_side_px, frame_rate=frame_rate, half=half)
    return FrozenBackbone(model, recipe)


def recipe_of(
    path: Path,
    card: WeightCard,
    *,
    short_side_px: int | None = None,
    frame_rate: Fraction | None = None,
    half: bool = False,
) -> Recipe:
    """Return the recipe of features with these weights; of the file, only the checksum is read.

    Raises:
        WeightsError: there is no such file.
    """
    if not path.is_file():
        raise WeightsError(f"{path}: must be a file of weights; there is no such file.")
    return Recipe(
        backbone=card.backbone,
        options=_options(card),
        weights_sha256=sha256_while_unchanged(path),
        clip=_clip_shape(card),
        frame_rate=frame_rate,
        short_side_px=card.clip.short_side_px if short_side_px is None else short_side_px,
        normalisation=NORMALISATIONS[card.clip.normalisation],
        half=half,
    )


def _only_card(path: Path) -> WeightCard:
    fitting = fitting_cards(read_checkpoint(path))
    if not fitting:
        raise WeightsError(f"{path}: weights must fit a card; none fits. `mule weights check` shows why.")
    if len(fitting) > 1:
        raise WeightsError(
            f"{path}: these weights fit several cards with different clips; choose one: "
            f"{', '.join(card.name for card in fitting)}."
        )
    return fitting[0]


def _moved(model: nn.Module, device: str) -> nn.Module:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it supports the device
        reason = str(error).partition("\n")[0]
        raise RangeError(f"device must be one that torch can use here; got '{device}': {reason}") from error


def _options(card: WeightCard) -> dict[str, Any]:
    """Return the backbone's arguments including defaults, so that a changed default changes the key."""
    bound = signature(BACKBONES[card.backbone]).bind(**card.options)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name != "num_classes"}


def _clip_shape(card: WeightCard) -> ClipShape:
    num_frames, stride = card.clip.num_frames, card.clip.stride_frames
    variant = card.options.get("variant")
    if not isinstance(variant, Variant):
        return ClipShape(num_frames, stride, num_slow_frames=num_frames)
    rule = "full_span" if variant.slow_spans_clip else "stride"
    return ClipShape(num_frames, stride, num_frames // variant.alpha, rule)


_MAX_TRIES = 4


@dataclass(frozen=True)
class ExtractionProgress:
    """ExtractionProgress of one video, in clips."""

    num_expected: int | None = None
    """Number of all clips according to the container; None if unknown."""
    num_reused: int = 0
    """Clips in parts of an earlier run."""
    num_computed: int = 0


@dataclass(frozen=True)
class Extraction:
    """The features of a video, and how they were obtained."""

    path: Path
    features: VideoFeatures = field(repr=False)
    was_cached: bool
    """Whether the file existed already."""
    progress: ExtractionProgress
    discarded: tuple[str, ...]
    """Reasons why existing files or parts could not be used and were computed again."""
    report: DecodeReport
    """Problems met while reading the video."""
    elapsed_s: float


@dataclass(frozen=True)
class Extractor:
    """Extracts the features of videos into a folder, each once."""

    backbone: FrozenBackbone
    folder: Path
    batch_clips: int = 1
    """Clips per batch."""
    part_clips: int = 32
    """Clips per part that is written to disk."""

    def __post_init__(self) -> None:
        if self.batch_clips < 1 or self.part_clips < 1:
            raise RangeError(
                f"batch_clips and part_clips must be at least 1; got {self.batch_clips} and {self.part_clips}."
            )

    def extract(
        self,
        source: str | Path | VideoSource,
        key_times: KeyTimes,
        *,
        on_progress: Callable[[ExtractionProgress], None] = lambda _: None,
    ) -> Extraction:
        """Return the features of one video at its key times, from the cache or computed.

        Key times after the end of the video have no features; the report gives the first of them.

        Raises:
            VideoError: the video cannot be read, or not twice, or it changed while it was read.
            NotFinite: a feature is not finite, or is too large for half precision.
            FileError: the folder cannot be written.
            FeatureFileError: a file just written cannot be read back.
        """
        started_at = perf_counter()
        work = _VideoWork(self, video_source(source), key_times, on_progress)
        for attempt in range(_MAX_TRIES):
            if (features := work.entry.find()) is not None:
                work.entry.sweep()
                return Extraction(
                    path=work.entry.path,
                    features=features,
                    was_cached=attempt == 0,
                    progress=work.progress,
                    discarded=tuple(work.entry.discarded),
                    report=work.report,
                    elapsed_s=perf_counter() - started_at,
                )
            work.compute()
        raise FeatureFileError(
            f"{work.entry.path}: must be readable right after it was written; it was not, {_MAX_TRIES} times "
            f"({'; '.join(work.entry.discarded) or 'it was removed'}). Is the disk damaged?"
        )


class _VideoWork:
    """Extraction of one video."""

    def __init__(
        self,
        extractor: Extractor,
        source: VideoSource,
        key_times: KeyTimes,
        on_progress: Callable[[ExtractionProgress], None],
    ) -> None:
        self.source, self.key_times = source, key_times
        self.backbone, self.recipe = extractor.backbone, extractor.backbone.recipe
        self.batch_clips, self.part_clips = extractor.batch_clips, extractor.part_clips
        self.stamp = video_stamp(source)  # before the digest, to notice any later change
        key = feature_key(self.recipe, video_sha256(source), key_times)
        self.entry = CacheEntry(extractor.folder, source, key)
        self.report = DecodeReport()
        self.progress = ExtractionProgress()
        self._own_parts: set[int] = set()
        self._on_progress = on_progress

    def compute(self) -> None:
        """Compute the missing parts and join all parts into one file.

        Another process that finishes the same video may remove the parts meanwhile; then its file exists.
        """
        self.entry.sweep_abandoned()
        facts = video_facts(self.source)
        whole = self._whole_parts()
        num_reused = sum(num_clips for first, num_clips in whole.items() if first not in self._own_parts)
        self._advance(num_expected=_num_expected(self.key_times, facts), num_reused=num_reused)
        firsts = self._compute_parts(facts, set(whole))
        parts = [self.entry.find_part(first) for first in firsts] or [self._nothing(facts)]
        pieces = [part for part in parts if part is not None]
        if len(pieces) == len(parts):
            self.entry.finish(pieces)

    def _whole_parts(self) -> dict[int, int]:
        """Return the parts of an earlier run: first clip and number of clips."""
        whole: dict[int, int] = {}
        for first in self.entry.part_numbers():
            times = self._times(first) if first % self.part_clips == 0 else []
            part = self.entry.find_part(first) if times else None
            if part is not None and part.key_time_s.tolist() == [float(time) for time in times]:
                whole[first] = len(part)
        return whole

    def _compute_parts(self, facts: VideoFacts, whole: set[int]) -> list[int]:
        """Write the missing parts; return the first clips of all parts of the video."""
        times = (time for first in self._missing(whole) for time in self._times(first))
        clips = read_clips(
            self.source,
            clip_windows(times, self.recipe.clip, self.recipe.frame_rate or facts.frame_rate),
            short_side_px=self.recipe.short_side_px,
            scaler=self.recipe.scaler,
            report=self.report,
        )
        firsts = whole
        for first in self._missing(whole):
            num_wanted = len(self._times(first))
            part = self._part(islice(clips, num_wanted), facts)
            if video_stamp(self.source) != self.stamp:
                raise VideoError(f"{self.source}: must not change while it is read; it did. Start again.")
            if part is not None:
                self.entry.write_part(first, part)
                self._own_parts.add(first)
                firsts = firsts | {first}
            if part is None or len(part) < num_wanted:  # the video ends here
                firsts = {each for each in firsts if each <= first}
                break
        if isinstance(self.key_times, Every):
            self.report.unread_from_s = None  # after the end there is always a next key time
        return sorted(firsts)

    def _missing(self, whole: set[int]) -> Iterator[int]:
        """Yield the first clips of the parts to compute; endless for `Every`."""
        step = self.part_clips
        times = self.key_times
        firsts = count(0, step) if isinstance(times, Every) else range(0, len(times), step)
        return (first for first in firsts if first not in whole)

    def _times(self, first: int) -> list[Fraction]:
        return list(islice(times_from(self.key_times, first), self.part_clips))

    def _part(self, clips: Iterator[Clip], facts: VideoFacts) -> VideoFeatures | None:
        """Return the features of some clips; None if there are none."""
        batches: list[VideoFeatures] = []
        while batch := list(islice(clips, self.batch_clips)):
            pixels = torch.stack([normalised(clip.frames, self.recipe.normalisation) for clip in batch])
            batches.append(self._features(pixels, batch, facts))
            self._require_finite(batches[-1])
            self._advance(num_computed=self.progress.num_computed + len(batch))
        if not batches:
            return None
        return replace(
            batches[0],
            context=torch.cat([each.context for each in batches]),
            key_time_s=torch.cat([each.key_time_s for each in batches]),
            num_clamped=torch.cat([each.num_clamped for each in batches]),
        )

    def _nothing(self, facts: VideoFacts) -> VideoFeatures:
        """Return features of no clips, with the usual channels, rows and columns."""
        return self._features(
            torch.zeros(0, 3, self.recipe.clip.num_frames, *self._input_size(facts)), [], facts
        )

    def _features(self, pixels: Tensor, batch: list[Clip], facts: VideoFacts) -> VideoFeatures:
        maps = self.backbone.features(pixels)
        return VideoFeatures(
            context=context_map(maps).to("cpu", torch.float16 if self.recipe.half else torch.float32),
            key_time_s=torch.tensor([float(clip.window.key_time_s) for clip in batch], dtype=torch.float64),
            num_clamped=torch.tensor([clip.num_clamped for clip in batch], dtype=torch.int64),
            stride=maps.stride,
            input_size=self._input_size(facts),
            source_size=(facts.rows, facts.cols),
        )

    def _input_size(self, facts: VideoFacts) -> tuple[int, int]:
        short_side = self.recipe.short_side_px
        size = (facts.rows, facts.cols)
        return size if short_side is None else short_side_size(*size, short_side)

    def _require_finite(self, features: VideoFeatures) -> None:
        for key_time_s, context in zip(features.key_time_s.tolist(), features.context, strict=True):
            if not context.isfinite().all():
                advice = "Store them in single precision." if self.recipe.half else "Are the weights right?"
                raise NotFinite(
                    f"{self.source}: features must be finite; at {key_time_s:g} s they are not. {advice}"
                )

    def _advance(self, **changes: int | None) -> None:
        self.progress = replace(self.progress, **changes)
        self._on_progress(self.progress)


def _num_expected(key_times: KeyTimes, facts: VideoFacts) -> int | None:
    if not isinstance(key_times, Every):
        return len(key_times)
    return None if facts.duration_s is None else -(-facts.duration_s // key_times.period_s)
