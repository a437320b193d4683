"""Networks cost what was published of them."""

import pytest

from mule.features.backbones.slowfast import SlowFast
from mule.model import MuleModel
from mule.systems.catalogue import SYSTEMS
from mule.systems.costs import BY_ITS_PAPER, BY_MMACTION2, BY_PYTORCHVIDEO, backbone_costs, system_costs
from mule.systems.design import Sizes


@pytest.fixture(scope="module")
def costs():
    return {cost.name: cost for cost in backbone_costs()}


def test_parameters_equal_the_published_numbers(costs):
    published = {name: c for name, c in costs.items() if c.published_parameters_m is not None}
    assert len(published) == 9
    for cost in published.values():
        assert round(cost.num_parameters / 1e6, 2) == cost.published_parameters_m


def test_multiply_adds_equal_the_published_numbers_counted_alike(costs):
    published = {name: cost for name, cost in costs.items() if cost.published_multiply_adds_g is not None}
    assert len(published) == 9
    for name, cost in published.items():
        assert cost.counted_alike / 1e9 == pytest.approx(cost.published_multiply_adds_g, rel=0.003), name
    assert {cost.publisher for cost in published.values()} == {BY_PYTORCHVIDEO, BY_MMACTION2, BY_ITS_PAPER}


def test_slowfast_r50_as_a_detector_has_33_8_million_parameters():
    backbone = SlowFast(res5_stride=1, res5_dilation=2)
    model = MuleModel(backbone, SYSTEMS["slowfast"].build(Sizes(backbone.channels, num_classes=80)))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(33.83, abs=0.005)


def test_the_literal_head_is_as_large_as_the_released_one():
    """25.78 M: reduction, pair convolutions, two relation blocks, actor layer, two heads of 40 without bias."""
    model = SYSTEMS["mule-literal"].build(Sizes(2304, num_classes=40))
    count = sum(p.numel() for p in model.parameters())
    assert count / 1e6 == pytest.approx(25.78, abs=0.01)


def test_every_system_has_a_cost_and_relations_cost_more_than_none():
    costs = {cost.name: cost for cost in system_costs(tiny=True)}
    assert set(costs) == set(SYSTEMS)
    assert costs["mule"].num_multiply_adds > costs["mule-without-aco-r"].num_multiply_adds
    assert costs["mule-literal"].num_multiply_adds > costs["mule"].num_multiply_adds
