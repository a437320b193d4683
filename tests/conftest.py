"""What every test shares."""

import os
import sys
from pathlib import Path

import pytest
import shape_checks
from hypothesis import settings

shape_checks.install()

# Processes that test side by side share the cores; threads of each that wait for each other only burn them. Set before
# torch is loaded, and handed on to the processes that tests start.
os.environ["MULE_OFFLINE"] = "1"  # a test that fetches says so itself

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# The same examples every time; no deadline, because a busy machine is not a bug.
settings.register_profile("mule", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("mule")


def pytest_testnodedown(node, error):
    """Print how a process that died while it tested had ended; xdist tells only that it did."""
    if error:
        code = node.gateway._io.popen.poll()
        sys.stderr.write(
            f"\n{node.gateway.id} ended with exit code {code} (below 0: the number of a signal)\n"
        )


@pytest.fixture(scope="session", autouse=True)
def commands_leave_the_process_alone():
    """Commands that tests call here leave allocator and signals alone: it is the process of thousands of other tests."""
    from mule.cli import main

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(main, "keep_freed_memory", lambda: False)
        patched.setattr(main, "share_cores", lambda: None)
        patched.setattr(main, "take_sigterm_for_ctrl_c", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def users_cache(tmp_path_factory):
    """The cache folder of whoever runs the tests, to be read only: crash reports and the like go to one of the tests' own."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        if "MPLCONFIGDIR" not in os.environ:  # looking for fonts takes seconds
            patched.setenv("MPLCONFIGDIR", str(caches / "matplotlib"))
        yield caches / "mule"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real weights and videos, where they are at hand: $MULE_SHARED_DATA, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("MULE_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"needs shared data: no folder {folder} (set MULE_SHARED_DATA)")
    return folder


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Where the rendered clips of tiny runs are kept."""
    return tmp_path_factory.mktemp("stage")


@pytest.fixture(scope="session")
def asked(root, tmp_path_factory):
    """A comparison of MULE as printed, a rival without relations, and the reference, over two steps each."""
    from tiny_rows import JUDGING, contestants

    from mule.comparison.compare import ComparisonPlan

    return ComparisonPlan(
        contestants(root, "mule-literal-without-aco-r", "slowfast", "bce-aco-r"),
        tmp_path_factory.mktemp("compared"),
        judging=JUDGING,
        num_workers=0,
    )


@pytest.fixture(scope="session")
def done(asked):
    """That comparison, run once; tests look at it and leave it as it is."""
    from tiny_rows import silent, watched_by_nobody

    from mule.comparison.compare import run_comparison

    return run_comparison(asked, watch=watched_by_nobody, noted=silent)
