"""The documents say what is so."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mule

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(
    r"^\| ((?:Eq\.|Algorithm|Proposition) \d+) \| [^|]+ \| `([\w.]+)` \| `([\w/.:]+)` \|", re.MULTILINE
)
OWN_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| `([\w.]+)` \| `([\w/.:]+)` \|", re.MULTILINE)
PAPER, _, BEYOND = (ROOT / "docs/EQUATIONS.md").read_text().partition("## Beyond the paper")
ROWS, OWN_ROWS = ROW.findall(PAPER), OWN_ROW.findall(BEYOND)


def test_every_equation_algorithm_and_proposition_has_a_row():
    places = {place for place, _, _ in ROWS}
    expected = {f"Eq. {i}" for i in range(1, 12)} | {"Algorithm 1"} | {f"Proposition {i}" for i in (1, 2, 3)}
    assert places == expected
    for rows, text in ((ROWS, PAPER), (OWN_ROWS, BEYOND)):
        lines = text.splitlines()
        assert len(rows) == sum(line.startswith("| ") for line in lines) - 1  # no row the pattern misses


@pytest.mark.parametrize(
    ("place", "function", "test"), ROWS + OWN_ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS + OWN_ROWS]
)
def test_function_and_test_of_each_equation_exist(place, function, test):
    parts = function.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:split]))
            break
        except ModuleNotFoundError:
            continue
    else:
        pytest.fail(f"{place}: no module in {function}")
    for name in parts[split:]:
        thing = getattr(thing, name)
    assert callable(thing)
    path, name = test.split("::")
    source = (ROOT / path).read_text()
    assert f"def {name}(" in source
    is_marked = re.search(rf'paper\("{place}"\)', source) is not None
    assert is_marked == ((place, function, test) in ROWS), f"{path}: tests marked {place}"


@pytest.mark.parametrize("name", ["README.md"])
def test_examples_in_the_documents_really_run(name):
    failures, attempted = doctest.testfile(
        str(ROOT / name), module_relative=False, optionflags=doctest.ELLIPSIS
    )
    assert attempted > 0
    assert failures == 0


def test_readme_commands_exist():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake (\w+)", readme))
    assert {"demo", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_between_documents_lead_somewhere():
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert target.startswith("http") or (document.parent / target).exists(), (
                f"{document.name}: {target}"
            )


def test_version_is_the_same_everywhere():
    assert f'version = "{mule.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {mule.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_importing_mule_loads_nothing_heavy_and_gives_the_public_names():
    code = (
        "import sys, mule; heavy = {'torch', 'numpy', 'pydantic', 'typer'} & set(sys.modules); assert not heavy, heavy; "
        "names = [getattr(mule, name) for name in mule.__all__]; assert len(names) > 20; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = mule.nonsense
