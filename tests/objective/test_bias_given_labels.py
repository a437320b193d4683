"""Dependence on the scene beside the labels: none where the scene only goes with what is done, some where it adds to it."""

import numpy as np
import torch

from mule.core.records import Evidence
from mule.model import ModelOutput
from mule.objective.contrast import contrast_loss
from mule.objective.hsic import beside_labels, static_bias
from mule.systems.catalogue import SYSTEMS


def world(*, seed, leak):
    """Forty clips of one actor: the action chooses the scene; outputs follow the action, and the scene by `leak`."""
    generator = torch.Generator().manual_seed(seed)
    action = torch.randint(0, 4, (40,), generator=generator)
    labels = torch.nn.functional.one_hot(action, 4).float()
    scene = torch.randn(4, 6, generator=torch.Generator().manual_seed(99))[action]
    scene = scene + 0.5 * torch.randn(40, 6, generator=generator)
    outputs = 4 * labels - 2 + 0.5 * torch.randn(40, 4, generator=generator) + leak * scene[:, :4]
    return outputs, scene, torch.arange(40), labels


def mean_bias(leak, *, given):
    found = []
    for seed in range(30):
        outputs, scene, clips, labels = world(seed=seed, leak=leak)
        bias = static_bias(outputs, scene, clips, given=labels if given else None)
        assert bias is not None
        found.append(bias.item())
    return float(np.mean(found))


def test_right_outputs_depend_on_the_scene_and_not_beside_the_labels():
    assert mean_bias(0.0, given=False) > 0.03
    assert abs(mean_bias(0.0, given=True)) < 0.001
    assert mean_bias(1.0, given=True) > 0.006


def test_what_labels_explain_is_taken_out_as_ridge_regression_does():
    outputs, _, _, labels = world(seed=0, leak=1.0)
    x, y = labels.double().numpy(), outputs.double().numpy()
    x, centred = x - x.mean(axis=0), y
    explained = x @ np.linalg.solve(x.T @ x + np.eye(4), x.T @ centred)
    np.testing.assert_allclose(beside_labels(outputs, labels), y - explained, atol=1e-5)


def test_gradients_reach_the_outputs_through_what_is_left():
    outputs, scene, clips, labels = world(seed=1, leak=1.0)
    outputs.requires_grad_(True)
    bias = static_bias(outputs, scene, clips, given=labels)
    assert bias is not None
    bias.backward()
    assert outputs.grad is not None
    assert outputs.grad.abs().sum() > 0
    along_labels = (
        labels - labels.mean(dim=0)
    ).T @ outputs.grad  # moving all who do an action hardly changes it
    assert along_labels.abs().max() < 0.1 * outputs.grad.abs().sum()


def test_systems_debiased_given_labels_are_held_to_it_and_drawn_together_ones_pay_for_it():
    outputs, scene, clips, labels = world(seed=2, leak=1.0)
    output = ModelOutput(outputs, Evidence(outputs.exp(), (-outputs).exp()), outputs, scene, clips)
    plain, given, contrast = (
        SYSTEMS[name].objective(output, labels, 0.5)
        for name in ("mule", "mule-given-labels", "mule-contrast")
    )
    assert given.constraints["static_bias"] == static_bias(outputs, scene, clips, given=labels)
    assert plain.constraints["static_bias"] == static_bias(outputs, scene, clips)
    assert given.loss == plain.loss
    torch.testing.assert_close(contrast.loss, plain.loss + 0.5 * contrast_loss(outputs, labels))
