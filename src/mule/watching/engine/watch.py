"""A video in, moments out: who does what, and who does something never taught, one key time after another.

source ─▶ clips ─▶ ┊ boxes ─▶ tracks ─▶ ┊ backbone, relations, evidence, memory ─▶ looks along tracks ─▶ Moment
  decoding thread     detecting thread        the caller's thread
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from jaxtyping import UInt8
from torch import Tensor

from mule.core.errors import DetectorError, NotFitted, RangeError, ShapeError
from mule.core.printable import printable
from mule.detection.cards import DETECTOR_CARDS
from mule.detection.detector import Detector
from mule.detection.named import detector_place
from mule.detection.tracks import Tracker
from mule.features.weights.cards import find_card
from mule.features.weights.download import Downloadable, at_hand
from mule.novelty.drift import DriftReport
from mule.stage.classes import ACTIONS
from mule.training.run_folder import read_card
from mule.video.clips import exact
from mule.video.reading import video_facts
from mule.video.sources import DecodeReport, LiveStream, VideoFacts, VideoFile, VideoSource, video_source
from mule.watching.engine.accumulating import MOST_LOOKS, TrackLooks, forget_after_s
from mule.watching.engine.bundle import SCENE_BOXES, Bundle, packaged_folder
from mule.watching.engine.bundle_card import read_bundle_card
from mule.watching.engine.finding import (
    ACTORS,
    TRACKS,
    BoxFinder,
    DetectingFunction,
    Scene,
    box_finder,
    restore_tracker,
    scenes,
)
from mule.watching.engine.kept import KeptMoment
from mule.watching.engine.key_times import (
    LINK_STEPS,
    LiveSights,
    Overlapped,
    Rhythm,
    Sight,
    is_live,
    open_clips,
    sights_of,
)
from mule.watching.engine.recognising import Recognised, Recogniser
from mule.watching.engine.telling import Telling, Told, contributors_in, kept_place
from mule.watching.moments import Header, ModelFacts, Moment, SourceFacts

State = Mapping[str, Tensor]

MOST_SHORT_SIDE_PX = 1080
"""Larger frames are scaled down before people are cut out of them: a clip of them would fill the memory."""
ROOM, LIVE_ROOM = 2, 8
"""How many clips may wait for the detector or the network; frames between key times count too."""


@dataclass(frozen=True)
class WatchSettings:
    """How to watch."""

    every_s: float | None = None
    """Seconds from one key time to the next; None takes the model's own."""
    threshold: str = "known-95"
    """`known-95` (95 % of known actors pass), or a share such as 0.99: flag who is stranger than 99 % of known actors."""
    min_probability: float | None = None
    """Report a known action when its probability is at least this; None takes the model's own."""
    most_looks: int = MOST_LOOKS
    """Use at most this many recent looks per person."""
    explains: bool = True
    """Leave out objects and other people in turn, to see who contributed."""
    is_live: bool = False
    """Skip key times when processing falls behind; always so for cameras and streams."""

    def __post_init__(self) -> None:
        if self.every_s is not None and not 0.01 <= self.every_s <= 3600:
            raise RangeError(f"every_s must lie between 0.01 and 3600 seconds; got {self.every_s}.")
        if self.min_probability is not None and not 0 <= self.min_probability <= 1:
            raise RangeError(f"min_probability must lie between 0 and 1; got {self.min_probability}.")


def open_watch(
    source: str | Path | VideoSource,
    bundle: Bundle,
    *,
    detector: str | Path | Detector | BoxFinder | DetectingFunction | None = None,
    settings: WatchSettings = WatchSettings(),  # noqa: B008 - frozen
    noted: Callable[[str], None] = lambda _: None,
) -> "Watcher":
    """Open the source and the detector, and return a watcher that has not started."""
    video = video_source(source)
    facts = video_facts(video)
    if _knows_rendered_only(bundle) and not _boxes_beside(video):
        noted(RENDERED_ONLY.format(name=bundle.card.name))
    chosen = named_detector(detector, bundle) if detector is None or isinstance(detector, str) else detector
    finder = box_finder(recommended(bundle, video) if chosen is None else chosen, video_name(video))
    return Watcher(video, bundle, finder, _header(video, facts, bundle, settings), settings, noted)


RENDERED_ONLY = (
    "the model {name} knows rendered scenes only: what it says of real people means nothing. `mule train --data DIR` makes a "
    "model of your own videos."
)


NOT_BY_WATCHING = "on labelled moments, not by watching, so that of known people who are watched for long more are flagged than promised"


class Watcher:
    """One source being watched. Iterate over it once; its attributes describe the last moment."""

    def __init__(
        self,
        source: VideoSource,
        bundle: Bundle,
        finder: BoxFinder,
        header: Header,
        settings: WatchSettings,
        noted: Callable[[str], None],
    ) -> None:
        """Starts nothing; see `open_watch`."""
        self.source, self.header = source, header
        self._bundle, self._finder, self._noted = bundle, finder, noted
        self.is_live = settings.is_live or is_live(source)
        self.report = DecodeReport()
        """What happened while the source was read."""
        self.num_dropped = 0
        """Key times of a live source that were skipped for lack of time."""
        self.latency_s: float | None = None
        """Seconds between what the last moment shows and when it was known; None if the source waits."""
        self.key_frame: UInt8[Tensor, "3 rows cols"] | None = None
        """The frame at the last moment's key time."""
        self.recognised: Recognised | None = None
        """What the last moment was made of; its rows are the moment's actors."""
        self._rhythm = _rhythm(header, bundle, link_steps=LINK_STEPS if finder.links_between else 1)
        self._recognise = Recogniser(bundle, explains=settings.explains)
        self._telling = Telling.by(bundle, header)
        self._looks = TrackLooks(bundle.usual, len(bundle.classes), most_looks=settings.most_looks)
        self._drift = bundle.usual.drift_alarm()
        self._tracker: State | None = None
        self._start_s = Fraction(0)
        self._stopping = threading.Event()

    @property
    def calibration(self) -> str:
        """What the model's calibration by watching found, or that there was none, in words."""
        watched = self._bundle.card.watched
        return NOT_BY_WATCHING if watched is None else watched.in_words()

    @property
    def weights_sha256(self) -> str:
        """The checksum of the network's weights."""
        return self._bundle.card.weights_sha256

    @property
    def kept(self) -> KeptMoment:
        """All that the last moment follows from, without the video; there must be one."""
        told = self.recognised
        if told is None:
            raise NotFitted("nothing was watched yet, so nothing is kept. Iterate over the watcher first.")
        contributors = contributors_in(told.scene, told.contributions)
        return KeptMoment(kept_place(told.scene), told.kept, told.looks.likeliest, contributors)

    @property
    def drift(self) -> DriftReport:
        """Whether the actors of this source, as a crowd, no longer look like known ones."""
        return self._drift.report

    @property
    def state(self) -> dict[str, Tensor]:
        """All that later moments depend on besides the source; `resume` continues from it."""
        parts = {
            "tracker": self._tracker or {},
            "looks": self._looks.state,
            "drift": self._drift.state_dict(),
        }
        return {f"{part}.{name}": each for part, state in parts.items() for name, each in state.items()}

    def resume(self, state: State, *, after_s: float) -> None:
        """Continue after the moment at `after_s`, as if it had just been returned.

        Raises:
            ShapeError: this is not a state of such a watch.
        """
        parts: dict[str, dict[str, Tensor]] = {"tracker": {}, "looks": {}, "drift": {}}
        for key, each in state.items():
            part, _, name = key.partition(".")
            if part not in parts:
                raise ShapeError(f"a state must have the parts {', '.join(parts)}; got {part!r}.")
            parts[part][name] = each
        restore_tracker(
            Tracker(sure_score=0.0), parts["tracker"]
        )  # refuses what is no state, before any thread starts
        self._tracker = parts["tracker"]
        self._looks.restore(parts["looks"])
        self._drift.restore(parts["drift"])
        steps = round(exact(after_s) / self._rhythm.every_s) + 1
        self._start_s = steps * self._rhythm.every_s

    def __iter__(self) -> Generator[Moment, None, None]:
        """Yield the moments from here on; threads end when the iteration ends, however it ends."""
        sights, in_view = self._threads()
        try:
            for scene in in_view:
                recognised = self._recognise(scene)
                track_ids = recognised.scene.track_ids
                so_far = self._looks.add(
                    track_ids.tolist(),
                    recognised.looks.now,
                    key_time_s=float(scene.sight.key_time_s),
                    forget_after_s=forget_after_s(self.header.every_s),
                )
                self._drift.watch(recognised.looks.statistic, track_ids)
                told = Told(
                    recognised.looks.now,
                    so_far,
                    recognised.looks.remembered,
                    contributors_in(recognised.scene, recognised.contributions),
                )
                (moment,) = self._telling.moments([kept_place(recognised.scene)], told)
                self._tracker, self.recognised = scene.tracker, recognised
                self.key_frame, self.latency_s = scene.sight.clip.key_frame, self._latency_of(scene.sight)
                yield moment
        finally:
            self._stopping.set()
            sights.close()
            in_view.close()

    def _threads(self) -> tuple[Overlapped[Sight], Overlapped[Scene]]:
        """Decoding, and detecting behind it, both started."""
        sights = Overlapped(
            self._sights(),
            room=LIVE_ROOM if self.is_live else ROOM * self._rhythm.link_steps,
            drops=(lambda sight: not sight.is_key) if self.is_live else None,
            dropped=self._count_dropped,
        )
        in_view = Overlapped(
            scenes(sights, self._finder, self._rhythm, tracker=self._tracker),
            room=ROOM,
            drops=(lambda _: True) if self.is_live else None,
            dropped=lambda scene: self._count_dropped(scene.sight),
        )
        return sights, in_view

    def _sights(self) -> Iterator[Sight]:
        if not self.is_live:
            clips = open_clips(self.source, self._rhythm, self._start_s, self.report)
            return sights_of(clips, self._rhythm)
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

    def _latency_of(self, sight: Sight) -> float | None:
        if not self.is_live:
            return None
        window = sight.clip.window
        ahead_s = max(0.0, float(window.times_s[-1] - window.key_time_s))
        return time.monotonic() - sight.arrived_at + ahead_s

    def _count_dropped(self, sight: Sight) -> None:
        self.num_dropped += sight.is_key


def video_name(source: VideoSource) -> str:
    """The name of a source in moments and tables: a file without its suffix, a folder, or an address."""
    if isinstance(source, VideoFile):
        return printable(source.path.stem or source.path.name)
    return printable(str(source) if isinstance(source, LiveStream) else Path(str(source)).name)


def _knows_rendered_only(bundle: Bundle) -> bool:
    """Whether the model was trained from scratch on the actions of rendered scenes, whatever it was taught later."""
    is_from_scratch = bundle.card.backbone_sha256 is None
    return is_from_scratch and set(read_card(bundle.folder)["classes"]) <= set(ACTIONS)


def _boxes_beside(source: VideoSource) -> Path | None:
    """Return the folder with the boxes of a rendered scene, beside the video or above it."""
    if isinstance(source, VideoFile):
        for folder in (source.path.absolute().parent, source.path.absolute().parent.parent):
            if any((folder / name).is_file() for name in (TRACKS, ACTORS)):
                return folder
    return None


def recommended(bundle: Bundle, source: VideoSource) -> Path:
    """Return the model's own detector, or the boxes beside a rendered scene if it has none."""
    if bundle.own_detector is not None:
        return bundle.own_detector
    folder = _boxes_beside(source)
    if folder is not None:
        return folder
    raise DetectorError(
        f"{source}: a rendered scene must have {TRACKS} or {ACTORS} beside it or in the folder above; it has neither. Give "
        "a detector, or a file of boxes."
    )


def _header(source: VideoSource, facts: VideoFacts, bundle: Bundle, settings: WatchSettings) -> Header:
    duration_s = None if isinstance(source, LiveStream) else facts.duration_s
    return Header(
        model=ModelFacts(name=printable(bundle.card.name), fingerprint=bundle.fingerprint),
        classes=bundle.classes,
        source=SourceFacts(
            video=video_name(source),
            address=printable(str(source)),
            rows=facts.rows,
            cols=facts.cols,
            frame_rate=str(facts.frame_rate),
            duration_s=None if duration_s is None else float(duration_s),
        ),
        every_s=bundle.card.every_s if settings.every_s is None else settings.every_s,
        threshold=bundle.usual.threshold(settings.threshold),
        min_probability=bundle.card.names_from
        if settings.min_probability is None
        else settings.min_probability,
    )


def _rhythm(header: Header, bundle: Bundle, *, link_steps: int) -> Rhythm:
    return Rhythm(
        every_s=exact(header.every_s),
        shape=bundle.needs.shape,
        frame_rate=bundle.needs.frame_rate or header.source.rate,
        short_side_px=bundle.needs.short_side_px if bundle.card.sees == "frame" else _enough(header.source),
        link_steps=link_steps,
        end_s=None if header.source.duration_s is None else exact(header.source.duration_s),
    )


def _enough(source: SourceFacts) -> int | None:
    """The short side of frames to cut people out of; None leaves them as they are."""
    return MOST_SHORT_SIDE_PX if min(source.rows, source.cols) > MOST_SHORT_SIDE_PX else None


def named_detector(name: str | None, bundle: Bundle) -> str | Path | None:
    """Find a detector by file, folder or card name; None leaves the choice to the model."""
    if name is None and bundle.own_detector is not None:
        return None
    wanted = name or bundle.card.detector
    if name is None and wanted == SCENE_BOXES:
        return None
    if wanted in DETECTOR_CARDS and not Path(wanted).exists():
        at_hand(DETECTOR_CARDS[wanted])
    return detector_place(wanted)


def needed_cards(model: Path, detector: str | None) -> list[Downloadable]:
    """Return the cards of the weights that watching with a model in a folder needs besides it: backbone and detector."""
    card = read_bundle_card(packaged_folder(model) or model)
    wanted = detector or card.detector
    found = [] if card.backbone_card is None else [find_card(card.backbone_card)]
    has_place = wanted in DETECTOR_CARDS and not Path(wanted).exists()
    return [*found, *([DETECTOR_CARDS[wanted]] if has_place else [])]
