"""A batch computed in parts has the loss, the constraint and the gradient of the whole."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from tiny_runs import Heard, tiny_experiment
from torch import nn

from mule.model import SceneBoxes
from mule.objective.primal_dual import PrimalDual
from mule.training.build import build_parts, run_experiment
from mule.training.sharing import in_parts, parts_of, what_differs, whole_of
from mule.training.step import BatchObjective, freeze_norms, scene_boxes, trained_parameters

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return tmp_path_factory.mktemp("stage")


def batch_and_parts(stage, *, system="mule", drops=False):
    """One batch and a network in double precision without batch statistics."""
    parts, _ = build_parts(tiny_experiment(stage, system=system), device=CPU, listener=Heard())
    parts.model.double().train()
    freeze_norms(parts.model.modules())
    for module in parts.model.modules():
        if isinstance(module, nn.Dropout) and not drops:
            module.p = 0.0
    batch = next(iter(parts.train))
    names = ("actor_boxes_xyxy_px", "object_boxes_xyxy_px", "object_scores")
    doubled = {name: getattr(batch, name).double() for name in names}
    return replace(batch, pixels=tuple(stack.double() for stack in batch.pixels), **doubled), parts


def gradient(parts, objective):
    """Loss, constraint, and the gradient of loss + 5 · constraint."""
    parts.model.zero_grad(set_to_none=True)
    found = objective()
    bias = found.constraints.get("static_bias")
    (found.loss if bias is None else found.loss + 5 * bias).backward()
    gradients = [p.grad for p in trained_parameters(parts.model) if p.grad is not None]
    return found.loss.item(), None if bias is None else bias.item(), gradients


@pytest.mark.parametrize("system", ["mule", "acar", "dear-pooled", "mule-contrast"])
def test_parts_have_the_loss_constraint_and_gradient_of_the_whole(stage, system):
    batch, parts = batch_and_parts(stage, system=system)
    whole, shared = (
        gradient(
            parts,
            BatchObjective(forward, batch, parts.objective, progress=0.5),
        )
        for forward in (parts.model, in_parts(parts.model, 3))
    )
    assert shared[0] == pytest.approx(whole[0], rel=1e-9)
    assert shared[1] == (None if whole[1] is None else pytest.approx(whole[1], abs=1e-9))
    assert len(shared[2]) == len(whole[2]) > 0
    for found, expected in zip(shared[2], whole[2], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_the_second_run_of_a_part_drops_the_units_of_the_first(stage):
    batch, parts = batch_and_parts(stage, system="mule-without-aco-r", drops=True)

    def kept_whole(pixels, boxes):
        pieces = list(parts_of(pixels, boxes, 2))
        return whole_of([parts.model(piece.pixels, piece.boxes) for piece in pieces], pieces)

    gradients = []
    for forward in (kept_whole, in_parts(parts.model, 2)):
        torch.manual_seed(4)
        gradients.append(gradient(parts, BatchObjective(forward, batch, parts.objective, progress=0.0))[2])
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


def test_running_statistics_count_each_part_once(stage):
    batch, parts = batch_and_parts(stage)
    once = deepcopy(parts.model.train())
    for piece in parts_of(batch.pixels, scene_boxes(batch), 2):
        once(piece.pixels, piece.boxes)
    optimizer = torch.optim.SGD(parts.model.parameters(), lr=0.0)
    objective = BatchObjective(in_parts(parts.model, 2), batch, parts.objective, progress=0.0)
    PrimalDual(parts.model, optimizer, {}, inner_steps=1).step(objective)
    expected, found = (dict(model.named_buffers()) for model in (once, parts.model))
    assert any(int(value) == 2 for name, value in expected.items() if "num_batches" in name)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_clips_of_several_sizes_are_split_in_order_and_every_box_goes_with_its_clip():
    pixels = [torch.arange(3.0)[:, None], torch.arange(3.0, 5.0)[:, None]]
    clip_index = torch.tensor([4, 0, 2, 2, 1])
    boxes = SceneBoxes(torch.rand(5, 4), clip_index, torch.rand(2, 4), torch.tensor([3, 0]))
    parts = list(parts_of(pixels, boxes, 2))
    assert [[stack.flatten().tolist() for stack in part.pixels] for part in parts] == [
        [[0, 1]],
        [[2], [3, 4]],
    ]
    for part in parts:
        rows = part.actor_rows
        assert torch.equal(part.boxes.actor_clip_index + part.first_clip, clip_index[rows])
        assert torch.equal(part.boxes.actors_xyxy_px, boxes.actors_xyxy_px[rows])
    assert [part.boxes.object_clip_index.tolist() for part in parts] == [[0], [1]]
    assert len(list(parts_of(pixels, boxes, 9))) == 5


def test_training_says_once_that_batch_norms_see_parts(stage, tmp_path):
    for norm in ("batch", "frozen"):
        heard = Heard()
        experiment = tiny_experiment(
            stage, training__epochs=1, training__accumulate_batches=2, backbone={"norm": norm}
        )
        run_experiment(experiment, tmp_path / norm, listener=heard)
        assert sum("accumulate_batches" in note for note in heard.notes) == (norm == "batch")


def test_several_processes_hear_what_differs_from_one(monkeypatch):
    network = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), nn.Dropout(0.0))
    assert what_differs(network, num_parts=1, freezes_norms=False) == []
    monkeypatch.setattr("mule.training.sharing.num_ranks", lambda: 2)
    norms, dropout = what_differs(network, num_parts=1, freezes_norms=False)
    assert "backbone.norm" in norms
    assert "drops other units" in dropout
    assert what_differs(network, num_parts=1, freezes_norms=True) == [dropout]
    assert what_differs(network[2:], num_parts=1, freezes_norms=False) == []
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    assert what_differs(synchronised, num_parts=1, freezes_norms=False) == [dropout]
