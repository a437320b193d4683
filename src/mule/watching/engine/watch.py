"""A video in, moments out: who does what, and who does something never taught, one key time after another.

source ─▶ clips ─▶ ┊ boxes ─▶ tracks ─▶ ┊ backbone, relations, evidence, memory ─▶ looks along tracks ─▶ Moment
  decoding thread     detecting thread        the caller's thread
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from mule.core.errors import DetectorError, RangeError, did_you_mean
from mule.core.files import cache_folder, sha256_of
from mule.detection.cards import YOLOX_CARDS
from mule.detection.detector import Detector
from mule.features.weights.download import place_of, require_checksum
from mule.novelty.drift import DriftReport
from mule.runtime.exported import kept_graphs
from mule.video.clips import exact
from mule.video.reading import video_facts
from mule.video.sources import DecodeReport, LiveStream, VideoFacts, VideoFile, VideoSource, video_source
from mule.watching.engine.accumulating import MOST_LOOKS, LookRows, TrackLooks
from mule.watching.engine.bundle import SCENE_BOXES, THUMBNAILS, Bundle, read_bundle
from mule.watching.engine.finding import ACTORS, TRACKS, BoxFinder, box_finder
from mule.watching.engine.live import LiveSights, is_live
from mule.watching.engine.looking import LINK_STEPS, MOST_HIDDEN_S, Rhythm, Scene, Sight, file_sights, scenes
from mule.watching.engine.pipeline import Overlapped
from mule.watching.engine.telling import Looks, Recogniser, moment_of
from mule.watching.moments import Header, ModelFacts, Moment, SourceFacts, plain_name

State = Mapping[str, Tensor]

ROOM, LIVE_ROOM = 2, 8
"""Clips that may wait before a detector, or before the network; frames between key times count too."""


@dataclass(frozen=True)
class WatchSettings:
    """How to watch."""

    every_s: float = 1.0
    """From one key time to the next."""
    threshold: str = "known-95"
    """`known-95`, or a share of known actors such as 0.99."""
    min_probability: float = 0.5
    """From which a known action is said."""
    most_looks: int = MOST_LOOKS
    """Looks that an actor is judged by."""
    explains: bool = True
    """Whether objects and other actors are left out in turn, to see what contributed."""
    is_live: bool = False
    """Whether key times are dropped rather than waited for; cameras and streams are live anyway."""

    def __post_init__(self) -> None:
        if not 0.01 <= self.every_s <= 3600:
            raise RangeError(f"every_s must lie between 0.01 and 3600 seconds; got {self.every_s}.")
        if not 0 <= self.min_probability <= 1:
            raise RangeError(f"min_probability must lie between 0 and 1; got {self.min_probability}.")


def watch(  # noqa: PLR0913 - the one function that people call
    source: str | Path | VideoSource,
    *,
    model: str | Path | Bundle,
    detector: str | Path | Detector | BoxFinder | None = None,
    every_s: float = 1.0,
    threshold: str = "known-95",
    min_probability: float = 0.5,
    runtime: str = "torch",
) -> Iterator[Moment]:
    """The moments of a source as they are found; nothing is held of those already handed out.

    Args:
        source: a file, a folder of images, a camera (`/dev/video0`) or an address (`rtsp://…`).
        model: a folder that `mule bundle` made, or `builtin`.
        detector: a YOLOX file, a file or folder of boxes, or a detector; see `mule.watching.engine.finding`. None is what the
            model recommends.
        every_s: from one key time to the next.
        threshold: `known-95`, 95 % of known actors pass; or the share of known actors that must be less novel.
        min_probability: from which a known action is said.
        runtime: what the network runs on: `torch`, `onnx` (extra `mule[onnx]`) or `openvino` (`mule[openvino]`).

    Raises:
        MuleError: the source, the model or the detector cannot be used; at once, not at the first moment.
    """
    settings = WatchSettings(every_s=float(every_s), threshold=threshold, min_probability=min_probability)
    bundle = model if isinstance(model, Bundle) else read_bundle(Path(model))
    if runtime != "torch":
        bundle = bundle.on(runtime, kept_in=kept_graphs())
    return iter(open_watch(source, bundle, detector=detector, settings=settings))


def open_watch(
    source: str | Path | VideoSource,
    bundle: Bundle,
    *,
    detector: str | Path | Detector | BoxFinder | None = None,
    settings: WatchSettings = WatchSettings(),  # noqa: B008 - frozen
    noted: Callable[[str], None] = lambda _: None,
) -> "Watch":
    """A watch that has not begun: the source was opened once, the boxes can be found, the header is known."""
    found = video_source(source)
    facts = video_facts(found)
    name = video_name(found)
    finder = box_finder(detector if detector is not None else recommended(bundle, found), name)
    header = _header(found, facts, bundle, settings)
    return Watch(found, bundle, finder=finder, header=header, settings=settings, noted=noted)


class Watch:
    """One source being watched. It is gone through once; what it says of itself is that of the last moment."""

    def __init__(
        self,
        source: VideoSource,
        bundle: Bundle,
        *,
        finder: BoxFinder,
        header: Header,
        settings: WatchSettings,
        noted: Callable[[str], None],
    ) -> None:
        """Nothing is begun; see `open_watch`."""
        self.source, self.header = source, header
        self._bundle, self._finder, self._noted = bundle, finder, noted
        self.is_live = settings.is_live or is_live(source)
        self.report = DecodeReport()
        """What reading the source met."""
        self.num_dropped = 0
        """Key times of a live source that were dropped because there was no time for them."""
        self.latency_s: float | None = None
        """From what the last moment is about to when it was known; None for a source that waits."""
        self.key_frame: UInt8[Tensor, "3 rows cols"] | None = None
        """The frame at the last moment's key time."""
        self.looks: Looks | None = None
        """What the last moment was made of; its rows are those of the moment's actors."""
        self._rhythm = _rhythm(header, bundle, finder)
        self._recognise = Recogniser(bundle, explains=settings.explains)
        self._looks = TrackLooks(bundle.usual, len(bundle.classes), most_looks=settings.most_looks)
        self._drift = bundle.usual.drift_alarm()
        self._tracker: State | None = None
        self._start_s = Fraction(0)
        self._has_thumbnails = (bundle.folder / THUMBNAILS).is_dir()
        self._stopping = threading.Event()

    @property
    def drift(self) -> DriftReport:
        """Whether the actors of this source have stopped looking like known ones as a crowd."""
        return self._drift.report

    @property
    def state(self) -> dict[str, Tensor]:
        """All that the moments to come depend on besides the source; `resume` goes on from it."""
        parts = {
            "tracker": self._tracker or {},
            "looks": self._looks.state,
            "drift": self._drift.state_dict(),
        }
        return {f"{part}.{name}": each for part, state in parts.items() for name, each in state.items()}

    def resume(self, state: State, *, after_s: float) -> None:
        """Goes on behind a moment, as if it had just been handed out."""
        parts: dict[str, dict[str, Tensor]] = {"tracker": {}, "looks": {}, "drift": {}}
        for key, each in state.items():
            part, _, name = key.partition(".")
            parts[part][name] = each
        self._tracker = parts["tracker"]
        self._looks.restore(parts["looks"])
        self._drift.load_state_dict(parts["drift"])
        steps = round(exact(after_s) / self._rhythm.every_s) + 1
        self._start_s = steps * self._rhythm.every_s

    def __iter__(self) -> Iterator[Moment]:
        """The moments from here on; threads end with it, however it ends."""
        sights = Overlapped(
            self._sights(),
            room=LIVE_ROOM if self.is_live else ROOM * self._rhythm.link_steps,
            drops=(lambda sight: not sight.is_key) if self.is_live else None,
            dropped=self._count_dropped,
        )
        looked_at = Overlapped(
            scenes(sights, self._finder, self._rhythm, tracker=self._tracker),
            room=ROOM,
            drops=(lambda _: True) if self.is_live else None,
            dropped=lambda scene: self._count_dropped(scene.sight),
        )
        try:
            for scene in looked_at:
                yield self._moment(scene)
        finally:
            self._stopping.set()
            sights.close()
            looked_at.close()

    def _sights(self) -> Iterator[Sight]:
        if not self.is_live:
            return file_sights(self.source, self._rhythm, start_s=self._start_s, report=self.report)
        return iter(
            LiveSights(
                self.source,
                self._rhythm,
                start_s=self._start_s,
                noted=self._noted,
                stopping=self._stopping,
                report=self.report,
            )
        )

    def _count_dropped(self, sight: Sight) -> None:
        self.num_dropped += sight.is_key

    def _moment(self, scene: Scene) -> Moment:
        looks = self._recognise(scene)
        now = _rows(looks)
        track_ids = scene.track_ids[looks.is_seen]
        so_far = self._looks.add(
            track_ids.tolist(),
            now,
            key_time_s=float(scene.sight.key_time_s),
            forget_after_s=2 * MOST_HIDDEN_S + self.header.every_s,
        )
        self._drift.watch(looks.statistic, track_ids)
        moment = moment_of(scene, looks, now, so_far, header=self.header, has_thumbnails=self._has_thumbnails)
        self._tracker, self.key_frame, self.looks = scene.tracker, scene.sight.clip.key_frame, looks
        if self.is_live:
            window = scene.sight.clip.window
            ahead_s = max(0.0, float(window.times_s[-1] - window.key_time_s))
            self.latency_s = time.monotonic() - scene.sight.arrived_at + ahead_s
        return moment


def video_name(source: VideoSource) -> str:
    """What moments and tables call a source: a file without its ending, a folder, or an address."""
    if isinstance(source, VideoFile):
        return plain_name(source.path.stem or source.path.name)
    return plain_name(str(source) if isinstance(source, LiveStream) else Path(str(source)).name)


def recommended(bundle: Bundle, source: VideoSource) -> Path:
    """The model's own detector, or the boxes written beside a rendered scene, where the model recommends them.

    Raises:
        DetectorError: it recommends something else, or there are none.
    """
    wanted = bundle.card.detector
    if bundle.own_detector is not None:
        return bundle.own_detector
    if wanted != SCENE_BOXES:
        raise DetectorError(
            f"a detector must be given; this model recommends {wanted} (`mule weights pull {wanted}`). Give its file, or "
            "boxes."
        )
    if isinstance(source, VideoFile):
        for folder in (source.path.absolute().parent, source.path.absolute().parent.parent):
            if any((folder / name).is_file() for name in (TRACKS, ACTORS)):
                return folder
    raise DetectorError(
        f"{source}: a rendered scene must have {TRACKS} or {ACTORS} beside it or in the folder above; it has neither. Give "
        "a detector, or boxes."
    )


def _header(source: VideoSource, facts: VideoFacts, bundle: Bundle, settings: WatchSettings) -> Header:
    duration_s = (
        None if facts.duration_s is None or isinstance(source, LiveStream) else float(facts.duration_s)
    )
    return Header(
        model=ModelFacts(name=plain_name(bundle.card.name), fingerprint=bundle.fingerprint),
        classes=bundle.classes,
        source=SourceFacts(
            video=video_name(source),
            address=plain_name(str(source)),
            rows=facts.rows,
            cols=facts.cols,
            frame_rate=str(facts.frame_rate),
            duration_s=duration_s,
        ),
        every_s=settings.every_s,
        threshold=bundle.usual.threshold(settings.threshold),
        min_probability=settings.min_probability,
    )


def _rhythm(header: Header, bundle: Bundle, finder: BoxFinder) -> Rhythm:
    return Rhythm(
        every_s=exact(header.every_s),
        shape=bundle.needs.shape,
        frame_rate=bundle.needs.frame_rate or header.source.rate,
        short_side_px=bundle.needs.short_side_px,
        link_steps=LINK_STEPS if finder.links_between else 1,
        end_s=None if header.source.duration_s is None else exact(header.source.duration_s),
    )


def _rows(looks: Looks) -> LookRows:
    judged, rank = looks.judged, looks.calibrated.rank
    log_trust = torch.zeros_like(rank) if judged.log_trust is None else judged.log_trust
    return LookRows(judged.network, judged.together, rank, log_trust)


def named_detector(name: str | None, bundle: Bundle) -> str | Path | None:
    """Find a detector by file, folder or card name; None leaves the choice to the model.

    Args:
        name: a file, a folder, or a card of `mule weights list`; None uses the detector the model recommends.
        bundle: the model.

    Raises:
        DetectorError: the detector does not exist, or its file was not pulled.
    """
    if name is None and bundle.own_detector is not None:
        return None
    if name is not None and Path(name).exists():
        return name
    wanted = name or bundle.card.detector
    if wanted in YOLOX_CARDS:
        card = YOLOX_CARDS[wanted]
        path = place_of(card, cache_folder())
        if not path.is_file():
            raise DetectorError(
                f"{path}: the detector must be on disk; it is not. Run `mule weights pull {wanted}`."
            )
        require_checksum(card, sha256_of(path), path)
        return path
    if name is None and wanted == SCENE_BOXES:
        return None
    raise DetectorError(
        f"{wanted}: a detector must be a file, a folder or one of {', '.join(YOLOX_CARDS)}; it is none."
        + did_you_mean(wanted, YOLOX_CARDS)
    )
