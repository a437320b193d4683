"""The folder of a result: moments as they are found, and everything made of them in the end.

DIR/moments.jsonl                 every moment, on disk before the next begins
    looks.bin                     what decides about everybody at each key time, to decide again without the video
    resume.*.safetensors          what `--resume` continues from
    keyframes.mp4                 the key frames of a source that can be read only once
    ava.csv, ava.pbtxt            detections in AVA's format
    annotated.mp4                 the video with boxes and labels
    report.html, summary.txt      for people
    coco.json, viame.csv, cvat.xml   on request
"""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from itertools import takewhile
from pathlib import Path

import numpy as np
import safetensors.torch
from jaxtyping import UInt8
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mule.core.documents import json_of
from mule.core.errors import AnnotationError, FileError, MuleError
from mule.core.files import sweep, write_file
from mule.core.locks import only_writer
from mule.core.printable import printable
from mule.video.clips import ClipWindow, PacedWindows, exact
from mule.video.encode import Codec, VideoWriter
from mule.video.reading import LONGEST_STILL_S, read_clips, video_facts
from mule.video.sources import FrameStream, LiveStream, VideoFile, VideoSource
from mule.video.transforms import resized
from mule.watching.engine.watch import Watcher
from mule.watching.moments import Header, Moment
from mule.watching.outputs.annotating import write_annotated
from mule.watching.outputs.exports import EXPORTS, require_exports, write_ava, write_label_map
from mule.watching.outputs.looks_file import LOOKS, LooksWriter
from mule.watching.outputs.moments_file import (
    MOMENTS,
    MomentsFile,
    MomentsWriter,
    create_moments,
    replace_moments,
    resume_moments,
)
from mule.watching.outputs.page import PageVideo, write_page
from mule.watching.outputs.summary import Summary, summarise, write_summary
from mule.watching.thumbnails import NovelThumbnails, Thumbnail, ThumbnailArchive

WATCHED = Path("watched")
"""Results go here unless a folder is given."""
AVA, LABELS, ANNOTATED, REPORT, SUMMARY, KEY_FRAMES = (
    "ava.csv",
    "ava.pbtxt",
    "annotated.mp4",
    "report.html",
    "summary.txt",
    "keyframes.mp4",
)
WRITTEN = (
    LOOKS,
    AVA,
    LABELS,
    ANNOTATED,
    REPORT,
    SUMMARY,
    KEY_FRAMES,
    *(name for name, _ in EXPORTS.values()),
)
"""Files written beside the moments; they replace those of an earlier result."""
PLAYED_CODECS = frozenset({"h264", "vp8", "vp9", "av1", "theora"})
PLAYED_SUFFIXES = frozenset({".mp4", ".m4v", ".webm", ".ogv"})
"""What browsers play; for any other video the page shows the annotated one."""


def recorded(
    watcher: Watcher, folder: Path, *, resumes: bool = False, keeps: bool = True
) -> Generator[Moment, None, None]:
    """Yield the moments of a watcher, each on disk before it is yielded. Nothing is written before the first.

    With `keeps`, what decides about everybody is kept too; a resumed result that began without it goes on without it.

    Raises:
        FolderInUseError: another process writes into the folder.
        MuleError: the folder holds a result that is not to be resumed, or other files.
    """
    points = ResumePoints(folder)
    path = folder / MOMENTS
    with only_writer(folder), ExitStack() as files:
        _require_room(folder, resumes=resumes)
        sweep(folder)
        writer: MomentsWriter | None = None
        frames: _KeyFrames | None = None
        if path.exists():
            writer = files.enter_context(resume_moments(path, watcher.header))
            if writer.latest_s is not None:
                points.resume(watcher, after_s=writer.latest_s)
        looks = files.enter_context(_looks_writer(watcher, folder / LOOKS, writer, keeps=keeps))
        for moment in watcher:
            if writer is None:
                writer = files.enter_context(create_moments(path, watcher.header))
            elif not path.exists():
                raise FileError(
                    f"{folder}: must exist as long as the video is watched; it was removed. Watch again into another folder."
                )
            if frames is None and (watcher.is_live or isinstance(watcher.source, FrameStream)):
                frames = files.enter_context(_KeyFrames(folder / KEY_FRAMES, watcher))
            points.write(watcher.state, key_time_s=moment.key_time_s)
            looks.write(watcher.kept)
            writer.write(moment)
            if frames is not None:
                frames.add(moment)
            yield moment


def _looks_writer(watcher: Watcher, path: Path, earlier: MomentsWriter | None, *, keeps: bool) -> LooksWriter:
    """Return the writer where the earlier watch left it; it writes nothing if nothing is to be kept, or was kept before."""
    after_s = None if earlier is None else earlier.latest_s
    if not keeps and path.exists():
        raise MuleError(
            f"{path}: a result that keeps looks must be resumed with them. Leave --no-keep out, or remove this file."
        )
    is_kept = keeps and (after_s is None or path.exists())
    writer = LooksWriter(
        path if is_kept else None, weights_sha256=watcher.weights_sha256, classes=watcher.header.classes
    )
    if is_kept and earlier is not None:
        writer.resume(path, after_s=after_s)
    return writer


def write_outputs(  # noqa: PLR0913 - what a command offers
    folder: Path,
    source: VideoSource,
    *,
    exports: Sequence[str] = (),
    has_video: bool = True,
    codec: Codec = "vp9",
    thumbnails: ThumbnailArchive | None = None,
    writing: Callable[[str], None] = lambda _: None,
) -> Summary:
    """Write everything that is made of the moments in a folder.

    Of a live source, the kept key frames are shown. `exports` are names of `EXPORTS`, `thumbnails` those of the
    bundle; `codec` is that of the annotated video; `writing` is called with the name of each file before it is written.
    """
    require_exports(exports)
    with only_writer(folder):
        sweep(folder)
        return _written(
            folder,
            source,
            exports=exports,
            codec=codec if has_video else None,
            thumbnails=thumbnails,
            writing=writing,
        )


def write_decided(folder: Path, header: Header, moments: Sequence[Moment]) -> Summary:
    """Replace the moments in a folder, and what is made of them without the video; the report and the video stay.

    The watch cannot be resumed from there: its states belong to the earlier decisions.
    """
    for path in ResumePoints(folder).paths:
        path.unlink(missing_ok=True)
    replace_moments(folder / MOMENTS, header, moments)
    summary = summarise(header, moments)
    write_summary(folder / SUMMARY, summary)
    write_ava(folder / AVA, header, moments)
    write_label_map(folder / LABELS, header)
    for name, write in EXPORTS.values():
        if (folder / name).exists():
            write(folder / name, header, moments)
    return summary


def _written(
    folder: Path,
    source: VideoSource,
    *,
    exports: Sequence[str],
    codec: Codec | None,
    thumbnails: ThumbnailArchive | None,
    writing: Callable[[str], None],
) -> Summary:
    moments = MomentsFile(folder / MOMENTS)
    header = moments.header
    summary = summarise(header, moments)
    writing(SUMMARY)
    write_summary(folder / SUMMARY, summary)
    write_ava(folder / AVA, header, moments)
    write_label_map(folder / LABELS, header)
    for name in exports:
        writing(EXPORTS[name][0])
        EXPORTS[name][1](folder / EXPORTS[name][0], header, moments)
    shown = _shown(folder, source)
    has_video = codec is not None and shown is not None and summary.num_moments > 0
    if codec is not None and shown is not None and summary.num_moments > 0:
        writing(ANNOTATED)
        # where times jump, the average rate may be less than one frame per key time
        rate = max(video_facts(shown).frame_rate, 1 / exact(header.every_s))
        end_s = summary.end_s + header.every_s  # a watch that was stopped saw no more
        frames = takewhile(lambda frame: frame[0] < end_s, frames_at_rate(shown, rate))
        write_annotated(folder / ANNOTATED, frames, moments, header=header, rate=rate, codec=codec)
    writing(REPORT)
    write_page(
        folder / REPORT,
        header,
        moments,
        video=_page_video(folder, shown, has_annotated=has_video),
        thumbnails=() if shown is None else _most_novel(shown, moments),
        remembered=thumbnails,
    )
    return summary


def result_folder(video: str) -> Path:
    """Return the default folder of a result: one name below `watched`, whatever characters the address has."""
    name = "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in printable(video))
    return WATCHED / (name.strip(". ") or "video")


def _require_room(folder: Path, *, resumes: bool) -> None:
    """Refuse to replace files that belong to no result, perhaps the video that is watched."""
    if (folder / MOMENTS).exists():
        if resumes:
            return
        raise MuleError(
            f"{folder}: must not hold a result yet; it does. Continue it (--resume), or choose another folder."
        )
    taken = [name for name in WRITTEN if (folder / name).exists()]
    if taken:
        raise MuleError(
            f"{folder}: must not hold files that a result would replace; it has {', '.join(taken)} but no "
            f"{MOMENTS}. Choose another folder."
        )


class _KeyFrames:
    """The key frames of a source that can be read only once, as a video; after a dropped key time the last one stays.

    A resumed watch starts with the frames kept before. Frames of a stream that returns in another size are scaled.
    """

    def __init__(self, path: Path, watcher: Watcher) -> None:
        header = watcher.header
        size = (header.source.rows - header.source.rows % 2, header.source.cols - header.source.cols % 2)
        self._watcher, self._size = watcher, size
        self._every_s = exact(header.every_s)
        self._video = VideoWriter(path, size, 1 / self._every_s, codec="vp9")
        self._before = path if path.exists() else None
        self._count = 0

    def __enter__(self) -> "_KeyFrames":
        self._video.__enter__()
        if self._before is not None:
            for time_s, image in frames_at_rate(VideoFile(self._before), 1 / self._every_s):
                self._write(image, round(exact(time_s) / self._every_s))
        return self

    def __exit__(self, *_: object) -> None:
        self._video.__exit__(None)  # keep what was seen, however the watch ended

    def add(self, moment: Moment) -> None:
        if self._watcher.key_frame is None:
            return
        source = self._watcher.header.source
        frame = resized(self._watcher.key_frame[None], (source.rows, source.cols))[0]
        image = frame.permute(1, 2, 0).numpy()[: self._size[0], : self._size[1]]
        until = round(exact(moment.key_time_s) / self._every_s) + 1
        is_gap = (until - self._count) * self._every_s > LONGEST_STILL_S
        for number in [until - 1] if is_gap else range(self._count, max(self._count + 1, until)):
            self._write(image, number)

    def _write(self, image: UInt8[np.ndarray, "rows cols 3"], number: int) -> None:
        self._video.write(image[None], first=number)
        self._count = number + 1


def _shown(folder: Path, source: VideoSource) -> VideoSource | None:
    """What can be read again: the source, or the key frames kept of it."""
    if (folder / KEY_FRAMES).is_file():
        return VideoFile(folder / KEY_FRAMES)
    return None if isinstance(source, LiveStream | FrameStream) else source


def _page_video(folder: Path, shown: VideoSource | None, *, has_annotated: bool) -> PageVideo | None:
    if (
        isinstance(shown, VideoFile)
        and shown.path.suffix.lower() in PLAYED_SUFFIXES
        and video_facts(shown).codec in PLAYED_CODECS
    ):
        return PageVideo(shown.path)
    return PageVideo(folder / ANNOTATED, has_boxes=True) if has_annotated else None


def frames_at_rate(
    source: str | Path | VideoSource, rate: Fraction
) -> Iterator[tuple[float, UInt8[np.ndarray, "rows cols 3"]]]:
    """Yield the times 0, 1/rate, 2/rate, … to the end of the source, and the frame on screen at each.

    A frame that stays on screen for several of these times is yielded again; do not write to it. Gaps in time are left out.
    """
    windows = PacedWindows(
        lambda number: ClipWindow(number / rate, (number / rate,)), start_s=Fraction(0), step_s=1 / rate
    )
    for clip in read_clips(source, windows):
        yield float(clip.window.key_time_s), clip.frames[0].permute(1, 2, 0).numpy()


def _most_novel(shown: VideoSource, moments: MomentsFile) -> tuple[Thumbnail, ...]:
    """Pictures of the most novel looks: choose them first, then read each of their frames once."""
    header = moments.header
    chosen = NovelThumbnails(header.threshold)
    for moment in moments:
        blank = np.broadcast_to(np.zeros(3, np.uint8), (moment.rows, moment.cols, 3))
        chosen.add(moment, blank)
    times = {each.key_time_s for each in chosen.kept}
    wanted = [moment for moment in moments if moment.key_time_s in times]
    pictured = NovelThumbnails(header.threshold)
    windows = [ClipWindow(time_s, (time_s,)) for time_s in (exact(moment.key_time_s) for moment in wanted)]
    for moment, clip in zip(wanted, read_clips(shown, windows), strict=False):
        pictured.add(moment, clip.frames[0].permute(1, 2, 0).numpy())
    return pictured.kept


RESUME_FORMAT = "mule-watch-1"
_ABOUT = "about"


class ResumePoints:
    """The last two states of a watcher, in the folder of its result."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"resume.{slot}.safetensors" for slot in (0, 1)]
        self._slot = 0

    def write(self, state: Mapping[str, Tensor], *, key_time_s: float) -> None:
        """Keep the state after the moment at this time, in place of the older of the two."""
        about = {_ABOUT: json.dumps({"format": RESUME_FORMAT, "key_time_s": key_time_s})}
        tensors = {name: each.clone().contiguous() for name, each in state.items()}
        write_file(self.paths[self._slot], safetensors.torch.save(tensors, about))
        self._slot = 1 - self._slot

    def resume(self, watcher: Watcher, *, after_s: float) -> None:
        """Let the watcher continue after the moment at this time.

        Raises:
            AnnotationError: no state after this moment can be used; the message names the file.
        """
        path = self._path_of(after_s)
        try:
            watcher.resume(safetensors.torch.load_file(path), after_s=after_s)
        except (MuleError, OSError, SafetensorError) as error:
            raise AnnotationError(
                f"{path}: must hold the state after {after_s:g} s: {str(error).rstrip('.')}. Watch again into another folder."
            ) from None

    def _path_of(self, key_time_s: float) -> Path:
        for slot, path in enumerate(self.paths):
            if _key_time_s(path) == key_time_s:
                self._slot = 1 - slot
                return path
        raise AnnotationError(
            f"{self.paths[0].parent}: to resume, {self.paths[0].name} or {self.paths[1].name} must hold the state after "
            f"the last moment ({key_time_s:g} s); neither does. Watch again into another folder."
        )


def _key_time_s(path: Path) -> float | None:
    try:
        with safe_open(path, framework="pt") as file:
            about = json_of((file.metadata() or {}).get(_ABOUT, "{}"))
    except (OSError, SafetensorError, ValueError):
        return None
    is_ours = isinstance(about, dict) and about.get("format") == RESUME_FORMAT
    return about.get("key_time_s") if is_ours else None
