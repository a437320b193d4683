"""Rendering processes that are killed."""

import os
import signal
from functools import partial

import pytest

from mule.stage.export import WorkerKilled, do_all


def finished(folder, item):
    (folder / f"done-{item}").touch()
    return 1


def killed_once(folder, item):
    if item == 1 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return finished(folder, item)


def killed_always(folder, item):
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return finished(folder, item)


def done(work, folder):
    seen = []
    do_all(
        partial(work, folder),
        range(4),
        workers=2,
        on_progress=lambda *counts: seen.append(counts),
        num_done=0,
        num_all=4,
    )
    return seen


@pytest.mark.slow
def test_a_killed_process_is_explained_and_its_item_is_done_in_the_second_try(tmp_path, caplog):
    assert done(killed_once, tmp_path)[-1] == (4, 4)
    assert {path.name for path in tmp_path.glob("done-*")} == {f"done-{item}" for item in range(4)}
    (record,) = caplog.records
    assert "a process was killed, most often because memory ran out; trying" in record.getMessage()


@pytest.mark.slow
def test_an_item_that_always_kills_its_process_ends_in_one_sentence_after_the_others(tmp_path):
    with pytest.raises(WorkerKilled, match="use fewer workers"):
        done(killed_always, tmp_path)
