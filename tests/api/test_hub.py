"""Models on the Hub: what is pushed comes back whole, and nothing else is accepted."""

import shutil
from pathlib import Path

import huggingface_hub
import pytest
from hub_stub import hub
from typer.testing import CliRunner

from mule.api.hub import HubError, pull_from_hub, push_to_hub
from mule.api.model_card import model_card
from mule.cli.main import app
from mule.core.manifest import MANIFEST, SealError, seal
from mule.watching.engine.bundle import STAGE, packaged_folder, read_bundle

NAME = "somebody/stage"


@pytest.fixture
def there(monkeypatch):
    with hub() as server:
        client = huggingface_hub.HfApi

        def at_stub(**more):
            return client(endpoint=server.address, **more)

        monkeypatch.setattr(huggingface_hub, "HfApi", at_stub)
        yield server


@pytest.fixture
def model(tmp_path):
    packaged = packaged_folder(STAGE)
    assert packaged is not None
    return Path(shutil.copytree(packaged, tmp_path / "model"))


def test_a_pushed_model_is_pulled_whole_with_its_card(there, model, tmp_path):
    assert "/commit/" in push_to_hub(model, NAME, token="hf_secret")
    assert {authorisation for _, authorisation in there.posts} == {"Bearer hf_secret"}
    assert there.repositories[NAME]["README.md"].decode() == model_card(model, NAME)
    folder = pull_from_hub(NAME, tmp_path / "pulled")
    for path in model.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    assert {path.name for path in folder.iterdir()} == {path.name for path in model.iterdir()} | {"README.md"}
    assert read_bundle(folder).classes == read_bundle(model).classes


def test_a_file_that_was_changed_on_the_way_leaves_no_folder(there, model, tmp_path):
    push_to_hub(model, NAME)
    there.repositories[NAME]["experiment.toml"] += b"\n"
    with pytest.raises(SealError, match=r"experiment\.toml: must be as it was written"):
        pull_from_hub(NAME, tmp_path / "pulled")
    assert not list(tmp_path.glob("*pulled*"))


def test_pickles_are_neither_pushed_nor_pulled(there, model, tmp_path):
    push_to_hub(model, NAME)
    (model / "backbone.pt").write_bytes(b"\x80\x04N.")
    seal(model)
    with pytest.raises(HubError, match=r"must hold no pickles.*backbone\.pt"):
        push_to_hub(model, NAME)
    there.repositories[NAME][MANIFEST] = (model / MANIFEST).read_bytes()
    with pytest.raises(HubError, match=r"somebody/stage: must hold no pickles"):
        pull_from_hub(NAME, tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("name", ["somebody/else", "no name"])
def test_what_is_not_on_the_hub_ends_in_a_sentence_and_code_two(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["pull", name, "--out", "pulled"])
    assert ended.exit_code == 2
    assert f"{name}: must be reachable on the Hub as OWNER/NAME" in ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_repository_that_is_no_model_of_ours_is_refused(there, tmp_path):
    there.repositories[NAME] = {"config.json": b"{}"}
    with pytest.raises(HubError, match="must be a model that `mule push` put there"):
        pull_from_hub(NAME, tmp_path / "pulled")


def test_a_card_says_what_the_model_knows_and_where_it_ends(model):
    card = model_card(model, NAME)
    bundle = read_bundle(model)
    assert all(f"| {action} |" in card for action in bundle.classes)
    assert f"mule pull {NAME}" in card
    assert bundle.card.weights_sha256 in card
    assert "## Limits" in card
