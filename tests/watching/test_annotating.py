from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched import header, moment, opinion, seen, three_moments

from mule.core.errors import FileError, RangeError, VideoError
from mule.video.encode import VideoWriter
from mule.video.reading import frames_at, video_facts
from mule.watching.outputs import annotating, lettering
from mule.watching.outputs.annotating import (
    KNOWN_RGB,
    NOVEL_RGB,
    Screen,
    ShownActor,
    annotated,
    draw_actors,
    shown_between,
    write_annotated,
)
from mule.watching.outputs.lettering import letters_without_font, line_rows, runs, text_alpha
from mule.watching.outputs.results import frames_at_rate

LEFT, RIGHT = (0.1, 0.2, 0.3, 0.8), (0.5, 0.4, 0.9, 0.9)


def grey(rows=120, cols=160, level=128):
    return np.full((rows, cols, 3), level, dtype=np.uint8)


def has_colour(image, colour):
    return bool((image == np.array(colour)).all(axis=-1).any())


# ---- between key times


def test_nobody_is_shown_without_moments():
    assert shown_between(None, None, 1.0, every_s=1.0) == []
    assert Screen([], every_s=1.0).at(5.0) == []


@given(st.floats(0, 1))
def test_a_box_goes_evenly_from_key_time_to_key_time(share):
    before, after = moment(2.0, seen(1, LEFT)), moment(3.0, seen(1, RIGHT, novelty=0.99))
    (shown,) = shown_between(before, after, 2.0 + share, every_s=1.0)
    np.testing.assert_allclose(shown.box_xyxy_unit, (1 - share) * np.array(LEFT) + share * np.array(RIGHT))
    assert not shown.actor.is_novel


@pytest.mark.parametrize(
    ("time_s", "is_there"), [(0.4, False), (0.5, True), (1.0, True), (1.5, True), (1.6, False)]
)
def test_an_actor_seen_once_is_shown_for_half_a_step_on_each_side(time_s, is_there):
    screen = Screen([moment(0.0), moment(1.0, seen(1)), moment(2.0)], every_s=1.0)
    assert len(screen.at(time_s)) == is_there


def test_far_key_times_are_not_bridged():
    screen = Screen([moment(0.0, seen(1, LEFT)), moment(9.0, seen(1, RIGHT))], every_s=1.0)
    boxes = [
        [each.box_xyxy_unit for each in screen.at(time_s)]
        for time_s in (0.0, 0.5, 4.0, 8.4, 8.5, 9.0, 9.5, 10.0)
    ]
    assert boxes == [[LEFT], [LEFT], [], [], [RIGHT], [RIGHT], [RIGHT], []]


def test_decisions_change_at_key_times_only():
    moments = [moment(float(t), seen(1, novelty=0.99 if t % 2 else 0.1)) for t in range(5)]
    screen = Screen(moments, every_s=1.0)
    times = [frame / 25 for frame in range(110)]
    calls = [screen.at(time_s)[0].actor.is_novel for time_s in times]
    assert [times[i] for i in range(1, 110) if calls[i] != calls[i - 1]] == [1.0, 2.0, 3.0, 4.0]


def test_moments_are_asked_for_one_ahead_and_no_further():
    asked = []

    def endless():
        for number in range(1000):
            asked.append(number)
            yield moment(float(number))

    screen = Screen(endless(), every_s=1.0)
    screen.at(3.5)
    assert asked == [0, 1, 2, 3, 4]
    with pytest.raises(RangeError, match="must not go back"):
        screen.at(3.4)


# ---- lettering


@settings(deadline=None)
@given(st.text())
def test_every_text_can_be_drawn_and_covers_between_nothing_and_all(text):
    alpha = text_alpha(text, 9.0)
    assert alpha.shape[0] == line_rows(9.0)
    assert alpha.min() >= 0
    assert alpha.max() <= 1


def test_every_printable_ascii_character_looks_different():
    letters = [chr(number) for number in range(33, 127)]
    assert letters_without_font(letters) == ""
    shapes = {text_alpha(letter, 14.0).tobytes() for letter in letters}
    assert len(shapes) == len(letters)


def test_capitals_are_as_high_as_asked_for_and_accents_fit_the_line():
    for capital_px in (7.0, 20.0, 41.0):
        rows = np.flatnonzero((text_alpha("H", capital_px) > 0.5).any(axis=1))
        assert rows[-1] - rows[0] + 1 == pytest.approx(capital_px, abs=1.5)
        tall = text_alpha("ÅÇŐgj", capital_px)
        assert tall[0].max() == tall[-1].max() == 0


def test_invisible_characters_are_left_out():
    np.testing.assert_array_equal(text_alpha("ab\u202ec\u200b", 9.0), text_alpha("abc", 9.0))


def test_each_character_is_drawn_in_a_font_that_has_it(monkeypatch, tmp_path):
    """Of two made-up fonts the first has Latin letters, the second Arabic ones; nothing has a character of Chinese."""
    own, latin, arabic = Path(), tmp_path / "latin.ttf", tmp_path / "arabic.ttf"
    monkeypatch.setattr(lettering, "_font_files", lambda: (latin, arabic))
    has = {latin: "abc #12%�", arabic: "مشي"}
    monkeypatch.setattr(lettering, "_has", lambda path, letter: letter in has[path])
    lettering.font_with.cache_clear()
    try:
        assert runs("ab 12%") == [(latin, "ab 12%")]
        assert runs("#1 مشي شيم 2%") == [
            (latin, "#1"),
            (own, " "),
            (arabic, "مشي شيم"),
            (own, " "),
            (latin, "2%"),
        ]
        assert runs("aمشيb") == [(latin, "a"), (arabic, "مشي"), (latin, "b")]
        assert runs("a走\u0301b") == [(latin, "a�b")]
        assert letters_without_font(["abc 走る", "走"]) == "走る"
    finally:
        lettering.font_with.cache_clear()


def test_a_class_that_no_font_can_write_is_reported_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(annotating, "letters_without_font", lambda names: "走" if "走る" in names else "")
    frames = [(number / 25, grey()) for number in range(3)]
    for classes, expected in ((["walk"], []), (["walk", "走る"], ["no installed font has 走"])):
        caplog.clear()
        write_annotated(tmp_path / "a.mp4", frames, [], header=header(classes), rate=Fraction(25))
        assert len(caplog.messages) == len(expected)
        assert all(each in text for each, text in zip(expected, caplog.messages, strict=True))


# ---- drawing


def test_a_frame_without_actors_is_left_as_it_is():
    image = grey()
    draw_actors(image, [], view="so_far")
    np.testing.assert_array_equal(image, grey())


@pytest.mark.parametrize(
    ("novelty", "mine", "other"), [(0.1, KNOWN_RGB, NOVEL_RGB), (0.99, NOVEL_RGB, KNOWN_RGB)]
)
def test_known_is_cyan_and_novel_is_yellow(novelty, mine, other):
    image = grey()
    draw_actors(image, [ShownActor(seen(novelty=novelty), LEFT)], view="so_far")
    assert has_colour(image, mine)
    assert not has_colour(image, other)


@pytest.mark.parametrize("level", [0, 60, 128, 200, 255])
def test_words_stand_out_from_their_plate_on_any_background(level):
    image = grey(200, 320, level)
    actor = seen(actions=[opinion("walk", 9.0, 1.0), opinion("sit", 5.0, 1.0)])
    draw_actors(image, [ShownActor(actor, (0.3, 0.4, 0.5, 0.9))], view="so_far")
    changed = (image != level).any(axis=-1)
    rows = np.flatnonzero(changed[:, 100])
    plate = image[rows[0] : 78, 100:140].astype(float)
    light = plate @ [0.2126, 0.7152, 0.0722]
    linear = np.where(light / 255 <= 0.04, light / 255 / 12.92, ((light / 255 + 0.055) / 1.055) ** 2.4)
    assert (np.percentile(linear, 99) + 0.05) / (np.percentile(linear, 20) + 0.05) > 4.5  # WCAG AA


@given(
    st.lists(
        st.tuples(st.floats(0, 0.9), st.floats(0, 0.9), st.floats(0.01, 0.5), st.floats(0.01, 0.5)),
        max_size=6,
    )
)
def test_boxes_anywhere_are_drawn_within_the_frame(boxes):
    image = grey(64, 48)
    actors = [
        ShownActor(
            seen(number, actions=[opinion("walk" * 30, 9.0, 1.0)]), (x, y, min(x + w, 1.0), min(y + h, 1.0))
        )
        for number, (x, y, w, h) in enumerate(boxes)
    ]
    draw_actors(image, actors, view="so_far")
    assert image.shape == (64, 48, 3)
    assert has_colour(image, KNOWN_RGB) == bool(boxes)


def test_frames_that_were_given_are_not_written_to():
    frame = grey()
    frame.setflags(write=False)
    actors = Screen(three_moments(), every_s=1.0).at(1.0)
    drawn = annotated(frame, actors, view="so_far")
    assert has_colour(drawn, NOVEL_RGB)


def test_frames_are_drawn_and_written_one_at_a_time(tmp_path, monkeypatch):
    given_out, given_at_write = [], []
    monkeypatch.setattr(VideoWriter, "write", lambda *_, **__: given_at_write.append(len(given_out)))

    def frames():
        for number in range(100):
            given_out.append(number)
            yield number / 25, grey()

    write_annotated(tmp_path / "a.mp4", frames(), three_moments(), header=header(), rate=Fraction(25))
    assert given_at_write == list(range(1, 101))


@pytest.mark.parametrize(("size", "codec"), [((120, 160), "vp9"), ((121, 161), "h264"), ((121, 161), "vp9")])
def test_the_video_has_a_frame_per_frame_at_their_rate_and_even_sides(tmp_path, size, codec):
    frames = [(number / 25, grey(*size)) for number in range(60)]
    path = tmp_path / "annotated.mp4"
    count = write_annotated(
        path, iter(frames), three_moments(), header=header(), rate=Fraction(25), codec=codec
    )
    assert count == 60
    assert video_facts(path).codec == codec
    facts = video_facts(path)
    assert (facts.rows, facts.cols) == (size[0] + size[0] % 2, size[1] + size[1] % 2)
    assert facts.frame_rate == 25
    shown = frames_at(path, [0.0, 1.0]).float()
    assert (shown[0] - 128).abs().max() < 12
    yellow = (shown[1].permute(1, 2, 0).numpy() - np.array(NOVEL_RGB, dtype=np.float32)).__abs__().max(-1)
    assert yellow.min() < 30


def test_no_video_is_written_without_frames_or_after_an_error(tmp_path):
    path = tmp_path / "annotated.mp4"
    with pytest.raises(VideoError, match="must have frames"):
        write_annotated(path, [], three_moments(), header=header(), rate=Fraction(25))

    def broken():
        yield 0.0, grey()
        raise VideoError("the camera has gone.")

    with pytest.raises(VideoError, match="the camera has gone"):
        write_annotated(path, broken(), three_moments(), header=header(), rate=Fraction(25))
    assert list(tmp_path.iterdir()) == []


def test_frames_of_a_source_come_at_the_rate_asked_for(tmp_path):
    levels = np.arange(0, 200, 20, dtype=np.uint8)
    with VideoWriter(tmp_path / "v.mp4", (32, 32), 10, lossless=True) as video:
        video.write(np.broadcast_to(levels[:, None, None, None], (10, 32, 32, 3)))
    found = [
        (time_s, int(image[0, 0, 0])) for time_s, image in frames_at_rate(tmp_path / "v.mp4", Fraction(20))
    ]
    assert found == [(number / 20, int(levels[number // 2])) for number in range(20)]


def test_a_video_that_cannot_be_written_is_a_file_error_that_names_it(tmp_path):
    path = tmp_path / "missing" / "annotated.mp4"
    with pytest.raises(FileError, match=r"annotated\.mp4: the video cannot be written: no such file"):
        write_annotated(path, [(0.0, grey())], [], header=header(), rate=Fraction(25))
