"""The file of a memory: what was written comes back bit for bit, and nothing else is read."""

import json
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from remembered_worlds import MODEL, OTHER_MODEL, places, remembered, seen, small_memory
from safetensors import safe_open

from mule.core.errors import FileError
from mule.memory import files
from mule.memory.building import SeenActors, build_memory
from mule.memory.files import MemoryFileError, read_memory, write_memory
from mule.memory.taught import Remembered
from mule.memory.teaching import teach_action


def exemplars(count=4):
    draw = torch.Generator().manual_seed(3)
    features = 0.3 * torch.rand(count, 12, generator=draw)
    features[:, 8] += 3
    return SeenActors(features, torch.zeros(count, 4), places(count, video="new"))


def tensors_of(content):
    return files._tensors(content)  # pyright: ignore[reportPrivateUsage]


def assert_same(found, expected):
    ours, theirs = tensors_of(found), tensors_of(expected)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].dtype == theirs[name].dtype
        assert torch.equal(ours[name], theirs[name])
    assert found.memory.kernel == expected.memory.kernel
    assert found.memory.class_names == expected.memory.class_names
    assert found.memory.places.videos() == expected.memory.places.videos()
    assert [action.slope for action in found.taught] == [action.slope for action in expected.taught]


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "memory.safetensors"
    write_memory(path, remembered())
    return path


def test_a_memory_without_entries_comes_back(tmp_path):
    empty = build_memory(seen(0, seed=0), class_names=("run", "sit", "talk", "wave"), model=MODEL)
    write_memory(tmp_path / "m", Remembered(empty))
    assert len(read_memory(tmp_path / "m").memory) == 0


@pytest.mark.parametrize("kind", ["plain", "held out", "taught"])
def test_what_was_written_comes_back_bit_for_bit(tmp_path, kind):
    content = remembered()
    if kind == "plain":
        content = Remembered(small_memory())
    elif kind == "taught":
        content = teach_action(content, exemplars(), class_name="öffnen")
    path = tmp_path / "memory.safetensors"
    write_memory(path, content)
    assert_same(read_memory(path, model=MODEL), content)
    first = path.read_bytes()
    write_memory(path, read_memory(path))
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == ["memory.safetensors"]


def test_another_model_is_refused(written):
    with pytest.raises(MemoryFileError, match=r"memory.safetensors: must be a memory of this model, cdcd"):
        read_memory(written, model=OTHER_MODEL)


def rewritten(path, *, card=None, tensors=None):
    """The same file with other words in its card or other tensors; its digests are made to fit."""
    with safe_open(path, framework="pt") as file:
        old_card = json.loads(file.metadata()["card"])
        old = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    new = {**old, **(tensors or {})}
    digest = files.tensors_digest(new)
    words = {**old_card, "tensors_sha256": digest, **(card or {})}
    words["card_sha256"] = files.card_digest(words)
    path.write_bytes(safetensors.torch.save(new, {"card": json.dumps(words)}))


def test_another_version_is_refused(written):
    rewritten(written, card={"format": "mule-memory-9"})
    with pytest.raises(
        MemoryFileError, match="must be a memory in the format mule-memory-2; got 'mule-memory-9'"
    ):
        read_memory(written)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.full((60, 12), torch.nan), "memory.safetensors: features of a memory must be finite"),
        (torch.ones(60, 12), "memory.safetensors: every entry of a memory must have features of length 1"),
        (torch.eye(12).repeat(5, 1)[:59], "memory.safetensors: "),
    ],
)
def test_features_that_cannot_be_are_refused(written, tensor, message):
    rewritten(written, tensors={"features": tensor})
    with pytest.raises(MemoryFileError, match=message):
        read_memory(written)


@pytest.mark.parametrize("card", ["[]", "3", '"card"'])
def test_a_card_that_is_no_card_is_refused(written, card):
    written.write_bytes(safetensors.torch.save({"w": torch.ones(1)}, {"card": card}))
    with pytest.raises(MemoryFileError, match="must be a memory in the format mule-memory-2; got None"):
        read_memory(written)


def test_a_folder_is_no_memory(tmp_path):
    with pytest.raises(MemoryFileError, match="must be a memory file; it is a folder"):
        read_memory(tmp_path)


def test_a_card_that_lacks_something_is_refused(written):
    rewritten(written, card={"kernel": {"num_neighbours": 5}})
    with pytest.raises(MemoryFileError, match="must have a complete card"):
        read_memory(written)


@pytest.mark.parametrize("word", [None, b"wave", b"num_neighbours", b"typical_scale"])
def test_a_changed_number_or_name_is_noticed(written, word):
    content = bytearray(written.read_bytes())
    content[-3 if word is None else content.index(word) + len(word) + 5] ^= 1
    written.write_bytes(content)
    with pytest.raises(
        MemoryFileError, match=r"memory.safetensors: (damaged|must have a complete card|must be)"
    ):
        read_memory(written)


def test_a_memory_of_before_has_no_digest_of_its_card_and_is_read(written):
    with safe_open(written, framework="pt") as file:
        card = json.loads(file.metadata()["card"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del card["card_sha256"], card["held_out_videos"]
    written.write_bytes(safetensors.torch.save(tensors, {"card": json.dumps(card)}))
    assert_same(read_memory(written), remembered())


@pytest.mark.parametrize("content", [b"", b"no memory", b"\xff" * 200])
def test_what_is_no_memory_is_refused(tmp_path, content):
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(MemoryFileError, match=r"m\.safetensors: must be a complete memory file"):
        read_memory(path)


def test_a_file_cut_short_or_missing_is_refused(written, tmp_path):
    written.write_bytes(written.read_bytes()[:-100])
    with pytest.raises(MemoryFileError, match="must be a complete memory file"):
        read_memory(written)
    with pytest.raises(MemoryFileError, match="it does not exist"):
        read_memory(tmp_path / "nothing")
    path = tmp_path / "weights.safetensors"
    path.write_bytes(safetensors.torch.save({"w": torch.ones(1)}))
    with pytest.raises(MemoryFileError, match="must be a memory in the format mule-memory-2; got None"):
        read_memory(path)


def test_a_file_that_cannot_be_written_leaves_what_was_there(written, monkeypatch):
    before = written.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileError, match="cannot be written: no space left on device"):
        write_memory(written, replace(remembered(), held_out=None))
    assert written.read_bytes() == before
    assert len(list(written.parent.iterdir())) == 1
