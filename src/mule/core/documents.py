"""Parse TOML and JSON within limits: a small document must not cost seconds, memory or the stack."""

import json
import re
import sys
import tomllib
from itertools import accumulate
from typing import Any, NoReturn

MOST_NESTED = 100
"""Levels of lists and tables in a document, and parts of a dotted key."""
MOST_DIGITS = sys.int_info.default_max_str_digits
"""Digits of a whole number: Python's own limit."""

_NOT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"\\'))
_JSON_STRING = re.compile(rb'"(?:\\.|[^"\\])*+"?', re.DOTALL)
_TOML_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*+"|\'[^\'\n]*+\'|#[^\n]*+', re.DOTALL
)
_LONG_KEY = re.compile(rf"(?<![\w\-])(?:[\w\-]++[ \t]*+\.[ \t]*+){{{MOST_NESTED}}}")


class DocumentError(ValueError):
    """A document cannot be parsed; readers add the file's name."""

    def __init__(self, reason: str, *, place: str = "") -> None:
        super().__init__(reason)
        self.place = place
        """Line and column to put behind the file's name, if they are known."""


def json_of(content: str | bytes, *, finite: bool = True) -> Any:  # noqa: ANN401 - whatever JSON has
    """Return the content of a JSON document; with `finite`, NaN and infinite numbers are refused.

    Raises:
        DocumentError: it is not JSON in UTF-8, or exceeds a limit.

    >>> json_of('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> json_of("[" * 101 + "]" * 101)
    Traceback (most recent call last):
    mule.core.documents.DocumentError: lists and tables must nest at most 100 deep; they nest 101 deep
    """
    text = _text(content)
    brackets = text.encode("utf-8", "surrogatepass").translate(None, _NOT_BRACKETS)
    _require_flat(_JSON_STRING.sub(b"", brackets).decode())
    try:
        return json.loads(text, parse_constant=_refuse_constant if finite else None)
    except json.JSONDecodeError as error:
        raise DocumentError(error.msg, place=f", line {error.lineno}, column {error.colno}") from None
    except DocumentError:
        raise
    except ValueError as error:
        raise _few_digits(error) from None


def toml_of(content: str | bytes) -> dict[str, Any]:
    """Return the content of a TOML document.

    Raises:
        DocumentError: it is not TOML in UTF-8, or exceeds a limit.
    """
    text = _text(content)
    bare = _TOML_STRING.sub("s", text)
    _require_flat(re.sub(r"[^\[\]{}]", "", bare))
    if (key := _LONG_KEY.search(bare)) is not None:
        line = bare.count("\n", 0, key.start()) + 1
        raise DocumentError(f"a key must have at most {MOST_NESTED} parts; one near line {line} has more")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DocumentError(str(error)) from None
    except (ValueError, OverflowError) as error:
        raise _few_digits(error) from None


def _text(content: str | bytes) -> str:
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(f"must be UTF-8 text; got the byte 0x{error.object[error.start]:02x}") from None
    return text.removeprefix("\ufeff")


def _require_flat(brackets: str) -> None:
    depth = max(accumulate((1 if each in "[{" else -1 for each in brackets), initial=0))
    if depth > MOST_NESTED:
        raise DocumentError(f"lists and tables must nest at most {MOST_NESTED} deep; they nest {depth} deep")


def _few_digits(error: ValueError | OverflowError) -> DocumentError:
    if "digits" in str(error):
        return DocumentError(f"a whole number must have at most {MOST_DIGITS} digits; one has more")
    return DocumentError(str(error))


def _refuse_constant(constant: str) -> NoReturn:
    raise DocumentError(f"numbers must be finite; got {constant}")
