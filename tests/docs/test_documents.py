"""The documents are true: links resolve, commands exist, examples run, equations have their functions."""

import doctest
import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.core import TyperGroup

import mule
from mule.cli.main import app
from mule.stage.benchmark import StageSet
from mule.stage.export import Export, write_dataset

ROOT = Path(__file__).resolve().parents[2]
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\n\n")[0]
SITE = [ROOT / "docs" / name for name in re.findall(r": (\S+\.md)$", NAVIGATION, re.MULTILINE)]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
ROW = re.compile(
    r"^\| ((?:Eq\.|Algorithm|Proposition) \d+) \| [^|]+ \| `([\w.]+)` \| `([\w/.:]+)` \|", re.MULTILINE
)
OWN_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| `([\w.]+)` \| `([\w/.:]+)` \|", re.MULTILINE)
PAPER, _, BEYOND = (ROOT / "docs/EQUATIONS.md").read_text().partition("## Beyond the paper")
ROWS, OWN_ROWS = ROW.findall(PAPER), OWN_ROW.findall(BEYOND)
SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(mule [a-z][^`]*)`")


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


def test_examples_in_the_documents_really_run():
    failures, attempted = doctest.testfile(
        str(ROOT / "docs/API.md"), module_relative=False, optionflags=doctest.ELLIPSIS
    )
    assert attempted > 0
    assert failures == 0


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    takes = Export(StageSet(split="A", role="test", seed=5, num_clips=1), seconds=2.0)
    write_dataset(takes, tmp_path / "stage", workers=1)
    (tmp_path / "stage/videos/clip_000000.mp4").rename(tmp_path / "video.mp4")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    code = code.replace('"video.mp4"', '"video.mp4", model="stage"')  # `people` needs weights from elsewhere
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert re.search(r"^\d\.\d \d+ \[.*\] (idle|novel|known|unsure)$", printed, re.MULTILINE), printed


def mule_commands(text):
    """Every `mule …` command of a page, as words, from its shell blocks and its running text."""
    shell = "\n".join(SHELL.findall(text)).replace("\\\n", " ")
    lines = [line.removeprefix("$ ").partition(" # ")[0] for line in shell.splitlines()]
    lines += [f"mule {line.partition(' mule ')[2]}" for line in lines if " --no-python mule " in line]
    return [shlex.split(line) for line in [*lines, *INLINE.findall(text)] if line.startswith("mule ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_in_the_documents_exist(page):
    for words in mule_commands(page.read_text()):
        command = typer.main.get_command(app)
        rest = words[1:]
        while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, f"{page.name}: {shlex.join(words)}"
            command, rest = command.commands[rest[0]], rest[1:]
        known = {
            option for parameter in command.params for option in parameter.opts + parameter.secondary_opts
        }
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert used <= known | {"--help"}, f"{page.name}: {shlex.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_experiments_named_in_the_documents_exist(page):
    for words in mule_commands(page.read_text()):
        if words[1:2] in (["train"], ["compare"]) and len(words) > 2 and not words[2].startswith("-"):
            assert (ROOT / "src/mule/experiments" / f"{words[2]}.toml").exists(), shlex.join(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_in_the_documents_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    text = page.read_text()
    shell = "\n".join(SHELL.findall(text))
    for target in re.findall(r"^make (\w+)|`make (\w+)`", f"{shell}\n{text}", re.MULTILINE):
        assert re.search(rf"^{''.join(target)}:", makefile, re.MULTILINE), target


def test_links_between_documents_lead_somewhere():
    for page in [*PAGES, *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_of_the_package_named_in_the_documents_exist(page):
    for path in re.findall(r"`((?:src|tests|bench|examples|docs)/[\w./]+\.\w+)", page.read_text()):
        assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_layers_of_the_architecture_page_are_those_that_are_enforced():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (layers,) = (each["layers"] for each in project["tool"]["importlinter"]["contracts"] if "layers" in each)
    page = (ROOT / "docs/ARCHITECTURE.md").read_text().partition("## Who may import whom")[2]
    shown = page.split("```")[1].strip().splitlines()
    assert shown == [re.sub(r"[()]", "", layer) for layer in layers]


def test_every_public_name_is_on_the_page_of_the_api_once():
    shown = re.findall(r"^::: mule\.(\w+)$", (ROOT / "docs/API.md").read_text(), re.MULTILINE)
    names = [name for name in mule.__all__ if not isinstance(getattr(mule, name), str | ModuleType)]
    assert sorted(shown) == sorted(names)


def test_the_site_has_the_pages_that_its_navigation_names():
    names = {page.name for page in SITE if page.exists()}
    assert len(names) == len(SITE)
    assert {"index.md", "QUICKSTART.md", "REPRODUCE.md", "API.md", "ARCHITECTURE.md", "RESULTS.md"} <= names


def test_the_version_to_cite_is_that_of_the_package():
    assert f"version: {mule.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_importing_mule_loads_nothing_heavy_and_gives_the_public_names():
    code = (
        "import sys, mule; heavy = {'torch', 'numpy', 'pydantic', 'typer'} & set(sys.modules); assert not heavy, heavy; "
        "names = [getattr(mule, name) for name in mule.__all__]; assert len(names) > 20; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = mule.nonsense
