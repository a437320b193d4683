"""The table of detectors: who counts as found."""

import torch

from bench.detectors import Found, matched

PEOPLE = torch.tensor([[0.0, 0.0, 10.0, 20.0], [30.0, 0.0, 40.0, 20.0]])


def test_each_person_is_found_once_and_by_the_surest_box():
    boxes = torch.tensor(
        [[0.0, 0.0, 10.0, 19.0], [0.0, 0.0, 10.0, 20.0], [29.0, 0.0, 40.0, 20.0], [60.0, 0, 70, 9]]
    )
    assert matched(boxes, PEOPLE).tolist() == [True, False, True, False]
    assert matched(boxes[:0], PEOPLE).tolist() == []


def test_recall_at_a_precision_is_the_best_of_all_least_scores():
    found = Found(torch.tensor([0.2, 0.9, 0.5, 0.4]), torch.tensor([True, True, False, True]), 1.0, 2, 4)
    assert found.recall_and_precision(0.5) == (0.25, 0.5)
    best = max(
        recall
        for recall, precision in map(found.recall_and_precision, (0.2, 0.4, 0.5, 0.9))
        if precision >= 0.75
    )
    assert found.recall_at(0.75) == best == 0.75
    assert found.recall_at(0.9) == 0.25
