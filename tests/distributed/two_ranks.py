"""Two gloo processes on this machine, started once, which call a test's function and bring back what each returned."""

import atexit
import json
import pickle
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile

WORKER = """
import json, os, pickle, sys, traceback, torch, torch.distributed as dist
torch.set_num_threads(1)
rank = int(sys.argv[1])
for line in sys.stdin:
    module, function, folder, store, out = json.loads(line)
    sys.argv[1:] = [module, function, str(rank), folder, store, out]
    sys.path.insert(0, folder)
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        result = getattr(__import__(module), function)(rank)
        dist.destroy_process_group()
        with open(out + ".part", "wb") as file:
            pickle.dump(result, file)
        os.replace(out + ".part", out)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
os._exit(0)  # threads of gloo may outlive the interpreter; one exit in hundreds then ends by abort
"""
PATIENCE_S = 120

_pair: list["Rank"] = []


class Rank:
    """A process that waits for what it is to call."""

    def __init__(self, rank: int) -> None:
        self.errors = TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-W", "ignore", "-c", WORKER, str(rank)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=self.errors, text=True)

    def call(self, *words: str) -> None:
        """Let it call a function of a module."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def closed(self) -> str:
        """End the process; how it ended and what it said."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with self.errors as errors:
            errors.seek(0)
            return f"exit code {self.process.returncode}\n{errors.read()}"


@atexit.register
def closed() -> str:
    """End both processes; what they said."""
    return "\n".join([_pair.pop().closed() for _ in range(len(_pair))])


def on_two_ranks(function, tmp_path: Path):
    """[function(0), function(1)], each in a process of its own, talking to the other."""
    if not _pair:
        _pair.extend(map(Rank, range(2)))
    module = Path(sys.modules[function.__module__].__file__ or "")
    outs = [tmp_path / f"rank{rank}" for rank in range(2)]
    for each, out in zip(_pair, outs, strict=True):
        each.call(module.stem, function.__name__, str(module.parent), str(tmp_path / "store"), str(out))
    end = time.monotonic() + PATIENCE_S
    while not all(out.exists() for out in outs):
        is_alive = all(each.process.poll() is None for each in _pair)
        assert is_alive, closed()
        assert time.monotonic() < end, closed()
        time.sleep(0.01)
    return [pickle.loads(out.read_bytes()) for out in outs]
