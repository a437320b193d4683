"""No password, token or query string survives where an address is shown."""

import string
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mule.core.printable import printable, printable_address, without_secrets

SECRET_LETTERS = string.ascii_uppercase + "?#&;=:@/ %'\"\\äß"
secrets = st.text(SECRET_LETTERS, min_size=4, max_size=20).filter(lambda text: any(map(str.isalpha, text)))
hosts = st.sampled_from(["camera.example", "10.0.0.1:554", "[::1]:80"])
schemes = st.sampled_from(["rtsp", "https", "rtmp", "srt"])
paths = st.sampled_from(["", "/", "/live", "/live/1.m3u8"])


def has_none_of(shown, secret):
    """Whether no letter of a secret is shown; hosts, paths and schemes of these tests have none of them."""
    return not set(shown) & {letter for letter in secret if letter.isalpha()}


@given(schemes, hosts, paths, secrets, secrets)
@example("rtsp", "camera.example", "/live", "A@B/C?D", "E@F")
@example("rtsp", "camera.example", "", "A:B@C", "D/E@F/G")
def test_no_letter_of_any_secret_is_in_a_printed_address(scheme, host, path, password, token):
    typed = [
        f"{scheme}://user:{password}@{host}{path}",
        f"{scheme}://{password}@{host}{path}",
        f"{scheme}://user:{quote(password, safe='')}@{host}{path}?token={token}",
        f"{scheme}://{host}{path}?token={token}",
        f"{scheme}://{host}{path}#{token}",
        f"{scheme}://{host}/user=admin&password={quote(password, safe='')}_channel=1",
        f"{scheme}:/user:{password}@{host}{path}?{token}",
    ]
    for address in typed:
        assert has_none_of(printable_address(address), password + token), address


@given(schemes, hosts, paths)
def test_an_address_without_secrets_is_shown_as_it_is(scheme, host, path):
    assert printable_address(f"{scheme}://{host}{path}") == f"{scheme}://{host}{path}"


@given(st.text())
@example("rtsp://u:p@h/a?b")
def test_what_is_printable_stays_as_it_is(text):
    shown = printable_address(text)
    assert printable_address(shown) == shown
    assert printable(shown) == shown
    clean = without_secrets(text, [text])
    assert without_secrets(clean) == clean


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("rtsp://user:secret@camera/1", "rtsp://camera/1"),
        ("rtsp://camera/1?channel=1#end", "rtsp://camera/1?…"),
        ("rtsp://camera/1?", "rtsp://camera/1"),
        ("rtsp://camera/live;token=a/1", "rtsp://camera/…/1"),
        ("rtsp://user:secret", "rtsp://…"),
        ("https://host/@name/video", "https://…"),
        ("user:secret@camera/1", "camera/1"),
        ("camera/1?token=a", "camera/1?…"),
        ("C:\\videos\\1.mp4", "C:\\videos\\1.mp4"),
        ("/dev/video0", "/dev/video0"),
        ("a=b/c@d.mp4", "a=b/c@d.mp4"),
    ],
)
def test_addresses_keep_what_tells_one_camera_from_another(typed, shown):
    assert printable_address(typed) == shown


@given(schemes, hosts, paths, secrets, secrets)
def test_no_secret_of_the_command_is_in_a_text(scheme, host, path, password, token):
    address = f"{scheme}://user:{password}@{host}{path}?token={quote(token, safe='')}"
    words = f"file 'a.py', line 1: open({address!r}) of {address}: refused {password}, {token} and {quote(token, safe='')}"
    for command in ([address], [f"--source={address}"]):
        assert has_none_of(without_secrets(words, ["watch", *command, "--live"]), password + token)


@pytest.mark.parametrize(
    "text",
    [
        "GET https://camera.example/live?token=HUSH failed",
        "'rtsp://user:HUSH@camera.example/1' is closed",
        "(rtsp://user:HUSH@camera.example/1)",
        "login user:HUSH@camera.example failed",
        "password=HUSH",
        '{"token": "HUSH", "user": "a"}',
        "Authorization: Bearer HUSH",
        "api_key = HUSH",
        "https://camera.example/a.m3u8?Signature=HUSH&Policy=HUSH, line 3",
    ],
)
def test_secrets_in_a_text_need_not_be_known(text):
    assert "HUSH" not in without_secrets(text)


def test_a_long_text_takes_no_long_time():
    for text in ("a" * 100_000, "a:" * 50_000, "token" * 20_000, "http:/" * 20_000):
        assert without_secrets(text)
