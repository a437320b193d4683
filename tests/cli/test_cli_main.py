import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mule.cli.main import app, run


def test_help_names_the_commands():
    outcome = CliRunner().invoke(app, ["--help"])
    assert outcome.exit_code == 0
    assert "evaluate" in outcome.stdout
    outcome = CliRunner().invoke(app, ["evaluate", "--help"])
    assert all(command in outcome.stdout for command in ("open-set", "ava", "charades"))


def test_version_is_the_one_installed():
    outcome = CliRunner().invoke(app, ["--version"])
    assert outcome.exit_code == 0
    assert outcome.stdout.startswith("mule 0.")


def test_help_loads_nothing_that_computes():
    script = (
        "import sys; from mule.cli.main import app\n"
        "assert not {'torch', 'numpy', 'pydantic', 'scipy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_evaluating_needs_no_torch():
    script = "import sys; import mule.evaluation.ava, mule.cli.evaluate; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_wrong_input_ends_in_one_line_on_stderr_and_exit_code_2(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["mule", "evaluate", "open-set", str(tmp_path / "none.csv")])
    with pytest.raises(SystemExit) as ended:
        run()
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("mule: ")
    assert printed.err.count("\n") == 1
    assert "none.csv: must be a file that can be read; there is no such file." in printed.err
