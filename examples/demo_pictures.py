"""Make the pictures of README.md from what `make demo` left in runs/demo.

    python -m examples.demo_pictures [--chromium chromium]

annotated video ─▶ two frames, side by side ─▶ docs/pictures/demo.png
report          ─▶ Chromium, a picture at each key time ─▶ docs/pictures/report.webp

Footage: demo video of Sports2D 0.8.34, David Pagnon, BSD-3-Clause; its licence stays beside them.
"""

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import av
from PIL import Image

from examples.demo import FOLDER
from mule.watching.outputs.moments_file import MomentsFile

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
AT_S, WIDTH_PX = (2.2, 5.2), 900
PAGE_PX, REPORT_WIDTH_PX, QUALITY, SHOWN_MS = (1280, 1150), 900, 60, 600
BUDGET_MS = 4000
"""How long the page may take to show the frame, in its own time."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Make both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chromium", default="chromium")
    chromium = parser.parse_args(arguments).chromium
    side_by_side(frame_at(FOLDER / "watched" / "annotated.mp4", time_s) for time_s in AT_S).save(
        PICTURES / "demo.png", optimize=True
    )
    pages = report_pages(FOLDER / "watched", chromium)
    pages[0].save(
        PICTURES / "report.webp",
        save_all=True,
        append_images=pages[1:],
        duration=SHOWN_MS,
        loop=0,
        quality=QUALITY,
    )
    shutil.copyfile(FOLDER / "roof.licence.txt", PICTURES / "LICENCE.txt")


def side_by_side(frames: Iterable[Image.Image]) -> Image.Image:
    """Return frames of one size as one picture."""
    each = list(frames)
    cols, rows = each[0].size
    whole = Image.new("RGB", (cols * len(each), rows))
    for number, frame in enumerate(each):
        whole.paste(frame, (cols * number, 0))
    return whole


def frame_at(video: Path, time_s: float) -> Image.Image:
    """Return the first frame at or after a time, in the width of a picture."""
    with av.open(str(video)) as container:
        for frame in container.decode(video=0):
            if frame.time >= time_s:
                image = frame.to_image()
                return image.resize((WIDTH_PX, round(image.height * WIDTH_PX / image.width)))
    raise SystemExit(f"{video}: must reach {time_s} s; run `make demo` first.")


def report_pages(folder: Path, chromium: str) -> list[Image.Image]:
    """Return pictures of the report at its key times."""
    report = (folder / "report.html").resolve().as_uri()
    pages = []
    with tempfile.TemporaryDirectory() as scratch:
        shot = Path(scratch) / "page.png"
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--window-size={PAGE_PX[0]},{PAGE_PX[1]}", f"--virtual-time-budget={BUDGET_MS}"]
        for moment in MomentsFile(folder / "moments.jsonl"):
            address = f"{report}#t={moment.key_time_s:g}"
            subprocess.run([*command, f"--screenshot={shot}", address], check=True, capture_output=True)
            with Image.open(shot) as image:
                size = (REPORT_WIDTH_PX, round(image.height * REPORT_WIDTH_PX / image.width))
                pages.append(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))
    return pages


if __name__ == "__main__":
    main()
