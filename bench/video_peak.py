"""Print the peak memory of reading all clips of a file: `python -m bench.video_peak FILE` (Linux)."""

import sys
from pathlib import Path
from time import perf_counter

from mule.video.clips import AVA_CLIP, clip_windows, key_times
from mule.video.reading import read_clips


def main() -> None:
    started_at = perf_counter()
    num_clips = sum(1 for _ in read_clips(sys.argv[1], clip_windows(key_times(), AVA_CLIP, 30)))
    # unlike getrusage, VmHWM does not include the memory of the parent process
    status = Path("/proc/self/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(peak_kb / 1024, num_clips, perf_counter() - started_at)


if __name__ == "__main__":
    main()
