"""Jobs in processes of this machine: each done once, failures named, killed ones started again, nothing left behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from made_jobs import KilledFromOutside, MadeJob, do, ignored, wait_until

from mule.comparison import engines
from mule.comparison.engines import JobFailure, run_jobs
from mule.core.errors import MuleError, RangeError


def run_locally(jobs, *, num_workers=2, noted=ignored):
    return run_jobs(jobs, do, engine="local", num_workers=num_workers, noted=noted)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_no_jobs_are_done_at_once(engine):
    assert run_jobs([], do, engine=engine, num_workers=1, noted=ignored) == ()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_failures_are_named_in_the_order_of_the_jobs_and_the_others_are_done(tmp_path, num_workers):
    kinds = {"a": "plain", "b": "late_refusal", "c": "bug", "d": "plain"}
    jobs = [MadeJob(name, tmp_path, kind) for name, kind in kinds.items()]
    refused, broken = run_locally(jobs, num_workers=num_workers)
    assert refused == JobFailure("b", "b must be smaller; got 7. Lower it.")
    assert broken.name == "c"
    assert broken.reason.startswith("KeyError: 'nothing there' (")
    assert "made_jobs.py, line" in broken.reason
    assert [job.result for job in jobs] == ["done", None, None, "done"]
    assert [len(job.pids) for job in jobs] == [1, 1, 1, 1]
    pids = {job.pids[0] for job in jobs}
    assert pids == {os.getpid()} if num_workers == 0 else len(pids - {os.getpid()}) == 4
    assert not multiprocessing.active_children()


def test_a_child_has_one_thread_from_before_torch_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    job = MadeJob("a", tmp_path, "counts_threads")
    assert run_locally([job]) == ()
    assert job.result == "1 1"
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_a_child_sees_the_environment_as_it_is_when_its_job_begins(tmp_path, monkeypatch):
    for value in ("first", "second"):
        monkeypatch.setenv("MULE_OF_A_TEST", value)
        job = MadeJob(value, tmp_path, "reads_what_a_test_set")
        assert run_locally([job]) == ()
        assert job.result == value


def test_each_child_sees_one_gpu_from_before_torch_is_loaded_and_they_share_if_there_are_fewer(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(engines, "visible_gpus", lambda: ["3", "5"])
    jobs = [MadeJob(name, tmp_path, "sees_gpus") for name in "abc"]
    assert run_locally(jobs, num_workers=3) == ()
    assert [job.result for job in jobs] == ["3 False", "5 False", "3 False"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,5"


def test_the_gpus_of_a_machine_are_those_that_the_environment_leaves_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert engines.visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1a,GPU-2b")
    assert engines.visible_gpus() == ["GPU-1a", "GPU-2b"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert engines.visible_gpus() == []


def test_a_job_gets_the_first_gpu_that_fewest_others_use():
    assert engines.least_used([], []) is None
    assert engines.least_used(["0", "1"], ["0"]) == "1"
    assert engines.least_used(["0", "1"], ["1", "0"]) == "0"
    assert engines.least_used(["0", "1", "2"], ["0", "0", "1", "2"]) == "1"


def test_no_more_jobs_run_at_a_time_than_there_are_workers(tmp_path):
    jobs = [MadeJob(name, tmp_path) for name in "abc"]
    run_locally(jobs, num_workers=1)
    changed_at = [
        (job.folder / file).stat().st_mtime_ns for job in jobs for file in ("log.txt", "result.txt")
    ]
    assert changed_at == sorted(changed_at)


def test_a_killed_job_goes_on_where_it_was_and_its_neighbour_does_not_notice(tmp_path):
    killed, neighbour = MadeJob("killed", tmp_path, "killed_at_first"), MadeJob("neighbour", tmp_path)
    killer, notes = KilledFromOutside(killed), []
    assert run_locally([killed, neighbour], noted=notes.append) == ()
    killer.join()
    assert (killed.result, neighbour.result) == ("half and half", "done")
    assert (len(killed.pids), len(neighbour.pids)) == (2, 1)
    assert killed.notes.count("half") == 1
    (note,) = notes
    assert note.startswith(
        "killed: its process was killed by signal 9 (Killed) before the job was finished. Resuming"
    )
    assert "try 2 of 3" in note


def test_a_job_that_is_always_killed_fails_after_three_tries(tmp_path):
    jobs = [MadeJob("killed", tmp_path, "killed_always"), MadeJob("b", tmp_path)]
    notes = []
    assert run_locally(jobs, noted=notes.append) == (
        JobFailure(
            "killed",
            "its process was killed by signal 9 (Killed) before the job was finished, in try 3 of 3.",
        ),
    )
    assert len(jobs[0].pids) == 3
    assert ["try 2 of 3" in notes[0], "try 3 of 3" in notes[1]] == [True, True]
    assert jobs[1].result == "done"


def test_a_job_that_leaves_without_a_word_fails_at_once(tmp_path):
    job = MadeJob("a", tmp_path, "leaves_without_a_word")
    ((name, reason),) = [(f.name, f.reason) for f in run_locally([job])]
    assert (name, reason) == (
        "a",
        "its process ended with exit code 3 before the job was finished, in try 1 of 3.",
    )


DRIVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that a shell runs in the background ignore it
sys.path.insert(0, {here!r})
from made_jobs import MadeJob, do
from mule.comparison.engines import run_jobs

if __name__ == "__main__":
    jobs = [MadeJob(name, Path({root!r}), "endless") for name in "abc"]
    run_jobs(jobs, do, engine="local", num_workers=2, noted=print)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_when_the_parent_ends_its_children_unwind_and_none_is_left(tmp_path, signum):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.format(here=str(Path(__file__).parent), root=str(tmp_path)))
    driver = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, start_new_session=True)
    running, after = [MadeJob(name, tmp_path, "endless") for name in "ab"], MadeJob("c", tmp_path)
    wait_until(lambda: all("waits" in job.notes for job in running))
    if signum == signal.SIGINT:
        os.killpg(driver.pid, signum)  # as a terminal does it: the children hear it too
    else:
        driver.kill()
    _, told = driver.communicate(timeout=60)
    assert driver.returncode == -signum
    assert told.count(b"Traceback") == (signum == signal.SIGINT)
    wait_until(lambda: not any(is_running(job.pids[0]) for job in running))
    assert all(job.notes[-1] == "unwound" for job in running)
    assert after.notes == []


@pytest.mark.parametrize(("engine", "num_workers"), [("local", -1), ("ray", 0)])
def test_numbers_of_workers_that_mean_nothing_are_refused(engine, num_workers):
    with pytest.raises(RangeError, match=rf"at least \d with engine {engine}; got {num_workers}"):
        run_jobs([], do, engine=engine, num_workers=num_workers, noted=ignored)


def test_without_ray_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        MuleError, match=r"--engine ray needs the package Ray, .*pip install 'mule-actions\[ray\]'"
    ):
        run_jobs([MadeJob("a", tmp_path)], do, engine="ray", num_workers=1, noted=ignored)
