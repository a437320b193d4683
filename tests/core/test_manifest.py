"""A folder holds exactly the files that were written there, or is refused by the name of one."""

import json

import pytest

from mule.core import manifest
from mule.core.manifest import MANIFEST, SealError, require_sealed, seal, write_sealed

FILES = {"card.json": b"{}", "experiment.toml": b"seed = 1\n", "model.safetensors": b"weights" * 9}


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    seal(tmp_path)
    require_sealed(tmp_path, is_needed=True)
    return tmp_path


@pytest.mark.parametrize("name", sorted(FILES))
def test_any_flipped_bit_and_any_missing_file_is_refused_by_name(folder, name):
    path = folder / name
    for at in range(len(FILES[name])):
        flipped = bytearray(FILES[name])
        flipped[at] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(SealError, match=rf"{name}: must be as it was written; it has changed"):
            require_sealed(folder)
    path.unlink()
    with pytest.raises(SealError, match=rf"{name}: must exist, because the manifest lists it"):
        require_sealed(folder)


def test_an_extra_file_that_could_decide_is_refused_and_others_are_not(folder):
    for name in ("run.json", "metrics.jsonl", "log.txt", "thumbnails.zip", "README.md", ".hidden.json"):
        (folder / name).write_bytes(b"of no consequence")
    (folder / "checkpoints").mkdir()
    require_sealed(folder)
    for name in ("memory.safetensors", "detector.pdmodel", "detector.pdiparams"):
        (folder / name).write_bytes(b"of another model")
        with pytest.raises(SealError, match=rf"{name}: must be a file of the manifest.*Remove it"):
            require_sealed(folder)
        (folder / name).unlink()


def test_a_folder_of_before_passes_unless_it_must_have_a_manifest(tmp_path):
    require_sealed(tmp_path)
    write_sealed(tmp_path, {"memory.safetensors": b"new"})
    assert not (tmp_path / MANIFEST).exists()
    with pytest.raises(SealError, match=r"mule-manifest\.json: must list the files"):
        require_sealed(tmp_path, is_needed=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        "{}",
        '{"format": "mule-manifest-1"}',
        '{"format": "mule-manifest-1", "files": {"a": 1}}',
        '{"format": "mule-manifest-1", "files": {"../a": "b"}}',
        '{"format": "mule-manifest-1", "files": {}}',
        '{"format": "mule-manifest-2", "files": {}, "changing": {}}',
    ],
)
def test_a_damaged_manifest_is_refused(folder, text):
    (folder / MANIFEST).write_text(text)
    with pytest.raises(SealError, match=r"mule-manifest\.json: must be a manifest"):
        require_sealed(folder)


def test_a_digest_that_somebody_else_compares_is_not_computed(folder, monkeypatch):
    digests = json.loads((folder / MANIFEST).read_text())["files"]
    monkeypatch.setattr(
        manifest,
        "sha256_while_unchanged",
        lambda path: digests[path.name] if path.suffix != ".safetensors" else "",
    )
    require_sealed(folder, vouched={"model.safetensors": digests["model.safetensors"]})
    with pytest.raises(SealError, match=r"model\.safetensors: must be as it was written"):
        require_sealed(folder, vouched={"model.safetensors": "0" * 64})


class Killed(BaseException):
    """What ends a process in the middle of a change."""


def write_killed(monkeypatch, folder, contents, *, moment, after):
    """Write files and be killed before or after one of the writes."""
    write, calls = manifest.write_file, []

    def killed(path, content):
        calls.append(path.name)
        if len(calls) - 1 == moment and not after:
            raise Killed
        write(path, content)
        if len(calls) - 1 == moment:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(manifest, "write_file", killed)
        with pytest.raises(Killed):
            write_sealed(folder, contents)
    require_sealed(folder, is_needed=True)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("moment", range(4))
def test_a_change_that_is_killed_at_any_write_leaves_an_accepted_folder(folder, monkeypatch, moment, after):
    new = {"model.safetensors": b"better", "memory.safetensors": b"first"}
    write_killed(monkeypatch, folder, new, moment=moment, after=after)
    assert (folder / "model.safetensors").read_bytes() in (
        FILES["model.safetensors"],
        new["model.safetensors"],
    )
    write_sealed(folder, new)  # the same command again
    require_sealed(folder, is_needed=True)
    assert json.loads((folder / MANIFEST).read_text())["changing"] == {}
    assert {path.name for path in folder.iterdir()} == {*FILES, *new, MANIFEST}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("second", range(3))
@pytest.mark.parametrize("first", range(3))
def test_a_change_killed_after_a_change_that_was_killed_leaves_an_accepted_folder(
    folder, monkeypatch, first, second, after
):
    write_killed(monkeypatch, folder, {"model.safetensors": b"better"}, moment=first, after=after)
    write_killed(monkeypatch, folder, {"model.safetensors": b"best"}, moment=second, after=after)
    write_sealed(folder, {"model.safetensors": b"best"})
    require_sealed(folder, is_needed=True)
