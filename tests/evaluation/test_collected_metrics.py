"""Metrics of batches are those of all actors at once; tensors, lists and arrays are the same; torchmetrics takes them too."""

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC

from mule import metrics
from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.metrics import MEASURES, OpenSetMetrics, TorchOpenSetMetrics, operating_curve

FUNCTIONS = (
    metrics.auroc,
    metrics.average_precision_novel,
    metrics.average_precision_known,
    metrics.fpr_at_tpr,
    metrics.fpr_at_tpr_novel,
    metrics.detection_error,
    metrics.min_detection_error,
)


def actors(count, *, seed=0):
    draw = np.random.default_rng(seed)
    is_novel = np.arange(count) % 3 == 0
    return (draw.normal(size=count) + is_novel).round(1), is_novel


@given(cuts=st.lists(st.integers(0, 60), max_size=5))
def test_batches_add_up_to_the_whole(cuts):
    novelty, is_novel = actors(60)
    collected = OpenSetMetrics()
    edges = [0, *sorted(cuts), 60]
    for first, last in itertools.pairwise(edges):
        collected.update(novelty[first:last], is_novel[first:last])
    assert len(collected) == 60
    found = collected.compute()
    assert list(found) == list(MEASURES)
    curve = operating_curve(novelty, is_novel)
    assert found == {name: float(measure(curve)) for name, measure in MEASURES.items()}
    assert list(found.values()) == [function(novelty, is_novel) for function in FUNCTIONS]
    assert found["auroc"] == pytest.approx(roc_auc_score(is_novel, novelty))


def test_a_reset_forgets():
    collected = OpenSetMetrics()
    collected.update(*actors(30))
    first = collected.compute()
    assert collected.compute() == first
    collected.reset()
    with pytest.raises(RangeError, match="Call update first"):
        collected.compute()
    collected.update(*actors(30, seed=1))
    assert collected.compute() != first


@pytest.mark.parametrize("function", FUNCTIONS)
def test_tensors_lists_and_arrays_are_the_same(function):
    novelty, is_novel = actors(30)
    expected = function(novelty, is_novel)
    assert function(novelty.tolist(), is_novel.tolist()) == expected
    assert function(torch.tensor(novelty, requires_grad=True), torch.tensor(is_novel)) == expected
    assert function(torch.tensor(novelty), torch.tensor(is_novel.astype(np.int64))) == expected


def test_half_precision_and_a_threshold_of_tensors():
    novelty = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    assert metrics.threshold_at_false_alarm_rate(novelty, 0.25) == 3.0
    assert metrics.threshold_at_false_alarm_rate([1, 2, 3, 4], 0.25) == 3.0
    assert metrics.auroc(novelty.bfloat16(), [0, 0, 1, 1]) == 1.0


def test_a_wrong_batch_is_refused_and_not_kept():
    collected = OpenSetMetrics()
    with pytest.raises(ShapeError, match="one entry per actor"):
        collected.update([0.1, 0.2], [True])
    with pytest.raises(NotFinite, match="must be finite"):
        collected.update([float("nan")], [True])
    collected.update([0.1, 0.2], [False, False])
    collected.update([], [])
    assert len(collected) == 2
    with pytest.raises(RangeError, match="got 0 novel actors of 2"):
        collected.compute()


def test_as_a_torchmetric_it_goes_into_a_collection():
    novelty, is_novel = (torch.tensor(each) for each in actors(60))
    collection = MetricCollection({"open_set": TorchOpenSetMetrics(), "reference": BinaryAUROC()})
    for rows in torch.arange(60).split(17):
        scores = novelty[rows].sigmoid().requires_grad_()
        collection["open_set"].update(scores, is_novel[rows])
        collection["reference"].update(scores, is_novel[rows].long())
    found = collection.compute()
    assert found["auroc"].item() == pytest.approx(found["reference"].item(), abs=1e-6)
    expected = OpenSetMetrics()
    expected.update(novelty.sigmoid(), is_novel)
    assert {name: found[name].item() for name in MEASURES} == pytest.approx(expected.compute())
    collection.reset()
    assert not collection["open_set"].metric_state["novelty"]


def test_a_torchmetric_survives_pickling_and_a_step():
    novelty, is_novel = (torch.tensor(each) for each in actors(30))
    metric = TorchOpenSetMetrics()
    assert metric(novelty, is_novel)["auroc"].item() == pytest.approx(metrics.auroc(novelty, is_novel))
    again = pickle.loads(pickle.dumps(metric))
    assert again.compute() == metric.compute()


def test_neither_import_loads_torch():
    code = "import sys, mule.metrics, mule; mule.OpenSetMetrics; mule.metrics.auroc; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
