"""Makes one write of a piece of work fail, and looks at what is left; run as a program, because it forks.

    injecting.py [--works train,watch,…] [--sample NUMBER] [--seed NUMBER]

A clean run is traced first: every folder made, file opened for writing, first write, sync, rename, link and removal
below its folder. Then each of these fails once in a fork: a rename in every way (a full disk, a read-only disk, a kill before
and after it), anything else in a way that is drawn. The work is done again, and the two laws are looked at:

1. Nothing that was there before is lost or changed, and no half-made file stands under its final name.
2. The next run continues and ends with the same bytes.

Printed is a JSON object per trial, and the number of trials that broke a law last.
"""

import argparse
import builtins
import errno
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest.mock import patch

import torch
from works import WORKS

from mule.core.errors import MuleError
from mule.video.encode import VideoWriter

FAULTS = ("full disk", "read-only disk", "killed before", "killed after")
NUMBERS = {"full disk": errno.ENOSPC, "read-only disk": errno.EROFS}
BROKEN_LAWS = 3
CHANCE = re.compile(r"[0-9a-f]{16}|(?<=\.)\d{2,}(?=[./]|$)")


class Writes:
    """Counts the operations that change files below a folder, and makes one of them fail."""

    def __init__(self, root, fails_at=None, fault=None):
        self.root, self.fails_at, self.fault = str(root), fails_at, fault
        self.seen = []
        self._patches = ExitStack()

    def __enter__(self):
        for module, name, paths in (
            (os, "replace", 2), (os, "rename", 2), (os, "link", 2), (os, "mkdir", 1), (os, "unlink", 1),
            (os, "remove", 1), (os, "rmdir", 1), (os, "truncate", 1),
        ):  # fmt: skip
            self._patch(module, name, self._counted(name, getattr(os, name), paths))
        opened, synced, encoded = io.open, os.fsync, VideoWriter._encode  # pyright: ignore[reportPrivateUsage] - what it writes with
        opened_raw = os.open

        def open_(file, mode="r", *args, **more):
            if isinstance(file, int) or not set(mode) & set("wax+") or not self._is_below(file):
                return opened(file, mode, *args, **more)
            handle = self._do("open", file, lambda: opened(file, mode, *args, **more))
            return _Written(handle, self, file)

        def open_raw(file, flags, *args, **more):
            if not flags & os.O_CREAT or "dir_fd" in more or not self._is_below(file):
                return opened_raw(file, flags, *args, **more)
            return self._do("open", file, lambda: opened_raw(file, flags, *args, **more))

        def fsync(handle):
            return self._do("fsync", Path(f"/proc/self/fd/{handle if isinstance(handle, int) else handle.fileno()}").readlink(),
                            lambda: synced(handle))  # fmt: skip

        def encode(video, frame):
            return self._do("encode", video._unfinished, lambda: encoded(video, frame))

        self._patch(io, "open", open_)
        self._patch(builtins, "open", open_)
        self._patch(os, "open", open_raw)
        self._patch(os, "fsync", fsync)
        self._patch(VideoWriter, "_encode", encode)
        return self

    def __exit__(self, *_):
        self._patches.close()

    def _patch(self, module, name, new):
        self._patches.enter_context(patch.object(module, name, new))

    def _is_below(self, path):
        return str(Path(os.fsdecode(path)).absolute()).startswith(self.root)

    def _counted(self, name, work, num_paths):
        def counted(*args, **more):
            if isinstance(args[0], int) or "dir_fd" in more or not self._is_below(args[num_paths - 1]):
                return work(*args, **more)
            return self._do(name, args[num_paths - 1], lambda: work(*args, **more))

        return counted

    def _do(self, kind, path, work, *, half=None):
        if not self._is_below(path):
            return work()
        self.seen.append(f"{kind} {CHANCE.sub('*', os.path.relpath(os.fsdecode(path), self.root))}")
        if len(self.seen) - 1 != self.fails_at:
            return work()
        if self.fault == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "killed after":
            with suppress(OSError):  # a folder may be there already
                work()
            os.kill(os.getpid(), signal.SIGKILL)
        if half is not None:
            half()
        number = NUMBERS[str(self.fault)]
        raise OSError(number, os.strerror(number), os.fsdecode(path))


class _Written:
    """A file whose first write is an operation of its own; a full disk takes half of it."""

    def __init__(self, file, writes, path):
        self._file, self._writes, self._path, self._is_first = file, writes, path, True

    def write(self, content):
        if not self._is_first:
            return self._file.write(content)
        self._is_first = False
        return self._writes._do(
            "write",
            self._path,
            lambda: self._file.write(content),
            half=lambda: (self._file.write(content[: len(content) // 2]), self._file.flush()),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def __iter__(self):
        return iter(self._file)

    def __getattr__(self, name):
        return getattr(self._file, name)


def child(work):
    """Does the work in a fork; how it ended, and what it said."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the work prints is no result
        code, said = 0, ""
        try:
            work()
        except (MuleError, OSError) as error:
            code, said = 2, f"{type(error).__name__}: {error}"
        except BaseException:
            code, said = 70, traceback.format_exc()
        os.write(write, said.encode()[:60_000])
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitpid(pid, 0)[1]
    return (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)), said


def trace_of(work, folder):
    """The operations of a clean run, and what it leaves."""
    log = folder.with_name("trace.json")

    def traced():
        with Writes(folder) as writes:
            work.run(folder)
        log.write_text(json.dumps(writes.seen))

    work.begin(folder)
    code, said = child(traced)
    assert code == 0, said
    return json.loads(log.read_text()), work.result(folder)


def trial(work, folder, number, fault, clean):
    """What is wrong after one operation failed, and after the work was done again."""
    work.begin(folder)
    before = work.kept(folder)

    def broken():
        with Writes(folder, number, fault):
            work.run(folder)

    code, said = child(broken)
    wrong = []
    if fault in NUMBERS and code not in (0, 2):
        wrong.append(f"not one sentence: {said}")
    if fault not in NUMBERS and code != -signal.SIGKILL:
        wrong.append(f"not killed: {code} {said}")
    wrong += [
        f"lost or changed: {name}"
        for name, content in before.items()
        if work.kept(folder).get(name) != content
    ]
    wrong += [f"half-made: {problem}" for problem in work.half_made(folder, clean)]
    code, again = child(lambda: work.run(folder))
    if code != 0:
        wrong.append(f"the next run does not continue: {again}")
    else:
        found = work.result(folder)
        wrong += [
            f"the next run differs: {name}"
            for name in sorted(clean.keys() | found.keys())
            if clean.get(name) != found.get(name)
        ]
    return wrong


def trials_of(seen, draw):
    """Which operations fail, and how."""
    trials = []
    for at, what in enumerate(seen):
        kind = what.split()[0]
        ways = FAULTS[2:] if kind in ("unlink", "remove", "rmdir") else FAULTS
        ways = ways if kind in ("replace", "rename") else [draw.choice(ways)]
        trials += [(at, fault) for fault in ways]
    return trials


def tried(name, work, folder, trials, seen, clean):
    """Print what is wrong after each trial, and return how many broke a law."""
    num_wrong = 0
    for at, fault in trials:
        shutil.rmtree(folder)
        folder.mkdir()
        wrong = trial(work, folder, at, fault, clean)
        num_wrong += bool(wrong)
        found = {"work": name, "at": at, "what": seen[at], "fault": fault, "wrong": wrong}
        print(json.dumps(found), flush=True)  # noqa: T201 - the result
    return num_wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--sample", type=int, help="trials per work; all by default")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # threads of the parent would not live in a fork
    draw, num_wrong, num_trials = random.Random(chosen.seed), 0, {}
    with tempfile.TemporaryDirectory() as place:
        shared = Path(place) / "shared"
        shared.mkdir()
        for name in chosen.works.split(","):
            work = WORKS[name](shared)
            folder = Path(place) / name / "work"
            folder.mkdir(parents=True)
            seen, clean = trace_of(work, folder)
            trials = trials_of(seen, draw)
            if chosen.sample is not None:
                trials = draw.sample(trials, min(chosen.sample, len(trials)))
            num_trials[name] = len(trials)
            num_wrong += tried(name, work, folder, trials, seen, clean)
    print(json.dumps({"trials": num_trials, "wrong": num_wrong}))  # noqa: T201 - the result
    return BROKEN_LAWS if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
