import pytest
import torch

from mule.objective.hsic import median_bandwidth


@pytest.mark.parametrize("factor", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_the_bandwidth_scales_with_the_samples(factor):
    samples = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    assert median_bandwidth(factor * samples) == pytest.approx(factor * median_bandwidth(samples), rel=1e-4)
