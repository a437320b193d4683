"""A pulled file is whole, checked and in its place, or there is no file of that name and a sentence says why."""

import hashlib
import json
import os
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mule.core.errors import DownloadError
from mule.core.files import sha256_of, sha256_while_unchanged
from mule.features.weights import download
from mule.features.weights.download import place_of, pull

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass(frozen=True)
class Card:
    address: str | None
    name: str = "some_weights"
    sha256: str | None = None
    hash_prefix: str | None = None
    note: str = ""


class Publisher:
    """A server of one file, with the faults that a test asks for."""

    def __init__(self):
        self.address = ""
        self.content = CONTENT
        self.drop_after = []
        """Bytes after which each of the next answers breaks off."""
        self.status = None
        self.redirect_to = None
        self.length = None
        self.num_requests = 0

    def answer(self, request):
        self.num_requests += 1
        if self.redirect_to:
            request.send_response(302)
            request.send_header("Location", self.redirect_to)
            request.end_headers()
            return
        if self.status:
            request.send_error(self.status)
            return
        body = self.content
        request.send_response(200)
        request.send_header("Content-Length", str(self.length or len(body)))
        request.end_headers()
        request.wfile.write(body[: self.drop_after.pop(0)] if self.drop_after else body)


@pytest.fixture
def publisher(monkeypatch):
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(download, "CHUNK_BYTES", 1000)
    state = Publisher()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.answer(self)

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_port}/zoo/weights.pth"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_file_is_fetched_whole_and_found_again_without_asking(publisher, tmp_path):
    folder = tmp_path / "new" / "folder"
    pulled = pull(Card(publisher.address), folder)
    assert pulled.path == folder / "some_weights.pth"
    assert pulled.path.read_bytes() == CONTENT
    assert (pulled.sha256, pulled.is_checked, pulled.was_there) == (SHA256, False, False)
    again = pull(Card(publisher.address, hash_prefix=SHA256[:8]), folder, offline=True)
    assert (again.sha256, again.is_checked, again.was_there) == (SHA256, True, True)
    assert publisher.num_requests == 1
    assert names_in(folder) == ["pins.json", "some_weights.pth"]


@pytest.mark.parametrize("known", [{}, {"hash_prefix": SHA256[:8]}])
def test_what_the_publisher_does_not_vouch_for_must_stay_what_was_first_used(publisher, tmp_path, known):
    card = Card(publisher.address, **known)
    assert pull(card, tmp_path).is_first_use
    assert not pull(card, tmp_path).is_first_use
    pins = json.loads((tmp_path / "pins.json").read_text())
    assert pins == {"some_weights": SHA256}
    (tmp_path / "some_weights.pth").unlink()
    publisher.content = CONTENT[::-1]
    with pytest.raises(DownloadError, match=rf"first used here, with SHA-256 {SHA256}|must begin with"):
        pull(card, tmp_path)
    assert names_in(tmp_path) == ["pins.json"]
    (tmp_path / "pins.json").write_text("{")
    with pytest.raises(DownloadError, match=r"pins\.json: must hold a checksum for each name"):
        pull(Card(publisher.address), tmp_path)


def test_a_whole_published_checksum_needs_no_note(publisher, tmp_path):
    assert not pull(Card(publisher.address, sha256=SHA256), tmp_path).is_first_use
    assert names_in(tmp_path) == ["some_weights.pth"]


@pytest.mark.parametrize("name", ["../weights", "a/b", "a\\b", "", ".hidden", "a\0b"])
def test_a_name_that_could_lead_out_of_the_folder_is_refused(publisher, tmp_path, name):
    with pytest.raises(DownloadError, match="must be plain file names, without separators"):
        pull(Card(publisher.address, name=name), tmp_path / "here")
    assert publisher.num_requests == 0
    assert names_in(tmp_path) == []


def test_progress_rises_to_the_whole(publisher, tmp_path):
    told = []
    pull(Card(publisher.address), tmp_path, on_progress=lambda done, total: told.append((done, total)))
    assert told == [*((done, len(CONTENT)) for done in range(1000, 10001, 1000)), (10240, 10240)]


def test_a_connection_that_breaks_is_tried_again_from_the_start(publisher, tmp_path):
    publisher.drop_after = [3000, 2500]
    pulled = pull(Card(publisher.address, sha256=SHA256), tmp_path)
    assert pulled.path.read_bytes() == CONTENT
    assert publisher.num_requests == 3
    assert names_in(tmp_path) == ["some_weights.pth"]


def test_a_connection_that_breaks_for_good_leaves_nothing_behind(publisher, tmp_path):
    publisher.drop_after = [3000, 0, 0]
    with pytest.raises(DownloadError, match=r"broke 3 times \(.*10240 more expected.*Try again later"):
        pull(Card(publisher.address), tmp_path)
    assert names_in(tmp_path) == []
    assert pull(Card(publisher.address), tmp_path).path.read_bytes() == CONTENT


def test_a_body_shorter_than_announced_never_becomes_the_file(publisher, tmp_path):
    publisher.length = len(CONTENT) + 50
    with pytest.raises(DownloadError, match=r"10240 bytes read, 50 more expected"):
        pull(Card(publisher.address), tmp_path)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("known", [{"sha256": "0" * 64}, {"hash_prefix": "00000000"}])
def test_a_file_with_another_checksum_is_thrown_away(publisher, tmp_path, known):
    with pytest.raises(DownloadError, match=rf"'some_weights' must begin with 0+; got {SHA256}"):
        pull(Card(publisher.address, **known), tmp_path)
    assert names_in(tmp_path) == []


def test_a_file_that_was_damaged_on_disk_is_noticed_and_left_to_its_owner(publisher, tmp_path):
    (tmp_path / "some_weights.pth").write_bytes(CONTENT[:-1])
    with pytest.raises(DownloadError, match="Delete it and pull again"):
        pull(Card(publisher.address, sha256=SHA256), tmp_path)
    assert sha256_of(tmp_path / "some_weights.pth") != SHA256
    assert publisher.num_requests == 0


@pytest.mark.parametrize(
    ("status", "requests", "complaint"),
    [(404, 1, "it answered 404 Not Found. Has it moved"), (403, 1, "403"), (503, 3, "broke 3 times .*503")],
)
def test_a_refusal_leaves_nothing_behind(publisher, tmp_path, status, requests, complaint):
    publisher.status = status
    with pytest.raises(DownloadError, match=complaint):
        pull(Card(publisher.address), tmp_path)
    assert names_in(tmp_path) == []
    assert publisher.num_requests == requests


def test_without_a_network_the_message_says_what_to_do(publisher, tmp_path):
    nobody = "http://127.0.0.1:1/weights.pth"
    with pytest.raises(
        DownloadError,
        match=r"127\.0\.0\.1 must be reachable; .*refused.* Is there a network\?.*download http",
    ):
        pull(Card(nobody), tmp_path)
    with pytest.raises(DownloadError, match=r"must exist when offline; it does not\. Go online"):
        pull(Card(publisher.address), tmp_path, offline=True)
    assert publisher.num_requests == 0
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    "address", ["http://example.org/a.pth", "file:///etc/passwd", "ftp://example.org/a.pth"]
)
def test_only_https_is_asked_directly_or_by_redirection(publisher, tmp_path, address):
    with pytest.raises(DownloadError, match="addresses must begin with https://; got " + address):
        pull(Card(address), tmp_path)
    publisher.redirect_to = address
    with pytest.raises(DownloadError, match=f"https://; got {address}"):
        pull(Card(publisher.address), tmp_path)
    assert names_in(tmp_path) == []


def test_a_card_without_address_says_where_the_file_is(tmp_path):
    with pytest.raises(
        DownloadError,
        match=r"cannot be downloaded automatically; save it as .*some_weights\.pth.* On a drive\.",
    ):
        pull(Card(None, note="On a drive."), tmp_path)
    place_of(Card(None), tmp_path).write_bytes(CONTENT)
    assert pull(Card(None), tmp_path).was_there


def test_a_folder_that_cannot_be_made_is_named(publisher, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DownloadError, match=r"file.some_weights\.pth: cannot be written: (not a directory|file exists)"
    ):
        pull(Card(publisher.address), tmp_path / "file")


def test_a_checksum_is_read_once_while_the_file_stays_and_again_when_it_has_changed(tmp_path, monkeypatch):
    path = tmp_path / "weights.pth"
    path.write_bytes(CONTENT)
    assert sha256_while_unchanged(path) == SHA256
    with monkeypatch.context() as nobody_reads:
        nobody_reads.setattr(download, "sha256_of", lambda _: pytest.fail("read again"))
        assert sha256_while_unchanged(path) == SHA256
    other = bytes(reversed(CONTENT))  # as long as before
    path.write_bytes(other)
    os.utime(path, ns=(0, 1))
    assert sha256_while_unchanged(path) == hashlib.sha256(other).hexdigest()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        sha256_while_unchanged(path)
