"""Every reader ends in success or in one sentence that names the file, whatever the file holds."""

from collections.abc import Generator
from pathlib import Path

import jaxtyping
import pytest

from tests.hostile.corpus import all_readers
from tests.hostile.mutations import random_of
from tests.hostile.readers import CANARY, broken_law

FOUND = Path(__file__).with_name("found")
"""Cases that `make fuzz` found, as FOUND/READER/NAME."""
LEAST_CASES = 600


@pytest.fixture(autouse=True)
def as_users_run_it() -> Generator[None]:
    """Turn off the shape checks that tests add: users run without them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", [reader.name for reader in all_readers("")])
def test_no_file_breaks_its_reader(name: str, tmp_path: Path) -> None:
    canary = tmp_path / CANARY
    reader = next(each for each in all_readers(str(canary)) if each.name == name)
    folder = tmp_path / name
    folder.mkdir()
    reader.prepare(folder)
    if name != "faster-rcnn":  # whose network needs torchvision
        reader.read(folder)
    good = (folder / reader.file).read_bytes()
    tried = {f"seed {number}": reader.mutate(good, random_of(name, number)) for number in range(reader.cases)}
    tried |= {path.name: path.read_bytes() for path in sorted((FOUND / name).glob("*"))}
    broken = {case: broken_law(reader, folder, content) for case, content in tried.items()}
    assert not {case: problem for case, problem in broken.items() if problem}
    assert not canary.exists(), "code of a file was run"


def test_the_corpus_has_at_least_600_cases_and_every_reader_some() -> None:
    assert sum(reader.cases for reader in all_readers("")) >= LEAST_CASES
    assert min(reader.cases for reader in all_readers("")) >= 8
