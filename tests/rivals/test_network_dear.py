import math

import pytest
import torch
from scenes import boxes_of, generator, maps_of, some_labels

from mule.core.records import Evidence
from mule.evidence.head import exp_evidence
from mule.features.pooling import FeatureMaps, RoiSampling, box_volumes, context_map, roi_align
from mule.objective.dirichlet_loss import dirichlet_log_loss
from mule.objective.hsic import biased_hsic, rbf_kernel
from mule.rivals.networks.dear import ConvBranch, DearModel, DearOutput, dear_loss, debiasing_loss

SAMPLING = RoiSampling(bins=3, samples=2)


def test_the_volume_of_one_frame_is_roi_align():
    maps, boxes = maps_of(2, frames=(1, 1)), boxes_of([0, 1, 1], [])
    volume = box_volumes(maps, boxes.actors_xyxy_px, boxes.actor_clip_index, sampling=SAMPLING)
    flat = roi_align(
        context_map(maps), boxes.actors_xyxy_px, boxes.actor_clip_index, stride=8, sampling=SAMPLING
    )
    torch.testing.assert_close(volume[:, :, 0], flat)


def test_every_frame_of_the_volume_is_cut_from_its_own_frame():
    maps, boxes = maps_of(2, frames=(4, 4)), boxes_of([1, 0], [])
    volume = box_volumes(maps, boxes.actors_xyxy_px, boxes.actor_clip_index, sampling=SAMPLING)
    for t in range(4):
        frame = FeatureMaps(tuple(each[:, :, t : t + 1] for each in maps.maps), maps.stride)
        alone = box_volumes(frame, boxes.actors_xyxy_px, boxes.actor_clip_index, sampling=SAMPLING)
        torch.testing.assert_close(volume[:, :, t], alone[:, :, 0])


@pytest.mark.parametrize("kernel", [(3, 3, 3), (1, 3, 3)])
def test_one_frame_is_convolved_as_if_empty_frames_lay_around_it(kernel):
    torch.manual_seed(0)
    branch = ConvBranch(5, 4, 3, kernel=kernel)
    volume = torch.randn(2, 5, 1, 3, 3)
    whole = torch.nn.functional.conv3d(
        volume, branch.conv.weight, padding=(branch.conv.kernel_size[0] // 2, 1, 1)
    )
    torch.testing.assert_close(branch(volume), branch.linear(whole.relu().mean(dim=(2, 3, 4))))


def test_branches_are_there_while_training_only():
    torch.manual_seed(0)
    model = DearModel(10, 3, width=4, sampling=SAMPLING)
    output = model([maps_of(2)], boxes_of([0, 1], []))
    assert output.branches is not None
    assert [each.shape for each in output.branches] == [(2, 3)] * 3
    assert model.eval()([maps_of(2)], boxes_of([0, 1], [])).branches is None


def test_without_time_the_order_of_frames_is_invisible():
    torch.manual_seed(0)
    maps, boxes = maps_of(2, frames=(4, 4)), boxes_of([0, 1], [])
    backwards = FeatureMaps(tuple(each.flip(2) for each in maps.maps), maps.stride)
    model = DearModel(10, 3, width=4, sampling=SAMPLING, sees_time=False)
    branch, other = (model([each], boxes).branches for each in (maps, backwards))
    assert branch is not None
    assert other is not None
    torch.testing.assert_close(branch[0], other[0])


def output_of(logits, branches=None):
    evidence = logits.exp()
    return DearOutput(
        outputs=logits,
        evidence=Evidence(positive=evidence, negative=torch.zeros_like(evidence)),
        features=logits,
        context=logits.new_zeros(1, 1),
        actor_clip_index=torch.zeros(len(logits), dtype=torch.int64),
        branches=branches,
    )


@pytest.mark.parametrize(("progress", "weight"), [(0.0, 0.01), (0.5, 0.1), (1.0, 1.0)])
def test_the_loss_of_one_actor_by_hand(progress, weight):
    logits = torch.tensor([[math.log(2.0), math.log(5.0), math.log(1.0)]])
    # alpha = 3, 6, 2; S = 11; u = 3/11; the answer is class 1 with p = 6/11
    right = dear_loss(output_of(logits), torch.tensor([[0.0, 1.0, 0.0]]), progress=progress)
    assert right.item() == pytest.approx(math.log(11 / 6) - weight * 6 / 11 * math.log(1 - 3 / 11), rel=1e-5)
    wrong = dear_loss(output_of(logits), torch.tensor([[1.0, 0.0, 0.0]]), progress=progress)
    assert wrong.item() == pytest.approx(
        math.log(11 / 3) - (1 - weight) * 5 / 11 * math.log(3 / 11), rel=1e-5
    )


def test_motion_leaves_what_the_still_branches_say_and_they_follow_it():
    g = generator()
    motion, shuffled, still = (torch.randn(12, 3, generator=g, requires_grad=True) for _ in range(3))
    targets = some_labels(12, 3)

    def dependence(first, second):
        kernels = (rbf_kernel(exp_evidence(each), bandwidth=3**0.5) for each in (first, second))
        return biased_hsic(*kernels)

    alone = sum(dirichlet_log_loss(exp_evidence(each), targets).mean() for each in (motion, shuffled, still))
    beyond_learning = debiasing_loss((motion, shuffled, still), targets) - alone
    of_motion, of_still = torch.autograd.grad(beyond_learning, (motion, still))
    on_both = dependence(motion, shuffled) + dependence(motion, still)
    torch.testing.assert_close(of_motion, torch.autograd.grad(on_both, motion)[0])
    torch.testing.assert_close(of_still, -torch.autograd.grad(dependence(motion, still), still)[0])


def test_fewer_than_four_actors_learn_without_hsic():
    branches = tuple(torch.zeros(3, 2) for _ in range(3))
    targets = torch.tensor([[1.0, 0.0]] * 3)
    # e = 1, alpha = 2, S = 4: log 2 per branch
    assert debiasing_loss(branches, targets).item() == pytest.approx(3 * math.log(2), rel=1e-6)


def test_nobody_costs_nothing():
    model = DearModel(10, 3, width=4, sampling=SAMPLING)
    output = model([maps_of(1)], boxes_of([], []))
    assert dear_loss(output, torch.zeros(0, 3), progress=0.5).item() == 0
