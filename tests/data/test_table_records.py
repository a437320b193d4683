from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tables import BOX, NAN, table_of
from strategies import unchecked

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.data.table.table import ActorTable, ObjectTable, edits, likely_misspellings


def test_a_table_without_rows_has_no_clips():
    table = table_of([])
    first, clip = table.clips()
    assert (len(table), len(first), len(clip)) == (0, 0, 0)
    assert table.labels_of(["walk"]).shape == (0, 1)


WORDS = st.text("abcd", max_size=6)


def longest_common(first, second):
    """The letters of the longest common subsequence, by all subsequences."""
    parts = {part for n in range(len(first) + 1) for part in combinations(first, n)}
    return max(len(part) for part in parts if part in set(combinations(second, len(part))))


@given(WORDS, WORDS)
def test_edits_are_symmetric_and_without_swaps_those_of_the_longest_common_subsequence(first, second):
    swapless = len(first) + len(second) - 2 * longest_common(first, second)
    assert edits(first, second) == edits(second, first) <= swapless
    if not {first[at : at + 2] for at in range(len(first) - 1)} & {
        second[at : at + 2][::-1] for at in range(len(second) - 1)
    }:
        assert edits(first, second) == swapless


@given(st.text("abcdefgh", min_size=4, max_size=12), st.data())
def test_one_letter_added_lost_or_swapped_is_taken_for_a_misspelling(name, data):
    at = data.draw(st.integers(0, len(name) - 2))
    swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    for slip in (name[:at] + name[at + 1 :], f"{name[:at]}z{name[at:]}", swapped):
        if slip != name:
            (warning,) = likely_misspellings({name: 20, slip: 1})
            assert f"did you mean {name!r}" in warning


def test_one_letter_replaced_in_a_short_name_is_another_action():
    assert likely_misspellings({"walk": 200, "talk": 1, "sit": 200, "hit": 2}) == []


def test_a_row_speaks_of_a_place_a_frame_or_a_whole_video():
    table = table_of([(0, 1.0, BOX, [0], "x"), (0, 1.0, None, [1], ""), (1, NAN, None, [0, 1], "")])
    assert table.has_box.tolist() == [True, False, False]
    assert table.has_time.tolist() == [True, True, False]
    assert table.video_names == ["a", "a", "b"]
    assert table.action_names(2) == ("sit", "walk")


def test_rows_of_one_video_and_time_make_a_clip_and_so_do_rows_of_a_whole_video():
    rows = [(1, NAN, None, [0], ""), (1, 2.0, BOX, [0], "x"), (0, 2.0, BOX, [0], "x")]
    rows += [(1, NAN, None, [1], "y"), (1, 2.0, BOX, [1], "z"), (1, 1.5, BOX, [1], "x")]
    table = table_of(rows)
    first, clip = table.clips()
    assert clip.tolist() == [3, 2, 0, 3, 2, 1]
    assert first.tolist() == [2, 5, 1, 0]


def test_chosen_rows_keep_their_values_and_the_numbers_of_videos_and_classes():
    table = table_of([(0, 1.0, BOX, [0], "x"), (1, NAN, None, [1], "y"), (1, 3.0, BOX, [0, 1], "z")])
    for rows in (np.array([2, 0]), np.array([True, False, True]), slice(None, None, -2)):
        chosen = table.at(rows)
        numbers = np.arange(3)[rows]
        assert chosen.actor_id == tuple("xyz"[i] for i in numbers)
        assert (chosen.videos, chosen.classes) == (table.videos, table.classes)
        np.testing.assert_array_equal(chosen.labels, table.labels[numbers])
        np.testing.assert_array_equal(chosen.time_s, table.time_s[numbers])


def test_labels_come_in_the_order_asked_for_and_an_unknown_class_is_an_error():
    table = table_of([(0, 1.0, BOX, [1], "x")])
    assert table.labels_of(["walk", "sit"]).tolist() == [[True, False]]
    with pytest.raises(RangeError, match="'fly' are not"):
        table.labels_of(["fly"])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"actor_id": ("x",)}, ShapeError, r"one entry per row; got \[2, 2, 2, 2, 1\]"),
        ({"classes": ("sit",)}, ShapeError, "one column per class"),
        ({"classes": ("sit", "sit")}, ShapeError, "each class once"),
        ({"video_index": np.array([0, 2])}, RangeError, "one of 2 videos .* numbers from 0 to 2"),
        ({"video_index": np.array([-1, 0])}, RangeError, "numbers from -1"),
        ({"boxes_xyxy_unit": np.array([BOX, [0.1, NAN, 0.3, 0.4]])}, NotFinite, "four corners or none"),
    ],
)
def test_columns_that_do_not_fit_are_refused_at_birth(change, error, words):
    sound = vars(table_of([(0, 1.0, BOX, [0], "x"), (1, 1.0, BOX, [1], "y")]))
    with pytest.raises(error, match=words):
        unchecked(ActorTable)(**(sound | change))


def test_objects_that_do_not_fit_are_refused_at_birth():
    one = np.zeros(1, dtype=np.int64)
    with pytest.raises(RangeError, match="one of 1 videos or classes"):
        ObjectTable(("a",), ("cup",), one, np.zeros(1), np.array([BOX]), one + 1, np.ones(1))
    assert len(ObjectTable((), (), one[:0], np.zeros(0), np.zeros((0, 4)), one[:0], np.ones(0))) == 0
