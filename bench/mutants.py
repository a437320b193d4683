"""Mutation testing: change one operator or number at a time and see whether a test notices.

    python -m bench.mutants                              every mutant of every room; resumes where it stopped
    python -m bench.mutants evidence objective           only these rooms
    python -m bench.mutants --sample 70 --seed 1         a random sample of 70 from each room
    python -m bench.mutants --minutes 20 --write         stop after 20 minutes; update docs/MUTANTS.md

A mutant runs against the tests of its room and `tests/paper`: first the modules that import the mutated file, then the
others. Mutants live in a copy of the repository under `build/mutants`; the working tree is never touched. Verdicts are
kept in `build/mutants/verdicts.jsonl`: a killed mutant stays killed until its file changes, a survivor is tried again
when a test changes.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from bench.mutations import REPOSITORY, Mutant, mutants_of

SCRATCH = REPOSITORY / "build" / "mutants"
COPY = SCRATCH / "copy"
PAGE = REPOSITORY / "docs" / "MUTANTS.md"
REASONS = REPOSITORY / "bench" / "mutants.toml"
"""Why survivors do not matter, by mutant."""
ROOMS = ("evidence", "novelty", "objective", "memory", "relations", "evaluation")
LEAST_TIMEOUT_S = 120.0
ALLOWED_SLOWDOWN = 5.0
"""A mutant that takes this many times as long as the tests themselves hangs, and counts as killed."""
NO_TESTS = 5
"""What pytest returns where all tests of a module are slow: nothing failed."""


class Verdict(NamedTuple):
    """What the tests made of a mutant."""

    name: str
    source: str
    """Digest of the mutated file."""
    tests: str
    """Digest of the tests it ran against."""
    is_killed: bool
    seconds: float

    def holds(self, source: str, tests: str) -> bool:
        """Whether the verdict is still true."""
        return self.source == source and (self.is_killed or self.tests == tests)


def mutants_of_room(room: str) -> list[Mutant]:
    """Every mutant of a room, file by file."""
    files = sorted((REPOSITORY / "src" / "mule" / room).rglob("*.py"))
    return [mutant for path in files for mutant in mutants_of(path)]


def sampled(every: dict[str, list[Mutant]], size: int | None, seed: int) -> list[tuple[str, Mutant]]:
    """The rooms in turn, each in an order that depends on names and seed alone: new code leaves a sample its old mutants."""

    def drawn(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).hexdigest()

    samples = [[(room, mutant) for mutant in sorted(its, key=drawn)[:size]] for room, its in every.items()]
    return [pair for turn in zip_longest(*samples) for pair in turn if pair is not None]


class Tests(NamedTuple):
    """The test modules of a room, those that import the mutated file first."""

    near: list[str]
    rest: list[str]


def tests_of(room: str, file: str) -> Tests:
    """The tests of a room and of the paper."""
    module = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
    modules = [
        path for folder in (room, "paper") for path in sorted((COPY / "tests" / folder).glob("test_*.py"))
    ]
    near = [path for path in modules if module in path.read_text(encoding="utf-8")]
    rest = [path for path in modules if path not in near]
    return Tests(*([str(path.relative_to(COPY)) for path in part] for part in (near, rest)))


class Runner:
    """Runs tests in forked children, in a copy of the repository: what tests import slowly is imported once."""

    def __init__(self) -> None:
        shutil.rmtree(COPY, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        for folder in ("src", "tests"):
            shutil.copytree(REPOSITORY / folder, COPY / folder, ignore=ignored)
        for folder in ("docs", "experiments", "examples", "bench", "studies"):
            if (REPOSITORY / folder).is_dir():
                (COPY / folder).symlink_to(REPOSITORY / folder)
        for name in ("pyproject.toml", "README.md", "Makefile"):
            shutil.copy(REPOSITORY / name, COPY / name)
        self._stamp = time.time() - 10**6
        self._baselines = SCRATCH / "baselines.json"
        self._baseline_s: dict[str, float] = (
            json.loads(self._baselines.read_text(encoding="utf-8")) if self._baselines.exists() else {}
        )
        self._package = _digest(sorted((COPY / "src").rglob("*.py")))
        os.environ["OMP_NUM_THREADS"] = "1"
        for package in ("matplotlib.pyplot", "scipy.stats", "torch"):  # every child finds them in memory
            import_module(package)

    def is_killed(self, mutant: Mutant, tests: Tests) -> bool:
        """Whether a test fails with the mutant in place."""
        path = COPY / mutant.file
        original = path.read_text(encoding="utf-8")
        for modules in filter(None, tests):
            timeout_s = max(LEAST_TIMEOUT_S, ALLOWED_SLOWDOWN * sum(map(self._seconds, modules)))
            self._put(path, mutant.source)
            try:
                if not self._passes(modules, timeout_s):
                    return True
            finally:
                self._put(path, original)
        return False

    def _seconds(self, module: str) -> float:
        """How long a test module takes without a mutant; it must pass. Kept until the package or the module changes."""
        key = f"{module} {self._package} {_digest([COPY / module])}"
        if key not in self._baseline_s:
            started_at = time.perf_counter()
            if not self._passes([module], 3600.0):
                raise SystemExit(f"tests must pass before the package is mutated; {module} fails")
            self._baseline_s[key] = time.perf_counter() - started_at
            self._baselines.write_text(json.dumps(self._baseline_s, indent=1), encoding="utf-8")
        return self._baseline_s[key]

    def _put(self, path: Path, source: str) -> None:
        """Write with a time stamp of its own: two mutants of one size in one second would share bytecode."""
        path.write_text(source, encoding="utf-8")
        self._stamp += 2
        os.utime(path, (self._stamp, self._stamp))

    def _passes(self, modules: Sequence[str], timeout_s: float) -> bool:
        child = os.fork()
        if child == 0:
            os.setsid()
            os._exit(_pytest(modules))
        ends_at = time.monotonic() + timeout_s
        while time.monotonic() < ends_at:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) in (0, NO_TESTS)
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False


def _pytest(modules: Sequence[str]) -> int:
    """Run tests in this child, silently, on the copy."""
    import pytest

    os.chdir(COPY)
    os.environ["PYTHONPATH"] = str(COPY / "src")
    sys.path.insert(0, str(COPY / "src"))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        return int(pytest.main(["-x", "-q", "-p", "no:xdist", "-m", "not slow and not alone", *modules]))
    except BaseException:  # a mutant may break anything, the test runner included
        return 3


def tests_digest(tests: Tests) -> str:
    """Changes when one of the tests does."""
    return _digest([COPY / each for each in (*tests.near, *tests.rest)])


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def read_verdicts() -> dict[str, Verdict]:
    """Verdicts of earlier runs by mutant; the last one counts."""
    path = SCRATCH / "verdicts.jsonl"
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {verdict.name: verdict for verdict in (Verdict(**json.loads(line)) for line in lines)}


def run(chosen: Sequence[tuple[str, Mutant]], *, minutes: float) -> list[Verdict]:
    """The verdict on each mutant, until the time is over."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    lock = (SCRATCH / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit("another run is mutating the copy; two would test each other's mutants") from None
    known, runner, verdicts = read_verdicts(), Runner(), list[Verdict]()
    ends_at, num_left = time.monotonic() + 60 * minutes, 0
    with (SCRATCH / "verdicts.jsonl").open("a", encoding="utf-8") as file:
        for number, (room, mutant) in enumerate(chosen, start=1):
            tests = tests_of(room, mutant.file)
            digests = hashlib.sha256(mutant.source.encode()).hexdigest()[:16], tests_digest(tests)
            earlier = known.get(mutant.name)
            if earlier is not None and earlier.holds(*digests):
                verdicts.append(earlier)
                continue
            if time.monotonic() > ends_at:
                num_left += 1
                continue
            started_at = time.perf_counter()
            is_killed = runner.is_killed(mutant, tests)
            verdict = Verdict(mutant.name, *digests, is_killed, time.perf_counter() - started_at)
            file.write(json.dumps(verdict._asdict(), ensure_ascii=False) + "\n")
            file.flush()
            verdicts.append(verdict)
            outcome = "killed" if verdict.is_killed else "SURVIVED"
            print(f"{number}/{len(chosen)} {outcome} {verdict.seconds:.1f} s  {mutant.name}", flush=True)
    if num_left:
        print(f"{num_left} mutants are left after {minutes:g} minutes; the same command goes on with them")
    return verdicts


def page(verdicts: Sequence[Verdict], reasons: dict[str, str], mutants: Counter[str], command: str) -> str:
    """The page: how many mutants of each room tests kill, and every survivor with the reason why it may live."""
    by_room: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_room.setdefault(verdict.name.split("/")[0], []).append(verdict)
    lines = [
        "# Mutants",
        "",
        f"Made by `{command}`. A mutant is the package with one operator or number changed; it is killed if a test of its "
        f"room or of the paper fails. Tested: {len(verdicts)} of {mutants.total()} mutants, with the code of {_code_date()}.",
        "",
        "| room | mutants | tested | killed | survived, harmless | survived |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for room, its in sorted(by_room.items()):
        alive = [each.name for each in its if not each.is_killed]
        num_harmless = sum(name in reasons for name in alive)
        share = (len(its) - len(alive)) / len(its)
        lines.append(
            f"| {room} | {mutants[room]} | {len(its)} | {len(its) - len(alive)} ({share:.1%}) "
            f"| {num_harmless} | {len(alive) - num_harmless} |"
        )
    lines += ["", "## Survivors", "", "| mutant | why it does not matter |", "| --- | --- |"]
    for verdict in sorted(verdicts):
        if not verdict.is_killed:
            lines.append(f"| {verdict.name} | {reasons.get(verdict.name, '**no test notices**')} |")
    return "\n".join(lines) + "\n"


def _code_date() -> str:
    """The day of the last change to the package or its tests."""
    command = ["git", "log", "-1", "--format=%cs", "--", "src", "tests"]
    return subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Run the mutants that the command asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rooms", nargs="*", default=list(ROOMS), metavar="ROOM")
    parser.add_argument("--sample", type=int, help="test this many mutants of each room, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this many minutes")
    parser.add_argument("--write", action="store_true", help="write docs/MUTANTS.md")
    wanted = parser.parse_args()
    every = {room: mutants_of_room(room) for room in wanted.rooms}
    chosen = sampled(every, wanted.sample, wanted.seed)
    verdicts = run(chosen, minutes=wanted.minutes)
    num_killed = sum(verdict.is_killed for verdict in verdicts)
    mutants = Counter({room: len(its) for room, its in every.items()})
    print(
        f"{num_killed} of {len(verdicts)} killed ({num_killed / max(len(verdicts), 1):.1%}); "
        f"{mutants.total()} mutants in all"
    )
    if wanted.write:
        reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
        command = " ".join(["python -m bench.mutants", *sys.argv[1:]])
        PAGE.write_text(page(verdicts, reasons, mutants, command), encoding="utf-8")


if __name__ == "__main__":
    main()
