"""The named experiments of the studies: packaged ones with settings on top."""

from pathlib import Path

import pytest
import torch
from study_commands import run_study

from mule.core.config import differences, load_experiment
from mule.training.build import build_model
from studies.variants import app, read_variants

VARIANTS = read_variants()


@pytest.mark.parametrize("name", list(VARIANTS))
def test_a_variant_builds_and_changes_only_what_it_sets(name):
    variant = VARIANTS[name]
    experiment = variant.load()
    with torch.device("meta"):
        build_model(experiment)
    keys = {setting.partition("=")[0] for setting in variant.settings}
    assert set(differences(load_experiment(Path(variant.experiment)), experiment)) == keys


@pytest.mark.parametrize("name", list(VARIANTS))
def test_a_variant_changes_more_than_the_system(name):
    keys = {setting.partition("=")[0] for setting in VARIANTS[name].settings}
    assert keys - {"system"}


def test_rows_of_one_table_make_as_many_gradient_steps():
    rows = [each.load() for name, each in VARIANTS.items() if name.startswith(("stage_mule", "stage_bce"))]
    rows.append(load_experiment(Path("stage")))
    assert len({each.training.epochs * max(each.objective.inner_steps, 1) for each in rows}) == 1
    plain = {"other_background": 0.0, "undone_motion": 0.0}  # the subject of some rows
    same_views = [each.model_copy(update={"view": each.view.model_copy(update=plain)}) for each in rows]
    shared = {
        each.model_dump_json(include={"data", "view", "optimizer", "sizes", "seed"}) for each in same_views
    }
    assert len(shared) == 1


def test_variants_are_written_as_experiment_files_and_unknown_ones_refused(tmp_path):
    names = ["stage_backbone", "jhmdb_tiles2"]
    written = run_study(app, "variants", *names, "--out", tmp_path)
    assert written.exit_code == 0, written.output
    for name in names:
        assert load_experiment(tmp_path / f"{name}.toml") == VARIANTS[name].load()
    refused = run_study(app, "variants", "stage_backbones", "--out", tmp_path / "none")
    assert refused.exit_code == 2
    assert "a variant must be one of stage_mule_literal" in refused.stderr
    assert not (tmp_path / "none").exists()
    assert "stage_mule_undone_motion" in run_study(app, "variants").output
