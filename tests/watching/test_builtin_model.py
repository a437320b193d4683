"""The model of rendered scenes that comes with the package: it is small, whole, known by name, and decides as it did when it was made."""

import hashlib
import json
import tomllib
from pathlib import Path

import pytest

from examples.builtin_decisions import DECISIONS, decisions_of, write_short_take
from mule.core.errors import DetectorError
from mule.stage.classes import stage_split
from mule.watching.engine.bundle import DETECTOR, STAGE, BundleError, packaged_folder, read_bundle
from mule.watching.engine.finding import box_finder

MOST_BYTES = 10_000_000
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "mule" / "models" / STAGE


@pytest.fixture(scope="module")
def bundle():
    return read_bundle(Path(STAGE))


def test_its_earlier_name_still_means_it():
    assert packaged_folder("builtin") == packaged_folder(STAGE) == FOLDER


def test_it_fits_into_ten_megabytes():
    assert 0 < sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MOST_BYTES


def test_its_card_agrees_with_its_bytes(bundle):
    weights = hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest()
    run = json.loads((FOLDER / "card.json").read_text())
    assert bundle.card.weights_sha256 == run["weights_sha256"] == weights


def test_its_card_says_what_it_was_made_of_and_how_good_it_is(bundle):
    card = bundle.card
    assert card.commit
    assert card.data
    assert card.seed == tomllib.loads((ROOT / "experiments" / "builtin.toml").read_text()).get("seed", 10)
    shares = ("closed_mean_ap", "auroc_one_look", "auroc_so_far", "known_flagged", "novel_flagged")
    assert all(0 <= card.metrics[name] <= 1 for name in (*shares, "person_recall", "person_precision"))


def test_it_was_made_by_the_committed_experiment():
    made = tomllib.loads((FOLDER / "experiment.toml").read_text())
    wanted = tomllib.loads((ROOT / "experiments" / "builtin.toml").read_text())
    for key, value in wanted.items():
        found = made[key]
        assert found == value if not isinstance(value, dict) else value.items() <= found.items()
    assert "root" not in made["data"]


def test_it_knows_the_known_actions_of_stage(bundle):
    assert set(bundle.classes) == set(stage_split("A").known)


def test_every_file_goes_into_a_wheel():
    """Whatever lies in the package goes into a wheel, unless Git is told to ignore it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/mule"]}
    ignored = [line.strip("/*") for line in (ROOT / ".gitignore").read_text().split()]
    names = [str(path.relative_to(ROOT / "src")) for path in FOLDER.rglob("*") if path.is_file()]
    assert {f"mule/models/{STAGE}/{name}" for name in ("model.safetensors", "bundle.json", DETECTOR)} <= set(
        names
    )
    assert not [name for name in names for part in Path(name).parts if part in ignored]


@pytest.mark.slow
def test_a_short_take_is_watched_by_name_from_anywhere_and_decided_as_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_short_take(tmp_path / "take.mp4")
    found, recorded = decisions_of(tmp_path / "take.mp4"), json.loads(DECISIONS.read_text())
    assert len(found) == len(recorded) > 0
    for now, then in zip(found, recorded, strict=True):
        for exact in ("key_time_s", "track_id", "decision"):
            assert now[exact] == then[exact]
        assert now["actions"] == then["actions"]
        assert now["p_value"] == pytest.approx(then["p_value"], abs=0.02)
        assert now["box_xyxy_unit"] == pytest.approx(then["box_xyxy_unit"], abs=0.02)


def test_a_model_of_the_same_name_comes_first_and_another_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / STAGE).mkdir()
    assert read_bundle(Path(STAGE)).folder == FOLDER
    (tmp_path / STAGE / "card.json").write_text("{}")
    with pytest.raises(BundleError, match=r"^stage/bundle\.json"):
        read_bundle(Path(STAGE))


def test_its_detector_is_read_like_any_other_and_a_damaged_one_refused(tmp_path):
    finder = box_finder(FOLDER / DETECTOR, "take")
    assert tuple(finder.class_names) == ("person", "ball", "box")
    assert finder.links_between
    damaged = tmp_path / DETECTOR
    damaged.write_bytes((FOLDER / DETECTOR).read_bytes()[:-5])
    with pytest.raises(DetectorError, match=r"detector\.safetensors"):
        box_finder(damaged, "take")
