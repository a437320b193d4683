import json
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from mule.cli import data_split
from mule.cli.main import app as mule_app
from mule.data.convert.ava_files import AVA_60
from mule.data.split.report import ENOUGH_TO_CALIBRATE, LEAST_TO_CALIBRATE
from mule.data.split.splits import read_split

HEADER = "video,time_s,x1,y1,x2,y2,actions,actor_id\n"
ACTIONS = ("catch", "golf", "pour", "run", "sit", "wave")

app = typer.Typer(cls=mule_app.info.cls)
app.registered_commands += data_split.app.registered_commands


def rows(actions=ACTIONS, clips=6, prefix=""):
    return [f"{prefix}{name}-{i}.mp4,0,,,,,{name},p" for name in actions for i in range(clips)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(HEADER + "\n".join(rows()) + "\n")
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "120"})


def split(table, *options, out="split.toml"):
    path = table.parent / out
    return run("split", table, "--out", path, *options), path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policy", "paper"), "the paper's partitions need the classes of AVA"),
        (("--policy", "grouped"), "each name must contain ':'; 'catch', 'golf'"),
        (("--policy", "list"), "a file of novel actions goes with the policy list"),
        (("--policy", "random", "--novel", "novel.txt"), "a file of novel actions goes with the policy list"),
        (("--policy", "random", "--charades-classes", "c.txt"), "goes with the policy paper"),
        (
            ("--policy", "random", "--tags", ":"),
            "names must contain the tag mark ':' and some must not; 0 of 6 do",
        ),
        (
            ("--policy", "grouped", "--tags", ":"),
            "goes with the policies random and closed; grouped has sets of its own",
        ),
        (("--policy", "random", "--tags", "w", "--z1-at-test", "known"), "tags are all of Z1"),
        (("--policy", "random", "--groups", "videos.csv"), "must be a file and a column"),
        (("--policy", "random", "--groups", "no.csv:film"), "no.csv: must be a readable file"),
        (("--policy", "random", "--val-share", "0.6", "--test-share", "0.6"), "leave actors for training"),
        (("--policy", "random", "--mixed-share", "0"), "mixed_share must be above 0"),
        (("--policy", "random", "--test-share", "0"), "leaves no known test actors and no novel test actors"),
        (("--policy", "random", "--test", "t.csv", "--sides", "s.csv:side"), "not both"),
        (("--policy", "random", "--pretraining", "none.txt"), "none.txt: must be a readable file"),
    ],
)
def test_what_cannot_be_split_is_refused_and_nothing_is_written(table, options, words):
    outcome, path = split(table, *options)
    assert outcome.exit_code == 2
    assert words in " ".join(re.sub(r"[│╭╮╰╯─]", " ", outcome.stderr).split())
    assert not path.exists()
    assert not path.with_suffix(".report.json").exists()


def test_a_split_with_no_place_is_refused(table):
    outcome = run("split", table, "--policy", "random", "--out", table.parent / "no" / "split.toml")
    assert outcome.exit_code == 2
    assert "folder that exists" in outcome.stderr


def test_a_random_split_is_written_with_its_report_and_repeats_itself(table):
    outcome, path = split(table, "--policy", "random", "--seed", "3", "--name", "mine")
    assert outcome.exit_code == 0, outcome.stderr
    made = read_split(path)
    assert (made.name, made.policy, made.seed) == ("mine", "random", 3)
    assert [len(part) for part in (made.classes.z1, made.classes.z2, made.classes.z3)] == [2, 2, 2]
    report = json.loads(path.with_suffix(".report.json").read_text())
    assert report["digest"] == made.digest
    assert report["num_actors"] == 36
    again, other = split(table, "--policy", "random", "--seed", "3", "--name", "mine", out="again.toml")
    assert again.exit_code == 0
    assert other.read_bytes() == path.read_bytes()


def test_the_report_tells_people_what_became_of_every_actor_and_what_leaks(table):
    labels = table.parent / "labels.txt"
    labels.write_text("catching fish\ngolf driving\n")
    outcome, _ = split(table, "--policy", "random", "--pretraining", labels)
    for words in (
        "4 actions are taught (2 in Z1, 2 in Z2). 2 are novel (1 to choose on, 1 to report on).",
        "What becomes of 36 actors",
        "does a novel action: left out",
        "novel, to report on",
        "Videos on two sides: 0.",
        "Groups on two sides: not checked",
        "100 % catching fish",
        "synonyms",
        "split.report.json",
    ):
        assert words in outcome.stdout


def test_the_report_says_what_validation_got_and_what_training_keeps(tmp_path):
    path = tmp_path / "table.csv"
    both = [f"both-{i}.mp4,0,,,,,run;wave,p" for i in range(12)]
    path.write_text(HEADER + "\n".join([*rows(), *both]) + "\n")
    (tmp_path / "novel.txt").write_text("wave\n")
    outcome, made = split(path, "--policy", "list", "--novel", tmp_path / "novel.txt", "--val-share", "0.2")
    assert outcome.exit_code == 0, outcome.stderr
    told = " ".join(outcome.stdout.split())
    sides = json.loads(made.with_suffix(".report.json").read_text())["sides"]
    share = 100 * sides["val"]["actors"] / 48
    assert (
        f"Validation has {sides['val']['videos']} videos with {sides['val']['actors']} of 48 actors ({share:.1f} %; "
        "20 % were wanted)." in told
    )
    total, kept = sides["train"]["actors"], sides["train"]["used"]["known"]
    assert (
        f"Training keeps {kept} of {total} actors ({kept / total:.1%}) with --train-novel drop; with unlabel"
        in told
    )
    assert kept < total


def test_groups_stay_together_and_the_split_does_not_depend_on_where_their_file_lies(table):
    videos = [row.split(",")[0] for row in rows()]
    pairs = "video,film\n" + "\n".join(f"{video},{video[-5]}" for video in videos) + "\n"
    (table.parent / "here").mkdir()
    for folder in (table.parent, table.parent / "here"):
        (folder / "videos.csv").write_text(pairs)
    outcome, path = split(table, "--policy", "random", "--groups", f"{table.parent}/videos.csv:film")
    assert outcome.exit_code == 0, outcome.stderr
    made = read_split(path)
    side_of = made.videos.side_of()
    assert all(len({side_of[v] for v in videos if made.groups[v] == film}) == 1 for film in "012345")
    assert "Groups on two sides: 0." in outcome.stdout
    assert made.rules.groups_from == "videos.csv:film"
    _, other = split(
        table, "--policy", "random", "--groups", f"{table.parent}/here/videos.csv:film", out="b.toml"
    )
    assert read_split(other).digest == made.digest


def test_given_sides_are_used_and_their_shared_groups_are_reported(table):
    videos = [row.split(",")[0] for row in rows()]
    text = "".join(
        f"{v},{'test' if v[-5] in '45' else 'train'},{v[-5] if v[-5] != '5' else '0'}\n" for v in videos
    )
    (table.parent / "videos.csv").write_text(f"video,side,film\n{text}")
    place = f"{table.parent}/videos.csv"
    outcome, path = split(
        table, "--policy", "random", "--sides", f"{place}:side", "--groups", f"{place}:film"
    )
    assert outcome.exit_code == 0, outcome.stderr
    assert "Groups on two sides: 1: catch-0.mp4 and wave-5.mp4 (train and test)." in outcome.stdout
    assert "There are no validation actors, which training needs" in outcome.stdout.replace("\n", " ")
    assert (len(read_split(path).videos.train), len(read_split(path).videos.test)) == (24, 12)


def test_sides_of_another_split_are_used_whatever_is_novel_there(table):
    _, closed = split(table, "--policy", "closed", "--seed", "3", out="closed.toml")
    sides = read_split(closed).videos
    for seed in ("1", "2"):
        outcome, path = split(
            table, "--policy", "random", "--seed", seed, "--sides", closed, out=f"{seed}.toml"
        )
        assert outcome.exit_code == 0, outcome.stderr
        assert read_split(path).videos == sides
        assert read_split(path).classes.z3
        assert read_split(path).rules.sides == "given"


def test_a_split_to_take_sides_from_must_be_one(table):
    (table.parent / "no.toml").write_text("format = 'other'\n")
    outcome, path = split(table, "--policy", "random", "--sides", table.parent / "no.toml")
    assert outcome.exit_code == 2
    assert "no.toml: format must be" in outcome.stderr
    assert not path.exists()


def test_a_closed_split_of_two_tables_teaches_everything_and_tests_on_the_second(table):
    second = table.parent / "test.csv"
    second.write_text(HEADER + "\n".join([*rows(clips=2, prefix="t-"), "t-none.mp4,0,,,,,,p"]) + "\n")
    outcome, path = split(table, "--policy", "closed", "--test", second)
    assert outcome.exit_code == 0, outcome.stderr
    made = read_split(path)
    assert (made.classes.z2, made.classes.z3) == (ACTIONS, ())
    assert (len(made.videos.train), len(made.videos.val), len(made.videos.test)) == (36, 0, 13)
    report = json.loads(path.with_suffix(".report.json").read_text())
    assert report["sides"]["test"]["used"] == {"known": 12, "novel": 0, "without a taught action": 1}


def test_a_video_in_both_tables_is_refused(table):
    outcome, _ = split(table, "--policy", "closed", "--test", table)
    assert outcome.exit_code == 2
    assert "a video must be on one side, once; 'catch-0.mp4'" in outcome.stderr


def test_avas_published_partition_decides_without_z1(tmp_path):
    names = list(AVA_60.values())
    lines = [
        f'v{i},{i},0,0,1,1,"{names[9]};{names[at]}",p'
        for i in range(40)
        for at in (35 + i % 5, 45 + i % 5)[i % 2 :][:1]
    ]
    (tmp_path / "ava.csv").write_text(HEADER + "\n".join(lines) + "\n")
    outcome, path = split(tmp_path / "ava.csv", "--policy", "paper")
    assert outcome.exit_code == 0, outcome.stderr
    made = read_split(path)
    assert made.rules.z1_at_test == "ignore"
    assert made.classes.known_train == tuple(names[:40])
    used = json.loads(path.with_suffix(".report.json").read_text())["sides"]["test"]["used"]
    assert min(used["known"], used["novel"]) > 0


def test_a_listed_split_and_a_grouped_one_follow_their_files(table):
    (table.parent / "novel.txt").write_text("sit\nrun\n")
    _, path = split(table, "--policy", "list", "--novel", table.parent / "novel.txt")
    assert set(read_split(path).classes.z3) == {"sit", "run"}
    groups = "".join(f"{name},{'xy'[at % 2]}\n" for at, name in enumerate(ACTIONS))
    (table.parent / "groups.csv").write_text(f"action,group\n{groups}")
    outcome, path = split(
        table, "--policy", "grouped", "--class-groups", table.parent / "groups.csv", out="g.toml"
    )
    assert outcome.exit_code == 0, outcome.stderr
    for part in (read_split(path).classes.z1, read_split(path).classes.z2, read_split(path).classes.z3):
        assert {ACTIONS.index(name) % 2 for name in part} == {0, 1}


def test_an_unknown_novel_action_gets_a_suggestion(table):
    (table.parent / "novel.txt").write_text("runn\n")
    outcome, path = split(table, "--policy", "list", "--novel", table.parent / "novel.txt")
    assert outcome.exit_code == 2
    assert "'runn' are not. Did you mean 'run'?" in outcome.stderr
    assert not path.exists()


@pytest.mark.parametrize(("clips", "is_enough"), [(6, False), (80, True)])
def test_a_validation_side_too_small_to_calibrate_on_is_noted(tmp_path, clips, is_enough):
    path = tmp_path / "table.csv"
    path.write_text(HEADER + "\n".join(rows(clips=clips)) + "\n")
    outcome, made = split(path, "--policy", "random")
    assert outcome.exit_code == 0, outcome.stderr
    report = json.loads(made.with_suffix(".report.json").read_text())
    num_val = sum(report["sides"]["val"]["used"].values())
    note = f"Validation has {num_val} known actors; without a frozen backbone, `mule bundle` needs at least 20 to calibrate"
    assert any(note in each for each in report["notes"]) != is_enough
    assert (num_val >= ENOUGH_TO_CALIBRATE) == is_enough


def test_the_least_to_calibrate_is_what_calibration_needs():
    from mule.novelty.calibration import FEWEST_HELD_OUT

    assert LEAST_TO_CALIBRATE == FEWEST_HELD_OUT


def test_a_pipe_that_closes_early_does_not_lose_the_split(table):
    path = table.parent / "split.toml"
    command = [sys.executable, "-c", "from mule.cli.main import run; run()", "data", "split", str(table)]
    command += ["--policy", "random", "--out", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.close()
    process.wait()
    assert read_split(path).policy == "random"
    assert path.with_suffix(".report.json").exists()


def test_identical_videos_on_two_sides_are_found(table):
    folder = table.parent / "videos"
    folder.mkdir()
    for at, row in enumerate(rows()):
        (folder / row.split(",")[0]).write_bytes(b"same" if at < 6 else bytes([at]))
    outcome, _ = split(table, "--policy", "random", "--videos", folder)
    assert re.search(
        r"Identical videos on two sides: 1 among 36 files: catch-\d.mp4 and catch-\d.mp4 \(train and ",
        outcome.stdout,
    )


def test_a_split_is_reported_for_any_table_and_an_edit_is_accepted_only_on_request(table):
    _, path = split(table, "--policy", "random")
    outcome = run("split-report", path, table, "--json", table.parent / "again.json")
    assert outcome.exit_code == 0, outcome.stderr
    assert (table.parent / "again.json").read_text() == path.with_suffix(".report.json").read_text()
    path.write_text(path.read_text().replace('mixed = "drop"', 'mixed = "keep"'))
    refused = run("split-report", path, table)
    assert refused.exit_code == 2
    assert "--accept-edits" in refused.stderr
    assert run("split-report", path, table, "--accept-edits").exit_code == 0
    assert run("split-report", path, table).exit_code == 0
    other = table.parent / "other.csv"
    other.write_text(HEADER + "\n".join(rows(clips=5)) + "\nnew.mp4,0,,,,,sit,p\n")
    outcome = run("split-report", path, other)
    assert "The split was made from a different table." in outcome.stdout
    assert "1 actors are in 1 videos on no side and are not used: 'new.mp4'." in outcome.stdout
    assert "6 videos of the split are not in the table." in outcome.stdout


def test_tags_are_taught_and_the_same_actions_are_novel_as_without_them(tmp_path, table):
    tagged = tmp_path / "tagged.csv"
    views = [f"{row.removesuffix(',p')};view:{('back', 'left')[i % 2]},p" for i, row in enumerate(rows())]
    tagged.write_text(HEADER + "\n".join(views) + "\n")
    (plain, first), (beside, second) = (
        split(table, "--policy", "random"),
        split(tagged, "--policy", "random", "--tags", ":", out="tagged.toml"),
    )
    assert (plain.exit_code, beside.exit_code) == (0, 0), beside.output
    without, made = read_split(first), read_split(second)
    assert made.classes.z3 == without.classes.z3
    assert made.classes.z1 == ("view:back", "view:left")
    assert set(made.classes.z2) == set(without.classes.known_train)
    assert (made.tags, without.tags) == (made.classes.z1, ())
    assert (
        "Z1 holds the tags: they count neither as known nor as novel, and novelty does not depend on them"
        in " ".join(beside.stdout.split())
    )
