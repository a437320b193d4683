"""Given the same weights through the key map, our backbones give what others' give, to 1e-5."""

import json

import pytest
import torch
from parity_cases import CASES, our_outputs
from record_goldens import GOLDENS, kept_values
from seeded_weights import digest


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_outputs_equal_the_recorded_ones(name):
    recorded = json.loads(GOLDENS.read_text())[name]
    model, weights_sha256 = CASES[name].seeded()
    clip = CASES[name].clip()
    assert digest({"clip": clip}) == recorded["clip_sha256"], "the seeds give another clip: record again"
    assert weights_sha256 == recorded["weights_sha256"], "the seeds give other weights: record again"
    outputs = our_outputs(model, clip)
    shapes = {key: list(outputs[key].shape) for key in recorded["outputs"]}
    assert shapes == {key: expected["shape"] for key, expected in recorded["outputs"].items()}
    ours = {key: kept_values(outputs[key]) for key in shapes}
    expected = {key: torch.tensor(expected["values"]) for key, expected in recorded["outputs"].items()}
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_value_equals_the_live_oracle(name):
    clip = CASES[name].clip()
    expected = CASES[name].oracle(clip)
    outputs = our_outputs(CASES[name].seeded()[0], clip)
    torch.testing.assert_close({key: outputs[key] for key in expected}, expected, rtol=0, atol=1e-5)
