"""A review is a log that only grows; replayed, it says the same, and the model that follows has learnt it."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tiny_bundles import MadeUpBoxes, leaves, stays

import mule
from mule.core.errors import AnnotationError, FileError, RangeError
from mule.core.manifest import MANIFEST
from mule.novelty.known import KnownActors
from mule.watching.deciding import DecideSettings, decide_again
from mule.watching.discovering.acts import novel_acts
from mule.watching.engine.bundle import read_bundle
from mule.watching.outputs.moments_file import MOMENTS, MomentsFile
from mule.watching.reviewing.applying import apply_review
from mule.watching.reviewing.log import (
    Cleared,
    Entry,
    Marked,
    Named,
    Review,
    ReviewLog,
    Undone,
    WatchedAct,
    replayed,
)

WEIGHTS = "0123456789ab"
NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)
MEMBERS = [WatchedAct(watched="hall", track_id=at, begin_s=1.5 * at, end_s=1.5 * at + 1) for at in range(5)]

some = st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=3, unique=True).map(tuple)
said = st.one_of(
    st.builds(Named, members=some, action=st.sampled_from(["juggle", "walk"])),
    st.builds(Marked, members=some, mark=st.sampled_from(["idle", "nobody", "ignore"])),
    st.builds(Cleared, members=some),
)


def entries_of(acts):
    return [Entry(number=at, who="Ann", at=NOW, act=act) for at, act in enumerate(acts, start=1)]


def slowly(acts):
    """What acts without any undoing add up to, act by act and member by member."""
    review = Review()
    for act in acts:
        for member in act.members:
            review.actions.pop(member, None)
            review.marks.pop(member, None)
            if act.kind == "named":
                review.actions[member] = act.action
            if act.kind == "marked":
                review.marks[member] = act.mark
    return review


@given(acts=st.lists(said, min_size=1, max_size=8), data=st.data())
def test_an_undone_entry_never_was_and_counts_again_when_that_is_undone(acts, data):
    at = data.draw(st.integers(0, len(acts) - 1))
    undone = [*acts, Undone(number=at + 1)]
    assert replayed(entries_of(undone)) == slowly(acts[:at] + acts[at + 1 :])
    assert replayed(entries_of([*undone, Undone(number=len(undone))])) == slowly(acts)


def test_entries_are_read_as_they_were_added_and_others_are_told(tmp_path):
    first, second = (ReviewLog(tmp_path / "review.jsonl", fingerprint=WEIGHTS) for _ in range(2))
    added = [
        first.add(Named(members=tuple(MEMBERS[:2]), action="juggle"), who="Ann", at=NOW),
        second.add(Marked(members=(MEMBERS[2],), mark="idle"), who="Bo", at=NOW),
        first.add(Undone(number=1), who="Ann", at=NOW),
    ]
    assert [each.number for each in added] == [1, 2, 3]
    assert first.entries() == second.entries() == added
    assert first.entries_after(1) == added[1:]
    assert first.review() == Review(actions={}, marks={MEMBERS[2]: "idle"})


def test_a_killed_writer_loses_at_most_the_entry_it_was_writing(tmp_path):
    path = tmp_path / "review.jsonl"
    log = ReviewLog(path, fingerprint=WEIGHTS)
    log.add(Marked(members=(MEMBERS[0],), mark="ignore"), who="Ann", at=NOW)
    whole = path.read_bytes()
    second = log.add(Marked(members=(MEMBERS[1],), mark="ignore"), who="Ann", at=NOW)
    both = path.read_bytes()
    for cut in range(len(whole), len(both), 7):
        path.write_bytes(both[:cut])
        assert len(log.entries()) == 1
        assert log.add(second.act, who="Ann", at=NOW) == second
        assert path.read_bytes() == both
    path.write_bytes(both[:9])
    assert log.entries() == []


def test_damaged_and_foreign_logs_are_refused(tmp_path):
    path = tmp_path / "review.jsonl"
    log = ReviewLog(path, fingerprint=WEIGHTS)
    for member in MEMBERS[:3]:
        log.add(Marked(members=(member,), mark="ignore"), who="Ann", at=NOW)
    lines = path.read_bytes().splitlines(keepends=True)
    with pytest.raises(AnnotationError, match="belongs to 0123456789ab"):
        ReviewLog(path, fingerprint="another")
    path.write_bytes(b"".join([*lines[:2], lines[3]]))
    with pytest.raises(AnnotationError, match="line 3: must be entry 2"):
        log.entries()
    path.write_bytes(b"".join([lines[0], b"{}\n"]))
    with pytest.raises(AnnotationError, match="line 2"):
        log.entries()
    path.write_bytes(b"".join(lines))
    with pytest.raises(RangeError, match="entries 1 to 3"):
        log.add(Undone(number=9), who="Ann")


@pytest.mark.parametrize("action", ["", "  ", "a\nb", "\x1b[2J", "\ud800"])
def test_names_that_no_file_can_carry_are_refused(action):
    with pytest.raises((ValidationError, UnicodeError)):
        Named(members=(MEMBERS[0],), action=action)


@pytest.fixture(scope="module")
def stage():
    return read_bundle(Path("stage"))


@pytest.fixture(scope="module")
def watched(tmp_path_factory, stage):
    draw = np.random.default_rng(0)
    picture = draw.integers(0, 255, (96, 128, 3), dtype=np.uint8)
    frames = (np.roll(picture, 3 * number, axis=1) for number in range(16 * 6))
    folder = tmp_path_factory.mktemp("watched") / "hall"
    people = MadeUpBoxes(stays((0.1, 0.2, 0.4, 0.9)), leaves((0.5, 0.2, 0.8, 0.9), 3.5))
    assert list(mule.watch(frames, rate=16, model=stage, detector=people, threshold="0.3", out=folder))
    return folder


def novel_members(watched, stage):
    return [
        WatchedAct(watched=str(watched), track_id=act.track_id, begin_s=act.times_s[0], end_s=act.times_s[-1])
        for act in novel_acts([watched], stage).acts
    ]


def actors_in(folder):
    return [actor for moment in MomentsFile(folder / MOMENTS) for actor in moment.actors]


def test_what_was_named_is_no_longer_novel_and_the_model_before_stays(watched, stage, tmp_path):
    members = novel_members(watched, stage)
    review = Review(actions={each: "juggle" for each in members})
    before = {path.name: path.read_bytes() for path in stage.folder.iterdir() if path.is_file()}
    made = apply_review(review, stage, tmp_path / "learnt")
    assert {path.name: path.read_bytes() for path in stage.folder.iterdir() if path.is_file()} == before
    assert made.bundle.classes == (*stage.classes, "juggle")
    assert made.examples["juggle"] >= len(members)
    again = tmp_path / "again"
    again.mkdir()
    for path in watched.glob("*.*"):
        (again / path.name).write_bytes(path.read_bytes())
    usual = DecideSettings(threshold="known-95", min_probability=0.0)
    decide_again(again, stage, usual)
    assert all(actor.is_novel for actor in actors_in(again))
    decide_again(again, read_bundle(tmp_path / "learnt"), usual)
    assert not any(actor.is_novel for actor in actors_in(again))
    assert all("juggle" in {each.action for each in actor.now.actions} for actor in actors_in(again))
    # replayed, it is the same model to the byte
    apply_review(review, stage, tmp_path / "once more")
    assert (tmp_path / "learnt" / MANIFEST).read_bytes() == (tmp_path / "once more" / MANIFEST).read_bytes()


def test_examples_of_a_known_action_are_remembered(watched, stage, tmp_path):
    action = stage.classes[0]
    made = apply_review(
        Review(actions={each: action for each in novel_members(watched, stage)}), stage, tmp_path / "learnt"
    )
    assert made.bundle.classes == stage.classes
    before, after = stage.judge.remembered, made.bundle.judge.remembered
    assert before is not None
    assert after is not None
    column = before.memory.class_names.index(action)
    counts = [int((each.memory.labels[:, column] > 0).sum()) for each in (before, after)]
    assert counts[1] - counts[0] == made.examples[action]


def test_a_review_that_cannot_be_applied_leaves_nothing(watched, stage, tmp_path):
    with pytest.raises(RangeError, match="this one does neither"):
        apply_review(Review(), stage, tmp_path / "learnt")
    stranger = WatchedAct(watched=str(watched), track_id=99, begin_s=0.0, end_s=9.0)
    with pytest.raises(AnnotationError, match="person 99"):
        apply_review(Review(actions={stranger: "juggle"}), stage, tmp_path / "learnt")
    (tmp_path / "taken").mkdir()
    with pytest.raises(FileError, match="must not exist yet"):
        apply_review(Review(actions={novel_members(watched, stage)[0]: "juggle"}), stage, tmp_path / "taken")
    assert not (tmp_path / "learnt").exists()


def test_known_people_get_more_examples_of_what_they_do():
    draw = torch.Generator().manual_seed(0)
    does = torch.arange(60) % 3
    known = KnownActors(
        inputs={"roi": torch.eye(3, 9)[does] + 0.1 * torch.randn(60, 9, generator=draw)},
        labels=does[:, None] == torch.arange(3),
        actions=("run", "sit", "talk"),
        groups=torch.arange(60) // 2,
        group_names=tuple(f"film {at}" for at in range(30)),
        tracks=torch.full((60,), -1),
        is_example=torch.zeros(60, dtype=torch.bool),
    )
    more = known.with_examples(["sit"] * 4, {"roi": torch.eye(9)[[5, 5, 5, 5]]}, ["new"] * 4)
    assert more.actions == known.actions
    assert more.num_calibrating == known.num_calibrating
    assert more.labels[60:].tolist() == [[False, True, False]] * 4
    with pytest.raises(mule.MuleError if hasattr(mule, "MuleError") else ValueError, match="fly"):
        known.with_examples(["fly"], {"roi": torch.eye(9)[:1]}, ["new"])
