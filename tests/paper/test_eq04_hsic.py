from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import NotFinite, ShapeError, TooFewActors
from mule.objective import hsic
from mule.objective.hsic import (
    biased_hsic,
    cka,
    debiased_cka,
    median_bandwidth,
    rbf_kernel,
    static_bias,
    unbiased_hsic,
)

pytestmark = pytest.mark.paper("Eq. 4")


def views(n, *, seed=0, dependent=False, dim=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, dtype=torch.float64, generator=generator)
    noise = torch.randn(n, dim, dtype=torch.float64, generator=generator)
    return x, (x.square() + 0.1 * noise if dependent else noise)


def kernel_by_loops(samples, sigma):
    n = len(samples)
    kernel = torch.empty(n, n, dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            kernel[i, j] = torch.exp(-((samples[i] - samples[j]) ** 2).sum() / (2 * sigma**2))
    return kernel


def u_statistic_by_loops(kx, ky, groups):
    """The definition: means over all pairs, triples and quadruples of actors from different groups."""
    n = len(kx)

    def mean_over(size, term):
        chosen = [t for t in permutations(range(n), size) if len({groups[i] for i in t}) == size]
        return np.mean([term(*t) for t in chosen])

    pairs = mean_over(2, lambda i, j: kx[i, j] * ky[i, j])
    triples = mean_over(3, lambda i, j, k: kx[i, j] * ky[i, k])
    quadruples = mean_over(4, lambda i, j, k, m: kx[i, j] * ky[k, m])
    return pairs - 2 * triples + quadruples


@pytest.mark.parametrize(
    "groups", [[0, 1, 2, 3], list(range(7)), [5, 5, 2, 2, 2, 9, 0], [3, 1, 3, 1, 0, 7, 7, 2]]
)
def test_unbiased_estimate_is_the_u_statistic_over_different_groups(groups):
    x, y = views(len(groups), seed=len(groups), dependent=True)
    kx, ky = kernel_by_loops(x, 1.3), kernel_by_loops(y, 0.8)
    expected = u_statistic_by_loops(kx.numpy(), ky.numpy(), groups)
    found = unbiased_hsic(kx, ky, groups=torch.tensor(groups))
    assert found.item() == pytest.approx(expected, rel=1e-10)


def test_unbiased_estimate_equals_songs_formula():
    x, y = views(9)
    n = 9
    off_diagonal = 1 - torch.eye(n, dtype=torch.float64)
    kx, ky = kernel_by_loops(x, 1.0) * off_diagonal, kernel_by_loops(y, 1.0) * off_diagonal
    ones = torch.ones(n, dtype=torch.float64)
    expected = torch.trace(kx @ ky) + (ones @ kx @ ones) * (ones @ ky @ ones) / ((n - 1) * (n - 2))
    expected = (expected - 2 * ones @ kx @ ky @ ones / (n - 2)) / (n * (n - 3))
    assert unbiased_hsic(kx, ky).item() == pytest.approx(expected.item(), rel=1e-12)


def test_biased_estimate_equals_gretton_s_trace_for_any_kernel():
    x, y = views(8, dependent=True)
    centring = torch.eye(8, dtype=torch.float64) - 1 / 8
    for kx, ky in [(kernel_by_loops(x, 1.0), kernel_by_loops(y, 2.0)), (x @ x.T, y @ y.T)]:
        expected = torch.trace(kx @ centring @ ky @ centring) / 49
        assert biased_hsic(kx, ky).item() == pytest.approx(expected.item(), rel=1e-10)


def test_rbf_kernel_equals_its_definition_and_far_data_lose_no_digits():
    x, _ = views(6)
    kernel = rbf_kernel(x, bandwidth=0.9)
    torch.testing.assert_close(kernel[0:6], kernel_by_loops(x, 0.9))
    far = rbf_kernel((x + 1000).float(), bandwidth=0.9)
    torch.testing.assert_close(far[0:6].double(), kernel_by_loops(x, 0.9), rtol=1e-3, atol=1e-3)


def test_median_bandwidth_puts_two_sigma_squared_at_the_median_squared_distance():
    x, _ = views(22)
    squared = [((x[i] - x[j]) ** 2).sum().item() for i in range(22) for j in range(i)]
    assert 2 * median_bandwidth(x) ** 2 == pytest.approx(np.median(squared), rel=1e-5)


def test_median_bandwidth_is_of_different_groups_and_never_zero():
    three_actors_a_clip = torch.tensor([[0.0], [0.0], [0.0], [2.0], [2.0], [2.0]])
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    assert 2 * median_bandwidth(three_actors_a_clip, groups) ** 2 == pytest.approx(4.0)
    mostly_one_scene = torch.tensor([[0.0]] * 9 + [[2.0]])
    assert 2 * median_bandwidth(mostly_one_scene) ** 2 == pytest.approx(4.0)
    assert median_bandwidth(torch.ones(5, 2)) == 1.0


@given(st.integers(4, 12), st.integers(0, 10_000))
def test_order_of_actors_changes_nothing(n, seed):
    x, y = views(n, seed=seed)
    groups = torch.arange(n) // 2 if n >= 8 else torch.arange(n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    one = unbiased_hsic(rbf_kernel(x, bandwidth=1.0), rbf_kernel(y, bandwidth=1.0), groups=groups)
    other = unbiased_hsic(
        rbf_kernel(x[order], bandwidth=1.0), rbf_kernel(y[order], bandwidth=1.0), groups=groups[order]
    )
    assert one.item() == pytest.approx(other.item(), abs=1e-12)


def test_independent_views_give_zero_on_average_where_the_biased_estimate_cannot():
    unbiased, biased = [], []
    for seed in range(300):
        x, y = views(16, seed=seed)
        kx, ky = rbf_kernel(x), rbf_kernel(y)
        unbiased.append(unbiased_hsic(kx, ky).item())
        biased.append(biased_hsic(kx, ky).item())
    error = np.std(unbiased) / np.sqrt(300)
    assert abs(np.mean(unbiased)) < 3 * error
    assert np.mean(biased) > 0.01  # far above a tolerance of 0.001


@pytest.mark.slow
def test_actors_who_share_a_clip_look_dependent_unless_grouped():
    """Scene and evidence are drawn per clip, independently; four actors repeat both with a little noise."""
    grouped, ungrouped = [], []
    clips = torch.arange(12).repeat_interleave(4)
    for seed in range(200):
        scene, evidence = views(12, seed=seed)
        noise, _ = views(48, seed=1000 + seed)
        kx, ky = (
            rbf_kernel(evidence[clips] + 0.1 * noise, groups=clips),
            rbf_kernel(scene[clips], groups=clips),
        )
        grouped.append(unbiased_hsic(kx, ky, groups=clips).item())
        ungrouped.append(unbiased_hsic(kx, ky).item())
    error = np.std(grouped) / np.sqrt(200)
    assert abs(np.mean(grouped)) < 3 * error
    assert np.mean(ungrouped) > 20 * error


@pytest.mark.parametrize("estimate", [unbiased_hsic, biased_hsic, cka, debiased_cka])
def test_dependent_views_score_higher_than_independent_ones(estimate):
    x, y = views(64, dependent=True)
    _, independent = views(64)
    assert estimate(rbf_kernel(x), rbf_kernel(y)) > 2 * estimate(rbf_kernel(x), rbf_kernel(independent)).abs()


def test_alignment_of_a_view_with_itself_is_one():
    x, _ = views(20)
    assert cka(rbf_kernel(x), rbf_kernel(x)).item() == pytest.approx(1.0)
    assert debiased_cka(rbf_kernel(x), rbf_kernel(x)).item() == pytest.approx(1.0)


@pytest.mark.parametrize("estimate", [unbiased_hsic, biased_hsic, cka])
@pytest.mark.parametrize("rows_at_once", [3, 1024])
def test_gradients_match_finite_differences_in_one_block_and_in_several(estimate, rows_at_once, monkeypatch):
    monkeypatch.setattr(hsic, "ROWS_AT_ONCE", rows_at_once)
    x, y = views(8, dependent=True)
    x.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: estimate(rbf_kernel(x, bandwidth=1.0), rbf_kernel(y, bandwidth=1.0)), (x,)
    )


@pytest.mark.parametrize("sizes", [[1] * 40, [3] * 12 + [9] + [1] * 5, [30, 2, 2, 2, 2]])
def test_blocks_of_rows_give_the_same_value_and_gradient_as_the_whole(sizes, monkeypatch):
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    groups = groups[torch.randperm(len(groups), generator=torch.Generator().manual_seed(2))]
    x, y = views(len(groups), dependent=True)

    def value_and_gradient():
        leaf = x.clone().requires_grad_()
        value = unbiased_hsic(rbf_kernel(leaf), rbf_kernel(y), groups=groups)
        value.backward()
        return value.item(), leaf.grad

    whole, whole_gradient = value_and_gradient()
    monkeypatch.setattr(hsic, "ROWS_AT_ONCE", 7)
    parts, parts_gradient = value_and_gradient()
    assert parts == pytest.approx(whole, rel=1e-10)
    torch.testing.assert_close(parts_gradient, whole_gradient)


@pytest.mark.slow
def test_five_thousand_actors_fit_in_half_a_gigabyte():
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5_000, 40, generator=generator, requires_grad=True)
    y = torch.randn(5_000, 64, generator=generator)
    clips = torch.arange(5_000) // 3
    unbiased_hsic(rbf_kernel(x, groups=clips), rbf_kernel(y, groups=clips), groups=clips).backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    grown_gib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    assert grown_gib < 0.5


def test_too_few_samples_are_refused_with_the_count():
    x, y = views(6)
    with pytest.raises(TooFewActors, match="at least 4 independent samples; got 3 actors in 3 clips"):
        unbiased_hsic(rbf_kernel(x[:3]), rbf_kernel(y[:3]))
    with pytest.raises(TooFewActors, match="got 6 actors in 3 clips"):
        unbiased_hsic(rbf_kernel(x), rbf_kernel(y), groups=torch.tensor([0, 0, 1, 1, 2, 2]))
    with pytest.raises(TooFewActors, match="at least 2 actors; got 1"):
        biased_hsic(rbf_kernel(x[:1]), rbf_kernel(y[:1]))
    with pytest.raises(ShapeError, match="same actors; got 6 and 5"):
        biased_hsic(rbf_kernel(x), rbf_kernel(y[:5]))


def test_alignment_with_a_constant_view_is_undefined_and_says_so():
    x, _ = views(6)
    with pytest.raises(NotFinite, match="both views to vary"):
        cka(rbf_kernel(x), torch.zeros(6, 6, dtype=torch.float64))


def test_static_bias_pools_the_context_and_repeats_it_for_each_actor():
    generator = torch.Generator().manual_seed(4)
    outputs = torch.randn(9, 5, generator=generator)
    context = torch.randn(6, 8, 4, 3, generator=generator)
    clip_index = torch.tensor([0, 0, 1, 2, 3, 3, 3, 4, 5])
    expected = unbiased_hsic(
        rbf_kernel(outputs, groups=clip_index),
        rbf_kernel(context.mean(dim=(2, 3))[clip_index], groups=clip_index),
        groups=clip_index,
    )
    found = static_bias(outputs, context, clip_index)
    assert found is not None
    assert found.item() == pytest.approx(expected.item())
    same = static_bias(outputs, context.mean(dim=(2, 3)), clip_index)
    assert same is not None
    assert same.item() == pytest.approx(expected.item())


def test_static_bias_teaches_the_head_and_never_the_context():
    outputs = torch.randn(6, 5, requires_grad=True)
    context = torch.randn(6, 8, requires_grad=True)
    found = static_bias(outputs, context, torch.arange(6))
    assert found is not None
    found.backward()
    assert outputs.grad is not None
    assert context.grad is None


@pytest.mark.parametrize(
    ("estimator", "clips"), [("unbiased", 3), ("debiased_cka", 3), ("biased", 1), ("cka", 1)]
)
def test_static_bias_is_none_below_the_fewest_samples_never_zero(estimator, clips):
    outputs, context = torch.randn(clips, 5), torch.randn(clips, 8)
    assert static_bias(outputs, context, torch.arange(clips), estimator=estimator) is None
    assert static_bias(torch.randn(0, 5), context, torch.arange(0), estimator=estimator) is None


def test_a_batch_of_one_scene_has_no_static_bias():
    outputs, context = torch.randn(8, 5), torch.ones(8, 3)
    found = static_bias(outputs, context, torch.arange(8))
    assert found is not None
    assert found.item() == pytest.approx(0.0, abs=1e-6)
