"""A process computes on the GPU of its local rank, or on the CPU where no GPU is visible."""

import pytest
import torch

from mule.core.errors import RangeError
from mule.core.processes import own_device, processes


@pytest.fixture
def machine(monkeypatch):
    """Makes this a machine with so many GPUs; returns those that were made current."""
    current = []

    def made(num_gpus):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
        monkeypatch.setattr(torch.cuda, "set_device", current.append)
        return current

    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return made


def test_without_gpus_it_is_the_cpu(machine):
    current = machine(0)
    assert own_device() == torch.device("cpu")
    with processes() as device:
        assert device == torch.device("cpu")
    assert current == []


@pytest.mark.parametrize("local_rank", [0, 1])
def test_each_process_of_a_machine_has_its_own_gpu_and_makes_it_current(machine, monkeypatch, local_rank):
    current = machine(2)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    with processes() as device:
        assert device == own_device() == torch.device("cuda", local_rank)
    assert current == [device]


def test_more_processes_than_gpus_are_refused(machine, monkeypatch):
    machine(2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(RangeError, match="nproc-per-node"):
        own_device()
