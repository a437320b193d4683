"""Lines of text in any script, as images, in the first font that has all characters of the text, or of a word.

    "#3 走る 61%"   ─▶   "#3 " Pillow's own font │ "走る" an installed font that has these │ " 61%"   ─▶   one line of pixels

Pillow's own font has plain Latin letters and comes first, so that most labels look the same everywhere; then come the fonts
of the system, regular sans-serif ones first. Characters that no font has become �; `letters_without_font` names them.
"""

import os
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

Alpha = Float[np.ndarray, "rows cols"]
Font = ImageFont.FreeTypeFont

UNKNOWN = "�"
_OWN = Path()
"""Stands for Pillow's own font."""
_JOINERS = "\u200c\u200d"
"""Invisible characters that shape their neighbours; all others of their kind are left out."""
_NO_CHARACTER = "\U0010ffff"
_LINE, _BASELINE = 2.0, 1.5
"""Height of a line, and of its part above the baseline, in heights of a capital: room for accents and tall scripts."""
_STYLES = (
    "bold",
    "black",
    "heavy",
    "italic",
    "oblique",
    "light",
    "thin",
    "mono",
    "condensed",
    "narrow",
    "serif",
)


def line_rows(capital_px: float) -> int:
    """The height of a line of text in pixels."""
    return int(np.ceil(_LINE * capital_px))


@lru_cache(maxsize=2048)
def text_alpha(text: str, capital_px: float) -> Alpha:
    """How far each pixel of a line of text is covered, from 0 to 1; capitals are `capital_px` high."""
    parts = [(run, _sized(path, capital_px)) for path, run in runs(text)]
    widths = [font.getlength(run) for run, font in parts]
    line = Image.new("L", (int(np.ceil(sum(widths))) + 2, line_rows(capital_px)))
    draw, left = ImageDraw.Draw(line), 1.0
    for (run, font), width in zip(parts, widths, strict=True):
        draw.text((left, _BASELINE * capital_px), run, fill=255, font=font, anchor="ls")
        left += width
    return np.asarray(line, dtype=np.float64) / 255


def runs(text: str) -> list[tuple[Path, str]]:
    """Split the text into parts of one font each: the whole text if a font has all of it, else words, else characters."""
    chosen: list[tuple[Path, str]] = []
    words = [text] if font_with(text := _drawable(text)) else text.split(" ")
    for number, word in enumerate(words):
        font = font_with(word)
        parts = _by_character(word) if font is None else [(font, word)]
        if (
            number
        ):  # a space between two fonts is in neither, or it would change sides in a script from right to left
            is_inside = bool(chosen and parts) and chosen[-1][0] == parts[0][0]
            chosen.append((chosen[-1][0] if is_inside else _OWN, " "))
        chosen += parts
    return [
        (path, "".join(part for _, part in group))
        for path, group in groupby(chosen, key=lambda each: each[0])
    ]


def _by_character(word: str) -> list[tuple[Path, str]]:
    """Each character in a font that has it, or as �; an accent goes with the character before it."""
    chosen: list[tuple[Path, str]] = []
    for letter in word:
        if chosen and (letter in _JOINERS or unicodedata.category(letter).startswith("M")):
            if chosen[-1][1] != UNKNOWN:
                chosen.append((chosen[-1][0], letter))
            continue
        font = font_with(letter)
        chosen.append(_unknown() if font is None else (font, letter))
    return chosen


def letters_without_font(names: Iterable[str]) -> str:
    """Return the characters of these names that no font has, each once.

    >>> letters_without_font(["walk", "sit down", "café"])
    ''
    """
    letters = dict.fromkeys(letter for name in names for letter in _drawable(name))
    return "".join(letter for letter in letters if font_with(letter) is None)


def _drawable(text: str) -> str:
    """The text without invisible characters; � for what is no character at all."""
    letters = []
    for letter in unicodedata.normalize("NFC", text):
        kind = unicodedata.category(letter)
        if letter.isspace():
            letters.append(" ")
        elif kind in ("Cc", "Cs", "Cn"):
            letters.append(UNKNOWN)
        elif kind != "Cf" or letter in _JOINERS:
            letters.append(letter)
    return "".join(letters)


def _unknown() -> tuple[Path, str]:
    font = font_with(UNKNOWN)
    return (_OWN, "?") if font is None else (font, UNKNOWN)


@lru_cache(maxsize=4096)
def font_with(text: str) -> Path | None:
    """Return the file of the first font that has every character; None if no font has them all."""
    letters = set(text).difference(f" {_JOINERS}")
    return next((path for path in _font_files() if all(_has(path, letter) for letter in letters)), None)


@lru_cache(maxsize=65536)
def _has(path: Path, letter: str) -> bool:
    """Whether a font has a picture of its own for a character; what it lacks looks like what is no character."""
    font = _loaded(path, 24.0)
    if font is None:
        return False
    pictures = [Image.new("L", (72, 72)) for _ in range(2)]
    for picture, each in zip(pictures, (letter, _NO_CHARACTER), strict=True):
        ImageDraw.Draw(picture).text((24, 48), each, fill=255, font=font, anchor="ls")
    return pictures[0].tobytes() != pictures[1].tobytes()


@lru_cache(maxsize=256)
def _sized(path: Path, capital_px: float) -> Font:
    """The font in the size whose capitals are this high."""
    at_hundred = _loaded(path, 100.0)
    top, bottom = (0, 0) if at_hundred is None else at_hundred.getbbox("H", anchor="ls")[1::2]
    size = 100 * capital_px / (bottom - top) if _has(path, "H") and bottom > top else 1.4 * capital_px
    font = _loaded(path, size)
    if font is None:
        raise AssertionError(f"{path} was loaded before")
    return font


@lru_cache(maxsize=1024)
def _loaded(path: Path, size: float) -> Font | None:
    try:
        font = ImageFont.load_default(size) if path == _OWN else ImageFont.truetype(path, size)
    except OSError:  # pictures instead of outlines, or no font at all
        return None
    return font if isinstance(font, Font) else None


@lru_cache(maxsize=1)
def _font_files() -> tuple[Path, ...]:
    """Pillow's own font, then those of the system: regular sans-serif ones first, then by name."""
    home = Path.home()
    folders = {
        "win32": [Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"],
        "darwin": [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"],
    }.get(
        sys.platform,
        [
            Path("/usr/share/fonts"),
            Path("/usr/local/share/fonts"),
            home / ".local/share/fonts",
            home / ".fonts",
        ],
    )
    files = [
        path for folder in folders for suffix in ("ttf", "otf", "ttc") for path in folder.rglob(f"*.{suffix}")
    ]
    return (_OWN, *sorted(files, key=lambda path: (_num_styles(path), path.name)))


def _num_styles(path: Path) -> int:
    name = path.stem.lower()
    return sum(style in name for style in _STYLES) + ("sans" not in name)
