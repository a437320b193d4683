"""The frames of a source at an even rate, one at a time, each as it is on screen."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from mule.video.clips import SAME_INSTANT_S
from mule.video.decode import RgbConverter
from mule.video.facts import DecodeReport
from mule.video.reading import open_frames
from mule.video.sources import VideoSource, video_source


def frames_at_rate(
    source: str | Path | VideoSource, rate: Fraction, *, report: DecodeReport | None = None
) -> Iterator[tuple[float, UInt8[np.ndarray, "rows cols 3"]]]:
    """Times 0, 1/rate, 2/rate, … to the end of the source, and the frame on screen at each.

    A frame that stays on screen for several of these times is handed out again; it must not be written to.
    """
    with open_frames(video_source(source), report) as frames:
        convert = RgbConverter(frames.first_frame, frames.report)
        number = 0
        picture = frames.next_picture()
        while picture is not None:
            following = frames.next_picture()
            until_s = frames.report.end_s if following is None else following.time_s
            image = None
            while until_s is not None and number / rate + SAME_INSTANT_S < until_s:
                image = convert(picture.decoded()) if image is None else image
                yield float(number / rate), image
                number += 1
            picture = following
