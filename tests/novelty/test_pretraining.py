"""Label prototypes against sums written out."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from mule.core.errors import ShapeError
from mule.novelty.pretraining import LabelPrototypes, root_probabilities


def test_roots_of_softmax_have_length_one_and_equal_scipys():
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)).double() * 5
    roots = root_probabilities(logits, temperature=2.0)
    np.testing.assert_allclose(roots.numpy(), np.sqrt(softmax(logits.numpy() / 2, axis=1)), atol=1e-12)
    torch.testing.assert_close(roots.norm(dim=1), torch.ones(6).double())


def test_novelty_is_minus_the_largest_cosine_with_the_mean_answer_to_an_action():
    draw = torch.Generator().manual_seed(0)
    answers = root_probabilities(torch.randn(20, 9, generator=draw) * 4)
    labels = torch.rand(20, 3, generator=draw) < 0.5
    tested = root_probabilities(torch.randn(5, 9, generator=draw) * 4)
    means = np.stack([answers.numpy()[labels[:, k].numpy()].mean(axis=0) for k in range(3)])
    cosine = tested.numpy() @ means.T / np.linalg.norm(means, axis=1)
    rank = LabelPrototypes.fit(answers, labels).novelty(tested).rank
    np.testing.assert_allclose(rank.numpy(), -cosine.max(axis=1), atol=1e-12)


def test_equal_answers_are_not_novel_and_answers_without_a_common_label_are_as_novel_as_can_be():
    answers = torch.eye(4).double()
    score = LabelPrototypes.fit(answers[:2], torch.eye(2, dtype=torch.bool))
    torch.testing.assert_close(score.novelty(answers).rank, torch.tensor([-1.0, -1.0, 0.0, 0.0]).double())


def test_an_action_that_nobody_does_resembles_nobody_and_saved_tensors_give_the_same_score():
    answers = torch.eye(3).double()
    score = LabelPrototypes.fit(answers, torch.eye(3, 4, dtype=torch.bool))
    assert (score.similarity(answers)[:, 3] == -1).all()
    again = LabelPrototypes.of(score.tensors())
    torch.testing.assert_close(again.similarity(answers), score.similarity(answers))


def test_answers_of_another_classifier_are_refused():
    score = LabelPrototypes.fit(torch.eye(3).double(), torch.eye(3, dtype=torch.bool))
    with pytest.raises(ShapeError, match="as in fit"):
        score.novelty(torch.ones(2, 5))
    with pytest.raises(ShapeError, match="one row per actor"):
        LabelPrototypes.fit(torch.eye(3).double(), torch.eye(2, dtype=torch.bool))
