"""What can go wrong with what MULE was given. A message says what must hold, what was found, what to do."""

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
    """Something MULE was given cannot be used. The command line prints it without a traceback, exit code 2."""


class ShapeError(MuleError, ValueError):
    """Lengths, shapes, types or devices that must agree do not."""


class RangeError(MuleError, ValueError):
    """A value lies outside what its meaning allows."""


class NotFinite(MuleError, ArithmeticError):  # noqa: N818 - names the fact, as the messages do
    """A number that must be finite is NaN or infinite."""


class TooFewActors(MuleError, ValueError):  # noqa: N818 - names the fact, as the messages do
    """An estimate needs more actors (or more clips) than there are."""


class NotFitted(MuleError, RuntimeError):  # noqa: N818 - names the fact, as the messages do
    """A score that must first see known actors was asked before it had."""


class MissingOutputs(MuleError, ValueError):  # noqa: N818 - names the fact, as the messages do
    """A score needs something the forward pass did not store; the message names it."""


class FileError(MuleError, OSError):
    """A file cannot be written; the message names it and gives the reason."""


class AnnotationError(MuleError, ValueError):
    """A file of labels, detections or scores has a row that cannot be used; the message names file and line."""


class VideoError(MuleError, OSError):
    """A video, camera or folder of frames cannot be read; the message names it."""


class DetectorError(MuleError, ValueError):
    """A detector, or the file it was to be read from, cannot be used; the message names the file."""


class WeightsError(MuleError, ValueError):
    """A file of weights, or the card it is to agree with, cannot be used; the message names it."""


class DownloadError(MuleError, OSError):
    """A file could not be fetched; the message says what to do, and nothing half-written bears its name."""


class FeatureFileError(MuleError, OSError):
    """A file of features cannot be written, or what it holds cannot be trusted; the message names it."""
