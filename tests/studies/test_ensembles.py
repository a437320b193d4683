"""Several networks judged as one."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_outputs import made_outputs
from study_commands import run_study

from mule.core.errors import MissingOutputs, RangeError
from mule.core.records import Evidence
from mule.evidence.head import exp_evidence
from mule.rivals.scores.outputs import LinearReadout
from studies.evaluate.__main__ import app
from studies.evaluate.ensembles import ensemble_of, usual_lengths


@pytest.fixture(scope="module")
def sides():
    return made_outputs(90, seed=0), made_outputs(60, seed=1), made_outputs(30, seed=2, shift=0.5)


def with_readout(outputs, seed):
    weight = torch.randn(3, outputs.features.shape[1], generator=torch.Generator().manual_seed(seed))
    bias = torch.randn(3, generator=torch.Generator().manual_seed(seed + 1))
    logits = outputs.features @ weight.T + bias
    return replace(
        outputs,
        outputs=logits,
        evidence=Evidence(exp_evidence(logits), exp_evidence(-logits)),
        readout=LinearReadout(weight, bias),
    )


def test_an_ensemble_is_one_network_whose_logits_are_the_mean(sides):
    members = [with_readout(sides[0], seed) for seed in (1, 5)]
    members[1] = replace(
        members[1],
        features=100 * members[1].features,
        readout=LinearReadout(members[1].readout.weight / 100, members[1].readout.bias),
    )
    together = ensemble_of(members, usual_lengths(members))
    expected = (members[0].outputs + members[1].outputs) / 2
    torch.testing.assert_close(together.outputs, expected)
    assert together.readout is not None
    torch.testing.assert_close(
        together.features @ together.readout.weight.T + together.readout.bias, expected, rtol=1e-4, atol=1e-4
    )
    halves = together.features.square().sum(dim=0).reshape(2, -1).sum(dim=1)
    assert halves[0].item() == pytest.approx(halves[1].item(), rel=0.01)  # neither outweighs the other


def test_an_ensemble_of_other_actors_or_of_two_outputs_per_action_is_refused(sides):
    other = replace(sides[0], clip_index=np.flip(sides[0].clip_index).copy())
    with pytest.raises(RangeError, match="same actors"):
        ensemble_of([sides[0], other], [1.0, 1.0])
    two = made_outputs(90, seed=0, kind="independent")
    with pytest.raises(MissingOutputs, match="one logit per action"):
        ensemble_of([two, two], [1.0, 1.0])


def test_the_command_judges_runs_of_one_system_together_and_refuses_others(done, tmp_path):
    reference, rival = done.rows[-1].folder, done.rows[-2].folder
    twin = shutil.copytree(reference, tmp_path / "twin")
    options = ("--split", "val", "--score", "joint-energy", "--resamples", 0)
    together = run_study(app, "ensemble", reference, twin, *options)
    assert together.exit_code == 0, together.output
    assert "joint-energy" in together.output
    refused = run_study(app, "ensemble", reference, rival, *options)
    assert refused.exit_code == 2
    assert "at least two runs of one system" in refused.stderr
