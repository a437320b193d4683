import hashlib
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import AnnotationError, RangeError
from mule.data.convert.ava_files import AVA_60, AVA_80
from mule.data.split.partition import (
    beside_tags,
    closed_partition,
    group_by_prefix,
    grouped_partition,
    listed_partition,
    paper_partition,
    random_partition,
    read_partition,
    told_apart,
)

CHARADES = tuple(f"c{number:03d}" for number in range(157))
GROUPS = st.dictionaries(st.text(min_size=1, max_size=3), st.sampled_from("xyz"), min_size=3, max_size=25)


def thirds(sets):
    return [set(part) for part in (sets.z1, sets.z2, sets.z3)]


def test_ava_is_divided_by_its_list_of_60_as_published():
    sets = paper_partition(tuple(sorted(AVA_80.values())))
    assert sets.known_train == tuple(AVA_60.values())[:40]
    assert sets.z1[0] == "bend/bow (at the waist)"
    assert sets.z1[-1] == "drink"
    assert (sets.z2[0], sets.z2[-1]) == ("drive (e.g., a car, a truck)", "throw")
    assert set(sets.z3) == set(tuple(AVA_60.values())[40:])
    assert set(sets.ignored) == set(AVA_80.values()) - set(AVA_60.values())
    assert (len(sets.novel_choose), len(sets.novel_report)) == (0, 20)


def test_an_action_of_ava_that_does_not_occur_keeps_its_place():
    sets = paper_partition(("stand", "watch (a person)"))
    assert len(sets.known_train) == 40
    assert sets.ignored == ()


def test_charades_is_divided_into_52_52_and_53_as_it_was_first_published():
    sets = paper_partition(CHARADES)
    assert [len(part) for part in (sets.z1, sets.z2, sets.z3)] == [52, 52, 53]
    assert set().union(*thirds(sets)) == set(CHARADES)
    text = "|".join(",".join(sorted(part)) for part in thirds(sets))
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "fc5bf28add098227107236a8f883b60c6eae130dc06c33cf135f4d12c089c0a6"
    )


def test_the_built_in_partition_of_charades_is_the_random_one_of_seed_0():
    assert thirds(paper_partition(CHARADES)) == thirds(random_partition(CHARADES, seed=0))


def test_charades_in_words_is_divided_as_in_codes():
    names = {number: f"Doing {number}" for number in range(157)}
    sets = paper_partition(("Doing 3", "Doing 0"), charades_names=names)
    codes = paper_partition(CHARADES)
    assert sets.z1 == tuple(names[int(code[1:])] for code in codes.z1)


@pytest.mark.parametrize("classes", [("walk", "moonwalk"), ("c000", "c157"), ("c000", "walk")])
def test_the_papers_partition_of_other_classes_is_refused(classes):
    with pytest.raises(RangeError, match=r"partitions need the classes of AVA .* belong to neither"):
        paper_partition(classes)


@given(group_of=GROUPS, seed=st.integers(0, 99))
def test_each_third_has_its_share_of_every_group_and_no_action_is_lost(group_of, seed):
    sets = grouped_partition(group_of, seed=seed)
    parts = thirds(sets)
    assert sum(map(len, parts)) == len(group_of)
    assert set().union(*parts) == set(group_of)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(parts[2]) == max(map(len, parts))
    counts = [Counter(group_of[name] for name in part) for part in parts]
    for group in set(group_of.values()):
        shares = [count[group] for count in counts]
        assert max(shares) - min(shares) <= 1


@given(group_of=GROUPS, seed=st.integers(0, 99))
def test_choosing_and_reporting_halve_the_novel_actions(group_of, seed):
    sets = grouped_partition(group_of, seed=seed)
    assert not set(sets.novel_choose) & set(sets.novel_report)
    assert 0 <= len(sets.novel_report) - len(sets.novel_choose) <= 1


def test_a_partition_depends_on_the_seed_and_not_on_the_order_of_the_classes():
    names = [f"a{i}" for i in range(21)]
    assert random_partition(names, seed=3) == random_partition(names[::-1], seed=3)
    assert len({random_partition(names, seed=seed) for seed in range(20)}) == 20


def test_over_many_seeds_every_action_is_novel_equally_often():
    names = [f"a{i}" for i in range(9)]
    counts = Counter(name for seed in range(900) for name in random_partition(names, seed=seed).z3)
    assert all(abs(counts[name] - 300) < 5 * (900 * 2 / 9) ** 0.5 for name in names)


def test_listed_actions_are_novel_and_the_others_are_known():
    sets = listed_partition(("a", "b", "c", "d"), ("d", "b"))
    assert (sets.z1, sets.z2, set(sets.z3)) == ((), ("a", "c"), {"b", "d"})
    assert listed_partition(("a", "b", "c"), ("c",), z1=("a",)).known_train == ("a", "b")


@pytest.mark.parametrize(("novel", "words"), [((), "the list is empty"), (("x", "b"), "'x' are not")])
def test_a_list_must_name_actions_that_there_are(novel, words):
    with pytest.raises(RangeError, match=words):
        listed_partition(("a", "b"), novel)


def test_with_all_actions_novel_nothing_is_left_to_teach():
    with pytest.raises(RangeError, match="at least one action must be taught"):
        listed_partition(("a", "b"), ("a", "b"))


def test_a_closed_partition_has_no_novel_action():
    sets = closed_partition(("a", "b"))
    assert (sets.known_train, sets.z3) == (("a", "b"), ())
    ava = closed_partition(tuple(AVA_80.values()))
    assert len(ava.known_train) == 60
    assert len(ava.ignored) == 20


def test_two_actions_are_too_few_for_thirds():
    with pytest.raises(RangeError, match="at least 3 actions; got 2"):
        random_partition(("a", "b"), seed=0)


def test_a_prefix_is_a_group():
    assert group_by_prefix(("m:walk", "m:run", "r:x:y"), ":") == {"m:walk": "m", "m:run": "m", "r:x:y": "r"}
    with pytest.raises(RangeError, match=r"each name must contain ':'; 'walk' do not"):
        group_by_prefix(("m:run", "walk"), ":")


def test_a_file_may_list_novel_actions_or_give_every_action_its_set(tmp_path):
    (tmp_path / "novel.txt").write_text("b\n\nd\n")
    assert set(read_partition(tmp_path / "novel.txt", ("a", "b", "c", "d")).z3) == {"b", "d"}
    rows = "action,set\na,z1\nb,choose\nc,z2\nd,report\ne,ignored\nf,novel\n"
    (tmp_path / "sets.csv").write_text(rows)
    sets = read_partition(tmp_path / "sets.csv", ("a", "b", "c", "d", "e", "f"))
    assert (sets.z1, sets.z2, sets.novel_choose, sets.ignored) == (("a",), ("c",), ("b",), ("e",))
    assert set(sets.novel_report) == {"d", "f"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("novel.txt", "", "novel.txt, line 1: must name novel actions, one per line"),
        ("novel.txt", "b\nb\n", "line 2: a name must appear once; 'b' is in line 1 already"),
        ("sets.csv", "action,set\na,z1\nb,z9\n", "got the sets 'z9'; 'c' are in none"),
        (
            "sets.csv",
            "action,set\na,z1\na,z2\n,z1\n",
            "line 3: 'a' must have one set; got 'z1' and 'z2'; line 4",
        ),
    ],
)
def test_a_wrong_file_of_sets_is_refused_by_name(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(AnnotationError, match=re.escape(words)):
        read_partition(tmp_path / name, ("a", "b", "c"))


@given(
    st.sets(st.text("abc", min_size=1, max_size=3), min_size=3, max_size=9),
    st.sets(st.text("ab", max_size=2), min_size=1),
)
def test_tags_are_taught_and_change_nothing_about_which_actions_are_novel(actions, ends):
    tags = {f"view:{end}" for end in ends}
    names = tuple(sorted(actions | tags))
    kept, found = told_apart(names, ":")
    assert (set(kept), set(found)) == (actions, tags)
    alone = random_partition(tuple(sorted(actions)), seed=5)
    beside = beside_tags(random_partition(kept, seed=5), found)
    assert beside.z3 == alone.z3
    assert beside.z2 == alone.known_train
    assert set(beside.z1) == tags


@pytest.mark.parametrize("names", [("run", "sit"), ("view:back", "visible:upper"), ()])
def test_tags_stand_beside_actions(names):
    with pytest.raises(RangeError, match=r"names must contain the tag mark ':' and some must not"):
        told_apart(names, ":")
