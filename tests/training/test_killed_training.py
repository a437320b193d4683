"""A training that is killed at any moment and resumed ends with the same bits as one that was left alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killed_training.py")


def trials(folder, num_moments, *, seed, num_workers, num_threads=1):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *map(str, (num_moments, seed, num_workers, num_threads))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_unharmed(found):
    for trial in found:
        assert trial["killed_at"][0], trial  # it really was
        assert trial["same_weights"], trial
        assert trial["same_curves"], trial
        assert trial["left_over"] == [], trial
        assert trial["status"] == "finished", trial


@pytest.mark.parametrize("num_threads", [1, 2])
def test_two_moments(tmp_path, num_threads):
    found = trials(tmp_path, 2, seed=3, num_workers=0, num_threads=num_threads)
    assert len(found) == 2
    assert_unharmed(found)


@pytest.mark.slow
@pytest.mark.parametrize(("num_workers", "num_threads"), [(0, 1), (1, 1), (0, 2)])
def test_ten_moments(tmp_path, num_workers, num_threads):
    found = trials(tmp_path, 10, seed=num_workers, num_workers=num_workers, num_threads=num_threads)
    assert len(found) == 10
    assert_unharmed(found)
