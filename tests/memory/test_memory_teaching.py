"""Teaching without retraining: recognised, no longer called novel, nothing else forgotten."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from remembered_worlds import MODEL, NAMES, calibrated_memory, held_out, places, remembered, seen
from sklearn.covariance import empirical_covariance
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression
from sklearn.metrics import average_precision_score
from strategies import unchecked

from mule.core.errors import NotFinite, NotFitted, RangeError, ShapeError, TooFewActors
from mule.memory import teaching
from mule.memory.building import SeenActors, add_actors, build_memory, calibrate
from mule.memory.opinion import memory_evidence, reasons
from mule.memory.pruning import prune_memory
from mule.memory.search import weigh
from mule.memory.taught import (
    HeldOut,
    Remembered,
    evidence_with_taught,
    log_trust_with_taught,
    outputs_with_taught,
    sphere_kernel,
)
from mule.memory.teaching import forget_action, log_odds_line, recalibrated, teach_action, whitening_of

CLASSES, NOVEL = 6, 3


def blobs(count, classes, *, seed, dim=24):
    """Actors doing one of some actions; each action has its own direction, and all share some noise and a ReLU."""
    axes = torch.randn(CLASSES + NOVEL, dim, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.tensor(classes)[torch.randint(len(classes), (count,), generator=draw)]
    noise = torch.randn(count, dim, generator=draw)
    return (axes[chosen] + 0.75 * noise + 0.3).relu(), chosen


class World:
    """A memory of six actions with 20 neighbours, held-out actors, and test actors of three more actions."""

    def __init__(self):
        names = tuple(f"action {i}" for i in range(CLASSES))
        known = list(range(CLASSES))
        features, chosen = blobs(900, known, seed=1)
        labels = F.one_hot(chosen, CLASSES).float()
        self.weight = torch.linalg.lstsq(F.pad(features, (0, 1), value=1.0), 8 * labels - 5).solution
        actors = SeenActors(features, labels, places(900))
        features, chosen = blobs(400, known, seed=2)
        held = HeldOut(features, self.outputs(features), F.one_hot(chosen, CLASSES).float(), names, MODEL)
        memory = build_memory(actors, class_names=names, model=MODEL)
        self.remembered = Remembered(calibrate(memory, held), held)
        self.features, self.chosen = blobs(1200, list(range(CLASSES + NOVEL)), seed=3)

    def outputs(self, features):
        return F.pad(features, (0, 1), value=1.0) @ self.weight

    def exemplars(self, count, action):
        features, _ = blobs(count, [action], seed=50 + action)
        return SeenActors(features, torch.zeros(count, CLASSES), places(count, video="new", per_group=1))

    def flags(self, remembered):
        """Whose trust is below that of 95 % of held-out known actors."""
        held = remembered.held_out

        def log_trust(features):
            return log_trust_with_taught(remembered, weigh(remembered.memory, features), features)

        return log_trust(self.features) < log_trust(held.features).quantile(0.05)


@pytest.fixture(scope="module")
def world():
    return World()


def test_who_was_taught_nothing_says_what_they_said(world):
    held = world.remembered.held_out
    weighed = weigh(world.remembered.memory, held.features)
    assert torch.equal(outputs_with_taught(world.remembered, held.outputs, held.features), held.outputs)
    assert torch.equal(log_trust_with_taught(world.remembered, weighed, held.features), weighed.log_trust)
    nobody = held.features[:0]
    assert outputs_with_taught(world.remembered, held.outputs[:0], nobody).shape == (0, CLASSES)


@pytest.mark.parametrize("action", [CLASSES, CLASSES + 1, CLASSES + 2])
def test_a_taught_action_is_recognised_no_longer_flagged_and_the_rest_stays(world, action):
    before = world.flags(world.remembered)
    after_teaching = teach_action(world.remembered, world.exemplars(10, action), class_name="new")
    after = world.flags(after_teaching)
    does, is_known = world.chosen == action, world.chosen < CLASSES
    outputs = outputs_with_taught(after_teaching, world.outputs(world.features), world.features)
    assert average_precision_score(does.numpy(), outputs[:, -1].numpy()) > 0.6
    assert before[does].float().mean() > 0.4
    assert after[does].float().mean() < 0.5 * before[does].float().mean()
    others = ~does & ~is_known
    assert after[others].float().mean() > 0.8 * before[others].float().mean()
    assert abs(after[is_known].float().mean() - before[is_known].float().mean()) < 0.01
    assert torch.equal(outputs[:, :-1], world.outputs(world.features))


def test_more_exemplars_teach_more_and_one_is_enough_to_begin(world):
    does = world.chosen == CLASSES
    found = []
    for count in (1, 2, 20):
        taught = teach_action(world.remembered, world.exemplars(count, CLASSES), class_name="new")
        score = taught.taught[0].output(world.features)
        found.append(average_precision_score(does.numpy(), score.numpy()))
        assert world.flags(taught)[does].float().mean() <= world.flags(world.remembered)[does].float().mean()
    assert 0.2 < found[0] < found[2]


def test_what_exemplars_score_left_out_is_what_new_actors_score(world):
    """The calibration rests on this."""
    taught = teach_action(world.remembered, world.exemplars(20, CLASSES), class_name="new")
    probability = torch.sigmoid(taught.taught[0].output(world.features))
    does = world.chosen == CLASSES
    believed = probability[does].mean().item()
    share_right = does[probability > 0.5].float().mean().item()
    assert believed > 0.5
    assert share_right > 0.5


def test_scores_of_the_left_out_are_those_of_fitting_without_them():
    draw = torch.Generator().manual_seed(0)
    points = F.normalize(torch.randn(40, 6, generator=draw), dim=1)
    readout = teaching._Readout.fitted(points[:5], points[5:])  # pyright: ignore[reportPrivateUsage]
    for left_out in range(5):
        rest = [i for i in range(40) if i != left_out]
        kernel = sphere_kernel(points.double(), points.double())
        weights = torch.tensor([1 / 5] * 5 + [1 / 35] * 35)  # as they were with it
        ridge = KernelRidge(
            alpha=teaching.RIDGE,  # pyright: ignore[reportArgumentType]
            kernel="precomputed",
        )
        targets = torch.tensor([1.0] * 5 + [-1.0] * 35)
        ridge.fit(kernel[rest][:, rest].numpy(), targets[rest].numpy(), sample_weight=weights[rest].numpy())
        expected = ridge.predict(kernel[left_out : left_out + 1][:, rest].numpy())[0]
        assert readout.left_out_scores()[left_out].item() == pytest.approx(expected, abs=1e-6)


def test_whitening_undoes_the_covariance_that_labels_leave_unexplained():
    memory = calibrated_memory(200)
    x, y = memory.features.double().numpy(), memory.labels.double().numpy()
    left = x - LinearRegression().fit(y, x).predict(y)
    shrinkage = teaching.SHRINKAGE * x.var(axis=0).mean()
    covariance = torch.tensor(empirical_covariance(left)) + shrinkage * torch.eye(12)
    transform = whitening_of(memory).transform.double()
    torch.testing.assert_close(
        transform.T @ covariance @ transform, torch.eye(12).double(), rtol=0, atol=1e-3
    )


def test_log_odds_have_the_base_rate_and_rise_with_the_score():
    draw = torch.Generator().manual_seed(0)
    does, others = 1 + torch.randn(2000, generator=draw), -1 + torch.randn(2000, generator=draw)
    slope, offset = log_odds_line(does, others, base_rate=0.1)
    # two normal densities of variance 1 at ±1 have the log-odds 2x, plus those of the rate
    assert slope == pytest.approx(2.0, abs=0.15)
    assert offset == pytest.approx(torch.logit(torch.tensor(0.1)).item(), abs=0.2)


@pytest.mark.parametrize(("num_does", "num_others"), [(3, 4), (5, 2), (1, 9)])
def test_a_few_scores_that_separate_get_platts_smoothed_probabilities(num_does, num_others):
    """With one score per side the line passes through both targets, (n + 1)/(n + 2) and 1/(m + 2), but for its ridge."""
    slope, offset = log_odds_line(
        torch.full((num_does,), 2.0), torch.full((num_others,), -1.0), base_rate=0.5
    )
    found = torch.sigmoid(torch.tensor([2 * slope + offset, offset - slope]))
    assert found.tolist() == pytest.approx([(num_does + 1) / (num_does + 2), 1 / (num_others + 2)], abs=0.01)


def test_exemplars_that_do_not_stand_out_get_hardly_any_belief():
    draw = torch.Generator().manual_seed(0)
    others = torch.randn(500, generator=draw)
    slope, offset = log_odds_line(others[:5] - 3, others, base_rate=0.1)
    assert slope == teaching.LEAST_SLOPE
    assert torch.sigmoid(slope * others + offset).mean().item() == pytest.approx(0.1, abs=0.02)


def test_trust_of_a_taught_actor_goes_from_its_own_to_the_typical_one(world):
    taught = teach_action(world.remembered, world.exemplars(10, CLASSES), class_name="new")
    weighed = weigh(taught.memory, world.features)
    believed = torch.sigmoid(taught.taught[0].output(world.features)).double()
    typical = torch.tensor(taught.taught[0].typical_log_trust).exp()
    expected = (1 - believed) * weighed.trust + believed * weighed.trust.clamp(min=typical.item())
    found = log_trust_with_taught(taught, weighed, world.features).exp()
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-7)
    assert (found >= weighed.trust * (1 - 1e-6)).all()


def test_two_actions_can_be_taught_one_after_the_other(world):
    first = teach_action(world.remembered, world.exemplars(10, CLASSES), class_name="first")
    second_exemplars = world.exemplars(10, CLASSES + 1)
    wider = replace(second_exemplars, labels=torch.zeros(10, CLASSES + 1))
    both = teach_action(first, wider, class_name="second")
    assert both.memory.class_names[-2:] == ("first", "second")
    outputs = outputs_with_taught(both, world.outputs(world.features), world.features)
    assert torch.equal(outputs[:, -2], first.taught[0].output(world.features))
    flags = world.flags(both)
    for action in (CLASSES, CLASSES + 1):
        does = world.chosen == action
        assert flags[does].float().mean() < 0.5 * world.flags(world.remembered)[does].float().mean()


def test_exemplars_are_found_as_reasons_and_old_entries_keep_their_scales(world):
    exemplars = world.exemplars(3, CLASSES)
    taught = teach_action(world.remembered, exemplars, class_name="new")
    old = world.remembered.memory
    assert torch.equal(taught.memory.scales[: len(old)], old.scales)
    assert taught.memory.kernel == old.kernel
    nearest = reasons(taught.memory, weigh(taught.memory, exemplars.features), at_most=1)
    assert [each[0].actions for each in nearest] == [{"new": 1.0}] * 3


def test_a_memory_says_nothing_about_taught_actions_and_what_it_said_about_others(world):
    taught = teach_action(world.remembered, world.exemplars(3, CLASSES), class_name="new")
    weighed = weigh(taught.memory, world.features[:9])
    said = evidence_with_taught(taught, weighed)
    assert said.positive[:, -1].tolist() == said.negative[:, -1].tolist() == [0.0] * 9
    assert torch.equal(said.positive[:, :-1], memory_evidence(taught.memory, weighed).positive[:, :-1])


def test_what_was_forgotten_can_be_taught_again():
    actors = seen(200, seed=0)
    smaller = forget_action(remembered(200), "wave")
    assert smaller.held_out is not None
    assert smaller.held_out.class_names == smaller.memory.class_names == NAMES[:3]
    assert smaller.memory.kernel.reach is not None
    waving = torch.nonzero((actors.labels[:, 3] > 0) & (actors.labels[:, :3].sum(dim=1) == 0)).flatten()[:8]
    exemplars = SeenActors(actors.features[waving], actors.labels[waving][:, :3], actors.places[waving])
    again = teach_action(smaller, exemplars, class_name="wave")
    assert again.memory.class_names == NAMES
    test = seen(200, seed=8)
    score = again.taught[0].output(test.features)
    assert average_precision_score(test.labels[:, 3].numpy(), score.numpy()) > 0.9
    assert len(add_actors(again.memory, seen(9, seed=5, video="w"))) == len(again.memory) + 9
    without = forget_action(replace(again, held_out=None), "wave")
    assert without.taught == ()
    assert torch.equal(without.memory.features, smaller.memory.features)


def test_an_exemplar_that_is_remembered_already_does_not_stand_against_itself():
    """Somebody looks at the training videos again: these actors waved as well."""
    before = remembered(200)
    rows = torch.arange(20, 32)
    places = before.memory.places[rows]
    again = SeenActors(before.memory.features[rows], torch.zeros(12, 4), places)
    taught = teach_action(before, again, class_name="limp")
    assert len(taught.memory) == 200
    old = {
        (video, time): row
        for row, (video, time) in enumerate(
            zip(before.memory.places.videos(), before.memory.places.time_s.tolist(), strict=True)
        )
    }
    new = [
        old[pair]
        for pair in zip(taught.memory.places.videos(), taught.memory.places.time_s.tolist(), strict=True)
    ]
    assert sorted(new) == list(range(200))
    assert torch.equal(
        taught.memory.labels[:, :4], before.memory.labels[new]
    )  # and what else they did is known
    assert taught.memory.labels[:, 4].nonzero().flatten().tolist() == list(range(188, 200))
    rivals = taught.taught[0].landmarks[12:]
    assert (rivals @ taught.taught[0].landmarks[:12].T).max() < 1 - 1e-6


def test_a_changed_memory_trusts_the_taught_as_it_now_trusts_the_typical_known_actor():
    before = teach_action(
        remembered(200),
        SeenActors(seen(5, seed=3).features, torch.zeros(5, 4), seen(5, seed=3, video="x").places),
        class_name="limp",
    )
    assert before.held_out is not None
    after = recalibrated(before, prune_memory(before.memory, share=0.2))
    typical = weigh(after.memory, before.held_out.features).log_trust.median().item()
    assert [action.typical_log_trust for action in after.taught] == [typical]
    assert after.taught[0].typical_log_trust != before.taught[0].typical_log_trust
    assert after.memory.kernel.reach is not None
    unset = recalibrated(replace(before, held_out=None), prune_memory(before.memory, share=0.2))
    assert unset.memory.kernel.reach is None


@pytest.mark.parametrize("nothing", [torch.nan, torch.inf])
def test_actors_without_finite_features_are_neither_remembered_nor_taught_from(nothing):
    actors = seen(9, seed=0)
    features = actors.features.clone()
    features[4, 2] = nothing
    with pytest.raises(NotFinite, match="finite features; 1 of 9 do not, the first is actor 4"):
        replace(actors, features=features)


def test_what_cannot_be_taught_is_refused(world):
    ten = world.exemplars(10, CLASSES)
    with pytest.raises(RangeError, match="a name of its own; got 'action 1'"):
        teach_action(world.remembered, ten, class_name="action 1")
    with pytest.raises(NotFitted, match="needs the held-out known actors"):
        teach_action(replace(world.remembered, held_out=None), ten, class_name="new")
    with pytest.raises(TooFewActors, match="at least one exemplar; got none"):
        teach_action(world.remembered, world.exemplars(0, CLASSES), class_name="new")
    with pytest.raises(ShapeError, match="24 features and labels for the 6 remembered actions; got 24 and 4"):
        teach_action(world.remembered, replace(ten, labels=torch.zeros(10, 4)), class_name="new")
    taught = teach_action(world.remembered, ten, class_name="new")
    with pytest.raises(
        RangeError, match=r"got 'new'. Known actions: .*\. Forget it first, then teach it from all"
    ):
        teach_action(taught, ten, class_name="new")
    with pytest.raises(RangeError, match="taught actions must be different and remembered; got new, new"):
        replace(taught, taught=taught.taught * 2)
    with pytest.raises(NotFinite, match="every number of the taught action 'new' must be finite"):
        replace(taught.taught[0], offset=float("nan"))
    with pytest.raises(RangeError, match="slope must be above zero"):
        replace(taught.taught[0], slope=0.0)
    with pytest.raises(ShapeError, match=r"outputs must have a column each for action 0, .*; got 7 columns"):
        unchecked(outputs_with_taught)(taught, torch.zeros(2, 7), torch.zeros(2, 24))
    with pytest.raises(RangeError, match="memory and held-out actors must have features of one model"):
        Remembered(world.remembered.memory, replace(held_out(), model="0" * 64))
