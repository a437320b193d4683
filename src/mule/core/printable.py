"""Make names and addresses printable: without control characters, passwords, tokens or query strings.

Everything that MULE prints or writes about where frames come from passes through here: logs, errors, reports, moments,
file names, exports and crash reports.

An address is shown as its scheme, host, port and path. A password or token that is a plain part of the path cannot be
told from a name, and is shown.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote

REMOVED = "…"

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,20}):(?P<slashes>/+)(?P<rest>.*)", re.DOTALL)
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}:/+[^\s'\"`<>]+")
_LOGIN = re.compile(r"[^\s'\"`<>/:@]{1,256}+:[^\s'\"`<>@]{0,256}+@")
_NAMED = re.compile(
    r"(?P<name>(?:authorization|credentials?|passw(?:or)?d|passphrase|secret|signature|token|(?:api|access)[_-]?key)"
    r"[\"']?\s{0,9}[=:]\s{0,9})(?P<value>(?:basic|bearer)\s+\S+|\"[^\"]*\"|'[^']*'|[^\s\"'&,;)\]}]+)",
    re.IGNORECASE,
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:=&;]*)(:\d*)?")
_QUERY = re.compile(r"[?#]")
_PATH_OR_QUERY = re.compile(r"[/?#]")
_VALUE = re.compile(r"[=&;]")
_LEAST_LETTERS = 4


@lru_cache(maxsize=4096)
def printable(text: str) -> str:
    r"""Return the text with � for characters that no file format can carry: control characters and lone surrogates.

    >>> printable("lobby\n1.mp4")
    'lobby�1.mp4'
    """
    return "".join("�" if is_unwritable(letter) else letter for letter in text)


def is_unwritable(letter: str) -> bool:
    r"""Return whether a character is a control character, a lone surrogate or no character.

    >>> is_unwritable("\n"), is_unwritable("é")
    (True, False)
    """
    return unicodedata.category(letter) in ("Cc", "Cs") or letter in "\ufffe\uffff"


def printable_address(address: str) -> str:
    """Return an address without user name, password, query and fragment, so that anybody may read it.

    Parts of the path with = & or ; are left out as well, as some cameras take a password there. An @ behind the host
    leaves open what is a password: of such an address only the scheme is shown.

    Args:
        address: a whole address, such as a user typed it. A path without a scheme keeps all but `user:password@` and
            what follows a question mark.

    >>> printable_address("rtsp://admin:hunter2@camera.example:554/live/1?token=abc")
    'rtsp://camera.example:554/live/1?…'
    >>> printable_address("rtsp://camera.example/user=admin&password=hunter2")
    'rtsp://camera.example/…'
    >>> printable_address("/videos/lobby.mp4")
    '/videos/lobby.mp4'
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return printable(_without_query(_LOGIN.sub("", address)))
    return f"{match['scheme']}:{match['slashes']}{printable(_shown(match['rest']))}"


def without_secrets(text: str, addresses: Iterable[str] = ()) -> str:
    """Return a text, such as a traceback or a log, in which every address is printable and no named secret has a value.

    Args:
        text: any text. Addresses in it end at a blank or a quotation mark.
        addresses: addresses that the text may quote, such as the words of the command: they are found even with blanks
            in them, and their passwords and the values of their queries are found alone, too.

    >>> without_secrets("opened 'https://camera.example/live?token=abc' with password=hunter2")
    "opened 'https://camera.example/live?…' with password=…"
    >>> without_secrets("401 for hunter2", ["rtsp://admin:hunter2@camera.example/1"])
    '401 for …'
    """
    found = [match for address in addresses if (match := _ADDRESS.search(address))]
    for address in sorted({match[0] for match in found}, key=len, reverse=True):
        for quoted in (address, repr(address)[1:-1]):
            text = text.replace(quoted, printable_address(address))
    for secret in sorted(
        {secret for match in found for secret in _secrets(match["rest"])}, key=len, reverse=True
    ):
        text = text.replace(secret, REMOVED)
    text = _IN_TEXT.sub(lambda found: printable_address(found[0]), text)
    return _NAMED.sub(lambda found: found["name"] + REMOVED, _LOGIN.sub(f"{REMOVED}@", text))


def _shown(rest: str) -> str:
    authority, path = _split(rest, _PATH_OR_QUERY)
    if "@" in path:
        return REMOVED
    host = authority.rpartition("@")[2]
    return (host if _HOST.fullmatch(host) else REMOVED) + _without_query(path, hides_values=True)


def _without_query(path: str, *, hides_values: bool = False) -> str:
    path, query = _split(path, _QUERY)
    parts = [REMOVED if hides_values and _VALUE.search(part) else part for part in path.split("/")]
    return "/".join(parts) + (query[0] + REMOVED if query[1:] else "")


def _split(text: str, end: re.Pattern[str]) -> tuple[str, str]:
    """Return what comes before the first match, and the rest."""
    match = end.search(text)
    return (text, "") if match is None else (text[: match.start()], text[match.start() :])


def _secrets(rest: str) -> set[str]:
    """Return passwords and the values of a query, as typed and decoded; shorter ones are words of any text."""
    logins = {rest.rpartition("@")[0], _split(rest, _PATH_OR_QUERY)[0].rpartition("@")[0]}
    passwords = {login.partition(":")[2] or login for login in logins}
    settings = re.split(r"[/?#&;]", rest)[1:]
    values = {setting.partition("=")[2] for setting in settings}
    found = {*passwords, *values, _split(rest, _QUERY)[1][1:]}
    return {form for secret in found for form in (secret, unquote(secret)) if len(form) >= _LEAST_LETTERS}
