"""Reading an XML file tag by tag, without holding it: all of its errors name the file and the line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable
from xml.parsers import expat

from mule.core.errors import AnnotationError


@runtime_checkable
class TagHandler(Protocol):
    """What is told of a file while it is read; `outer` are the tags that are open around one."""

    def started(self, tag: str, values: dict[str, str], outer: Sequence[str], line: int) -> None:
        """A tag was opened."""
        ...

    def ended(self, tag: str, text: str, outer: Sequence[str]) -> None:
        """A tag was closed; the text is what stood in it after its last inner tag."""
        ...


def read_xml(path: Path, handler: TagHandler, *, kind: str) -> None:
    """Tells the handler of every tag.

    Args:
        path: the file.
        handler: whoever gathers what it holds.
        kind: what the file must be, such as "XML", for the error's text.

    Raises:
        AnnotationError: it cannot be read, is no XML, or declares a document type.
    """
    parser = expat.ParserCreate()
    tags: list[str] = []
    text: list[str] = []

    def start(tag: str, values: dict[str, str]) -> None:
        handler.started(tag, values, tags, parser.CurrentLineNumber)
        tags.append(tag)
        text.clear()

    def end(tag: str) -> None:
        tags.pop()
        handler.ended(tag, "".join(text).strip(), tags)
        text.clear()

    def refuse(*_: object) -> None:
        raise AnnotationError(
            f"{path}, line {parser.CurrentLineNumber}: must not declare a document type (<!DOCTYPE …>), with which a "
            "small file can fill the memory; such files have none. Remove it."
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = refuse
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AnnotationError(f"{path}: must be a file that can be read; {reason}.") from None
    except expat.ExpatError as error:
        raise AnnotationError(
            f"{path}, line {error.lineno}: must be {kind}; {expat.ErrorString(error.code)}."
        ) from None
    except AnnotationError:
        raise
    except (LookupError, ValueError) as error:  # of encodings the parser does not know
        raise AnnotationError(f"{path}: must be XML in UTF-8; {error}.") from None
