"""The page of limits says what the code enforces, and its table of tries covers every reader."""

import re
import tomllib
from pathlib import Path

from bench.reliability import PAGE, limits_table
from tests.hostile.corpus import all_readers


def test_the_table_of_limits_is_current():
    assert limits_table() in PAGE.read_text(encoding="utf-8"), "run: python -m bench.reliability --write"


def test_the_table_of_tries_names_every_reader():
    page = PAGE.read_text(encoding="utf-8")
    assert not [reader.name for reader in all_readers("") if reader.name not in page]


ROOT = Path(__file__).resolve().parents[2]
NOT_LOCKED = {"torch", "torchvision"}
"""Their files for CPUs and those of the package index differ (requirements.lock says so)."""


def pins(file):
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return {plain(name): version for name, version in found}


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_has_all_that_is_asked_for_in_the_versions_that_are_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    wanted = [each for part in (*parts, project["dependency-groups"]["dev"]) for each in part]
    asked = {plain(re.split(r"[^\w.-]", each)[0]) for each in wanted}
    locked, pinned = pins("requirements.lock"), pins("constraints.txt")
    assert asked - NOT_LOCKED <= locked.keys(), "run: make lock"
    differing = {name for name in pinned.keys() & locked.keys() if pinned[name] != locked[name]}
    assert not differing, "run: make lock"
