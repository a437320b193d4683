import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from mule.core.errors import MuleError
from mule.evaluation import open_set as results
from mule.evaluation.open_set import MeanApResult, require_place, write_json

RESULT = MeanApResult(
    map=0.5, per_class={"a/b": 0.5, "c": None}, num_classes=1, counts={}, ignored={}, convention="none"
)


def test_no_place_is_no_work(tmp_path):
    require_place(None)
    write_json(RESULT, None)
    assert list(tmp_path.iterdir()) == []


def test_a_result_is_read_back_as_it_was_written(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    write_json(RESULT, path)
    assert MeanApResult.model_validate_json(path.read_text()) == RESULT
    assert json.loads(path.read_text())["per_class"] == {"a/b": 0.5, "c": None}
    assert list(tmp_path.iterdir()) == [path]


def test_a_result_cannot_be_changed_and_refuses_unknown_keys():
    with pytest.raises(ValidationError, match="frozen"):
        RESULT.map = 1.0
    with pytest.raises(ValidationError, match="Extra inputs"):
        MeanApResult.model_validate({**RESULT.model_dump(), "mAP": 1.0})


@pytest.mark.parametrize(("place", "words"), [(".", "this is a folder"), ("no/out.json", "no does not")])
def test_a_place_that_cannot_hold_a_file_is_refused_beforehand(tmp_path, monkeypatch, place, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MuleError, match=words):
        require_place(Path(place))


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results.Path, "replace", fail)
    with pytest.raises(MuleError, match=r"out\.json: cannot be written: no space left on device"):
        write_json(RESULT, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_and_not_replaced(tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real.json")
    write_json(RESULT, link)
    assert link.is_symlink()
    assert (tmp_path / "real.json").is_file()


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_json(RESULT, pipe)
        assert json.loads(os.read(reader, 1 << 16))["map"] == 0.5
    finally:
        os.close(reader)
    assert pipe.is_fifo()
