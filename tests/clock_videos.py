"""Small videos that tell which video and which frame one looks at: level of the upper half, level of the lower."""

from fractions import Fraction
from typing import Any

import av
import numpy as np

LEVELS_PER_FRAME = 5


def clock_image(number, *, level=200, size=(32, 48)):
    image = np.full((*size, 3), level, dtype=np.uint8)
    image[size[0] // 2 :] = 10 + LEVELS_PER_FRAME * number
    return image


def clock_video(path, num_frames=20, *, rate: Fraction | int = 10, size=(32, 48), level=200):
    """A video of at most 48 frames; frame i appears at i / rate seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=rate, options={"crf": "4"})
        stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"
        for number in range(num_frames):
            image = clock_image(number, level=level, size=size)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def clock_frames(folder, num_frames=3, **options):
    """The same as a folder of images."""
    folder.mkdir(parents=True)
    for number in range(1, num_frames + 1):
        encoder: Any = av.CodecContext.create("png", "w")
        image = clock_image(number, **options)
        encoder.height, encoder.width = len(image), len(image[0])
        encoder.pix_fmt, encoder.time_base = "rgb24", Fraction(1, 25)
        packets = [*encoder.encode(av.VideoFrame.from_ndarray(image, format="rgb24")), *encoder.encode(None)]
        (folder / f"{number:05d}.png").write_bytes(b"".join(bytes(packet) for packet in packets))
    return folder


def frame_number(image):
    """Which frame an image (rows, cols, 3) of a video is, as a number that need not be whole."""
    lower = np.asarray(image, dtype=float)[image.shape[0] * 5 // 8 : image.shape[0] * 7 // 8]
    return (lower.mean() - 10) / LEVELS_PER_FRAME
