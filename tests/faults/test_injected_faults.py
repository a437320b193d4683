"""One write fails, on a full or read-only disk or by a kill: nothing is lost, and the next run ends with the same bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SAMPLE = 1
WORKS = ("extract", "train", "bundle", "watch", "teach")
"""All but a comparison, which takes longest."""


@pytest.mark.slow
def test_a_failed_write_loses_nothing_and_the_next_run_ends_with_the_same_bytes():
    """A sample; `make faults` tries all."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, HERE / "injecting.py", "--works", ",".join(WORKS), "--sample", str(SAMPLE)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line in lines if line.get("wrong")] == [], done.stderr
    assert done.returncode == 0, done.stderr
    assert lines[-1]["trials"] == dict.fromkeys(WORKS, SAMPLE)
