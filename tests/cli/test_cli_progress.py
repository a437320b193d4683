"""Long steps tell how far they are, also where there is no terminal."""

import io

import pytest
from rich.console import Console

from mule.cli import printing
from mule.cli.printing import CountBar, progress_bar, progress_line, said_once, steps_shown
from mule.core.progress import advance, counted


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to."""
    now = [0.0]
    monkeypatch.setattr(printing.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def test_without_a_terminal_a_long_step_is_told_after_two_seconds_and_then_every_ten(clock, capsys):
    with CountBar("opening") as bar:
        for number in range(1, 61):
            bar(number, 60)
            clock(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "opening: 5 of 60",
        "opening: 25 of 60",
        "opening: 45 of 60",
    ]
    assert all(line.endswith(" left") for line in lines)


def test_seconds_of_video_are_told_with_one_decimal():
    with progress_bar() as bar:
        task = bar.add_task("watching", total=61 / 59)
        bar.update(task, completed=1 / 3)
        assert progress_line(bar.tasks[0]).startswith("watching: 0.3 of 1")


def test_a_step_shorter_than_two_seconds_is_not_told(clock, capsys):
    with steps_shown():
        for _ in counted(range(10), "quick"):
            clock(0.1)
    assert capsys.readouterr().err == ""


def test_every_step_of_the_rooms_below_is_shown_under_its_name_and_how_it_goes(clock, capsys):
    with steps_shown():
        for number in range(1, 9):
            clock(4)
            advance("training", number, 8, "loss 0.5")
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("training: 2 of 8, loss 0.5")
    advance("training", 1, 8)  # nobody listens any more
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3.0, "3 s"), (59.6, "60 s"), (61.0, "1 min"), (3599.0, "60 min"), (5400.0, "1.5 h")],
)
def test_time_is_told_in_the_unit_that_people_use(seconds, words):
    assert printing.duration(seconds) == words


def test_on_a_terminal_a_bar_is_shown_and_no_lines(monkeypatch, clock):
    shown = io.StringIO()
    monkeypatch.setattr(printing, "Console", lambda **_: Console(force_terminal=True, width=80, file=shown))
    with steps_shown():
        for number in range(1, 9):
            clock(4)
            advance("training", number, 8)
    assert "of 8" not in shown.getvalue()
    assert "\x1b[" in shown.getvalue()


def test_a_sentence_is_said_once(capsys):
    note = said_once()
    for sentence in ("a", "b", "a"):
        note(sentence)
    assert capsys.readouterr().err == "a\nb\n"
