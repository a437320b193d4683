"""Speed of reading overlapping clips compared with plain decoding, and memory use for long files.

    python -m bench.video [FILE …]

Speed is in frames of the file per second, relative to plain PyAV loops over the same file. One loop only
decodes. Two others also convert every frame to an RGB array: once as in PyAV's manual, and once with a
converter that is reused, which is faster and serves as the reference. Values are medians of interleaved
repeats, in wall time and in CPU time, which other work on the machine disturbs less. Memory is the peak of a
fresh process that reads all clips of a one-minute and of a thirty-minute file.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from mule.video.clips import AVA_CLIP, clip_windows, key_times
from mule.video.reading import Scaler, read_clips, video_facts
from mule.video.sources import DecodeReport

REPEATS = 5
GOAL = 0.8
DECODE, RGB, CLIPS = "plain: decode only", "plain: RGB", "clips: full size"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for file in [Path(name) for name in sys.argv[1:]] or rendered_files(Path(folder)):
            compare_speed(file)
        compare_memory(Path(folder))


def rendered_files(folder: Path) -> list[Path]:
    """Render a few seconds and a minute in two sizes; short files show the cost of allocating memory."""
    small = rendered(folder / "360p.mp4", num_frames=600, size=(360, 640))
    large = rendered(folder / "720p.mp4", num_frames=300, size=(720, 1280))
    small_minute = repeated(small, folder / "360p_1_minute.mp4", times=3)
    return [small, large, small_minute, repeated(large, folder / "720p_1_minute.mp4", times=6)]


def compare_speed(file: Path) -> dict[str, float]:
    """Return the CPU time per frame of every way to read the file, in milliseconds."""
    facts = video_facts(file)
    rate = facts.frame_rate
    ways: dict[str, Callable[[], int]] = {
        DECODE: lambda: plain(file, id),
        "plain: RGB by the manual": lambda: plain(file, lambda frame: frame.to_ndarray(format="rgb24")),
        RGB: lambda: plain(file, kept_converter()),
        CLIPS: lambda: clips(file, rate),
        "clips: 256, torch": lambda: clips(file, rate, short_side_px=256),
        "clips: 256, swscale": lambda: clips(file, rate, short_side_px=256, scaler="swscale"),
    }
    walls: dict[str, list[float]] = {name: [] for name in ways}
    works: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, read in ways.items():
            started_at, worked_before = perf_counter(), process_time()
            num_frames = read()
            works[name].append(1000 * (process_time() - worked_before) / num_frames)
            walls[name].append(1000 * (perf_counter() - started_at) / num_frames)
    wall, work = ({name: median(times) for name, times in table.items()} for table in (walls, works))
    print(f"{file.name}: {facts.cols} × {facts.rows}, {facts.codec}, {float(rate):g} frames/s")
    print(f"  {'':26}{'frames/s':>10}{'of RGB':>8}{'CPU ms/frame':>15}{'of RGB':>8}{'of decode':>11}")
    for name in ways:
        print(
            f"  {name:26}{1000 / wall[name]:10.0f}{wall[RGB] / wall[name]:8.2f}"
            f"{work[name]:15.3f}{work[RGB] / work[name]:8.2f}{work[DECODE] / work[name]:11.2f}"
        )
    print(
        f"  overlapping clips relative to plain decoding to RGB: {wall[RGB] / wall[CLIPS]:.2f} in wall time, "
        f"{work[RGB] / work[CLIPS]:.2f} in CPU time (goal: {GOAL})"
    )
    return work


def plain(file: Path, look_at: Callable[[av.VideoFrame], object]) -> int:
    """Loop over the file with as many threads as our reader, and return the number of frames."""
    with av.open(str(file)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        num_frames = 0
        for frame in container.decode(stream):
            num_frames += 1
            look_at(frame)
    return num_frames


def kept_converter() -> Callable[[av.VideoFrame], object]:
    """Return a function that converts frames to RGB arrays and reuses its converter."""
    reformatter = VideoReformatter()
    return lambda frame: reformatter.reformat(frame, format="rgb24", threads=1).to_ndarray()


def clips(
    file: Path, frame_rate: Fraction, *, short_side_px: int | None = None, scaler: Scaler = "torch"
) -> int:
    """Read AVA's clip around every second, overlapping by more than half; return the decoded frames."""
    report = DecodeReport()
    windows = clip_windows(key_times(), AVA_CLIP, frame_rate)
    for _ in read_clips(file, windows, short_side_px=short_side_px, scaler=scaler, report=report):
        pass
    return report.num_decoded


def compare_memory(folder: Path) -> float:
    """Return the peak memory of reading thirty minutes, relative to one minute."""
    minute = rendered(folder / "1_minute.mp4", num_frames=1800, size=(120, 160))
    half_hour = repeated(minute, folder / "30_minutes.mp4", times=30)
    peaks = {}
    for file in (minute, half_hour):
        child = subprocess.run(
            [sys.executable, "-m", "bench.video_peak", str(file)], check=True, capture_output=True, text=True
        )
        peaks[file], num_clips, elapsed_s = (float(word) for word in child.stdout.split())
        print(f"{file.stem}: peak {peaks[file]:.1f} MB, {num_clips:.0f} clips in {elapsed_s:.1f} s")
    growth = peaks[half_hour] / peaks[minute]
    print(f"  peak memory, 30 minutes relative to 1: {growth:.3f}")
    return growth


def rendered(path: Path, *, num_frames: int, size: tuple[int, int]) -> Path:
    """Render a moving texture: smooth enough to compress like a film, rough enough to keep detail."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (size[0] // 8 + 40, size[1] // 8 + 40, 3), dtype=np.uint8)
    texture = np.kron(coarse, np.ones((8, 8, 1), np.uint8))
    texture = texture // 2 + rng.integers(0, 24, texture.shape, dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "fast", "g": "250", "bf": "3"})
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        for number in range(num_frames):
            top, left = (int(140 * (1 + np.sin(number / slowness))) for slowness in (37, 53))
            view = np.ascontiguousarray(texture[top : top + size[0], left : left + size[1]])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(view, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def repeated(source: Path, path: Path, *, times: int) -> Path:
    """Repeat a film without encoding it again."""
    with av.open(str(path), "w") as output:
        stream = None
        for turn in range(times):
            with av.open(str(source)) as film:
                original = film.streams.video[0]
                stream = stream or output.add_stream_from_template(original)
                for packet in film.demux(original):
                    if packet.dts is None or packet.pts is None:
                        continue
                    packet.pts += turn * (original.duration or 0)
                    packet.dts += turn * (original.duration or 0)
                    packet.stream = stream
                    output.mux(packet)
    return path


if __name__ == "__main__":
    main()
