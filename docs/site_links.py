"""Adapt links for the site, which has no copy of files outside docs/: show their path instead.

On a Git host `[the contributing guide](../CONTRIBUTING.md)` works as it stands. On the site it reads "the
contributing guide (`CONTRIBUTING.md`)". A link to a file that does not exist is left alone, so that the
strict build reports it.
"""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401 - mkdocs passes page and config
    """Replace links that leave docs/ by their text and path."""
    return OUTSIDE.sub(_as_path, markdown)


def _as_path(link: re.Match[str]) -> str:
    text, target = link.groups()
    file = (DOCS / target).resolve()
    if not file.exists():
        return link.group()
    path = file.relative_to(DOCS.parent).as_posix()
    return text if path in text else f"{text} (`{path}`)"
