import json

import pytest
from typer.testing import CliRunner

from mule.cli.main import app
from mule.metrics import MEASURES

SCORES = "novelty,is_novel,group\n0.1,0,a\n0.2,0,b\n0.9,1,a\n0.15,1,a\n"


def evaluated(tmp_path, content, *options):
    path, out = tmp_path / "scores.csv", tmp_path / "out.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    outcome = CliRunner().invoke(app, ["evaluate", "open-set", str(path), "--json", str(out), *options])
    return outcome, out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "scores.csv, line 1: must hold at least one row; the file is empty"),
        ("novelty,is_novel\n", "scores.csv, line 2: must hold rows below the header"),
        (
            "score,label\n1,0\n",
            "scores.csv, line 1: the header must name the columns 'novelty' and 'is_novel'",
        ),
        ("novelty,is_novel\n1,0\n2\n", "scores.csv, line 3: a row must have 2 columns; got 1"),
        ("novelty,is_novel\n1,0,5\n", "scores.csv, line 2: a row must have 2 columns; got 3"),
        (
            "novelty,is_novel\n1,0\n\nabc,1\n",
            "scores.csv, line 4: novelty must be a finite number; got 'abc'",
        ),
        ("novelty,is_novel\n1,0\n,1\n", "scores.csv, line 3: novelty must be a finite number; got ''"),
        ("novelty,is_novel\n1,0\nNaN,1\n", "scores.csv, line 3: novelty must be a finite number; got 'NaN'"),
        (
            "novelty,is_novel\n1,0\n-inf,1\n",
            "scores.csv, line 3: novelty must be a finite number; got '-inf'",
        ),
        ("novelty,is_novel\n1,0\n2,2\n", "scores.csv, line 3: is_novel must be 0, 1, true or false; got '2'"),
        ("novelty,is_novel\n1,0\n2,yes\n", "scores.csv, line 3: is_novel must be"),
        (b"novelty,is_novel\n1,0\n\xff,1\n", "scores.csv, line 3: must be UTF-8 text; got the byte 0xff"),
        (
            "novelty,is_novel\n1,0\n2,0\n",
            "scores.csv: open-set metrics need known and novel actors; got 0 novel",
        ),
        (
            "novelty,is_novel\n1,1\n2,1\n",
            "scores.csv: open-set metrics need known and novel actors; got 0 known",
        ),
    ],
)
def test_wrong_files_are_refused_by_name_and_line_and_nothing_is_written(tmp_path, content, words):
    outcome, out = evaluated(tmp_path, content)
    assert outcome.exit_code == 2
    assert words in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert outcome.stdout == ""
    assert not out.exists()


def test_the_json_file_has_the_promised_keys(tmp_path):
    outcome, out = evaluated(tmp_path, SCORES)
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(out.read_text())
    assert list(result) == [*MEASURES, "num_known", "num_novel", "intervals", "groups", "convention"]
    assert (result["auroc"], result["num_known"], result["num_novel"]) == (0.75, 2, 2)
    assert set(result["intervals"]) == {*MEASURES, "level", "resamples", "seed"}
    assert result["intervals"]["resamples"] == 1000
    low, high = result["intervals"]["auroc"]
    assert low <= 0.75 <= high
    assert result["groups"]["a"]["auroc"] == 1.0
    assert result["groups"]["b"] == {
        "undefined": "no novel actors in this group",
        "num_known": 1,
        "num_novel": 0,
    }
    assert "larger = more novel" in result["convention"]


def test_the_table_shows_every_measure_each_group_and_the_convention(tmp_path):
    outcome, _ = evaluated(tmp_path, SCORES)
    for words in (
        "AUROC",
        "AUPR, known positive",
        "FPR at 95 % TPR, novel positive",
        "no novel actors",
        "0.7500",
    ):
        assert words in outcome.stdout
    assert "Novelty is used as given" in outcome.stdout


def test_a_byte_order_mark_windows_line_ends_and_further_columns_are_fine(tmp_path):
    plain, out = evaluated(tmp_path, SCORES, "--resamples", "5")
    expected = out.read_text()
    rows = SCORES.splitlines()
    foreign = "\ufeff" + "\r\n".join([f"{row},{extra}" for row, extra in zip(rows, "vwxyz", strict=True)])
    outcome, out = evaluated(tmp_path, foreign, "--resamples", "5")
    assert (plain.exit_code, outcome.exit_code) == (0, 0)
    assert out.read_text() == expected


def test_intervals_may_be_left_out(tmp_path):
    outcome, out = evaluated(tmp_path, SCORES, "--resamples", "0")
    assert outcome.exit_code == 0
    assert json.loads(out.read_text())["intervals"] is None
    assert "interval" not in outcome.stdout


def test_a_flipped_score_is_reported_below_a_half(tmp_path):
    _, out = evaluated(tmp_path, "novelty,is_novel\n3,0\n2,0\n1,1\n", "--resamples", "0")
    assert json.loads(out.read_text())["auroc"] == 0.0


def test_a_result_that_has_no_place_is_refused_before_the_scores_are_read(tmp_path):
    arguments = [
        "evaluate",
        "open-set",
        str(tmp_path / "none.csv"),
        "--json",
        str(tmp_path / "no" / "out.json"),
    ]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 2
    assert "the result must go into a folder that exists" in outcome.stderr


def test_many_problems_are_reported_at_once(tmp_path):
    outcome, _ = evaluated(tmp_path, "novelty,is_novel\n" + "x,0\n" * 9000)
    assert "line 2: novelty" in outcome.stderr
    assert "line 6: novelty" in outcome.stderr
    assert "line 7:" not in outcome.stderr
    assert "and 8995 more" in outcome.stderr
