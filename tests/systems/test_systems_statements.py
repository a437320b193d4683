"""What a system states about itself is true of the network it builds."""

import pytest
import torch
from torch import nn

from mule.evidence.head import EvidenceHead
from mule.features.pooling import FeatureMaps
from mule.model import RelationModel, SceneBoxes
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import tiny_sizes

NUM_CLASSES, CHANNELS = 3, 8


@pytest.fixture(scope="module")
def networks():
    torch.manual_seed(0)
    return {name: system.build(tiny_sizes(CHANNELS, NUM_CLASSES)).eval() for name, system in SYSTEMS.items()}


@pytest.fixture(scope="module")
def seen(networks):
    """The output of every network for the same two actors."""
    boxes = torch.tensor([[2.0, 2.0, 30.0, 40.0], [20.0, 4.0, 60.0, 44.0]])
    scene = SceneBoxes(boxes, torch.tensor([0, 0]), boxes[:1], torch.tensor([0]))
    maps = FeatureMaps((torch.randn(1, CHANNELS, 2, 12, 16),), 4)
    with torch.no_grad():
        return {name: network([maps], scene) for name, network in networks.items()}


@pytest.mark.parametrize("name", SYSTEMS)
def test_evidence_comes_from_the_outputs_as_stated(name, seen):
    outputs, evidence = seen[name].outputs, seen[name].evidence
    kind = SYSTEMS[name].evidence
    if kind == "independent":
        assert outputs.shape[1] == 2 * NUM_CLASSES
    else:
        assert outputs.shape[1] == NUM_CLASSES
    if kind == "dirichlet":
        assert not evidence.negative.any()
        assert (evidence.positive > 0).all()
    elif kind == "tied":
        torch.testing.assert_close(evidence.positive, outputs.exp())
        torch.testing.assert_close(evidence.negative, (-outputs).exp())
    elif kind == "read":
        torch.testing.assert_close(evidence.positive.float(), outputs.relu())


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_readout_is_the_layer_that_makes_outputs_of_features(name, networks, seen):
    layer = SYSTEMS[name].readout_layer(networks[name])
    if layer is None:
        linears = [module for module in networks[name].modules() if isinstance(module, nn.Linear)]
        with torch.no_grad():
            for linear in linears:
                fits = linear.in_features == seen[name].features.shape[-1]
                assert not fits or linear(seen[name].features).shape != seen[name].outputs.shape
    else:
        with torch.no_grad():
            torch.testing.assert_close(layer(seen[name].features), seen[name].outputs)


@pytest.mark.parametrize("name", SYSTEMS)
def test_two_outputs_per_action_bring_their_own_rule_and_can_die_under_a_relu(name, networks, seen):
    system = SYSTEMS[name]
    rule = system.pair_evidence(networks[name])
    assert (rule is not None) == (system.evidence == "independent") == system.outputs_can_die
    if rule is not None:
        made = rule(seen[name].outputs)
        torch.testing.assert_close(made.positive, seen[name].evidence.positive)
        torch.testing.assert_close(made.negative, seen[name].evidence.negative)
        heads = [module for module in networks[name].modules() if isinstance(module, EvidenceHead)]
        assert [head.function for head in heads] == ["relu"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_networks_that_pool_once_are_relation_models(name, networks):
    assert SYSTEMS[name].pools_once == isinstance(networks[name], RelationModel)
