"""`mule.watch`: a source in, moments out, and on request a folder of results."""

from collections.abc import Generator, Iterable
from math import inf
from pathlib import Path
from typing import Any

from mule.core.errors import RangeError
from mule.core.printable import printable_address
from mule.detection.detector import Detector
from mule.runtime.choosing import AUTO
from mule.video.arrays import frame_stream
from mule.video.clips import Seconds
from mule.video.sources import FrameStream, ImageSequence, LiveStream, VideoFile, VideoSource, video_source
from mule.watching.engine.bundle import PEOPLE, Bundle, read_bundle
from mule.watching.engine.finding import BoxFinder, DetectingFunction
from mule.watching.engine.key_times import num_key_times
from mule.watching.engine.watch import Watcher, WatchSettings, open_watch
from mule.watching.moments import Moment
from mule.watching.outputs.results import recorded, write_outputs


def watch(  # noqa: PLR0913 - the one function that people call
    source: str | Path | VideoSource | Iterable[Any],
    *,
    model: str | Path | Bundle = PEOPLE,
    detector: str | Path | Detector | BoxFinder | DetectingFunction | None = None,
    rate: Seconds | None = None,
    every_s: Seconds | None = None,
    threshold: str | float = "known-95",
    min_probability: float | None = None,
    looks: int = WatchSettings.most_looks,
    reasons: bool = True,
    live: bool = False,
    runtime: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    keep: bool = True,
) -> Generator[Moment, None, None]:
    """Yield the moments of a source as they are found. Memory does not grow with the length of the source.

    Args:
        source: a file, a folder of images, a camera (`/dev/video0`), an address (`rtsp://…`), or frames: an iterable of
            `(time_s, frame)` pairs, or of frames with `rate`. Frames are numpy arrays or torch tensors of uint8 with rows,
            columns and three channels; the iterable is read once, in a thread of its own.
        model: a folder that `mule bundle` wrote, `people`, or `stage`, which knows rendered scenes only.
        detector: a YOLOX file, a file or folder of boxes, a detector, or a function that takes a frame (rows, columns, RGB)
            and returns `supervision.Detections`, with your tracker's ids if it has some. None takes the model's own, or the
            boxes beside a rendered scene.
        rate: frames per second of an iterable of frames without times.
        every_s: seconds from one key time to the next; None takes the model's own.
        threshold: `known-95`, which 95 % of known people pass; or a share such as 0.99, to flag people who look stranger
            than 99 % of known people.
        min_probability: report a known action when its probability is at least this; None takes the model's own.
        looks: use at most this many recent looks per person.
        reasons: leave out objects and other people in turn, to see who contributed.
        live: skip key times when processing falls behind; always so for cameras and streams.
        runtime: `auto`, the fastest installed runtime that agrees with torch, found once for each model and size of clips
            if there are at least 60 key times; `torch`; `onnx` (extra `mule-actions[onnx]`) or `openvino`
            (`mule-actions[openvino]`), which export the model on first use and cache it; or a folder of `mule export`.
        out: a folder for results. Each moment is on disk before it is yielded; after the last one, the report, the
            annotated video, the summary and AVA's CSV follow.
        resume: continue the result in `out` after its last whole moment.
        keep: with `out`, keep what decides about everybody, so that `mule decide` and `mule discover` need no video.

    Raises:
        MuleError: the source, the model or the detector cannot be used. This is raised at once, not at the first moment.

    >>> import numpy as np
    >>> from mule.watching.watch import watch
    >>> frames = (np.zeros((96, 128, 3), np.uint8) for _ in range(32))
    >>> [moment.key_time_s for moment in watch(frames, rate=16, model="stage")]
    [0.0, 1.0]
    """
    settings = WatchSettings(
        every_s=None if every_s is None else float(every_s),
        threshold=str(threshold),
        min_probability=min_probability,
        most_looks=looks,
        explains=reasons,
        is_live=live,
    )
    if resume and out is None:
        raise RangeError("resume continues the result in a folder; give the folder as out.")
    if rate is None and isinstance(source, str | Path | VideoFile | ImageSequence | LiveStream | FrameStream):
        video = source
    elif isinstance(source, Iterable) and not isinstance(source, str):
        video = frame_stream(source, rate=rate)
    else:
        raise RangeError(
            f"rate belongs to an iterable of frames; {printable_address(str(source))} has a rate of its own."
        )
    bundle = model if isinstance(model, Bundle) else read_bundle(Path(model))
    opened = video_source(video)
    num_clips = num_key_times([opened], settings.every_s or bundle.card.every_s) if runtime == AUTO else inf
    bundle = bundle.on(runtime, num_clips=num_clips)
    watcher = open_watch(opened, bundle, detector=detector, settings=settings)
    return (
        watcher.__iter__()
        if out is None
        else _with_results(watcher, bundle, Path(out), resumes=resume, keeps=keep)
    )


def _with_results(
    watcher: Watcher, bundle: Bundle, folder: Path, *, resumes: bool, keeps: bool
) -> Generator[Moment, None, None]:
    yield from recorded(watcher, folder, resumes=resumes, keeps=keeps)
    write_outputs(folder, watcher.source, thumbnails=bundle.thumbnails)
