"""`report.html`: one page that opens from disk and loads nothing but, if it is large, the video beside it.

The page holds its style, its script and its content: moments as compact lists, pictures as data addresses. A content
security policy allows that one script, by its digest, and nothing else. Names from files appear in the content alone, which
is data, and the script only ever writes them as text.
"""

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mule.core.errors import AnnotationError, MuleError
from mule.core.files import os_reason, write_file
from mule.core.printable import printable
from mule.watching.moments import (
    ActionEvidence,
    Contributor,
    Header,
    Judgement,
    Moment,
    RememberedActor,
    SeenActor,
    novelty_in_words,
    novelty_of,
)
from mule.watching.thumbnails import Thumbnail, ThumbnailArchive

MOST_REASONS = 20_000
"""The page has the reasons of this many looks, the most novel ones; moments.jsonl has all of them."""

MOST_PICTURE_BYTES = 500_000
_PICTURE_KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


class Pictures:
    """Pictures of remembered actors, each in the page once."""

    def __init__(self, archive: ThumbnailArchive | None) -> None:
        self._archive = archive
        self._number: dict[str, int | None] = {}
        self.addresses: list[str] = []

    def number(self, name: str | None) -> int | None:
        """Return the place of a picture in `addresses`; None if there is no such picture."""
        if name is None or self._archive is None:
            return None
        if name not in self._number:
            content = self._archive.read(name)
            self._number[name] = None if content is None else len(self.addresses)
            if content is not None:
                self.addresses.append(picture_address(content, f"{self._archive.path}, {name}"))
        return self._number[name]


def picture_address(content: bytes, place: str) -> str:
    """Return a PNG or JPEG as a data address."""
    kinds = [kind for begin, kind in _PICTURE_KINDS.items() if content.startswith(begin)]
    if not kinds or len(content) > MOST_PICTURE_BYTES:
        raise AnnotationError(
            f"{place}: a thumbnail must be a PNG or JPEG of at most {MOST_PICTURE_BYTES // 1000} kB; got "
            f"{len(content)} bytes beginning with {content[:8]!r}."
        )
    return f"data:{kinds[0]};base64,{base64.b64encode(content).decode()}"


def page_content(
    header: Header,
    moments: Iterable[Moment],
    *,
    thumbnails: Sequence[Thumbnail],
    remembered: ThumbnailArchive | None,
) -> dict[str, Any]:
    """Return all that the page shows except the video. Numbers that decide are exact; others are rounded."""
    seen = list(moments)
    pictures = Pictures(remembered)
    explained = _explained(header, seen)
    tracks: dict[int, list[dict[str, Any]]] = {}
    for at, moment in enumerate(seen):
        for actor in moment.actors:
            look = _look(at, actor, header)
            if explained is None or (at, actor.track_id) in explained:
                look["why"] = _why(actor, pictures)
            tracks.setdefault(actor.track_id, []).append(look)
    return {
        "source": header.source.model_dump(),
        "rate": float(header.source.rate),
        "model": header.model.model_dump(),
        "threshold": header.threshold.model_dump(),
        "every": header.every_s,
        "times": [moment.key_time_s for moment in seen],
        "tracks": [{"id": number, "looks": looks} for number, looks in sorted(tracks.items())],
        "explained": None if explained is None else len(explained),
        "thumbnails": [
            {"t": each.key_time_s, "id": each.track_id, "src": picture_address(each.png, "thumbnail")}
            for each in thumbnails
        ],
        "pictures": pictures.addresses,
    }


def _explained(header: Header, moments: Sequence[Moment]) -> set[tuple[int, int]] | None:
    """The looks whose reasons the page has; None for all."""
    looks = [
        (novelty_of(actor, header.threshold), at, actor.track_id)
        for at, moment in enumerate(moments)
        for actor in moment.actors
    ]
    if len(looks) <= MOST_REASONS:
        return None
    return {(at, track_id) for _, at, track_id in nlargest(MOST_REASONS, looks)}


def _look(at: int, actor: SeenActor, header: Header) -> dict[str, Any]:
    view, novelty = header.threshold.view, novelty_of(actor, header.threshold)
    return {
        "at": at,
        "box": [round(value, 4) for value in actor.box_xyxy_unit],
        "novelty": novelty,
        "said": novelty_in_words(novelty, header.threshold),
        "looks": actor.num_looks,
        "idle": actor.is_idle,
        "does": [
            [each.action, *map(_short, (each.belief, each.disbelief, each.uncertainty, each.probability))]
            for each in actor.judged(view).actions
        ],
        "now": _scores(actor.now),
        "sofar": _scores(actor.so_far),
    }


def _scores(judgement: Judgement) -> list[float | None]:
    novelty = judgement.novelty
    scores = (novelty.pe, novelty.ne, novelty.pne, novelty.belief, novelty.p_value)
    return [None if value is None else _short(value) for value in scores]


def _why(actor: SeenActor, pictures: Pictures) -> dict[str, Any]:
    reasons = actor.reasons
    return {
        "for": _amounts(reasons.evidence_for),
        "against": _amounts(reasons.evidence_against),
        "like": [_remembered(each, pictures) for each in reasons.remembered],
        "most": None if reasons.contributor is None else _contributor(reasons.contributor),
    }


def _amounts(evidence: Sequence[ActionEvidence]) -> list[tuple[str, float]]:
    return [(each.action, _short(each.amount)) for each in evidence]


def _remembered(actor: RememberedActor, pictures: Pictures) -> dict[str, Any]:
    return {
        "video": actor.video,
        "t": _short(actor.time_s),
        "does": actor.actions,
        "far": _short(actor.distance),
        "picture": pictures.number(actor.thumbnail),
    }


def _contributor(most: Contributor) -> dict[str, Any]:
    box = None if most.box_xyxy_unit is None else [round(value, 4) for value in most.box_xyxy_unit]
    return {
        "kind": most.kind,
        "name": most.name,
        "share": _short(most.share),
        "by": most.found_by,
        "id": most.track_id,
        "box": box,
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


SMALL_VIDEO_BYTES = 6_000_000

_VIDEO_KINDS = {".mp4": "video/mp4", ".m4v": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg"}
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class PageVideo:
    """The video of a page: inside it if it is small, else by its path from the page."""

    path: Path
    has_boxes: bool = False
    """Whether the frames have boxes already; then the page draws only that of the selected actor."""
    most_bytes_within: int = SMALL_VIDEO_BYTES


def write_page(
    path: Path,
    header: Header,
    moments: Iterable[Moment],
    *,
    video: PageVideo | None = None,
    thumbnails: Sequence[Thumbnail] = (),
    remembered: ThumbnailArchive | None = None,
) -> None:
    """Write the page, whole or not at all. Without a video it shows boxes on a plain background."""
    content = page_content(header, moments, thumbnails=thumbnails, remembered=remembered)
    content["video"] = None if video is None else _video(video, path)
    write_file(path, page_text(content, title=f"{header.source.video} · MULE"))


def page_text(content: dict[str, Any], *, title: str) -> str:
    """Return the page as HTML."""
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
    """Load nothing but data in the page and the video beside it; run nothing but the page's script."""
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
        shown: dict[str, Any] = {"name": printable(video.path.name), "boxes": video.has_boxes, "kind": kind}
        if kind and size <= video.most_bytes_within:
            return shown | {"bytes": base64.b64encode(video.path.read_bytes()).decode()}
    except OSError as error:
        raise MuleError(f"{video.path}: the page's video cannot be read: {os_reason(error)}.") from None
    relative = os.path.relpath(video.path.absolute(), page.absolute().parent)
    # "./" before it: a name with a colon is not a scheme
    return shown | {"src": "./" + quote(relative.replace(os.sep, "/"), errors="surrogateescape")}
