import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import actors_of, random_actors, split_of

from mule.core.errors import RangeError, TooFewActors
from mule.data.split.partition import drawn_sides, given_sides, listed_partition
from mule.data.split.sides import FATES, NO_SIDE, Fate, apply_split, fates
from mule.data.split.splits import SIDES, ClassSets, Rules, SideVideos

CLASSES = ClassSets(("z1",), ("k", "kk"), ("n",), ("m",), ("i",))
ALL = ("z1", "k", "kk", "n", "m", "i")
RULES = st.builds(
    Rules,
    mixed=st.sampled_from(["drop", "keep"]),
    mixed_share=st.sampled_from([0.25, 0.5, 2 / 3, 1.0]),
    train_novel=st.sampled_from(["drop", "unlabel"]),
    z1_at_test=st.sampled_from(["ignore", "known"]),
)


def fate_of(actions, side, **rules):
    table = actors_of([("v", actions)], classes=ALL)
    videos = SideVideos(**{each: ("v",) if each == side else () for each in SIDES})
    (at,) = fates(table, split_of(table, CLASSES, videos, Rules(**rules)))
    return FATES[at]


def random_split(seed, rules):
    table = random_actors(seed, num_rows=120)
    classes = ClassSets(("a0", "a1"), ("a2", "a3", "a4"), ("a5",), ("a6", "a7"), ("a8",))
    names = np.random.default_rng(seed + 1).permutation(table.videos).tolist()
    videos = SideVideos(tuple(names[:15]), tuple(names[15:22]), tuple(names[22:36]))
    return table, split_of(table, classes, videos, rules)


def slow_fate(actions, side, classes, rules):
    """What the rules say, word by word, of one actor."""
    taught = actions & set(classes.known_train)
    novel = actions & set(classes.z3)
    if side in ("train", "val"):
        if novel and (side == "val" or rules.train_novel == "drop"):
            return "lost"
        return "used" if taught else "lost"
    known = taught if rules.z1_at_test == "known" else actions & set(classes.z2)
    if not known and not novel:
        return "lost"
    if known and novel:
        if rules.mixed == "drop":
            return "lost"
        return "novel" if len(novel) / len(known | novel) >= rules.mixed_share else "known"
    return "novel" if novel else "known"


@pytest.mark.parametrize(
    ("actions", "side", "rules", "fate"),
    [
        ("", "train", {}, Fate.TRAIN_WITHOUT_LABEL),
        ("", "val", {}, Fate.VAL_WITHOUT_LABEL),
        ("", "test", {}, Fate.TEST_WITHOUT_LABEL),
        ("i", "train", {}, Fate.TRAIN_UNTAUGHT),
        ("i", "test", {}, Fate.TEST_UNDECIDED),
        ("k i", "train", {}, Fate.TRAIN_USED),
        ("k n", "train", {}, Fate.TRAIN_NOVEL),
        ("k n", "train", {"train_novel": "unlabel"}, Fate.TRAIN_UNLABELLED),
        ("n", "train", {"train_novel": "unlabel"}, Fate.TRAIN_UNTAUGHT),
        ("k n", "val", {"train_novel": "unlabel"}, Fate.VAL_NOVEL),
        ("z1", "val", {}, Fate.VAL_USED),
        ("k", "test", {}, Fate.TEST_KNOWN),
        ("n m", "test", {}, Fate.TEST_NOVEL),
        ("k n", "test", {}, Fate.TEST_MIXED),
        ("z1 n", "test", {}, Fate.TEST_NOVEL),
        ("z1 n", "test", {"z1_at_test": "known"}, Fate.TEST_MIXED),
        ("z1", "test", {}, Fate.TEST_UNDECIDED),
        ("z1", "test", {"z1_at_test": "known"}, Fate.TEST_KNOWN),
        ("k n", "test", {"mixed": "keep"}, Fate.TEST_MIXED_AS_NOVEL),
        ("k kk n", "test", {"mixed": "keep"}, Fate.TEST_MIXED_AS_KNOWN),
        ("k kk n m", "test", {"mixed": "keep", "mixed_share": 0.6}, Fate.TEST_MIXED_AS_KNOWN),
        ("k n m", "test", {"mixed": "keep", "mixed_share": 2 / 3}, Fate.TEST_MIXED_AS_NOVEL),
    ],
)
def test_each_kind_of_actor_meets_its_fate(actions, side, rules, fate):
    assert fate_of(actions, side, **rules) is fate


@settings(max_examples=25)
@given(seed=st.integers(0, 50), rules=RULES)
def test_every_actor_is_treated_as_the_rules_say_word_by_word(seed, rules):
    table, split = random_split(seed, rules)
    sides = apply_split(table, split)
    novel = {
        int(row): bool(is_novel) for row, is_novel in zip(sides.test.rows, sides.test.is_novel, strict=True)
    }
    used = {side: set(getattr(sides, side).rows.tolist()) for side in SIDES}
    side_of = split.videos.side_of()
    for row, video in enumerate(table.video_names):
        side = side_of.get(video)
        expected = (
            "lost" if side is None else slow_fate(set(table.action_names(row)), side, split.classes, rules)
        )
        found = next((each for each in SIDES if row in used[each]), None)
        assert (found is None) == (expected == "lost")
        assert found in (None, side)
        if found == "test":
            assert novel[row] == (expected == "novel")


@settings(max_examples=25)
@given(seed=st.integers(0, 50), rules=RULES)
def test_every_actor_has_one_fate_and_the_counts_add_up(seed, rules):
    table, split = random_split(seed, rules)
    report = apply_split(table, split).report
    on_sides = sum(sum(side.used.values()) + sum(side.lost.values()) for side in report.sides.values())
    assert on_sides + report.num_on_no_side == report.num_actors == len(table)
    assert np.count_nonzero(fates(table, split) == NO_SIDE) == report.num_on_no_side
    assert [side.actors for side in report.sides.values()] == [
        sum(video in getattr(split.videos, side) for video in table.video_names) for side in SIDES
    ]


@settings(max_examples=25)
@given(seed=st.integers(0, 50), rules=RULES)
def test_neither_training_nor_validation_ever_sees_a_novel_action(seed, rules):
    table, split = random_split(seed, rules)
    sides = apply_split(table, split)
    assert not sides.val.actors.labels_of(split.classes.z3).any()
    if rules.train_novel == "drop":
        assert not sides.train.actors.labels_of(split.classes.z3).any()
    for side in (sides.train, sides.val):
        assert side.labels.shape == (len(side), len(split.classes.known_train))
        assert side.labels.any(axis=1).all()


@settings(max_examples=25)
@given(seed=st.integers(0, 50), rules=RULES)
def test_choosing_and_reporting_share_neither_novel_actor_nor_novel_action(seed, rules):
    table, split = random_split(seed, rules)
    test = apply_split(table, split).test
    assert not (test.is_for_choosing & test.is_for_reporting).any()
    assert not ((test.is_for_choosing | test.is_for_reporting) & ~test.is_novel).any()
    assert not test.actors.at(test.is_for_choosing).labels_of(split.classes.novel_report).any()
    assert not test.actors.at(test.is_for_reporting).labels_of(split.classes.novel_choose).any()


@settings(max_examples=25)
@given(seed=st.integers(0, 50), rules=RULES)
def test_the_counts_of_each_action_are_those_of_the_rows_used(seed, rules):
    table, split = random_split(seed, rules)
    sides = apply_split(table, split)
    for each in sides.report.classes:
        for side in SIDES:
            assert getattr(each, side) == getattr(sides, side).actors.labels_of([each.action]).sum()


def test_labels_have_a_column_for_a_taught_action_that_nobody_does():
    table = actors_of([("v", "kk"), ("w", "n")])
    sides = apply_split(table, split_of(table, CLASSES, SideVideos(("v",), (), ("w",))))
    assert sides.train.labels.tolist() == [[False, False, True]]
    assert any("do not occur in the table: 'z1', 'k', 'm', 'i'" in note for note in sides.report.notes)


@pytest.mark.parametrize("novel", ["n", "n m"])
def test_novel_actions_that_are_all_for_reporting_choose_nothing_and_that_is_said(novel):
    table = actors_of([("v", "k"), ("w", novel)])
    for choose, is_said in (((), True), (("n",), False)):
        report = tuple(name for name in novel.split() if name not in choose)
        split = split_of(table, ClassSets((), ("k",), choose, report, ()), SideVideos(("v",), (), ("w",)))
        notes = apply_split(table, split).report.notes
        assert ("Every novel action is for reporting; make no choices on novel actors." in notes) is is_said


def test_an_action_in_no_set_is_refused():
    table = actors_of([("v", "k surprise")])
    with pytest.raises(
        RangeError, match=r"every action of the table must be in a set of the split; 'surprise' are"
    ):
        apply_split(table, split_of(table, CLASSES, SideVideos(("v",), (), ())))


def test_a_closed_split_tests_every_actor_with_an_action_or_without():
    table = actors_of([("v", "k"), ("w", "k"), ("w", ""), ("w", "i")], classes=ALL[1:2] + ALL[5:])
    split = split_of(table, ClassSets((), ("k",), (), (), ("i",)), SideVideos(("v",), (), ("w",)))
    sides = apply_split(table, split)
    assert sides.test.rows.tolist() == [1, 2, 3]
    assert not sides.test.is_novel.any()
    assert sides.report.sides["test"].used == {"known": 1, "novel": 0, "without a taught action": 2}
    sides.report.require_usable()


def test_a_table_without_rows_has_empty_sides_and_cannot_be_used():
    table = actors_of([("v", "k")]).at(slice(0, 0))
    sides = apply_split(table, split_of(table, CLASSES, SideVideos((), (), ())))
    assert (len(sides.train), len(sides.val), len(sides.test)) == (0, 0, 0)
    with pytest.raises(
        TooFewActors, match="no training actors and no known test actors and no novel test actors"
    ):
        sides.report.require_usable()


def test_the_report_says_when_the_table_is_another_and_what_is_missing():
    table = actors_of([("v", "k"), ("w", "n"), ("x", "k"), ("y", "k")])
    split = split_of(table, CLASSES, SideVideos(("v",), ("gone",), ("w", "x")))
    report = apply_split(table, split).report
    assert report.is_table_of_split
    assert (report.num_on_no_side, report.videos_on_no_side, report.videos_missing) == (1, ("y",), 1)
    assert not apply_split(table.at(slice(1, None)), split).report.is_table_of_split


@pytest.mark.parametrize("seed", range(5))
def test_drawn_sides_are_disjoint_complete_and_keep_groups_together(seed):
    table = random_actors(seed)
    groups = {video: f"g{int(video[1:]) % 13}" for video in table.videos}
    classes = listed_partition(table.classes, ("a7", "a8"))
    videos = drawn_sides(table, classes, val_share=0.2, test_share=0.3, seed=seed, groups=groups)
    assert sorted(videos.side_of()) == sorted(table.videos)
    side_of = videos.side_of()
    assert all(len({side_of[v] for v in groups if groups[v] == g}) == 1 for g in set(groups.values()))


@given(seed=st.integers(0, 200), sizes=st.lists(st.integers(1, 8), min_size=3, max_size=8))
def test_where_actors_do_one_action_each_a_known_one_of_two_groups_is_taught_and_tested_and_every_novel_one_is_tested(
    seed, sizes
):
    names = [f"a{at}" for at in range(len(sizes))]
    rows = [(f"{name}-{i}", name) for name, size in zip(names, sizes, strict=True) for i in range(size)]
    table = actors_of(rows)
    classes = listed_partition(table.classes, names[:2])
    videos = drawn_sides(table, classes, val_share=0.0, test_share=0.25, seed=seed)
    for name, size in zip(names, sizes, strict=True):
        where = {side for video, side in videos.side_of().items() if video.startswith(f"{name}-")}
        assert "test" in where if name in classes.z3 else "train" in where
        if size > 1 and name not in classes.z3:
            assert "test" in where


@pytest.mark.parametrize("seed", range(5))
def test_drawn_sides_have_about_their_shares_of_every_action(seed):
    table = random_actors(seed, num_rows=6000, num_videos=400)
    classes = listed_partition(table.classes, ("a7", "a8"))
    side_of = drawn_sides(table, classes, val_share=0.15, test_share=0.25, seed=seed).side_of()
    side = np.array([side_of[video] for video in table.videos])[table.video_index]
    for name, share in (("train", 0.6), ("val", 0.15), ("test", 0.25)):
        found = table.labels[side == name].sum(axis=0) / table.labels.sum(axis=0)
        assert np.abs(found - share).max() < 0.02


def test_drawn_sides_depend_on_the_seed_and_not_on_the_order_of_rows():
    table = random_actors(0)
    classes = listed_partition(table.classes, ("a8",))

    def drawn(rows, seed):
        return drawn_sides(rows, classes, val_share=0.2, test_share=0.2, seed=seed)

    shuffled = table.at(np.random.default_rng(0).permutation(len(table)))
    assert drawn(table, 1) == drawn(shuffled, 1)
    assert drawn(table, 1) != drawn(table, 2)


def test_a_share_of_nothing_gives_an_empty_side():
    table = random_actors(0)
    videos = drawn_sides(
        table, listed_partition(table.classes, ("a8",)), val_share=0.0, test_share=0.0, seed=0
    )
    assert (len(videos.train), videos.val, videos.test) == (40, (), ())


def test_a_video_without_a_group_is_named():
    table = actors_of([("v", "k"), ("w", "n")])
    with pytest.raises(
        RangeError, match=re.escape("every video of the table must have a group; 'w' have none (1 of 2)")
    ):
        drawn_sides(table, CLASSES, val_share=0.2, test_share=0.2, seed=0, groups={"v": "g"})


def test_given_sides_are_taken_as_they_are():
    assert given_sides({"b": "train", "a": "train", "c": "test"}) == SideVideos(("a", "b"), (), ("c",))
    with pytest.raises(RangeError, match="a side must be one of train, val, test; got 'dev'"):
        given_sides({"a": "dev"})


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("num_videos", [3, 4, 6])
def test_a_share_for_validation_draws_at_least_one_video_with_known_actors(seed, num_videos):
    rows = [(f"v{i}", "a" if i % 2 else "b") for i in range(num_videos)] + [("n", "c")]
    table, classes = actors_of(rows), listed_partition(("a", "b", "c"), ("c",))
    videos = drawn_sides(table, classes, val_share=0.2, test_share=0.0, seed=seed)
    assert videos.train
    assert set(videos.val) & {f"v{i}" for i in range(num_videos)}


def test_a_share_for_validation_of_a_single_video_is_refused():
    table = actors_of([("v", "a"), ("v", "b")])
    with pytest.raises(RangeError, match=r"--val-share must leave videos .* have 1 together"):
        drawn_sides(table, listed_partition(("a", "b"), ("b",)), val_share=0.2, test_share=0.0, seed=0)


@pytest.mark.parametrize("rule", ["drop", "unlabel"])
@pytest.mark.parametrize("seed", range(3))
def test_the_report_counts_what_either_rule_leaves_of_training(seed, rule):
    table = random_actors(seed)
    classes = listed_partition(table.classes, ("a7", "a8"))
    videos = drawn_sides(table, classes, val_share=0.2, test_share=0.2, seed=seed)
    split = split_of(table, classes, videos, Rules(train_novel=rule))
    sides = apply_split(table, split)
    assert sides.report.train_kept[rule] == len(sides.train)
    slow = [
        set(table.action_names(row)) for row in range(len(table)) if table.video_names[row] in videos.train
    ]
    taught = [does for does in slow if does & set(classes.known_train)]
    assert sides.report.train_kept == {
        "drop": sum(not does & {"a7", "a8"} for does in taught), "unlabel": len(taught)
    }  # fmt: skip
