"""What may be watched with: files that belong together, and nothing else."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_bundles import bundled

from mule.core.errors import WeightsError
from mule.core.files import sha256_of
from mule.core.manifest import MANIFEST, SealError, seal
from mule.memory.files import MemoryFileError, read_memory, write_memory
from mule.novelty.combining import DECIDING_PARTS
from mule.training.run_folder import experiment_of
from mule.watching.engine.bundle import (
    BUNDLE,
    CALIBRATION,
    MEMORY,
    BundleCard,
    BundleContents,
    BundleError,
    read_bundle,
    write_bundle,
)
from mule.watching.engine.judging import HeldOutOutputs


@pytest.fixture
def copy(bundle_dir, tmp_path):
    return shutil.copytree(bundle_dir, tmp_path / "copy")


def test_a_bundle_says_what_it_is(bundle, bundle_dir):
    assert len(bundle.usual.combined.each) == len(DECIDING_PARTS)
    assert len(bundle.classes) == 14
    card = json.loads((bundle_dir / BUNDLE).read_text())
    assert card["detector"] == "scene"
    assert card["metrics"]["num_held_out_actors"] == bundle.usual.num_held_out
    assert card["data"]
    assert (bundle.needs.shape.num_frames, bundle.needs.shape.stride_frames) == (4, 2)
    assert bundle.needs.frame_rate == 16


def test_held_out_actors_are_judged_as_watched_ones_are(bundle, bundle_dir):
    """PE of log and −log t, written out: −Σ softplus(h), and the mean kernel weight of the k nearest."""
    import safetensors.torch

    held_out = safetensors.torch.load_file(bundle_dir / CALIBRATION)
    judged = bundle.judge(held_out["outputs"], held_out["features"])
    expected = -torch.nn.functional.softplus(held_out["outputs"].double()).sum(dim=1)
    torch.testing.assert_close(judged.ranks[:, 0], expected, rtol=1e-4, atol=1e-4)
    memory = bundle.judge.remembered.memory
    z = torch.nn.functional.normalize(held_out["features"], dim=1)[0]
    distance = (memory.features - z).norm(dim=1).double()
    nearest = distance.argsort()[: memory.kernel.num_neighbours]
    width = memory.kernel.reach * memory.scales[nearest].double() * memory.kernel.typical_scale
    trust = torch.exp(-distance[nearest].square() / width).mean()
    torch.testing.assert_close(judged.ranks[0, -1], -trust.log(), rtol=1e-3, atol=1e-3)


def test_the_probability_of_an_action_is_the_sigmoid_where_the_memory_is_silent(bundle):
    from mule.evidence.head import opinion_from

    outputs = torch.linspace(-4, 4, 14)[None]
    network = bundle.judge(outputs, torch.ones(1, bundle.judge.remembered.memory.dim)).network
    torch.testing.assert_close(opinion_from(network).probability, torch.sigmoid(outputs))


def test_a_run_without_memory_is_judged_by_its_evidence_alone(run_dir, tmp_path):
    found = read_bundle(bundled(run_dir, tmp_path / "plain", has_memory=False))
    assert found.judge.remembered is None
    assert len(found.usual.combined.each) == 1


def test_a_bundle_holds_the_weights_of_its_frozen_backbone_and_works_anywhere(
    bundle_dir, tmp_path, monkeypatch
):
    """The path that the run was trained with is relative to a folder that nobody is in any more."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    run_dir = shutil.copytree(bundle_dir, "run")
    weights = here / "i3d.pt"
    weights.write_bytes(b"weights")
    experiment = Path(run_dir, "experiment.toml")
    experiment.write_text(experiment.read_text().replace("[backbone]", '[backbone]\nweights = "i3d.pt"'))
    seal(Path(run_dir))
    card = BundleCard.model_validate_json((bundle_dir / BUNDLE).read_bytes())
    write_bundle(
        here / "model",
        here / "run",
        card=card.model_copy(update={"backbone_sha256": sha256_of(weights)}),
        contents=BundleContents(
            HeldOutOutputs(**load_file(bundle_dir / CALIBRATION)), read_memory(bundle_dir / MEMORY)
        ),
    )
    shutil.move(here / "model", there / "moved")
    shutil.rmtree(here)
    monkeypatch.chdir(there)
    assert read_bundle(Path("moved")).card.backbone_sha256 is not None
    assert experiment_of(Path("moved")).backbone.weights == Path("moved/backbone.pt")
    (there / "moved" / "backbone.pt").write_bytes(b"others")
    with pytest.raises(SealError, match=r"backbone\.pt: must be as it was written"):
        read_bundle(Path("moved"))
    seal(there / "moved")
    with pytest.raises(
        BundleError, match=r"backbone\.pt: must be the backbone that the bundle was made with"
    ):
        read_bundle(Path("moved"))


def test_a_changed_memory_is_calibrated_anew(copy, bundle):
    from mule.memory.teaching import forget_action

    write_memory(copy / MEMORY, forget_action(read_memory(copy / MEMORY), "walk"))
    found = read_bundle(copy)
    assert "walk" not in found.classes
    assert len(found.classes) == 13
    assert not torch.equal(found.usual.combined.together.held_out, bundle.usual.combined.together.held_out)


def test_who_did_only_what_was_forgotten_no_longer_says_what_is_usual(copy, bundle):
    """They are novel now; among the known they would raise the threshold above themselves."""
    from mule.memory.teaching import forget_action

    content = read_memory(copy / MEMORY)
    assert content.held_out is not None
    labels, names = content.held_out.labels, content.held_out.class_names
    alone = {
        name: int(((labels.sum(dim=1) == 1) & (labels[:, at] == 1)).sum()) for at, name in enumerate(names)
    }
    action = max(alone, key=lambda name: alone[name])
    assert alone[action]
    write_memory(copy / MEMORY, forget_action(content, action))
    assert read_bundle(copy).usual.num_held_out == bundle.usual.num_held_out - alone[action]


def test_a_calibration_of_before_does_not_say_what_actors_do_and_forgetting_says_so(copy, bundle):
    from mule.memory.teaching import forget_action
    from mule.watching.engine.bundle import cannot_follow_forgetting

    assert not cannot_follow_forgetting(copy / MEMORY)
    tensors = load_file(copy / CALIBRATION)
    with safe_open(copy / CALIBRATION, framework="pt") as file:
        about = file.metadata()
    del tensors["labels"]
    save_file(tensors, copy / CALIBRATION, about)
    seal(copy)
    write_memory(copy / MEMORY, forget_action(read_memory(copy / MEMORY), "walk"))
    assert cannot_follow_forgetting(copy / MEMORY)
    assert read_bundle(copy).usual.num_held_out == bundle.usual.num_held_out


def test_a_folder_is_not_overwritten(run_dir, bundle_dir):
    with pytest.raises(BundleError, match="must not exist yet"):
        bundled(run_dir, bundle_dir)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BundleError, match="there is no such folder"):
        read_bundle(tmp_path / "nothing")


def test_a_plain_run_is_refused_with_what_to_do(run_dir):
    with pytest.raises(BundleError, match="This folder is a run: `mule bundle RUN_DIR --out DIR`"):
        read_bundle(run_dir)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("model.safetensors", WeightsError, "the weights its card vouches for"),
        (CALIBRATION, BundleError, "must hold the calibration"),
        (MEMORY, MemoryFileError, "damaged"),
        (BUNDLE, BundleError, "must be the card of a bundle"),
    ],
)
def test_a_damaged_file_is_named_also_without_a_manifest(copy, name, error, message):
    _cut(copy / name)
    for card in (BUNDLE, "card.json"):  # those of a version without manifests
        path = copy / card
        path.write_text(path.read_text().replace('bundle-2"', 'bundle-1"').replace('run-2"', 'run-1"'))
    (copy / MANIFEST).unlink()
    with pytest.raises(error, match=message):
        read_bundle(copy)


def test_a_bundle_lists_all_its_files_and_is_read_with_these_only(copy):
    files = {path.name for path in copy.iterdir()} - {MANIFEST}
    assert set(json.loads((copy / MANIFEST).read_text())["files"]) == files
    assert files >= {CALIBRATION, MEMORY, BUNDLE, "experiment.toml", "card.json", "model.safetensors"}
    for name in sorted(files - {"model.safetensors"}):
        content = (copy / name).read_bytes()
        at = content.rindex(
            b"0", 0, content.find(b"names_from") if name == BUNDLE else None
        )  # a share stays one
        (copy / name).write_bytes(content[:at] + b"1" + content[at + 1 :])
        with pytest.raises(SealError, match=rf"{name}: must be as it was written; it has changed"):
            read_bundle(copy)
        (copy / name).write_bytes(content)
    memory = (copy / MEMORY).read_bytes()
    (copy / MEMORY).unlink()
    with pytest.raises(SealError, match=r"memory\.safetensors: must exist, because the manifest lists it"):
        read_bundle(copy)
    (copy / MEMORY).write_bytes(memory)
    (copy / "detector.safetensors").write_bytes(memory)
    with pytest.raises(SealError, match=r"detector\.safetensors: must be a file of the manifest.*Remove it"):
        read_bundle(copy)
    (copy / "detector.safetensors").unlink()
    (copy / MANIFEST).unlink()
    with pytest.raises(SealError, match=r"mule-manifest\.json: must list the files"):
        read_bundle(copy)


def test_a_bundle_that_cannot_be_watched_with_leaves_nothing_behind(run_dir, bundle_dir, tmp_path):
    card = BundleCard.model_validate_json((bundle_dir / BUNDLE).read_bytes())
    of_others = card.model_copy(update={"weights_sha256": "0" * 64})
    with pytest.raises(WeightsError):
        write_bundle(
            tmp_path / "model",
            run_dir,
            card=of_others,
            contents=BundleContents(HeldOutOutputs(**load_file(bundle_dir / CALIBRATION))),
        )
    assert list(tmp_path.iterdir()) == []


def test_a_memory_of_other_weights_is_refused(copy):
    content = read_memory(copy / MEMORY)
    other = replace(content, memory=replace(content.memory, model="0" * 64), held_out=None)
    write_memory(copy / MEMORY, other)
    with pytest.raises(MemoryFileError, match="a memory of this model"):
        read_bundle(copy)


def test_a_card_of_other_weights_is_refused(copy):
    card = json.loads((copy / BUNDLE).read_text())
    (copy / BUNDLE).write_text(json.dumps({**card, "weights_sha256": "0" * 64}))
    seal(copy)
    with pytest.raises(BundleError, match="must belong to the weights beside it"):
        read_bundle(copy)
