"""Text as pixels: a small alphabet of strokes, drawn smooth at any size, so that pictures need no font and no library.

A letter stands on a grid whose rows run from the top of capitals (0) to the baseline (7) and below (9). A stroke is
`-` straight from point to point, `~` a smooth curve (a quadratic B-spline) that keeps its ends, or `o` a closed one.
"""

import unicodedata
from functools import lru_cache
from itertools import pairwise

import numpy as np
from jaxtyping import Float

Strokes = tuple[str, ...]
Alpha = Float[np.ndarray, "rows cols"]

CAPITAL = 7.0
_BELOW, _GAP, _SPACE = 2.4, 1.9, 2.2
_STROKE = 0.95
_CURVE_PARTS = 6
_BOWL = "o0 2 4 2 4 7 0 7"
_UNKNOWN: Strokes = ("-0 0.5 3.6 0.5 3.6 7 0 7 0 0.5",)

_ALPHABET: dict[str, Strokes] = {
    "A": ("-0 7 2.5 0 5 7", "-0.9 4.7 4.1 4.7"),
    "B": ("-2.5 0 0 0 0 7 2.7 7", "-0 3.3 2.7 3.3", "~2.5 0 4.2 0 4.2 3.3 2.5 3.3", "~2.7 3.3 4.7 3.3 4.7 7 2.7 7"),
    "C": ("~4.8 1.4 4.2 0 0 0 0 7 4.2 7 4.8 5.6",),
    "D": ("-2 0 0 0 0 7 2 7", "~2 0 4.9 0 4.9 7 2 7"),
    "E": ("-4 0 0 0 0 7 4 7", "-0 3.4 3.5 3.4"),
    "F": ("-4 0 0 0 0 7", "-0 3.4 3.5 3.4"),
    "G": ("~4.8 1.4 4.2 0 0 0 0 7 4.9 7 4.9 4.6", "-2.9 3.9 4.9 3.9 4.9 5"),
    "H": ("-0 0 0 7", "-4.6 0 4.6 7", "-0 3.4 4.6 3.4"),
    "I": ("-0 0 0 7",),
    "J": ("-3 0 3 5", "~3 5 3 7 0 7 0 5.2"),
    "K": ("-0 0 0 7", "-4.4 0 0 4.2", "-1.6 2.8 4.7 7"),
    "L": ("-0 0 0 7 3.8 7",),
    "M": ("-0 7 0 0 2.8 4.5 5.6 0 5.6 7",),
    "N": ("-0 7 0 0 4.6 7 4.6 0",),
    "O": ("o0 0 5.4 0 5.4 7 0 7",),
    "P": ("-2.5 3.8 0 3.8", "-0 7 0 0 2.5 0", "~2.5 0 4.6 0 4.6 3.8 2.5 3.8"),
    "Q": ("o0 0 5.4 0 5.4 7 0 7", "-3.3 5 5.4 7.4"),
    "R": ("-2.5 3.8 0 3.8", "-0 7 0 0 2.5 0", "~2.5 0 4.6 0 4.6 3.8 2.5 3.8", "-2.4 3.8 4.7 7"),
    "S": ("~4.4 1.3 4 0 0.2 0 0.2 3.3 4.6 3.6 4.6 7 0.4 7 0 5.6",),
    "T": ("-0 0 5 0", "-2.5 0 2.5 7"),
    "U": ("-0 0 0 4.6", "~0 4.6 0 7 4.6 7 4.6 4.6", "-4.6 4.6 4.6 0"),
    "V": ("-0 0 2.5 7 5 0",),
    "W": ("-0 0 1.8 7 3.5 1.5 5.2 7 7 0",),
    "X": ("-0 0 4.8 7", "-4.8 0 0 7"),
    "Y": ("-0 0 2.4 3.5 4.8 0", "-2.4 3.5 2.4 7"),
    "Z": ("-0 0 4.6 0 0 7 4.6 7",),
    "a": (_BOWL, "-4 2 4 7"),
    "b": (_BOWL, "-0 0 0 7"),
    "c": ("~3.7 3.1 3.2 2 0 2 0 7 3.2 7 3.7 5.9",),
    "d": (_BOWL, "-4 0 4 7"),
    "e": ("-0.1 4.5 4 4.5", "~4 4.5 4 2 0 2 0 7 3.3 7 3.8 6"),
    "f": ("~2.9 0.1 1.2 -0.1 1.2 2.4", "-1.2 2.2 1.2 7", "-0 2.4 2.6 2.4"),
    "g": (_BOWL, "-4 2 4 7", "~4 7 4 9.2 0.6 9.3 0.3 8.5"),
    "h": ("-0 0 0 7", "~0 4.2 0 2 3.8 2 3.8 4.4", "-3.8 4.2 3.8 7"),
    "i": ("-0 2 0 7", "-0 0.1 0 0.2"),
    "j": ("-1.4 2 1.4 7.4", "~1.4 7.2 1.4 9.1 0 9.1", "-1.4 0.1 1.4 0.2"),
    "k": ("-0 0 0 7", "-3.3 2 0 5", "-1.2 4 3.6 7"),
    "l": ("-0 0 0 5.6", "~0 5.6 0 7 1.2 7"),
    "m": ("-0 2 0 7", "~0 4 0 2 2.9 2 2.9 4.2", "-2.9 4 2.9 7", "~2.9 4 2.9 2 5.8 2 5.8 4.2", "-5.8 4 5.8 7"),
    "n": ("-0 2 0 7", "~0 4.2 0 2 3.8 2 3.8 4.4", "-3.8 4.2 3.8 7"),
    "o": ("o0 2 4.3 2 4.3 7 0 7",),
    "p": (_BOWL, "-0 2 0 9.2"),
    "q": (_BOWL, "-4 2 4 9.2"),
    "r": ("-0 2 0 7", "~0 4.2 0.1 2 2.4 2.1"),
    "s": ("~3.3 3 3 2 0.1 2 0.1 4.3 3.5 4.6 3.5 7 0.4 7 0 5.9",),
    "t": ("-1.2 0.5 1.2 5.5", "~1.2 5.4 1.2 7 2.8 7", "-0 2.3 2.7 2.3"),
    "u": ("-0 2 0 4.8", "~0 4.7 0 7 3.8 7 3.8 4.7", "-3.8 2 3.8 7"),
    "v": ("-0 2 2 7 4 2",),
    "w": ("-0 2 1.4 7 2.9 3 4.4 7 5.8 2",),
    "x": ("-0 2 3.7 7", "-3.7 2 0 7"),
    "y": ("-0 2 2.1 7", "~4.2 2 2.1 7 1.5 9.2 0.2 9"),
    "z": ("-0 2 3.6 2 0 7 3.6 7",),
    "0": ("o0 0 4.4 0 4.4 7 0 7",),
    "1": ("-0.2 1.4 2 0 2 7",),
    "2": ("~0.2 1.9 0.2 0 4.2 -0.2 4.2 2.4 2.6 4.2 0 7", "-0 7 4.4 7"),
    "3": ("~0.3 1.1 1 0 4 -0.2 4 3.3 1.8 3.3", "~1.8 3.3 4.4 3.3 4.4 7.2 0.8 7 0 5.8"),
    "4": ("-3.4 7 3.4 0 0 4.9 4.6 4.9",),
    "5": ("-4 0 0.7 0 0.4 3.2", "~0.4 3.2 1.2 2.4 4.5 2.2 4.5 7.1 0.8 7.1 0 5.9"),
    "6": ("~3.9 0.9 3.2 0 0 -0.2 0 4.8", "o0 2.8 4.4 2.8 4.4 7 0 7"),
    "7": ("-0 0 4.4 0 1.5 7",),
    "8": ("o0.3 0 4.1 0 4.1 3.3 0.3 3.3", "o0 3.3 4.4 3.3 4.4 7 0 7"),
    "9": ("o0 0 4.4 0 4.4 4.2 0 4.2", "~4.4 2.2 4.4 7.2 1.2 7 0.5 6.1"),
    ".": ("-0 6.8 0 7",),
    ",": ("-0.6 6.7 0 8.4",),
    ":": ("-0 2.9 0 3.1", "-0 6.8 0 7"),
    ";": ("-0.6 2.9 0.6 3.1", "-0.6 6.7 0 8.4"),
    "!": ("-0 0 0 4.8", "-0 6.8 0 7"),
    "?": ("~0 1.5 0 0 3.8 -0.1 3.8 2.5 1.9 3.2 1.9 4.9", "-1.9 6.8 1.9 7"),
    "-": ("-0 4.3 2.6 4.3",),
    "–": ("-0 4.3 4 4.3",),
    "·": ("-0 4.1 0 4.3",),
    "_": ("-0 7.8 4.4 7.8",),
    "+": ("-0 4.2 4 4.2", "-2 2.2 2 6.2"),
    "=": ("-0 3.2 4 3.2", "-0 5.2 4 5.2"),
    "/": ("-0 7.8 3.2 -0.6",),
    "\\": ("-0 -0.6 3.2 7.8",),
    "|": ("-0 -0.6 0 8.4",),
    "(": ("~1.6 -0.6 0 1 0 6.8 1.6 8.4",),
    ")": ("~0 -0.6 1.6 1 1.6 6.8 0 8.4",),
    "[": ("-1.5 -0.6 0 -0.6 0 8.4 1.5 8.4",),
    "]": ("-0 -0.6 1.5 -0.6 1.5 8.4 0 8.4",),
    "{": ("~2.2 -0.6 1 -0.6 1 3.9 0 3.9", "~0 3.9 1 3.9 1 8.4 2.2 8.4"),
    "}": ("~0 -0.6 1.2 -0.6 1.2 3.9 2.2 3.9", "~2.2 3.9 1.2 3.9 1.2 8.4 0 8.4"),
    "<": ("-3.6 1.8 0 4.2 3.6 6.6",),
    ">": ("-0 1.8 3.6 4.2 0 6.6",),
    "#": ("-1.8 0.2 1 6.8", "-4.1 0.2 3.3 6.8", "-0.3 2.4 4.9 2.4", "-0 4.7 4.6 4.7"),
    "%": ("o0 0 2.2 0 2.2 3 0 3", "o3.6 4 5.8 4 5.8 7 3.6 7", "-4.9 0 0.9 7"),
    "&": ("~5 7 0.6 1.8 1 0 3.4 0 3.6 2.4 0 4 0 7 3.8 7.2 4.6 4",),
    "*": ("-1.7 0 1.7 3.6", "-0 0.9 3.4 2.7", "-3.4 0.9 0 2.7"),
    "@": ("o1.8 2.4 4.4 2.4 4.4 5.2 1.8 5.2", "~4.4 2.4 4.4 5.6 6 5.6 6.2 0.4 0 0.4 0 7.4 4.4 7.4"),
    "$": ("~4.4 1.3 4 0.2 0.2 0.2 0.2 3.3 4.6 3.6 4.6 6.8 0.4 6.8 0 5.6", "-2.3 -0.8 2.3 7.8"),
    "^": ("-0 2.6 1.6 0.2 3.2 2.6",),
    "~": ("~0 4.8 0.8 3.2 2.6 5.4 3.8 3.6",),
    "`": ("-0 0 1 1.2",),
    "'": ("-0 0 0 1.8",),
    '"': ("-0 0 0 1.8", "-1.5 0 1.5 1.8"),
}  # fmt: skip


def writable(text: str) -> str:
    """The text in letters of the alphabet: accents fall away, what is of no Latin script becomes �, an empty frame.

    >>> writable("café")
    'cafe'
    """
    parts = unicodedata.normalize("NFKD", text)
    bare = (letter for letter in parts if unicodedata.category(letter) not in ("Mn", "Cf"))
    return "".join(letter if letter in _ALPHABET else " " if letter.isspace() else "�" for letter in bare)


def text_alpha(text: str, capital_px: float) -> Alpha:
    """How far each pixel of a line of text is covered, 0 to 1; capitals are `capital_px` high.

    The line reaches from one stroke's width above capitals to below the lowest letters.
    """
    letters = [_letter_alpha(letter, capital_px) for letter in writable(text)]
    rows = line_rows(capital_px)
    return np.concatenate([np.zeros((rows, 1)), *letters], axis=1)


def line_rows(capital_px: float) -> int:
    """The height of a line of text in pixels."""
    return int(np.ceil((CAPITAL + _BELOW + 2 * _STROKE) * capital_px / CAPITAL))


@lru_cache(maxsize=2048)
def _letter_alpha(letter: str, capital_px: float) -> Alpha:
    scale = capital_px / CAPITAL
    if letter == " ":
        return np.zeros((line_rows(capital_px), max(round((_SPACE + _GAP) * scale), 1)))
    lines = [_polyline(stroke) for stroke in _ALPHABET.get(letter, _UNKNOWN)]
    wide = max(float(line[:, 0].max()) for line in lines)
    cols = int(np.ceil((wide + _GAP) * scale))
    # Strokes are as wide as a pixel at least: thinner ones fade.
    half = max(_STROKE * scale, 1.1) / 2
    y, x = np.mgrid[: line_rows(capital_px), :cols] + 0.5
    distance = np.full(x.shape, np.inf)
    for line in lines:
        points = line * scale + [_GAP / 2 * scale, _STROKE * scale]
        for begin, end in pairwise(points):
            distance = np.minimum(distance, _distance(x, y, begin, end))
    return np.clip(half + 0.5 - distance, 0, 1)


def _polyline(stroke: str) -> Float[np.ndarray, "points 2"]:
    points = np.array(stroke[1:].split(), dtype=np.float64).reshape(-1, 2)
    if stroke[0] == "-":
        return points
    if stroke[0] == "o":
        points = np.concatenate([points, points[:2]])
        joints = (points[:-1] + points[1:]) / 2
        controls = points[1:-1]
    else:
        inner = (points[1:-2] + points[2:-1]) / 2
        joints = np.concatenate([points[:1], inner, points[-1:]])
        controls = points[1:-1]
    t = np.linspace(0, 1, _CURVE_PARTS, endpoint=False)[:, None]
    arcs = [
        (1 - t) ** 2 * begin + 2 * t * (1 - t) * control + t**2 * end
        for begin, control, end in zip(joints[:-1], controls, joints[1:], strict=True)
    ]
    return np.concatenate([*arcs, joints[-1:]])


def _distance(
    x: Float[np.ndarray, "rows cols"],
    y: Float[np.ndarray, "rows cols"],
    begin: Float[np.ndarray, "2"],
    end: Float[np.ndarray, "2"],
) -> Float[np.ndarray, "rows cols"]:
    """From each pixel to the nearest point between two points."""
    along = end - begin
    square = float(along @ along)
    t = ((x - begin[0]) * along[0] + (y - begin[1]) * along[1]) / square if square else np.zeros_like(x)
    t = np.clip(t, 0, 1)
    return np.hypot(x - begin[0] - t * along[0], y - begin[1] - t * along[1])
