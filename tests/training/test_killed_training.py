"""A training that is killed at any moment and resumed ends with the same bits as one that was left alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killed_training.py")


def trials(folder, num_moments, *settings):
    """What became of so many moments for each (seed, workers, threads)."""
    done = subprocess.run(
        [
            sys.executable,
            str(PROGRAM),
            str(folder),
            str(num_moments),
            *(f"{a},{b},{c}" for a, b, c in settings),
        ],
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


def test_two_moments(tmp_path):
    found = trials(tmp_path, 2, (3, 0, 1), (3, 2, 2))
    assert len(found) == 4
    assert_unharmed(found)


@pytest.mark.thorough
def test_ten_moments(tmp_path):
    found = trials(tmp_path, 10, (0, 0, 1), (1, 1, 1), (0, 0, 2))
    assert len(found) == 30
    assert_unharmed(found)
