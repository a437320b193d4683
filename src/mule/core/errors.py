"""Errors about what MULE was given. A message states what must hold, what was found and what to do."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the closest known name as a question that ends an error message, or nothing.

    Examples:
        >>> did_you_mean("hugg", ["hug", "kick"])
        " Did you mean 'hug'?"
        >>> did_you_mean("swim", ["hug", "kick"])
        ''
    """
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class MuleError(Exception):
    """MULE cannot use something it was given. The command line prints the message and exits with code 2."""


class ShapeError(MuleError, ValueError):
    """Lengths, shapes, types or devices do not agree."""


class RangeError(MuleError, ValueError):
    """A value is outside its allowed range."""


class NotFinite(MuleError, ArithmeticError):  # noqa: N818 - names the fact, as the messages do
    """A number that must be finite is NaN or infinite."""


class TooFewActors(MuleError, ValueError):  # noqa: N818 - names the fact, as the messages do
    """There are too few actors (or clips) for an estimate."""


class NotFitted(MuleError, RuntimeError):  # noqa: N818 - names the fact, as the messages do
    """A score was used before it was fitted to known actors."""


class MissingOutputs(MuleError, ValueError):  # noqa: N818 - names the fact, as the messages do
    """A score needs an output that the forward pass did not store; the message names it."""


class FileError(MuleError, OSError):
    """A file cannot be written; the message names it and gives the reason."""


class AnnotationError(MuleError, ValueError):
    """A file of labels, detections or scores cannot be used; the message names file and line."""


class VideoError(MuleError, OSError):
    """A video, camera or folder of frames cannot be read; the message names it."""


class DetectorError(MuleError, ValueError):
    """A detector or its file cannot be used; the message names the file."""


class WeightsError(MuleError, ValueError):
    """A file of weights cannot be used or does not match its card; the message names it."""


class DownloadError(MuleError, OSError):
    """A download failed; the message says what to do, and no partial file is left."""


class FeatureFileError(MuleError, OSError):
    """A file of features is damaged or does not match; the message names it."""
