"""The study of what actors are seen by: its closed form is the product's, and its measures are the library's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mule.metrics import auroc
from mule.novelty.crossfit import CrossFitted
from studies.seen.closed import PLAIN, among_tested, crossed, remembered, whitened
from studies.seen.extract import pairs
from studies.seen.heads import HeadPlan, best_by_rival, standardised, trained
from studies.seen.judging import Judged, interval, measured, weighted_auroc
from studies.seen.page import APART, OURS, bars, read_tables, section, whole_page
from studies.seen.running import novel_first, recipe


def drawn(num, seed):
    generator = torch.Generator().manual_seed(seed)
    does = torch.arange(num) % 5
    features = torch.eye(5, 64)[does] + 0.4 * torch.randn(num, 64, generator=generator)
    answers = F.normalize(torch.rand(num, 30, generator=generator)).double()
    return {"frame": features, "labels": answers}, does[:, None] == torch.arange(5)


def test_the_fast_form_of_the_study_is_the_closed_form_of_the_product():
    inputs, labels = drawn(120, 0)
    tested, _ = drawn(40, 1)
    groups = torch.arange(120) // 3
    product = CrossFitted.fit(inputs, labels, groups)(tested)
    study = crossed(PLAIN, (inputs, labels, groups), tested)
    torch.testing.assert_close(study.rank, product.rank, atol=1e-5, rtol=1e-5)
    assert torch.equal(study.p_value, product.conformal_p_value)


def test_a_candidate_of_one_block_is_the_closed_form_without_the_others():
    inputs, labels = drawn(120, 0)
    tested, _ = drawn(40, 1)
    groups = torch.arange(120) // 3
    wider = {**inputs, "crop": torch.rand(120, 9)}
    known, alone = (
        whitened(only=only)(each, labels, groups) for only, each in (("frame", wider), (None, inputs))
    )
    torch.testing.assert_close(known({**tested, "crop": torch.rand(40, 9)}), alone(tested))


def test_weighted_auroc_counts_actors_as_often_as_they_are_repeated():
    draw = np.random.default_rng(0)
    novelty, is_novel = draw.integers(0, 9, 60).astype(float), draw.random(60) < 0.4
    weight = draw.integers(0, 3, (4, 60)).astype(float)
    found = weighted_auroc(novelty, is_novel, weight)
    for value, times in zip(found, weight.astype(int), strict=True):
        assert value == pytest.approx(auroc(novelty.repeat(times), is_novel.repeat(times)))


def judged(shift, seed):
    draw = np.random.default_rng(seed)
    is_novel = np.arange(80) % 4 == 0
    novelty = draw.normal(size=80) + shift * is_novel
    return Judged(seed, novelty, is_novel, np.arange(80) % 8, np.arange(80) // 4, np.arange(80) % 8 == 0)


def test_an_interval_of_a_method_against_itself_is_nothing_and_against_a_worse_one_is_above_it():
    ours, worse = [judged(1.5, seed) for seed in range(6)], [judged(0.2, seed) for seed in range(6)]
    assert interval(ours, ours) == (0.0, 0.0)
    low, high = interval(ours, worse)
    mean = np.mean([measured(a)["auroc"] - measured(b)["auroc"] for a, b in zip(ours, worse, strict=True)])
    assert 0 < low < mean < high


def test_named_and_unnamed_novel_actors_are_each_set_against_all_known_ones():
    each = judged(1.0, 3)
    for name, chosen in (("auroc_named", each.is_named), ("auroc_unnamed", ~each.is_named)):
        rows = ~each.is_novel | chosen
        expected = 100 * auroc(each.novelty[rows], each.is_novel[rows])
        assert measured(each)[name] == pytest.approx(expected)


def test_a_rival_takes_the_configuration_that_is_best_by_itself():
    found = {"0/10/knn:1": 70.0, "2/40/knn:5": 80.0, "0/10/vim": 75.0, "1/10/vim": 74.0}
    assert best_by_rival(found) == {"knn": "2/40/knn:5", "vim": "0/10/vim"}


def test_a_head_learns_what_it_is_shown_and_training_is_repeatable():
    inputs, labels = drawn(120, 0)
    sides = standardised(inputs["frame"], inputs["frame"], labels)
    first, second = (
        trained(sides, "bce", HeadPlan(0, 0.01, False), epochs=(2, 400), seed=5) for _ in range(2)
    )
    logits = first[400](sides.known)
    assert (logits.argmax(1) == labels.int().argmax(1)).float().mean() > 0.95
    assert torch.equal(logits, second[400](sides.known))
    assert not torch.equal(logits, first[2](sides.known))


def test_the_page_is_made_of_the_files_and_says_of_every_bar_whether_it_is_met():
    tables = read_tables()
    page = whole_page(tables)
    for row in tables.methods:
        name = row["view"] if row["method"] == APART else row["method"]
        assert f"| {name} | {float(row['auroc']):.1f} " in page
    assert len(bars(tables)) == 8
    for each in bars(tables):
        assert f"| {each.text} | {each.found} | {'met' if each.is_met else '**missed**'} |" in page
    assert (
        f"{float(tables.row(tables.per_clip, OURS)['auroc']):.1f} from the whole clip" in section(tables)[0]
    )


def test_pairs_hold_everybody_once_and_never_two_of_one_action():
    labels = np.eye(4, dtype=bool)[np.arange(30) % 4]
    beside = pairs(labels)
    assert sorted([*beside, *beside.values()]) == list(range(30))
    assert all(left % 4 != right % 4 for left, right in beside.items())
    assert beside == pairs(labels)


def test_a_novel_person_wins_a_pair_by_looking_more_novel_than_the_known_one_beside_it():
    rows = np.array([10, 11, 12, 13, 14, 15])
    is_novel = np.array([True, False, False, True, True, False])
    beside = {10: 11, 13: 12, 14: 99, 15: 14}  # 99 is not tested
    assert novel_first(beside, rows, is_novel, np.array([0.9, 0.1, 0.5, 0.5, 0.2, 0.8])) == (3, 1.5)


def test_the_memory_of_the_study_is_that_of_the_product():
    inputs, labels = drawn(120, 0)
    tested, _ = drawn(40, 1)
    groups = torch.arange(120) // 3
    found = remembered()(inputs, labels, groups)(tested)
    joined = torch.cat([F.normalize(inputs[name].double(), dim=1) for name in ("frame", "labels")], dim=1)
    tested_joined = torch.cat(
        [F.normalize(tested[name].double(), dim=1) for name in ("frame", "labels")], dim=1
    )
    distance = torch.cdist(tested_joined, joined)
    assert (
        torch.corrcoef(torch.stack([found.double(), distance.topk(5, largest=False).values.mean(1)]))[0, 1]
        > 0.8
    )


def test_tags_are_compared_with_nobody_and_may_count_in_the_covariance():
    inputs, labels = drawn(120, 0)
    tags = torch.rand(120, 2, generator=torch.Generator().manual_seed(3)) < 0.5
    both, groups = torch.cat([labels, tags], dim=1), torch.arange(120)
    inputs["frame"][:, 10:12] += 2.0 * tags  # a tag is seen
    plain = recipe()["whitened"](inputs, labels, groups)(inputs)
    single = recipe(5)["whitened"](inputs, both, groups)(inputs)
    in_sets = recipe(5, has_tags_in_sets=True)["whitened"](inputs, both, groups)(inputs)
    torch.testing.assert_close(single, plain)
    assert not torch.allclose(in_sets, plain)


def test_averaging_among_tested_actors_is_the_mean_over_the_most_alike():
    inputs = {"frame": torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])}
    found = among_tested(torch.tensor([0.0, 2.0, 4.0, 8.0]), inputs, num_neighbours=1)
    assert found.tolist() == [1.0, 1.0, 6.0, 6.0]
