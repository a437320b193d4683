import json

import pytest
from typer.testing import CliRunner

from mule.cli.main import app

FILES = {
    "truth.csv": "v,0902,0.1,0.1,0.5,0.5,1,0\nv,0903,0.1,0.1,0.5,0.5,3,0\nv,0904,0.1,0.1,0.5,0.5,2,0\n",
    "found.csv": "v,0902,0.1,0.1,0.5,0.5,1,0.9\nv,0903,0.1,0.1,0.5,0.5,3\nv,0904,0.1,0.1,0.5,0.5,1,0.95\n",
    "map.pbtxt": 'item {\n  name: "sit [down]/rest"\n  id: 1\n}\nitem {\n  name: "walk"\n  id: 3\n}\n',
}


def evaluated(tmp_path, files, *options):
    for name, content in {**FILES, **files}.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    out = tmp_path / "out.json"
    paths = [("--ground-truth", "truth.csv"), ("--detections", "found.csv"), ("--label-map", "map.pbtxt")]
    paths += [("--excluded", "excluded.csv")] if "excluded.csv" in files else []
    arguments = [part for option, name in paths for part in (option, str(tmp_path / name))]
    outcome = CliRunner().invoke(app, ["evaluate", "ava", *arguments, "--json", str(out), *options])
    return outcome, out


GOOD = "v,0902,0.1,0.1,0.5,0.5,1,0.9\n"
WRONG_ROWS = [
    ("v,0902,0.1,0.1,0.5,0.5\n", "a row must have 2 or 7 or 8 columns; got 6"),
    ("v,0902,0.1,0.1,0.5,0.5,1,0.9,7\n", "a row must have 2 or 7 or 8 columns; got 9"),
    ("v,0902,0.1,b,0.5,0.5,1,0.9\n", "y1 must be a finite number; got 'b'"),
    ("v,0902,0.1,0.1,nan,0.5,1,0.9\n", "x2 must be a finite number; got 'nan'"),
    ("v,0902,0.5,0.1,0.5,0.5,1,0.9\n", "x2 must be above x1; got x1 = 0.5 and x2 = 0.5"),
    ("v,0902,0.1,0.6,0.5,0.5,1,0.9\n", "y2 must be above y1; got y1 = 0.6 and y2 = 0.5"),
    ("v,15:02,0.1,0.1,0.5,0.5,1,0.9\n", "the time must be a number of seconds, 0 or later; got '15:02'"),
    ("v,-3,0.1,0.1,0.5,0.5,1,0.9\n", "the time must be a number of seconds, 0 or later; got '-3'"),
    ("v,inf,0.1,0.1,0.5,0.5,1,0.9\n", "the time must be a number of seconds"),
    ("v,0902,0.1,0.1,0.5,0.5,1.5,0.9\n", "the action id must be a whole number; got '1.5'"),
    (",0902,0.1,0.1,0.5,0.5,1,0.9\n", "the video must have a name"),
    ("v,x\n", "the time must be a number of seconds"),
    (b"v,0902,0.1,0.1,0.5,0.5,1,\xe9\n", "must be UTF-8 text; got the byte 0xe9"),
]


@pytest.mark.parametrize("name", ["truth.csv", "found.csv"])
@pytest.mark.parametrize(("row", "words"), WRONG_ROWS)
def test_wrong_rows_are_refused_by_file_and_line_and_nothing_is_written(tmp_path, name, row, words):
    content = GOOD.encode() * 2 + (row if isinstance(row, bytes) else row.encode()) + GOOD.encode()
    outcome, out = evaluated(tmp_path, {name: content})
    assert outcome.exit_code == 2
    assert f"{name}, line 3: {words}" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"truth.csv": ""}, "truth.csv, line 1: must hold at least one row; the file is empty"),
        ({"found.csv": "\n"}, "found.csv, line 1: must hold at least one row; the file is empty"),
        ({"map.pbtxt": ""}, "map.pbtxt, line 1: must hold blocks with a name and an id"),
        ({"excluded.csv": ""}, "excluded.csv, line 1: must hold at least one row"),
        ({"excluded.csv": "v,0902\nv,0903,1\n"}, "excluded.csv, line 2: a row must have 2 columns; got 3"),
        ({"excluded.csv": "v,902s\n"}, "excluded.csv, line 1: the time must be a number of seconds"),
        (
            {"found.csv": "v,0902,0.1,0.1,0.5,0.5,1,high\n"},
            "found.csv, line 1: the score must be a finite number",
        ),
        (
            {"found.csv": "v,0902,0.1,0.1,0.5,0.5,1,\n"},
            "found.csv, line 1: the score must be a finite number",
        ),
        ({"truth.csv": "v,0902,0.1,0.1,0.5,0.5,2\n"}, "truth.csv: no ground truth is left to evaluate"),
        ({"truth.csv": "v,0902\n"}, "truth.csv: no ground truth is left to evaluate; of 0 rows"),
        ({"excluded.csv": "v,902\nv,903\n"}, "truth.csv: no ground truth is left to evaluate"),
    ],
)
def test_files_with_nothing_to_evaluate_are_refused_by_name(tmp_path, files, words):
    outcome, out = evaluated(tmp_path, files)
    assert outcome.exit_code == 2
    assert words in outcome.stderr
    assert not out.exists()


@pytest.mark.parametrize("option", ["--ground-truth", "--detections", "--label-map", "--excluded"])
def test_missing_files_are_named(tmp_path, option):
    outcome, _ = evaluated(tmp_path, {}, option, str(tmp_path / "none"))
    assert outcome.exit_code == 2
    assert "none: must be a readable file; there is no such file" in outcome.stderr


def test_the_json_file_has_the_promised_keys(tmp_path):
    outcome, out = evaluated(tmp_path, {})
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(out.read_text())
    assert result["map"] == 0.75
    assert result["per_class"] == {"sit [down]/rest": 0.5, "walk": 1.0}
    assert result["num_classes"] == 2
    assert "all detections are kept" in result["convention"]
    assert result["ignored"]["ground_truth_class_outside_label_map"] == 1
    assert "sit [down]/rest" in outcome.stdout
    assert "mean over 2 classes" in outcome.stdout


def test_keeping_the_top_and_leaving_frames_out_change_the_result(tmp_path):
    _, out = evaluated(tmp_path, {"excluded.csv": "v,904\n"})
    assert json.loads(out.read_text())["map"] == 1.0
    crowded = FILES["found.csv"] + "v,0902,0.7,0.7,0.9,0.9,3,0.95\n"
    outcome, out = evaluated(tmp_path, {"found.csv": crowded}, "--keep-top", "1")
    result = json.loads(out.read_text())
    assert result["ignored"]["detections_beyond_keep_top"] == 1
    assert result["per_class"]["sit [down]/rest"] == 0.0
    assert "at most 1 detections are kept per frame" in result["convention"]
    assert outcome.exit_code == 0


def test_classes_without_ground_truth_are_null_and_say_so(tmp_path):
    outcome, out = evaluated(tmp_path, {"truth.csv": GOOD})
    assert json.loads(out.read_text())["per_class"]["walk"] is None
    assert "no ground truth" in outcome.stdout


def test_byte_order_marks_and_windows_line_ends_are_fine(tmp_path):
    _, out = evaluated(tmp_path, {})
    expected = out.read_text()
    foreign = {name: "\ufeff" + content.replace("\n", "\r\n") for name, content in FILES.items()}
    outcome, out = evaluated(tmp_path, foreign)
    assert outcome.exit_code == 0
    assert out.read_text() == expected
