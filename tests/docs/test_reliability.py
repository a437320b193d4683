"""The page of limits says what the code enforces, and its table of tries covers every reader."""

from bench.reliability import PAGE, limits_table
from tests.hostile.corpus import all_readers


def test_the_table_of_limits_is_current():
    assert limits_table() in PAGE.read_text(encoding="utf-8"), "run: python -m bench.reliability --write"


def test_the_table_of_tries_names_every_reader():
    page = PAGE.read_text(encoding="utf-8")
    assert not [reader.name for reader in all_readers("") if reader.name not in page]
