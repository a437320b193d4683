"""One writer per folder, and nothing that a killed one leaves behind stops the next."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from mule.core import locks
from mule.core.errors import FileError
from mule.core.files import sweep
from mule.core.locks import LOCK, FolderInUseError, new_folder, only_writer

HOLDER = """
import os, sys, time
from pathlib import Path
from mule.core.locks import only_writer
with only_writer(Path(sys.argv[1])):
    if os.fork() == 0:
        os.close(1)
        time.sleep(8)  # as a worker that outlives its parent
        os._exit(0)
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock, and has a fork."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_refused_with_the_name_of_the_first(holder, tmp_path):
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    named = rf"run: only one process may write here.*process {holder.pid} on \S+ .* since 20\d\d-\d\d-\d\d \d\d:\d\d"
    with pytest.raises(FolderInUseError, match=named), only_writer(tmp_path / "run"):
        pytest.fail("two processes write into one folder")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


def test_the_lock_of_a_killed_process_is_taken_over_though_a_fork_of_it_lives(holder, tmp_path):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / LOCK).exists()
    with only_writer(tmp_path / "run") as notes:
        assert f"process {holder.pid} on" in notes[0]
        assert "was killed; continuing in its place" in notes[0]
        assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == os.getpid()
    with only_writer(tmp_path / "run") as notes:
        assert notes == []


def test_a_folder_in_which_nothing_was_written_disappears(tmp_path):
    with only_writer(tmp_path / "new" / "run"):
        assert (tmp_path / "new" / "run").is_dir()
    assert not (tmp_path / "new").exists()
    with only_writer(tmp_path / "new" / "run"):
        (tmp_path / "new" / "run" / "file").touch()
    assert [path.name for path in (tmp_path / "new" / "run").iterdir()] == ["file"]


def test_no_count_is_lost_among_writers_that_take_turns(tmp_path, monkeypatch):
    """Each removes the lock's file as it leaves, so the next may have opened a file that is gone."""
    monkeypatch.setattr(locks, "WAIT_S", 60)
    monkeypatch.setattr(locks, "_LOOK_EVERY_S", 0.0005)
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count():
        for _ in range(20):
            with only_writer(tmp_path):
                counter.write_text(str(int(counter.read_text()) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "80"


def test_a_disk_without_locks_is_written_with_a_note(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(locks.errno.ENOSYS, "function not implemented")

    monkeypatch.setattr(locks, "_lock", refuse)
    with only_writer(tmp_path) as notes:
        assert "this disk has no locks" in notes[0]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(FileError, match=r"run: cannot be written: not a directory\."),
        only_writer(tmp_path / "file" / "run"),
    ):
        pytest.fail("a folder within a file")


def test_a_new_folder_is_whole_or_absent(tmp_path):
    def fail_half_way():
        with new_folder(tmp_path / "model") as parts:
            (parts / "half").touch()
            (parts / "nowhere" / "half").touch()

    with pytest.raises(FileError, match=r"model: cannot be written: no such file.*Nothing was left"):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".model.parts").mkdir()
    (tmp_path / ".model.parts" / "of a killed writer").touch()
    with new_folder(tmp_path / "model") as parts:
        (parts / "whole").touch()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    with pytest.raises(FileError, match="must not exist yet"), new_folder(tmp_path / "model"):
        pytest.fail("it exists")


def test_unfinished_files_are_swept_and_nothing_else(tmp_path):
    for name in (".4711.annotated.mp4", ".run.json.0123456789abcdef", ".hidden", "run.json", ".mule.lock"):
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", ".mule.lock", "run.json"]
