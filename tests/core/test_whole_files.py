"""A file takes its place whole, by one rename, or what was there stays and nothing is left beside it."""

import pytest

from mule.core.files import growing_file, write_to_disk


def test_what_was_written_takes_the_place(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")
    with growing_file(path) as growing:
        write_to_disk(growing, b"after")
        assert path.read_text() == "before"
        assert growing.name.startswith(".")
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_what_was_there_stays_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")

    def write_half():
        with growing_file(path) as growing:
            growing.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_half()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_may_grow_at_once_and_the_last_to_end_stays(tmp_path):
    path = tmp_path / "a.txt"
    with growing_file(path) as first:
        with growing_file(path) as second:
            first.write_text("first")
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]
