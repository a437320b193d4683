import errno
import subprocess
import sys
from contextlib import suppress

import pytest
import typer
from typer.testing import CliRunner

from mule.cli import ending, main
from mule.cli.ending import Items
from mule.cli.main import app, run
from mule.core.errors import MuleError, VideoError


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
    script = (
        "import sys; import mule.evaluation.ava, mule.watching.measuring, mule.cli.evaluate\n"
        "assert 'torch' not in sys.modules"
    )
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
    assert "none.csv: must be a readable file; there is no such file." in printed.err


SECRET = "hunter2secret"


@pytest.fixture
def ends_in(monkeypatch, tmp_path):
    """Runs `mule models` whose work ends in an error; returns the exit code and the cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def ended(error, *options):
        def fails():
            raise error

        group = typer.Typer(cls=app.info.cls)
        group.callback()(main.main)
        group.command("models")(fails)
        return CliRunner().invoke(group, [*options, "models"])

    return ended


def crash_reports(tmp_path):
    return sorted((tmp_path / "cache" / "mule" / "crashes").glob("*.txt"))


def test_an_unexpected_error_is_one_sentence_a_saved_report_and_exit_code_70(ends_in, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["mule", "watch", f"rtsp://me:{SECRET}@host/live?token={SECRET}"])
    outcome = ends_in(KeyError(f"sessions of {tmp_path}/home/run with password={SECRET}"))
    (report,) = crash_reports(tmp_path)
    assert outcome.exit_code == 70
    assert outcome.stderr.count("\n") == 1
    assert str(report) in outcome.stderr
    assert "Traceback" not in outcome.stderr
    text = report.read_text()
    for word in ("command: mule watch rtsp://host/live?…", "Traceback", "KeyError", "~/run", "torch "):
        assert word in text
    for secret in (SECRET, str(tmp_path / "home")):
        assert secret not in text
    assert SECRET not in outcome.stderr


def test_traceback_shows_where_it_happened(ends_in, tmp_path):
    outcome = ends_in(ZeroDivisionError(), "--traceback")
    assert outcome.exit_code == 70
    assert "Traceback" in outcome.stderr
    assert "in fails" in outcome.stderr
    assert len(crash_reports(tmp_path)) == 1


def test_only_the_latest_crash_reports_are_kept(ends_in, monkeypatch, tmp_path):
    monkeypatch.setattr(ending, "MOST_REPORTS", 2)
    for number in range(4):
        ends_in(KeyError(number))
    assert [
        report.read_text().count(f"KeyError: {n}") for n, report in enumerate(crash_reports(tmp_path), 2)
    ] == [
        1,
        1,
    ]


def test_a_cache_that_cannot_be_written_does_not_hide_the_error(ends_in, tmp_path):
    (tmp_path / "cache").write_text("a file")
    outcome = ends_in(KeyError("sessions"))
    assert (outcome.exit_code, outcome.stderr.count("\n")) == (70, 1)
    assert "the details cannot be saved" in outcome.stderr


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            OSError(errno.EROFS, "Read-only file system", "/disk/a"),
            2,
            "/disk/a: this file, folder or device must",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "no space left on device"),
        (KeyboardInterrupt(), 130, "mule: stopped"),
        (KeyboardInterrupt("stopped at 3 s"), 130, "mule: stopped at 3 s"),
    ],
)
def test_expected_errors_are_one_sentence_without_a_report(error, code, words, ends_in, tmp_path):
    outcome = ends_in(error)
    assert (outcome.exit_code, outcome.stderr.count("\n")) == (code, 1)
    assert words in outcome.stderr
    assert not crash_reports(tmp_path)


def test_a_closed_pipe_stays_quiet():
    command = [sys.executable, "-c", "from mule.cli.main import run; run()", "weights", "list"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() != 70
    assert said == b""


def test_of_many_items_each_has_a_status_and_the_worst_gives_the_exit_code(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    errors = [
        None,
        VideoError("b: no video."),
        MuleError("c: full."),
        KeyError("d"),
        KeyboardInterrupt(),
    ]
    items = Items(list("abcdefg"))
    items.note("e", "no person")
    with suppress(KeyboardInterrupt):
        for name, error in zip("abcdf", errors, strict=True):
            with items.of(name):
                if error is not None:
                    raise error
    assert items.summary() == (
        "7 items: 1 done; 1 no person (e); 1 damaged (b); 2 failed (c, d); 1 interrupted (f); 1 not begun (g)"
    )
    with pytest.raises(typer.Exit) as ended:
        items.end()
    assert ended.value.exit_code == 130
    assert [line[:10] for line in capsys.readouterr().err.splitlines()] == [
        "mule: b: n", "mule: c: f", "mule: a fa", "mule: 7 it"
    ]  # fmt: skip
