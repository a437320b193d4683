"""The rule for threads: as many as cores, never more in sum, and nobody waits awake."""

import os
import subprocess
import sys

import pytest

from mule.core import threads


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A process bound to some cores, in a container with a quota."""

    def made(bound, quota):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(bound)), raising=False)
        monkeypatch.setattr(threads, "QUOTA", tmp_path / "cpu.max")
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if quota is not None:
            (tmp_path / "cpu.max").write_text(quota)

    return made


@pytest.mark.parametrize(
    ("bound", "quota", "cores"),
    [
        (8, None, 8),
        (8, "max 100000", 8),
        (8, "200000 100000", 2),
        (8, "150000 100000", 2),
        (8, "1000 100000", 1),
        (2, "800000 100000", 2),
        (4, "nonsense", 4),
        (4, "5 0", 4),
    ],
)
def test_cores_are_those_bound_to_and_granted(bound, quota, cores, machine):
    machine(bound, quota)
    assert threads.num_cores() == cores


@pytest.mark.parametrize("num_processes", [1, 2, 3, 7, 8, 20])
def test_processes_side_by_side_never_have_more_threads_than_cores(num_processes, machine):
    machine(8, None)
    each = threads.threads_each(num_processes)
    assert each == max(1, 8 // num_processes)
    assert each * num_processes <= max(8, num_processes)


@pytest.mark.parametrize(("said", "num_threads"), [("3", 3), ("64", 8), ("2,1", 2), ("", 8), ("many", 8)])
def test_the_user_may_ask_for_fewer(said, num_threads, machine, monkeypatch):
    machine(8, None)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert threads.threads_each() == num_threads


def test_a_command_tells_torch_before_it_is_loaded():
    program = (
        "import os, sys; from mule.cli.main import run; from mule.core.threads import threads_each; import sys\n"
        "assert 'torch' not in sys.modules\n"
        "sys.argv = ['mule', '--version']\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "import torch; print(torch.get_num_threads() == threads_each(), os.environ['OMP_WAIT_POLICY'])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.splitlines()[-1:] == ["True PASSIVE"], done.stderr
