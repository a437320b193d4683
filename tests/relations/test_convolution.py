"""The weight gradient by products is conv2d's: against torch's own gradient, and against finite differences."""

import pytest
import torch
import torch.nn.functional as F

from mule.relations.maps import WIDE, MapConvolution, WeightByProducts, weight_gradient


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def gradients(convolution, maps, came_back):
    maps = maps.clone().requires_grad_()
    found = convolution(maps)
    return found, *torch.autograd.grad(found, [maps, convolution.weight], came_back)


@pytest.mark.parametrize(("kernel_size", "padding"), [(1, 0), (3, 0), (3, 1), (5, 2)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_wide_maps_have_conv2ds_values_and_gradients(kernel_size, padding, memory_format):
    ours = MapConvolution(WIDE, kernel_size, padding=padding)
    torchs = torch.nn.Conv2d(WIDE, WIDE, kernel_size, padding=padding, bias=False)
    torchs.load_state_dict(ours.state_dict())
    maps = drawn(3, WIDE, 6, 7).contiguous(memory_format=memory_format)
    came_back = drawn(*torchs(maps).shape, seed=1)
    for found, expected in zip(
        gradients(ours, maps, came_back), gradients(torchs, maps, came_back), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("padding", [0, 1])
def test_gradients_of_gradients_agree_with_finite_differences(padding):
    maps, weight = drawn(2, 2, 4, 3, dtype=torch.float64), drawn(2, 2, 3, 3, dtype=torch.float64, seed=1)
    inputs = (maps.requires_grad_(), weight.requires_grad_(), padding)
    assert torch.autograd.gradcheck(WeightByProducts.apply, inputs)
    assert torch.autograd.gradgradcheck(WeightByProducts.apply, inputs)


def test_weight_gradient_of_a_kernel_worked_out_by_hand():
    maps = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    came_back = torch.tensor([[[[10.0, 0.0], [0.0, 1.0]]]])
    # the centre meets 1 and 4, the place right below it what lies right below those: 4, and nothing
    found = weight_gradient(maps, came_back, kernel_size=3, padding=1)[0, 0]
    assert found[1, 1] == 10 * 1 + 1 * 4
    assert found[2, 2] == 10 * 4
    assert found[0, 0] == 1 * 1


@pytest.mark.parametrize(("width", "is_ours"), [(WIDE - 8, False), (WIDE, True)])
def test_products_are_for_wide_maps_that_learn(width, is_ours):
    convolution, maps = MapConvolution(width, 3, padding=1), drawn(1, width, 3, 3)
    assert ("WeightByProducts" in type(convolution(maps).grad_fn).__name__) == is_ours
    with torch.no_grad():
        assert convolution(maps).grad_fn is None
    assert torch.equal(convolution(maps), F.conv2d(maps, convolution.weight, padding=1))


def test_gradients_under_autocast_stay_near_the_exact_ones():
    convolution, maps = MapConvolution(WIDE, 3, padding=1), drawn(2, WIDE, 4, 4)
    exact = torch.autograd.grad(convolution(maps).sum(), convolution.weight)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(convolution(maps).float().sum(), convolution.weight)[0]
    assert found.dtype == torch.float32
    assert (found - exact).norm() < 0.02 * exact.norm()
