"""OpenMax: the Weibull against scipy, the revision against a loop, the whole against pytorch-ood's numbers."""

import numpy as np
import pytest
import torch
from scipy.optimize import bisect
from scipy.spatial.distance import cosine, euclidean
from scipy.stats import weibull_min

from mule.core.errors import RangeError
from mule.rivals.scores.logits import TRANSLATION, OpenMax, eucos_distance, weibull_tail
from mule.rivals.scores.outputs import StoredOutputs


def waves(rows, cols, step):
    return torch.sin(step * torch.arange(rows * cols, dtype=torch.float64)).reshape(rows, cols)


def single_label_case():
    weight, bias = waves(3, 6, 0.7), torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64)
    targets = torch.nn.functional.one_hot(torch.arange(60) % 3, 3)
    train = (3 * targets.double() @ weight + waves(60, 6, 1.3)) @ weight.T + bias
    test = torch.cat([2 * waves(5, 6, 0.9) @ weight.T + bias, 0.6 * train[:3]])
    return StoredOutputs(train), targets, StoredOutputs(test)


PYTORCH_OOD = {
    1: [0.92601751, 0.96615285, 0.97754175, 0.99830807, 0.78787646, 0.97050351, 0.99850169, 0.99128022],
    2: [0.97708413, 0.96057324, 0.98962578, 0.99241303, 0.93343067, 0.95184617, 0.99209222, 0.97247205],
    3: [0.90948735, 0.87290595, 0.94812914, 0.95767680, 0.83392428, 0.83017659, 0.95557247, 0.89346104],
}
"""Unknown-class probability by pytorch-ood 0.4.0's OpenMax (tail 20, eucos distance, torchvision stubbed) on
`single_label_case`, for alpha = 1, 2, 3. Every class leads some test row: it measures no distance to others."""


@pytest.mark.parametrize("num_revised", PYTORCH_OOD)
def test_with_one_label_it_is_pytorch_oods(num_revised):
    train, targets, test = single_label_case()
    score = OpenMax(num_revised=num_revised)
    score.fit(train, targets)
    assert (~score.has_tail).sum() == 0
    np.testing.assert_allclose(score(test).value.numpy(), PYTORCH_OOD[num_revised], atol=4e-7)


def test_the_distance_is_a_200th_of_euclidean_plus_cosine():
    first, second = waves(4, 5, 0.4), waves(3, 5, 1.1)
    expected = [[euclidean(a, b) / 200 + cosine(a, b) for b in second.numpy()] for a in first.numpy()]
    np.testing.assert_allclose(eucos_distance(first, second).numpy(), expected, atol=1e-12)


def test_the_tail_is_libmrs_weibull_of_maximum_likelihood():
    """Shape from the textbook likelihood equation, solved by bisection on x = d − min d + 10,000."""
    tail = np.random.default_rng(3).gamma(4.0, 0.05, size=20)
    moved = tail - tail.min() + TRANSLATION

    def likelihood_equation(shape):
        weight = (moved / moved.max()) ** shape
        return (weight * np.log(moved)).sum() / weight.sum() - 1 / shape - np.log(moved).mean()

    shape = bisect(likelihood_equation, 1e3, 1e7, xtol=1e-3, full_output=True)[1].root
    scale = moved.max() * ((moved / moved.max()) ** shape).mean() ** (1 / shape)
    location, spread = weibull_tail(tail)
    assert TRANSLATION / spread == pytest.approx(shape, rel=1e-4)
    at = np.linspace(0, 1, 50)
    ours = 1 - np.exp(-np.exp((TRANSLATION * np.log1p((at - tail.min()) / TRANSLATION) - location) / spread))
    theirs = weibull_min.cdf(at - tail.min() + TRANSLATION, shape, scale=scale)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("activations", ["as_given", "above_least"])
def test_revision_is_the_slow_loop_over_actors_and_places(activations):
    train, targets, test = single_label_case()
    score = OpenMax(num_revised=2, activations=activations)
    score.fit(train, targets)
    for actor, logits in enumerate(test.logits.numpy()):
        used = logits - logits.min() if activations == "above_least" else logits
        revised = used.copy()
        for place, c in enumerate(np.argsort(-logits)[:2]):
            mean = score.mean_activation[c].numpy()
            beyond = euclidean(logits, mean) / 200 + cosine(logits, mean) - score.tail_start[c].item()
            shape = TRANSLATION / score.tail_spread[c].item()
            scale = TRANSLATION * np.exp(score.tail_location[c].item() / TRANSLATION)
            extreme = weibull_min.cdf(TRANSLATION + beyond, shape, scale=scale)
            revised[c] = used[c] * (1 - extreme * (2 - place) / 2)
        unknown = (used - revised).sum()
        expected = np.exp(unknown) / (np.exp(unknown) + np.exp(revised).sum())
        assert score(test).value[actor].item() == pytest.approx(expected, abs=1e-7)


def test_only_recognised_actors_shape_a_class_unless_there_are_too_few():
    """Class 0 has three recognised actors; class 1 has none, and takes all that do it; class 2 has only two."""
    logits = torch.tensor([[2.0, -1, -9], [3, -2, -9], [4, -3, -9], [-9, -5, -9], [-8, -9, -1], [-8, -9, -2]])
    targets = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]])
    score = OpenMax()
    score.fit(StoredOutputs(logits), targets)
    torch.testing.assert_close(score.mean_activation[0], logits[:3].double().mean(dim=0))
    torch.testing.assert_close(score.mean_activation[1], logits[[0, 3, 4]].double().mean(dim=0))
    assert score.has_tail.tolist() == [True, True, False]
    assert (~score.has_tail).sum() == 1


def test_the_tail_is_the_largest_distances():
    logits = torch.cat([torch.ones(30, 1), waves(30, 1, 0.5)], dim=1)
    score = OpenMax(tail_size=20)
    score.fit(StoredOutputs(logits), torch.tensor([[1, 0]]).repeat(30, 1))
    mean = logits.mean(dim=0).numpy()
    distances = sorted(euclidean(row, mean) / 200 + cosine(row, mean) for row in logits.numpy())
    assert score.tail_start[0].item() == pytest.approx(distances[10])


def test_actors_equally_far_leave_a_class_unrevised():
    score = OpenMax()
    score.fit(StoredOutputs(torch.tensor([[1.0, -1.0]]).repeat(9, 1)), torch.tensor([[1, 0]]).repeat(9, 1))
    assert (~score.has_tail).sum() == 2
    logits = torch.tensor([[3.0, 1.0]])
    expected = 1 / (1 + np.exp(3) + np.exp(1))
    assert score(StoredOutputs(logits)).value.item() == pytest.approx(expected)


def test_negative_logits_turn_the_letter_round_and_not_the_shifted_form():
    """A stranger whose logits are all negative: revision by the letter takes from the unknown class."""
    draw = torch.Generator().manual_seed(0)
    targets = torch.nn.functional.one_hot(torch.arange(90) % 3, 3)
    known = 12 * targets - 6 + torch.randn(90, 3, generator=draw)
    strangers = torch.full((20, 3), -6.0) + torch.randn(20, 3, generator=draw)
    ranks = {}
    for activations in ("as_given", "above_least"):
        score = OpenMax(num_revised=3, activations=activations)
        score.fit(StoredOutputs(known), targets)
        ranks[activations] = (
            score(StoredOutputs(strangers)).rank.median() - score(StoredOutputs(known)).rank.median()
        )
    assert ranks["above_least"] > 0 > ranks["as_given"]


def test_settings_out_of_range_are_refused():
    with pytest.raises(
        RangeError, match="tail_size must be at least 3 and num_revised at least 1; got 2 and 10"
    ):
        OpenMax(tail_size=2)
    with pytest.raises(RangeError, match="got 20 and 0"):
        OpenMax(num_revised=0)
