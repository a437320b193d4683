"""Look for files that break a reader, guided by coverage; what is found is kept, and the test suite reads it from then on.

    make fuzz                                  a minute for each reader
    make fuzz MINUTES=10 READERS="film cvat"   longer, and only these

Needs atheris (`.venv/bin/python -m pip install atheris`); nothing else does. Half of all changes are those of the test suite
(tests/hostile/mutations.py), the other half are libFuzzer's. Inputs that reach new code are kept in build/fuzz/READER, so that
the next run goes on from there; those that break the law go to tests/hostile/found/READER.
"""

import argparse
import hashlib
import importlib
import importlib.util
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
FOUND, KEPT = REPOSITORY / "tests" / "hostile" / "found", REPOSITORY / "build" / "fuzz"
MISSING = "make fuzz needs atheris: .venv/bin/python -m pip install atheris"
NUM_SEEDS = 20


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one reader in this process, which ends with it."""
    atheris = importlib.import_module("atheris")  # optional, and without types

    with atheris.instrument_imports(include=["mule"]):
        from tests.hostile.corpus import all_readers
        from tests.hostile.mutations import random_of
        from tests.hostile.readers import CANARY, broken_law
    scratch = Path(tempfile.mkdtemp(prefix="mule-fuzz-"))
    folder, kept = scratch / name, KEPT / name
    reader = next(each for each in all_readers(str(scratch / CANARY)) if each.name == name)
    folder.mkdir()
    kept.mkdir(parents=True, exist_ok=True)
    reader.prepare(folder)
    good = (folder / reader.file).read_bytes()
    for seed in (good, *(reader.mutate(good, random_of(name, number)) for number in range(NUM_SEEDS))):
        _keep(kept, seed)
    told: set[str] = set()

    def read(content: bytes) -> None:
        problem = broken_law(reader, folder, content) or ("ran code" if (scratch / CANARY).exists() else "")
        if problem and problem[:60] not in told:
            told.add(problem[:60])
            print(f"{_keep(FOUND / name, content)}: {problem}", flush=True)

    def changed(content: bytes, most_bytes: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            return atheris.Mutate(content, most_bytes)
        try:
            return reader.mutate(content, chance)[:most_bytes]
        except (ValueError, LookupError, TypeError, RecursionError, RuntimeError):  # no longer of its kind
            return reader.mutate(good, chance)[:most_bytes]

    options = [
        f"-max_total_time={seconds}",
        "-timeout=0",
        "-rss_limit_mb=0",
        "-max_len=1000000",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(kept)], read, custom_mutator=changed)
    atheris.Fuzz()


def _keep(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(content).hexdigest()[:16]
    path.write_bytes(content)
    return path


def main() -> None:
    """Fuzz each reader in a process of its own."""
    parser = argparse.ArgumentParser(description="coverage-guided fuzzing of every reader")
    parser.add_argument("readers", nargs="*")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--here", action="store_true", help="fuzz one reader in this process")
    if importlib.util.find_spec("atheris") is None:
        sys.exit(MISSING)
    asked: Any = parser.parse_args()
    seconds = max(1, round(60 * asked.minutes))
    if asked.here:
        fuzz(asked.readers[0], seconds)
        return
    from tests.hostile.corpus import all_readers

    for name in asked.readers or [reader.name for reader in all_readers("")]:
        print(f"{name}: {seconds} s", flush=True)
        command = [sys.executable, "-m", "bench.fuzz", "--here", "--minutes", str(asked.minutes), name]
        if subprocess.run(command, check=False).returncode:
            sys.exit(f"{name}: the fuzzer stopped early.")


if __name__ == "__main__":
    main()
