import json

import pytest
from typer.testing import CliRunner

from mule.cli.main import app

TRUTH = 'id,script,actions\nA,"sits, ""down""\nand rests",c000 0.0 3.5;c002 1 2\nB,,\nC,walks,c001 0 9\n'
SCORES = "A 0.9 0.1 0.8\nB 0.95 0.2 0.1\nC 0.3 0.7 0.2\n"


def evaluated(tmp_path, truth=TRUTH, scores=SCORES, *options):
    out = tmp_path / "out.json"
    for name, content in (("truth.csv", truth), ("scores.txt", scores)):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    arguments = ["--ground-truth", str(tmp_path / "truth.csv"), "--scores", str(tmp_path / "scores.txt")]
    outcome = CliRunner().invoke(app, ["evaluate", "charades", *arguments, "--json", str(out), *options])
    return outcome, out


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ("", "scores.txt, line 1: must hold the scores of at least one video; the file is empty"),
        ("\n \n", "the file is empty"),
        (
            "A 1 2 3\nB 1 2\n",
            "scores.txt, line 2: a line must hold a video and the 3 scores of the first; got 2",
        ),
        ("A,1,2,3\n", "scores.txt, line 1: a line must hold a video and one score per class; got 0 scores"),
        ("A 1 2 3\nB 1 x 3\n", "scores.txt, line 2: score 2 must be a finite number; got 'x'"),
        ("A 1 2 3\nB 1 2 nan\n", "scores.txt, line 2: a class must be scored on every line, or on none"),
        ("A 1 2 3\nB 1 2 3\nA 4 5 6\n", "scores.txt, line 3: a video must be scored once; got 'A' again"),
        (b"A 1 2 3\nB 1 2 \xb5\n", "scores.txt, line 2: must be UTF-8 text; got the byte 0xb5"),
        ("A 1 2\nC 1 2\n", "truth.csv, line 2: a class must have a score, c000 to c001; got 'c002 1 2'"),
    ],
)
def test_wrong_scores_are_refused_by_file_and_line_and_nothing_is_written(tmp_path, scores, words):
    outcome, out = evaluated(tmp_path, scores=scores)
    assert outcome.exit_code == 2
    assert words in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("truth", "words"),
    [
        ("", "truth.csv, line 1: must hold at least one row; the file is empty"),
        ("id,actions\n", "truth.csv, line 2: must hold rows below the header"),
        ("A,c000 0 1\n", "truth.csv, line 1: the header must name the columns 'id' and 'actions'"),
        ("id,actions\nA,c000 0 1,x\n", "truth.csv, line 2: a row must have 2 columns; got 3"),
        (
            "id,actions\nA,c000 0\n",
            "truth.csv, line 2: an action must read like 'c092 11.90 21.20'; got 'c000 0'",
        ),
        (
            "id,actions\nA,c000 0 late\n",
            "truth.csv, line 2: an action must start and end at a time in seconds",
        ),
        (
            "id,actions\nA,c000 0 nan\n",
            "truth.csv, line 2: an action must start and end at a time in seconds",
        ),
        ("id,actions\nA,\nA,\n", "truth.csv, line 3: the id must name a video that has no row yet; got 'A'"),
        ("id,actions\n ,c000 0 1\n", "truth.csv, line 2: the id must name a video"),
        ("id,actions\nA,\nB,\n", "truth.csv: no ground truth is left to evaluate"),
        (b"id,actions\nA,c000 0 1\n\xff,\n", "truth.csv, line 3: must be UTF-8 text"),
    ],
)
def test_wrong_ground_truth_is_refused_by_file_and_line(tmp_path, truth, words):
    outcome, out = evaluated(tmp_path, truth=truth)
    assert outcome.exit_code == 2
    assert words in outcome.stderr
    assert not out.exists()


@pytest.mark.parametrize(("options", "expected"), [((), 1.0), (("--rule", "plain"), (0.5 + 1 + 1) / 3)])
def test_the_rule_decides_what_an_unlabelled_video_costs(tmp_path, options, expected):
    outcome, out = evaluated(tmp_path, TRUTH, SCORES, *options)
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(out.read_text())
    assert result["map"] == pytest.approx(expected)
    assert set(result["per_class"]) == {"c000", "c001", "c002"}
    assert {"weighted_map", "convention", "ignored", "num_classes", "counts"} <= set(result)
    assert "weighted by class frequency" in outcome.stdout


def test_an_unknown_rule_is_refused(tmp_path):
    outcome, _ = evaluated(tmp_path, TRUTH, SCORES, "--rule", "kind")
    assert outcome.exit_code == 2


def test_byte_order_marks_windows_line_ends_and_foreign_videos_are_fine(tmp_path):
    scores = "\ufeff" + SCORES.replace("\n", "\r\n") + "Z\t1\t2\t3\r\n"
    outcome, out = evaluated(tmp_path, "\ufeff" + TRUTH.replace("\n", "\r\n"), scores)
    assert outcome.exit_code == 0
    assert json.loads(out.read_text())["ignored"] == {"scores_video_not_in_ground_truth": 1}
