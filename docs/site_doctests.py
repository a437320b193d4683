"""Show doctests in docstrings as code; Markdown alone would read `>>>` as three nested quotations."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^(?P<indent>[ ]*)>>> .*\n?(?:(?P=indent)\S.*(?:\n|\Z))*)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """Put each doctest into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 - griffe passes its loader
        """Rewrite the docstring of one function, class or module."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


def _fenced(doctest: re.Match[str]) -> str:
    indent, text = doctest["indent"], doctest.group().rstrip("\n")
    return f"{indent}```pycon\n{text}\n{indent}```\n"
