"""The numbers in the README are generated from the files of the studies."""

from pathlib import Path

import pytest

from studies.results.__main__ import BEGIN, TABLE, between_markers

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_the_readme_is_the_generated_one():
    readme = (ROOT / "README.md").read_text()
    if BEGIN not in readme:
        pytest.skip("the README has no markers for the table yet")
    assert between_markers(readme, (ROOT / TABLE).read_text().rstrip("\n"), name="README.md") == readme
