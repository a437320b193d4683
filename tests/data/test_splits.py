import re
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import actors_of, random_actors, split_of

from mule.core.errors import AnnotationError, FileError, RangeError
from mule.data.split.splits import ClassSets, Rules, SideVideos, read_split, table_digest, write_split

CLASSES = ClassSets(("a",), ("b", "c"), ("d",), ("e",), ("f",))
VIDEOS = SideVideos(("v",), ("w",), ("x", "y"))


def made(**named):
    return split_of(actors_of([("v", "a b")]), CLASSES, VIDEOS, **named)


@pytest.mark.parametrize(
    "split",
    [
        split_of(actors_of([("v", "a")]), ClassSets(("a",), (), (), ()), SideVideos((), (), ())),
        made(),
        made(rules=Rules(mixed="keep", mixed_share=1 / 3, sides="drawn", val_share=0.1, test_share=1e-5)),
        made(
            groups={"v": "film 1", "w": 'film "2"', "x": "Füße\\\x7f\n", "y": "=#[]"},
            name='a "name" # of 日本\t𝄞',
        ),
    ],
)
def test_a_split_comes_back_from_its_file_as_it_was(tmp_path, split):
    write_split(split, tmp_path / "split.toml")
    assert read_split(tmp_path / "split.toml") == split
    assert read_split(tmp_path / "split.toml").digest == split.digest


@settings(max_examples=30)
@given(name=st.text(), video=st.text(min_size=1), group=st.text())
def test_any_text_survives_the_file(tmp_path_factory, name, video, group):
    split = split_of(
        actors_of([("v", "a")]),
        ClassSets(("a",), (), (), ()),
        SideVideos((video,), (), ()),
        name=name,
        groups={video: group},
    )
    path = tmp_path_factory.mktemp("split") / "split.toml"
    write_split(split, path)
    assert read_split(path) == split


def test_the_file_is_plain_toml_with_one_name_per_line(tmp_path):
    write_split(made(), tmp_path / "split.toml")
    text = (tmp_path / "split.toml").read_text()
    content = tomllib.loads(text)
    assert content["classes"]["z2"] == ["b", "c"]
    assert content["videos"]["test"] == ["x", "y"]
    assert content["digest"] == made().digest
    assert '\n  "b",\n  "c",\n]' in text


@pytest.mark.parametrize(
    "edit",
    [
        ('mixed = "drop"', 'mixed = "keep"'),
        ('  "w",', '  "ww",'),
        ("seed = 0", "seed = 1"),
        ('name = "made"', 'name = "x"'),
    ],
)
def test_an_edited_file_is_refused_and_taken_when_the_edit_is_meant(tmp_path, edit):
    path = tmp_path / "split.toml"
    write_split(made(), path)
    path.write_text(path.read_text().replace(*edit))
    with pytest.raises(
        AnnotationError, match=r"split.toml: the digest must match the content.*--accept-edits"
    ):
        read_split(path)
    accepted = read_split(path, accept_edits=True)
    assert accepted.digest != made().digest
    write_split(accepted, path)
    assert read_split(path) == accepted


def test_comments_and_blank_lines_are_no_edits(tmp_path):
    path = tmp_path / "split.toml"
    write_split(made(), path)
    path.write_text("# mine\n\n" + path.read_text().replace("\n", "\n\n"))
    assert read_split(path) == made()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("mule-split-1", "other", "format must be 'mule-split-1'; got 'other'"),
        ('mixed = "drop"', 'mixd = "drop"', "rules.mixd: Unexpected keyword argument"),
        ('mixed = "drop"', 'mixed = "dorp"', "rules.mixed: Input should be 'drop' or 'keep'"),
        ("mixed_share = 0.5", "mixed_share = 0.0", "mixed_share must be above 0 and at most 1; got 0.0"),
        ('  "a",', '  "b",', "an action must be in one set, once; 'b' appear more often"),
        ('  "w",', '  "v",', "a video must be on one side, once; 'v' appear more often"),
        ("seed = 0", "", "seed: Field required"),
        ("seed = 0", "seed = [", "must be a readable split in TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_by_file_and_key(tmp_path, old, new, words):
    path = tmp_path / "split.toml"
    write_split(made(), path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(AnnotationError, match=re.escape(words)) as told:
        read_split(path, accept_edits=True)
    assert str(told.value).startswith(str(path))


def test_all_problems_are_said_at_once(tmp_path):
    path = tmp_path / "split.toml"
    write_split(made(), path)
    path.write_text(path.read_text().replace("seed = 0", 'seed = "x"').replace('"drop"', '"dorp"'))
    with pytest.raises(AnnotationError, match=r"seed: .*rules\.mixed: .*rules\.train_novel: "):
        read_split(path, accept_edits=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ClassSets((), (), ("a",), ()), "at least one action must be taught"),
        (lambda: ClassSets(("a",), ("a",), (), ()), "'a' appear more often"),
        (lambda: ClassSets(("a",), (), ("b",), ("b",)), "'b' appear more often"),
        (lambda: SideVideos(("v", "v"), (), ()), "'v' appear more often"),
        (lambda: Rules(val_share=0.5, test_share=0.5), "leave actors for training; got 0.5 and 0.5"),
        (lambda: Rules(val_share=-0.1), "must be at least 0"),
        (lambda: Rules(mixed_share=1.5), "at most 1; got 1.5"),
        (
            lambda: made(groups={"v": "g"}),
            "if videos have groups, every video must have one; 'w', 'x', 'y' have none",
        ),
    ],
)
def test_a_split_that_contradicts_itself_cannot_be_made(make, words):
    with pytest.raises(RangeError, match=re.escape(words)):
        make()


def test_the_digest_of_a_split_covers_everything_it_says():
    variants = [
        made(),
        made(name="other"),
        made(seed=1),
        made(policy="random"),
        made(rules=Rules(mixed="keep")),
        made(rules=Rules(mixed_share=0.25)),
        made(table_digest="0"),
        made(groups=dict.fromkeys("vwxy", "g")),
        split_of(actors_of([("v", "a b")]), CLASSES, SideVideos(("v",), ("w",), ("x",))),
        split_of(actors_of([("v", "a b")]), ClassSets(("a",), ("c", "b"), ("d",), ("e",), ("f",)), VIDEOS),
    ]
    assert len({each.digest for each in variants}) == len(variants)


def test_the_digest_of_a_known_split_stays_what_it_was():
    assert made().digest == "b36fbe38d17610c3f0b4afd8c8ce5fd61d1ddd5560cd269ded3200c3563b5db8"


def test_the_digest_of_a_table_is_that_of_what_its_rows_say():
    table = random_actors(0)
    same = table.at(np.arange(len(table)))
    assert table_digest(table) == table_digest(same)
    others = [table.at(slice(1, None)), table.at(np.arange(len(table))[::-1]), random_actors(1)]
    assert len({table_digest(each) for each in (table, *others)}) == 4


def test_nothing_half_written_bears_the_name_of_a_split(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match="cannot be written"):
        write_split(made(), tmp_path / "file" / "split.toml")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
