"""Files of weights from their publishers: resumed where they broke off, checked, and in place only when whole.

address ──▶ NAME.part ──▶ checksum ──▶ NAME        NAME.part-tag: which version of the file the part is of
"""

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from mule.core.errors import DownloadError
from mule.core.files import sha256_of

ATTEMPTS = 3
TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")

Progress = Callable[[int, int | None], None]
"""Told after every chunk: bytes so far, and bytes in all where the server says so."""


@runtime_checkable
class Downloadable(Protocol):
    """A card of backbone or detector weights, as far as fetching goes."""

    @property
    def name(self) -> str:
        """What the file is called on disk, without suffix."""
        ...

    @property
    def address(self) -> str | None:
        """Where it is, or None if no plain request could fetch it."""
        ...

    @property
    def sha256(self) -> str | None:
        """Its checksum, where the publisher gives it."""
        ...

    @property
    def hash_prefix(self) -> str | None:
        """The first digits of its checksum, where the publisher gives those."""
        ...


@dataclass(frozen=True)
class Pulled:
    """A whole file in its place."""

    path: Path
    sha256: str
    is_checked: bool
    """Whether the publisher's checksum, or its first digits, were known and agree."""
    was_there: bool


class _Broken(Exception):  # noqa: N818 - a turn of events, not an error of the caller
    """The connection ended early; what came is kept."""


class _OutOfRange(Exception):  # noqa: N818 - a turn of events too
    """The part on disk reaches the end of the server's file, or beyond; the argument is that file's length."""


def place_of(card: Downloadable, folder: Path) -> Path:
    """Where a card's file is kept: its name, with the suffix of its address."""
    return folder / (card.name + Path(urlsplit(card.address or "weights.pth").path).suffix)


def require_checksum(card: Downloadable, sha256: str, path: Path) -> bool:
    """Whether the publisher gives a checksum, or its first digits, at all; if so, the file has it.

    Raises:
        DownloadError: the file is not the one that was published.
    """
    known = card.sha256 or card.hash_prefix
    if known is not None and not sha256.startswith(known):
        raise DownloadError(
            f"{path}: the SHA-256 checksum of '{card.name}' must begin with {known}; got {sha256}. This is a "
            "damaged file, or another one. Have it removed and pull again."
        )
    return known is not None


def pull(
    card: Downloadable, folder: Path, *, offline: bool = False, on_progress: Progress | None = None
) -> Pulled:
    """The card's file in `folder`: the one already there, or fetched, checked and moved into place at once.

    Raises:
        DownloadError: there is no plain address, no network, no room, or the file is not what was published.
    """
    target = place_of(card, folder)
    if target.is_file():
        sha256 = sha256_of(target)
        return Pulled(target, sha256, require_checksum(card, sha256, target), was_there=True)
    address = _allowed_address(card, target)
    if offline:
        raise DownloadError(
            f"{target} must be there when offline; it is not. Go online, or bring it from {address} yourself."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _fetched(card, address, target, on_progress or _say_nothing)
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(f"{target}: must be a place where a file can be written; {error}.") from error


def _fetched(card: Downloadable, address: str, target: Path, on_progress: Progress) -> Pulled:
    part = target.with_name(target.name + ".part")
    tag = target.with_name(target.name + ".part-tag")
    _fetch(address, part, tag, on_progress)
    tag.unlink(missing_ok=True)
    sha256 = sha256_of(part)
    try:
        is_checked = require_checksum(card, sha256, part)
    except DownloadError:
        part.unlink()  # there is nothing to go on from
        raise
    part.replace(target)
    return Pulled(target, sha256, is_checked, was_there=False)


def _allowed_address(card: Downloadable, target: Path) -> str:
    if card.address is None:
        note = getattr(card, "note", "")
        raise DownloadError(
            f"'{card.name}' must be brought to {target} by hand; no plain request fetches it. {note}"
        )
    _require_allowed(card.address)
    return card.address


def _require_allowed(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise DownloadError(f"addresses must begin with https://; got {address}.")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only where a card's address could lead itself."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: Any,  # noqa: ANN401 - whatever urllib has in hand
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The next request, if its address is allowed."""
        _require_allowed(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _say_nothing(_num_bytes: int, _total: int | None) -> None:
    pass


def _fetch(address: str, part: Path, tag: Path, on_progress: Progress) -> None:
    """Returns once `part` is whole; a broken connection is taken up again a few times."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _continue(address, part, tag, on_progress)
        except _Broken as broken:
            if attempt == ATTEMPTS:
                raise DownloadError(
                    f"{address}: the connection broke {ATTEMPTS} times ({broken}). What came is kept: pull again to go on."
                ) from broken
    return None


def _continue(address: str, part: Path, tag: Path, on_progress: Progress) -> None:
    """Asks for what is missing of `part`; starts over where the server has another version, or knows no parts."""
    version = tag.read_text() if tag.is_file() else ""
    start = part.stat().st_size if version and part.is_file() else 0
    headers = {"User-Agent": "mule", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    try:
        response = _opened(urllib.request.Request(address, headers=headers))
    except _OutOfRange as beyond:
        if str(beyond) == str(start):
            return
        tag.unlink()
        raise _Broken("the part on disk is of another file") from beyond
    with response:
        is_rest = response.status == 206 and _range_of(response).startswith(f"bytes {start}-")
        start = start if is_rest else 0
        total = None if response.length is None else start + response.length
        with part.open("r+b" if is_rest else "wb") as file:
            tag.write_text(_version_of(response))
            file.seek(start)
            for chunk in _chunks(response):
                file.write(chunk)
                on_progress(file.tell(), total)
            num_bytes = file.tell()
            file.flush()
            os.fsync(file.fileno())
    if total is not None and num_bytes != total:
        raise _Broken(f"after {num_bytes} of {total} bytes")


def _opened(request: urllib.request.Request) -> http.client.HTTPResponse:
    address = request.full_url
    try:
        return urllib.request.build_opener(_SafeRedirects).open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:
                raise _OutOfRange(_range_of(error).rpartition("/")[2]) from error
            if error.code >= 500 or error.code in (408, 429):
                raise _Broken(f"the server answered {error.code}") from error
            raise DownloadError(
                f"{address}: the server must have this file; it answered {error.code} {error.reason}. Has it moved?"
            ) from error
    except urllib.error.URLError as error:
        raise DownloadError(
            f"{urlsplit(address).hostname} must be reachable; {error.reason}. Is there a network? Or bring the file "
            f"from {address} yourself."
        ) from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _Broken(str(error) or type(error).__name__) from error


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read(CHUNK_BYTES):
            yield chunk
    except (http.client.HTTPException, OSError) as error:
        raise _Broken(str(error) or type(error).__name__) from error


def _range_of(response: http.client.HTTPResponse | urllib.error.HTTPError) -> str:
    return response.headers["Content-Range"] or ""


def _version_of(response: http.client.HTTPResponse) -> str:
    """What names this version of the file; a weak tag does not promise the same bytes."""
    tag = response.headers["ETag"] or ""
    return tag if tag and not tag.startswith("W/") else response.headers["Last-Modified"] or ""
