"""Every help page fits a terminal of 80 columns, and no name in it is cut."""

import re

import pytest
import typer
from typer.testing import CliRunner

from mule.cli.main import app

WIDTH = 80


def pages(command, path=()):
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from pages(each, (*path, name))


def shown(*arguments):
    return CliRunner().invoke(app, arguments, env={"COLUMNS": str(WIDTH)})


def command_at(path):
    command = typer.main.get_command(app)
    for name in path:
        command = getattr(command, "commands", {})[name]
    return command


@pytest.mark.parametrize("path", list(pages(typer.main.get_command(app))), ids=" ".join)
def test_a_help_page_fits_80_columns_and_names_every_command_and_option_whole(path):
    outcome = shown(*path, "--help")
    assert outcome.exit_code == 0
    lines = outcome.stdout.splitlines()
    assert [line for line in lines if len(line) > WIDTH] == []
    assert [line for line in lines[1:] if line.endswith(("…", "..."))] == []
    command, words = command_at(path), re.findall(r"[\w-]+", outcome.stdout)
    for name in getattr(command, "commands", {}):
        assert name in words
    for parameter in command.params:
        assert all(option in words for option in parameter.opts if option.startswith("--"))


@pytest.mark.parametrize("path", list(pages(typer.main.get_command(app))), ids=" ".join)
def test_every_command_and_option_says_what_it_does_in_a_sentence(path):
    command = command_at(path)
    assert command.help
    assert command.help.strip()[0].isupper()
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        assert text, f"{' '.join(path)} {parameter.name}"
        assert text.rstrip().endswith((".", "]")), f"{' '.join(path)} {parameter.name}: {text}"


def test_no_arguments_show_the_help():
    assert shown().output == shown("--help").output


def test_a_misspelt_command_gets_a_suggestion_and_errors_fit_80_columns():
    outcome = shown("wach", "film.mp4")
    assert outcome.exit_code == 2
    assert "Did you mean 'watch'" in outcome.stderr
    assert max(map(len, outcome.stderr.splitlines())) <= WIDTH


def test_the_list_of_models_fits_80_columns_and_cuts_no_name():
    from mule.systems.catalogue import SYSTEMS

    outcome = shown("models", "--stage")
    assert outcome.exit_code == 0
    assert max(map(len, outcome.stdout.splitlines())) <= WIDTH
    assert "…" not in outcome.stdout
    names = outcome.stdout.split()
    assert [name for name in SYSTEMS if name not in names] == []
    assert "TinySlowFast (Stage)" in outcome.stdout


def test_the_list_of_weights_fits_80_columns():
    outcome = shown("weights", "list", "--folder", "w")
    assert outcome.exit_code == 0
    assert max(map(len, outcome.stdout.splitlines())) <= WIDTH


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "none.toml"),
        ("watch", "none.mp4", "--model", "builtin"),
        ("compare", "none.toml"),
        ("evaluate", "run", "none"),
        ("evaluate", "watch", "none", "--truth", "none.csv"),
        ("features", "of", "none.toml"),
        ("data", "check", "none.csv"),
    ],
)
def test_a_wrong_path_is_reported_before_torch_is_imported(arguments, tmp_path):
    import subprocess
    import sys

    script = (
        "import sys; from typer.testing import CliRunner; from mule.cli.main import app\n"
        f"outcome = CliRunner().invoke(app, {list(arguments)!r})\n"
        "assert outcome.exit_code == 2, outcome.output\n"
        "assert 'none' in outcome.stderr\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
