"""The same jobs as Ray tasks: a worker killed in the middle loses nothing; clusters of others are left as they are."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from made_jobs import KilledFromOutside, MadeJob, do, ignored

from mule.comparison.engines import JobFailure, run_jobs


def run_with_ray(jobs, *, num_workers=2):
    return run_jobs(jobs, do, engine="ray", num_workers=num_workers, noted=ignored)


@pytest.mark.slow
@pytest.mark.distributed
def test_of_two_workers_one_is_killed_and_nothing_is_lost(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # for its workers to find the jobs
    kinds = {
        "a": "plain",
        "b": "killed_at_first",
        "c": "late_refusal",
        "d": "reads_environment",
        "e": "plain",
    }
    jobs = [MadeJob(name, tmp_path, kind) for name, kind in kinds.items()]
    killer = KilledFromOutside(jobs[1])
    assert run_with_ray(jobs) == (JobFailure("c", "c must be smaller; got 7. Lower it."),)
    killer.join()
    assert [job.result for job in jobs] == ["done", "half and half", None, "1", "done"]
    assert [len(job.pids) for job in jobs] == [1, 2, 1, 1, 1]
    assert os.getpid() not in {pid for job in jobs for pid in job.pids}
    assert not ray.is_initialized()


class MadeRay(ModuleType):
    """Remembers what was asked of it; tasks are done when they are given, or interrupted when they are looked at."""

    def __init__(self, *, is_there, is_interrupted=False, num_gpus=0):
        super().__init__("ray")
        self.is_there, self.is_interrupted = is_there, is_interrupted
        self.num_gpus, self.gpus_of_a_task = num_gpus, None
        self.joined, self.cancelled = [], []
        self.exceptions = SimpleNamespace(RayError=LookupError)

    def is_initialized(self):
        return self.is_there

    def init(self, **settings):
        self.joined.append(settings)
        self.is_there = True

    def cluster_resources(self):
        return {"CPU": 4.0, **({"GPU": self.num_gpus} if self.num_gpus else {})}

    def shutdown(self):
        self.is_there = False

    def remote(self, **settings):
        assert (settings["num_cpus"], settings["max_retries"]) == (1, 2)
        self.gpus_of_a_task = settings["num_gpus"]

        def task(work):
            return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=work))

        return task

    def get(self, outcome):
        if self.is_interrupted:
            raise KeyboardInterrupt
        if outcome == "the node is gone":
            raise LookupError(outcome)
        return outcome

    def cancel(self, outcome, *, force):
        assert force
        self.cancelled.append(outcome)


@pytest.fixture
def ray_made(monkeypatch):
    def made(**settings):
        ray = MadeRay(**settings)
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray

    return made


def test_a_cluster_that_was_joined_before_is_used_and_left_as_it_is(tmp_path, ray_made):
    ray = ray_made(is_there=True)
    job = MadeJob("a", tmp_path)
    assert run_with_ray([job]) == ()
    assert job.result == "done"
    assert (ray.joined, ray.is_there) == ([], True)


@pytest.mark.parametrize("num_gpus", [0, 3])
def test_a_task_takes_a_gpu_where_the_cluster_has_some(tmp_path, ray_made, num_gpus):
    ray = ray_made(is_there=True, num_gpus=num_gpus)
    assert run_with_ray([MadeJob("a", tmp_path)]) == ()
    assert ray.gpus_of_a_task == (1 if num_gpus else 0)


@pytest.mark.parametrize("address", ["head:6379", None])
def test_the_cluster_at_the_stated_address_is_joined_and_else_one_is_started(
    tmp_path, ray_made, monkeypatch, address
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    ray = ray_made(is_there=False)
    assert run_with_ray([MadeJob("a", tmp_path)], num_workers=5) == ()
    (settings,) = ray.joined
    assert settings["address"] == (address or "local")
    assert settings.get("num_cpus") == (None if address else 5)  # a cluster counts its own
    assert not ray.is_there


def test_ctrl_c_takes_the_jobs_back(tmp_path, ray_made):
    ray = ray_made(is_there=True, is_interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        run_with_ray([MadeJob("a", tmp_path), MadeJob("b", tmp_path)])
    assert len(ray.cancelled) == 2


def test_what_ray_gives_up_is_a_failure(tmp_path, ray_made, monkeypatch):
    ray_made(is_there=True)
    monkeypatch.setattr("mule.comparison.engines._with_one_thread", lambda *_: "the node is gone")
    (failure,) = run_with_ray([MadeJob("a", tmp_path)])
    assert failure == JobFailure("a", "Ray gave up, after 3 tries if workers were lost: the node is gone")
