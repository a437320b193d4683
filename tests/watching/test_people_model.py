"""The model of real people that comes with the package: small, whole, of known inputs, and honest about what it needs."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from examples.make_people import IDLE_LABELS, INPUTS, naming
from mule import Model
from mule.cli.main import app
from mule.core.errors import MuleError
from mule.watching.engine.bundle import PEOPLE, packaged_folder, read_bundle, read_known_examples
from mule.watching.engine.bundle_card import read_bundle_card
from mule.watching.engine.showing import box_in_square
from mule.watching.engine.watch import needed_cards

MOST_BYTES = 8_000_000
FOLDER = Path(__file__).parents[2] / "src" / "mule" / "models" / PEOPLE


def test_it_fits_into_eight_megabytes_and_holds_no_pictures():
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < MOST_BYTES
    assert {path.suffix for path in files} == {".json", ".safetensors", ".toml"}


def test_its_card_agrees_with_its_bytes_and_names_its_inputs():
    card, run = read_bundle_card(FOLDER), json.loads((FOLDER / "card.json").read_text())
    weights = hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest()
    assert card.weights_sha256 == run["weights_sha256"] == weights
    made_of = {f"jhmdb/{name}": each for name, each in INPUTS.items()} | {"caviar/labels.csv": IDLE_LABELS}
    assert made_of.items() <= card.data.items()
    assert (card.name, card.sees, card.backbone_card) == (PEOPLE, "person", "i3d_rgb_kinetics400")
    assert card.commit


def test_it_knows_twenty_one_actions_from_the_examples_that_it_counts():
    examples = read_known_examples(FOLDER)
    assert len(examples) == 21
    assert {"walk", "run", "sit", "stand", "wave"} <= examples.keys()
    metrics = read_bundle_card(FOLDER).metrics
    assert sum(examples.values()) == metrics["num_taught_actors"]
    assert metrics["num_idle_examples"] >= 20


def test_its_card_says_how_well_on_films_that_taught_nothing():
    card = read_bundle_card(FOLDER)
    shares = ("auroc_one_look", "auroc_named", "auroc_unnamed", "novel_flagged_one_look", "known_called_idle")
    assert all(0 < card.metrics[name] < 1 for name in (*shares, "known_flagged_one_look", "names_right"))
    assert card.names_from == naming(FOLDER)["names_from"]


def test_mule_models_says_what_it_knows_and_how_well():
    shown = CliRunner().invoke(app, ["models", PEOPLE]).stdout
    assert "climb_stairs" in shown
    assert "AUROC" in shown
    assert "called idle" in shown
    assert "picodet_416" in shown


def test_it_says_what_it_needs_and_stops_where_nothing_may_be_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert packaged_folder(PEOPLE) == FOLDER
    assert [card.name for card in needed_cards(Path(PEOPLE), None)] == ["i3d_rgb_kinetics400", "picodet_416"]
    with pytest.raises(MuleError, match=r"weights must be on disk.*`mule weights pull i3d_rgb_kinetics400`"):
        Model.load()


def test_a_folder_that_is_no_model_does_not_take_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / PEOPLE).mkdir()
    assert packaged_folder(PEOPLE) == FOLDER
    (tmp_path / PEOPLE / "card.json").write_text("{}")
    assert packaged_folder(PEOPLE) is None


def test_a_box_lies_in_its_square_as_it_lay_in_the_frame():
    box, square = torch.tensor([[100.0, 50.0, 140.0, 170.0]]), (20, 30, 180)
    seen = box_in_square(box, [square], 90)
    assert seen.tolist() == [[35.0, 15.0, 55.0, 75.0]]  # half as large, from the corner at 30, 20
    outside = box_in_square(torch.tensor([[0.0, 0.0, 40.0, 400.0]]), [square], 90)
    assert outside.tolist() == [[0.0, 0.0, 5.0, 90.0]]


@pytest.mark.slow
def test_people_of_a_still_clip_are_seen_wherever_they_stand(shared_data, tmp_path, monkeypatch):
    """The square around a person moves with them, so the same person elsewhere in the frame is judged the same."""
    tensors = torch.load(shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt", weights_only=True)
    (tmp_path / "mule").mkdir()
    save_file(tensors, tmp_path / "mule" / "i3d_rgb_kinetics400.safetensors")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = Model(read_bundle(Path(PEOPLE)))
    person = torch.randint(0, 255, (96, 48, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    clip = torch.full((32, 300, 700, 3), 128, dtype=torch.uint8)
    for left in (100, 500):
        clip[:, 100:196, left : left + 48] = person
    first, second = model.predict(clip, [[100, 100, 148, 196], [500, 100, 548, 196]])
    assert first.novelty.p_value == pytest.approx(second.novelty.p_value, rel=1e-3)
    assert [each.action for each in first.opinions] == [each.action for each in second.opinions]
