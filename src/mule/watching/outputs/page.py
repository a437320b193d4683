"""What the page knows: moments as compact lists, pictures as data addresses. Nothing here is HTML.

`report.html`: one page that opens from disk, with nothing from outside it but, perhaps, the video beside it.

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
from heapq import nlargest
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mule.core.errors import AnnotationError, MuleError
from mule.core.files import write_file
from mule.watching.moments import (
    ActionEvidence,
    ActionOpinion,
    Contributor,
    Header,
    Judgement,
    Moment,
    RememberedActor,
    SeenActor,
    novelty_of,
    plain_name,
    said_of,
)
from mule.watching.outputs.thumbnails import Thumbnail

MOST_REASONS = 20_000
"""Of more looks than this the reasons of the most novel ones are in the page; all are in moments.jsonl."""

MOST_PICTURE_BYTES = 500_000
_PICTURE_KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


class Pictures:
    """Pictures of remembered actors, each in the page once. Names cannot leave the folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder.resolve()
        self._number: dict[str, int | None] = {}
        self.addresses: list[str] = []

    def number(self, name: str | None) -> int | None:
        """The place of a picture in `addresses`; None where there is no such file or no folder.

        Raises:
            AnnotationError: the name leads out of the folder, or to something that is no small PNG or JPEG.
        """
        if name is None or self._folder is None:
            return None
        if name not in self._number:
            self._number[name] = self._added(name, self._folder)
        return self._number[name]

    def _added(self, name: str, folder: Path) -> int | None:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise AnnotationError(
                f"{folder}: thumbnails of remembered actors must lie in the folder; got {name!r}."
            )
        if not path.is_file():
            return None
        self.addresses.append(picture_address(path.read_bytes(), str(path)))
        return len(self.addresses) - 1


def picture_address(content: bytes, place: str) -> str:
    """A PNG or JPEG as a data address.

    Raises:
        AnnotationError: it is neither, or large; the message names the place.
    """
    kinds = [kind for begin, kind in _PICTURE_KINDS.items() if content.startswith(begin)]
    if not kinds or len(content) > MOST_PICTURE_BYTES:
        raise AnnotationError(
            f"{place}: a thumbnail must be a PNG or JPEG of at most {MOST_PICTURE_BYTES // 1000} kB; got "
            f"{len(content)} bytes beginning with {content[:8]!r}."
        )
    return f"data:{kinds[0]};base64,{base64.b64encode(content).decode()}"


def page_content(
    header: Header, moments: Iterable[Moment], *, thumbnails: Sequence[Thumbnail], memory: Path | None
) -> dict[str, Any]:
    """All that the page shows but the video. Numbers that decide are exact; others are rounded.

    Args:
        header: of the moments.
        moments: in the order of their key times.
        thumbnails: of the most novel looks.
        memory: the folder of remembered actors' thumbnails; None shows none.
    """
    seen = list(moments)
    pictures = Pictures(memory)
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
    """The looks whose reasons are shown; None for all."""
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
        "said": said_of(novelty, header.threshold),
        "looks": actor.num_looks,
        "does": [[each.action, *map(_short, _masses(each))] for each in actor.judged(view).actions],
        "now": _scores(actor.now),
        "sofar": _scores(actor.so_far),
    }


def _masses(opinion: ActionOpinion) -> tuple[float, ...]:
    return opinion.belief, opinion.disbelief, opinion.uncertainty, opinion.probability


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


def _contributor(found: Contributor) -> dict[str, Any]:
    box = None if found.box_xyxy_unit is None else [round(value, 4) for value in found.box_xyxy_unit]
    return {
        "kind": found.kind,
        "name": found.name,
        "share": _short(found.share),
        "by": found.found_by,
        "id": found.track_id,
        "box": box,
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


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
    write_file(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


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
