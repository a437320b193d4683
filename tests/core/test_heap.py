"""A process that keeps freed memory touches new pages once, not at every allocation."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from mule.core.heap import keep_freed_memory
is_kept = keep_freed_memory() if sys.argv[1] == "kept" else False
def round_of_blocks():
    for megabytes in (40, 64, 24):
        np.ones(megabytes << 20, dtype=np.uint8)
round_of_blocks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    round_of_blocks()
print(int(is_kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> tuple[bool, int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    is_kept, count = done.stdout.split()
    return is_kept == "1", int(count)


@pytest.mark.alone
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_freed_blocks_are_used_again_without_a_page_fault():
    is_kept, kept = faults("kept")
    _, usual = faults("usual")
    if not is_kept:
        pytest.skip("needs glibc's mallopt")
    assert kept * 10 < usual


def test_another_c_library_is_left_alone(monkeypatch):
    from mule.core import heap

    monkeypatch.setattr(heap.ctypes, "CDLL", lambda _: object())
    assert heap.keep_freed_memory() is False
