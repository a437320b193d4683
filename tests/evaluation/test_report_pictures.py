import itertools

import numpy as np
import pytest
from compared import HOSTILE
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.path import Path
from scipy.stats import entropy
from strategies import unchecked

from mule.core.errors import RangeError, ShapeError
from mule.evaluation.drawing import write_figure
from mule.evaluation.pictures import (
    CYAN,
    RIGHT_COLOUR,
    WRONG_COLOUR,
    YELLOW,
    Calls,
    FrameDecisions,
    KeyFrame,
    dispute,
    most_disputed,
    picture_grid,
)


def decisions(video, *per_method):
    return FrameDecisions(video, np.array(per_method, dtype=bool).reshape(len(per_method), -1))


AGREED = ([1, 0], [1, 0], [1, 0], [1, 0])
ONE_OF_FOUR = ([1, 0], [1, 0], [1, 0], [0, 0])
HALF = ([1, 0], [1, 0], [0, 0], [0, 0])
ALL_HALF = ([1, 0], [1, 0], [0, 1], [0, 1])


@pytest.mark.parametrize(
    ("per_method", "bits"),
    [
        (((), ()), 0.0),
        (AGREED, 0.0),
        (ONE_OF_FOUR, (0.25 * 2 + 0.75 * np.log2(4 / 3)) / 2),
        (HALF, 0.5),
        (ALL_HALF, 1.0),
    ],
    ids=["no actors", "agreed", "one of four", "half", "all half"],
)
def test_dispute_is_entropy_over_methods_averaged_over_actors(per_method, bits):
    assert dispute(decisions("a", *per_method)) == pytest.approx(bits)


@given(st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_dispute_is_scipy_s_entropy(num_methods, num_actors, random):
    calls = np.array([[random.random() < 0.5 for _ in range(num_actors)] for _ in range(num_methods)])
    share = calls.mean(axis=0)
    expected = entropy(np.stack([share, 1 - share]), base=2).mean()
    assert dispute(FrameDecisions("a", calls)) == pytest.approx(expected, abs=1e-12)


def test_the_most_disputed_frames_are_chosen_by_hand():
    frames = [
        decisions("a", *HALF),
        decisions("a", *ALL_HALF),
        decisions("b", *AGREED),
        decisions("c", *HALF),
        decisions("d", *HALF),
        decisions("e", (), (), (), ()),
    ]
    assert most_disputed(frames, 10) == [1, 3, 4]
    assert most_disputed(frames, 2) == [1, 3]
    assert most_disputed(frames, 0) == []
    assert most_disputed([], 3) == []


def test_a_negative_number_of_frames_is_an_error():
    with pytest.raises(RangeError, match="at least 0; got -1"):
        most_disputed([], -1)


def calls(*, is_novel=(False, True), is_right=(True, False), labels=(("walk",), ())):
    boxes = np.array([[0.1, 0.3, 0.4, 0.9], [0.5, 0.2, 0.8, 0.8]])[: len(is_novel)]
    return Calls(
        boxes,
        tuple(labels)[: len(is_novel)],
        np.array(is_novel, dtype=bool),
        None if is_right is None else np.array(is_right, dtype=bool),
    )


def key_frame(methods, *, shape=(60, 80), made=calls):
    return KeyFrame("video", 1.5, np.zeros((*shape, 3), dtype=np.uint8), {name: made() for name in methods})


def boxes_of(axes):
    return [
        (to_hex(patch.get_edgecolor()), patch.get_bbox().extents.tolist())
        for patch in axes.patches
        if not patch.get_fill() and to_hex(patch.get_edgecolor()) != "#000000"
    ]


def test_each_frame_is_drawn_under_each_method():
    figure = picture_grid([key_frame(["a", "b", "c"]), key_frame(["a", "b", "c"])], ["a", "b", "c"])
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c", "", "", ""]
    tops = [axes.get_position().y1 for axes in figure.axes]
    assert tops[:3] == [tops[0]] * 3
    assert tops[3] < tops[0]


def test_known_calls_are_cyan_and_novel_ones_yellow_where_the_boxes_are():
    (axes,) = picture_grid([key_frame(["a"])], ["a"]).axes
    found = dict(boxes_of(axes))
    assert found[CYAN] == pytest.approx([0.1, 0.3 * 0.75, 0.4, 0.9 * 0.75])
    assert found[YELLOW] == pytest.approx([0.5, 0.2 * 0.75, 0.8, 0.8 * 0.75])


def test_right_calls_bear_a_tick_and_wrong_ones_a_cross():
    (axes,) = picture_grid([key_frame(["a"])], ["a"]).axes
    grounds = [line.get_markerfacecolor() for line in axes.get_lines() if line.get_marker() == "o"]
    markers = [line.get_marker() for line in axes.get_lines()]
    assert sorted(grounds) == sorted([RIGHT_COLOUR, WRONG_COLOUR])
    assert sorted(len(np.asarray(sign.vertices)) for sign in markers if isinstance(sign, Path)) == [3, 4]


def test_the_truth_bears_neither():
    (axes,) = picture_grid([key_frame(["truth"], made=lambda: calls(is_right=None))], ["truth"]).axes
    assert axes.get_lines() == []


def test_an_actor_without_a_label_is_called_known_or_novel():
    (axes,) = picture_grid([key_frame(["a"])], ["a"]).axes
    assert sorted(text.get_text() for text in axes.texts) == ["novel", "walk"]


def test_many_labels_are_counted():
    made = lambda: calls(is_novel=(False,), is_right=None, labels=(("a", "b", "c", "d", "e"),))  # noqa: E731
    (axes,) = picture_grid([key_frame(["m"], made=made)], ["m"]).axes
    assert [text.get_text() for text in axes.texts] == ["a\nb\nc\n+ 2 more"]


def test_a_frame_without_actors_is_drawn_bare():
    nobody = Calls(np.zeros((0, 4)), (), np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))
    (axes,) = picture_grid([key_frame(["a"], made=lambda: nobody)], ["a"]).axes
    assert len(axes.patches) == len(axes.texts) == 0


@pytest.mark.parametrize("shape", [(40, 80), (60, 80), (160, 80), (10, 80)])
def test_chips_stay_in_the_frame_around_their_text_and_apart(shape):
    boxes = np.array([[0.7, 0.0, 1.0, 0.5], [0.72, 0.02, 1.0, 0.6], [0.0, 0.5, 0.2, 1.0]])
    labels = (("talk to (a person)", "sit"), ("carry / hold",), ("walk",))
    made = lambda: Calls(boxes, labels, np.array([True, False, True]), np.array([True, True, False]))  # noqa: E731
    (axes,) = (figure := picture_grid([key_frame(["a"], shape=shape, made=made)], ["a"])).axes
    figure.draw_without_rendering()
    chips = [patch.get_window_extent() for patch in axes.patches if patch.get_fill()]
    texts = [text.get_window_extent() for text in axes.texts]
    assert len(chips) == 3
    for chip, text in zip(chips, texts, strict=True):
        assert chip.x0 <= text.x0
        assert text.x1 <= chip.x1
    if shape != (10, 80):  # too flat to hold three chips
        frame = axes.get_window_extent()
        assert all(frame.x0 - 1 <= chip.x0 and chip.x1 <= frame.x1 + 1 for chip in chips)
        assert all(frame.y0 - 1 <= chip.y0 and chip.y1 <= frame.y1 + 1 for chip in chips)
        for one, other in itertools.combinations(chips, 2):
            assert (
                one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 + 1 or other.y1 <= one.y0 + 1
            )


def test_more_than_six_methods_wrap_and_each_is_named():
    names = [f"method {at}" for at in range(20)]
    figure = picture_grid([key_frame(names)], names)
    assert [axes.get_title() for axes in figure.axes] == names
    assert len({round(axes.get_position().x0, 6) for axes in figure.axes}) == 5


def test_hostile_names_are_drawn(tmp_path):
    made = lambda: calls(labels=(tuple(HOSTILE[:3]), tuple(HOSTILE[4:7])))  # noqa: E731
    figure = picture_grid([key_frame(HOSTILE, made=made)], HOSTILE)
    write_figure(figure, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").stat().st_size > 1000


def test_a_method_without_calls_is_an_error_that_names_it():
    with pytest.raises(RangeError, match=r"video at 1\.5 s has none of 'b'"):
        picture_grid([key_frame(["a"])], ["a", "b"])


@pytest.mark.parametrize(("frames", "methods"), [([], ["a"]), ([key_frame(["a"])], [])])
def test_a_picture_of_nothing_is_an_error(frames, methods):
    with pytest.raises(RangeError, match=f"got {len(frames)} frames and {len(methods)} methods"):
        picture_grid(frames, methods)


def test_calls_must_fit_together_and_lie_in_the_frame():
    with pytest.raises(ShapeError, match=r"got \[1, 0, 1\]"):
        unchecked(Calls)(np.zeros((1, 4)), (), np.zeros(1, dtype=bool))
    with pytest.raises(RangeError, match="from 0 to 1"):
        Calls(np.array([[0.0, 0.0, 200.0, 100.0]]), (("walk",),), np.zeros(1, dtype=bool))
