import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from watched import KNOWN_95, header, judgement, moment, opinion, seen, three_moments

from mule.core.errors import AnnotationError, MuleError, RangeError
from mule.core.printable import printable
from mule.watching.moments import DecisionThreshold, NoveltyScores, decide, novelty_of
from mule.watching.outputs.moments_file import MomentsFile, create_moments, resume_moments

NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), min_size=1
).filter(str.strip)


def written(path, moments, top=None):
    with create_moments(path, top or header()) as writer:
        for each in moments:
            writer.write(each)
    return path


def test_a_file_without_moments_has_a_header_and_nothing_else(tmp_path):
    file = MomentsFile(written(tmp_path / "m.jsonl", []))
    assert file.header == header()
    assert list(file) == []
    assert file.cut_line is None


def test_what_is_written_is_read_back_exactly_and_as_often_as_wanted(tmp_path):
    file = MomentsFile(written(tmp_path / "m.jsonl", three_moments()))
    assert list(file) == three_moments()
    assert list(file) == three_moments()


@given(action=NAMES, video=NAMES, numbers=st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_every_name_and_number_survives_the_file(tmp_path_factory, action, video, numbers):
    path = tmp_path_factory.mktemp("names") / "m.jsonl"
    scores = NoveltyScores(pe=numbers[0], ne=numbers[1], pne=numbers[2], belief=numbers[3], p_value=0.5)
    judged = judgement([opinion(action, 3.7, numbers[0])]).model_copy(update={"novelty": scores})
    top = header([action], video)
    only = moment(1 / 3, seen(so_far=judged, now=judged), video=video)
    assert list(MomentsFile(written(path, [only], top))) == [only]


def test_every_moment_is_on_the_disk_when_write_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(number))
    path = tmp_path / "m.jsonl"
    with create_moments(path, header()) as writer:
        for count, each in enumerate(three_moments(), start=1):
            writer.write(each)
            assert list(MomentsFile(path)) == three_moments()[:count]
            assert len(synced) == count + 1


def test_a_file_cut_anywhere_loses_at_most_the_line_under_way_and_resumes_to_the_same_bytes(tmp_path):
    whole = written(tmp_path / "whole.jsonl", three_moments()).read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    path = tmp_path / "cut.jsonl"
    for cut in sorted({0, 1, *range(0, len(whole), 97), *ends, *(end - 1 for end in ends)}):
        path.write_bytes(whole[:cut])
        num_whole = sum(end <= cut for end in ends)
        if num_whole:
            file = MomentsFile(path)
            assert list(file) == three_moments()[: num_whole - 1]
            assert file.cut_line == (None if cut in ends else num_whole + 1)
        with resume_moments(path, header()) as writer:
            assert writer.latest_s == (None if num_whole < 2 else float(num_whole - 2))
            for each in three_moments()[max(num_whole - 1, 0) :]:
                writer.write(each)
        assert path.read_bytes() == whole


def test_another_version_is_refused_by_its_number(tmp_path):
    path = written(tmp_path / "m.jsonl", [])
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"version": 2}) + "\n")
    with pytest.raises(AnnotationError, match=r"m.jsonl, line 1: must be version 1; got version '2'"):
        MomentsFile(path)


@pytest.mark.parametrize(
    "text", ["", "{}\n", "[]\n", "walk,sit\n", '{"format": "other"}\n', "\0\0\n", "[" * 9999 + "\n"]
)
def test_a_file_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "m.jsonl"
    path.write_text(text)
    with pytest.raises(AnnotationError, match="must be the header of a file of moments"):
        MomentsFile(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(AnnotationError, match="cannot be read: no such file"):
        MomentsFile(tmp_path / "none.jsonl")


def test_a_bad_line_in_the_middle_is_named_with_what_is_wrong(tmp_path):
    path = written(tmp_path / "m.jsonl", three_moments())
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1] + lines[2].replace('"belief":0.75', '"belief":1.75', 1) + lines[3])
    with pytest.raises(
        AnnotationError, match=r"m.jsonl, line 3: actors.0.now.actions.0.belief: .*less than or equal"
    ):
        list(MomentsFile(path))
    path.write_text("".join([lines[0], lines[2], lines[1]]))
    with pytest.raises(AnnotationError, match=r"line 3: key times must rise; 0 s follows 1 s"):
        list(MomentsFile(path))


def test_a_new_file_never_replaces_one(tmp_path):
    path = written(tmp_path / "m.jsonl", three_moments())
    with pytest.raises(MuleError, match="must not exist yet; it does"):
        create_moments(path, header())
    assert list(MomentsFile(path)) == three_moments()
    with pytest.raises(MuleError, match="cannot be written"):
        create_moments(tmp_path / "no" / "m.jsonl", header())


def test_only_the_same_watching_is_resumed(tmp_path):
    path = written(tmp_path / "m.jsonl", three_moments())
    before = path.read_bytes()
    with pytest.raises(AnnotationError, match="classes, every_s differ"):
        resume_moments(path, header(["walk"], every_s=2.0))
    assert path.read_bytes() == before


def test_a_moment_must_agree_with_the_header_and_come_later(tmp_path):
    unsaid = seen(2, actions=[opinion("fly", 1.0, 1.0)])
    wrong = seen(3, novelty=0.99).model_copy(update={"decision": "known"})
    with create_moments(tmp_path / "m.jsonl", header()) as writer:
        writer.write(moment(2.0))
        with pytest.raises(RangeError) as caught:
            writer.write(moment(2.0, unsaid, wrong, video="other"))
        for words in (
            "the video must be 'lobby'; got 'other'",
            "['fly'] are not",
            "actor 3: the decision must follow from the threshold 0.95; got 'known' with novelty 0.99",
            "key times must rise; 2 s follows 2 s",
        ):
            assert words in str(caught.value)


@pytest.mark.parametrize("score", ["pe", "ne", "pne", "belief", "p_value", "memory"])
@pytest.mark.parametrize("view", ["now", "so_far"])
def test_an_actor_is_novel_exactly_above_the_threshold(score, view):
    scores = NoveltyScores(pe=0.1, ne=0.2, pne=0.3, belief=0.4, p_value=0.5, others={"memory": 0.6})
    other = judgement(novelty=0.9)
    judged = judgement().model_copy(update={"novelty": scores})
    actor = seen(now=judged, so_far=other) if view == "now" else seen(now=other, so_far=judged)
    value = {"pe": 0.1, "ne": 0.2, "pne": 0.3, "belief": 0.4, "p_value": 0.5, "memory": 0.6}[score]
    for limit, decision in ((value, "known"), (value - 1e-9, "novel")):
        threshold = DecisionThreshold(name="t", score=score, value=limit, view=view, meaning="m")
        assert novelty_of(actor, threshold) == value
        assert decide(actor, threshold) == decision


@pytest.mark.parametrize(
    ("idle", "novelty", "actions", "answer"),
    [
        (0.9, 0.99, [opinion("walk", 9, 1)], "idle"),
        (0.5, 0.99, [opinion("walk", 9, 1)], "novel"),
        (None, 0.99, [], "novel"),
        (0.1, 0.5, [opinion("walk", 9, 1)], "known"),
        (None, 0.5, [], "unsure"),
    ],
)
def test_idle_comes_before_novel_and_who_is_neither_needs_an_action(idle, novelty, actions, answer):
    judged = judgement(actions, novelty).model_copy(update={"idle": idle})
    actor = seen(now=judged, so_far=judged)
    assert decide(actor, KNOWN_95.model_copy(update={"says_unsure": True})) == answer
    old = {"unsure": "known"}.get(answer, answer)  # earlier versions did not say that they are unsure
    assert decide(actor, KNOWN_95) == old


def test_a_score_that_decides_must_be_there():
    uncalibrated = judgement().novelty.model_copy(update={"p_value": None})
    actor = seen().model_copy(update={"so_far": judgement().model_copy(update={"novelty": uncalibrated})})
    with pytest.raises(ValueError, match="must have the score 'p_value'"):
        decide(actor, KNOWN_95)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: seen(box=(0.3, 0.2, 0.3, 0.8)), "x2 > x1"),
        (lambda: moment(0.0, seen(box=(0.5, 0.2, 1.2, 0.8))), "boxes must lie in the frame"),
        (lambda: moment(0.0, seen(size=(99, 200))), "the same in pixels and as fractions"),
        (lambda: moment(0.0, seen(1), seen(1)), "one place at a time"),
        (lambda: moment(-1.0), "greater than or equal to 0"),
        (lambda: moment(float("nan")), "finite"),
        (lambda: moment(0.0, video="a\nb"), "no control characters"),
        (lambda: header(["walk", "walk"]), "different names"),
        (lambda: header([]), "at least 1 item"),
        (lambda: header([" "]), "must have letters"),
        (lambda: header(every_s=0.0), "greater than 0"),
        (lambda: header(unknown=1), "Extra inputs"),
        (lambda: header().source.model_validate(header().source.model_dump() | {"frame_rate": "0/1"}), "frame rate"),
    ],
)  # fmt: skip
def test_bad_records_are_refused_at_birth(make, words):
    with pytest.raises(ValidationError, match=words):
        make()


@given(st.text())
def test_every_text_becomes_a_name_that_can_be_written(text):
    name = printable(text + "x")
    assert header(video=name).source.video == name
    assert name.encode()
