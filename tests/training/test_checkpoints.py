"""Checkpoints are whole or not there."""

import resource

import pytest
import torch

from mule.core.errors import FileError, NotFinite
from mule.core.files import write_file
from mule.training.checkpoint import Checkpoint, CheckpointError, Checkpoints


def checkpoint(step, *, value=1.0, average=None, size=4):
    model = {"weight": torch.full((size, 2), value), "count": torch.tensor(step)}
    state = {"progress": {"step": step}, "chance": [torch.arange(3)], "name": "a", "none": None}
    return Checkpoint(step, model, average, state)


def last_of(kept):
    """The last checkpoint, which is sound."""
    found, wrong = kept.last()
    assert found is not None
    assert wrong == []
    return found


def test_without_a_folder_there_is_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "none").last() == (None, [])
    assert Checkpoints(tmp_path / "none").steps() == []


def test_what_is_read_is_what_was_written(tmp_path):
    kept = Checkpoints(tmp_path / "checkpoints")
    written = checkpoint(7, average={"weight": torch.randn(3, generator=torch.Generator().manual_seed(0))})
    kept.save(written, best_step=None)
    found = last_of(kept)
    assert found.step == 7
    assert found.state["progress"] == {"step": 7}
    assert found.state["none"] is None
    torch.testing.assert_close(found.model, dict(written.model), rtol=0, atol=0)
    torch.testing.assert_close(found.average, written.average, rtol=0, atol=0)
    assert torch.equal(found.state["chance"][0], torch.arange(3))


def test_the_last_two_and_the_best_are_kept(tmp_path):
    kept = Checkpoints(tmp_path)
    for step in (1, 2, 3, 4, 5):
        kept.save(checkpoint(step), best_step=2 if step >= 2 else 1)
    assert kept.steps() == [2, 4, 5]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{n:08d}" for n in (2, 4, 5)]


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(3, value=1.0), best_step=None)
    kept.save(checkpoint(3, value=2.0), best_step=None)
    assert kept.load(3).model["weight"].unique().tolist() == [2.0]


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "digests.json"])
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(tmp_path, name):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1), best_step=None)
    path = kept.save(checkpoint(2), best_step=None) / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    found, wrong = kept.last()
    assert found is not None
    assert found.step == 1
    assert len(wrong) == 1
    assert "step-00000002" in wrong[0]
    (tmp_path / "step-00000001" / name).unlink()
    with pytest.raises(CheckpointError, match="none is"):
        kept.last()


def test_weights_that_are_not_finite_are_not_kept(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1), best_step=None)
    with pytest.raises(NotFinite, match=r"1 tensors are not after step 2.*weight"):
        kept.save(checkpoint(2, value=float("nan")), best_step=None)
    assert kept.steps() == [1]


@pytest.fixture
def largest_file():
    """Sets how large a file may become, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_what_was_there_and_nothing_half_written(tmp_path, largest_file):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1), best_step=None)
    write_file(tmp_path / "run.json", "before")
    largest_file(20_000)
    with pytest.raises(
        CheckpointError, match=r"step-00000002: a checkpoint of 0\.2 MB must be written.*large"
    ):
        kept.save(checkpoint(2, size=20_000), best_step=None)
    with pytest.raises(FileError, match=r"run\.json: cannot be written"):
        write_file(tmp_path / "run.json", "x" * 30_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "step-00000001"]
    assert (tmp_path / "run.json").read_text() == "before"
    assert last_of(kept).step == 1


def test_what_a_killed_writer_left_is_swept_away(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1), best_step=None)
    (tmp_path / ".step-00000002.123").mkdir()
    assert kept.steps() == [1]
    kept.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_nothing_in_a_checkpoint_can_run_code(tmp_path):
    kept = Checkpoints(tmp_path)
    path = kept.save(checkpoint(1), best_step=None)
    assert torch.load(path / "state.pt", weights_only=True)["name"] == "a"
