"""`report.html`: one page that opens from disk, with nothing from outside it but, perhaps, the video beside it.

The page holds its style, its script and its content. A content security policy lets run that one script, by its
digest, and nothing else. Names from files are in the content alone, which is data, and the script only ever writes
them as text.
"""

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mule.core.errors import MuleError
from mule.data.table.writing import write_whole
from mule.watching.moments import Header, Moment, plain_name
from mule.watching.outputs.page_content import page_content
from mule.watching.outputs.thumbnails import Thumbnail

SMALL_VIDEO_BYTES = 6_000_000

_VIDEO_KINDS = {".mp4": "video/mp4", ".m4v": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg"}
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class PageVideo:
    """The video a page shows: within it if it is small, else by its path from the page."""

    path: Path
    has_boxes: bool = False
    """Whether boxes are drawn into the pictures already; then the page draws none but that of the chosen actor."""
    most_bytes_within: int = SMALL_VIDEO_BYTES


def write_page(
    path: Path,
    header: Header,
    moments: Iterable[Moment],
    *,
    video: PageVideo | None = None,
    thumbnails: Sequence[Thumbnail] = (),
    memory: Path | None = None,
) -> None:
    """Writes the page, the whole of it or none.

    Args:
        path: the file to be.
        header: of the moments.
        moments: in the order of their key times.
        video: what to show behind the boxes; None shows boxes on plain ground.
        thumbnails: of the most novel looks.
        memory: the folder of remembered actors' thumbnails; a thumbnail that is not there is not shown.

    Raises:
        AnnotationError: a thumbnail leads out of its folder, or is no picture; or the page cannot be written.
        MuleError: there is no such video.
    """
    content = page_content(header, moments, thumbnails=thumbnails, memory=memory)
    content["video"] = None if video is None else _video(video, path)
    text = page_text(content, title=f"{header.source.video} · MULE")
    write_whole(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


def page_text(content: dict[str, Any], *, title: str) -> str:
    """The page as HTML."""
    style, script = _part("page.css"), _part("page.js")
    parts = {
        "title": html.escape(title),
        "policy": html.escape(_policy(style, script)),
        "style": style,
        "script": script,
        "content": _harmless_json(content),
    }
    return _SLOT.sub(lambda slot: parts[slot[1]], _part("page.html"))


def _policy(style: str, script: str) -> str:
    """Nothing is loaded but data held in the page and the video beside it; nothing runs but the page's script."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "media-src 'self' file: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _harmless_json(content: dict[str, Any]) -> str:
    """JSON without a character that means anything to HTML."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _part(name: str) -> str:
    return files("mule.watching.outputs").joinpath(name).read_text(encoding="utf-8")


def _video(video: PageVideo, page: Path) -> dict[str, Any]:
    try:
        size = video.path.stat().st_size
        kind = _VIDEO_KINDS.get(video.path.suffix.lower(), "")
        shown: dict[str, Any] = {"name": plain_name(video.path.name), "boxes": video.has_boxes, "kind": kind}
        if kind and size <= video.most_bytes_within:
            return shown | {"bytes": base64.b64encode(video.path.read_bytes()).decode()}
    except OSError as error:
        raise MuleError(
            f"{video.path}: the page's video cannot be read; {error.strerror or error}."
        ) from None
    relative = os.path.relpath(video.path.absolute(), page.absolute().parent)
    # "./" before it: a name with a colon is not a scheme
    return shown | {"src": "./" + quote(relative.replace(os.sep, "/"), errors="surrogateescape")}
