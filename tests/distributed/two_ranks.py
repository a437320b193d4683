"""Starts two gloo processes on this machine and brings back what each returned."""

import pickle
import subprocess
import sys
from pathlib import Path

WORKER = """
import os, pickle, sys, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[4])
module, function, rank, store, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[5], sys.argv[6]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
result = getattr(__import__(module), function)(rank)
dist.destroy_process_group()
with open(out, "wb") as file:
    pickle.dump(result, file)
os._exit(0)  # threads of gloo may outlive the interpreter; one exit in hundreds then ends by abort
"""


def on_two_ranks(function, tmp_path: Path):
    """[function(0), function(1)], each in a process of its own, talking to the other."""
    module = Path(sys.modules[function.__module__].__file__ or "")
    processes = []
    for rank in range(2):
        arguments = [module.stem, function.__name__, str(rank), str(module.parent), str(tmp_path / "store")]
        out = str(tmp_path / f"rank{rank}")
        processes.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", WORKER, *arguments, out], stderr=subprocess.PIPE
            )
        )
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    return [pickle.loads((tmp_path / f"rank{rank}").read_bytes()) for rank in range(2)]
