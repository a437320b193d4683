"""`mule evaluate watch`: folders of moments against tables, and what it says of those that do not fit together."""

import json

import pytest
from typer.testing import CliRunner
from watched import header, moment, opinion, seen, three_moments

from mule.cli.main import app
from mule.core.errors import AnnotationError, FileError, RangeError
from mule.evaluation.watched_results import WatchedResult
from mule.watching.measuring import evaluate_watch
from mule.watching.outputs.moments_file import create_moments

COLUMNS = "video,time_s,x1,y1,x2,y2,actions,actor_id\n"
WALKER, KICKER = "0.1,0.2,0.3,0.8", "0.5,0.1,0.9,0.9"
TRUTH = "".join(
    f"films/lobby.mp4,{t},{WALKER},walk,ann\nfilms/lobby.mp4,{t},{KICKER},kick,bob\n" for t in (0, 1, 2)
)


def watched(folder, moments=None, top=None):
    folder.mkdir(parents=True)
    with create_moments(folder / "moments.jsonl", top or header()) as writer:
        for each in three_moments() if moments is None else moments:
            writer.write(each)
    return folder


def table(tmp_path, rows=TRUTH, columns=COLUMNS):
    path = tmp_path / "truth.csv"
    path.write_text(columns + rows)
    return path


def test_a_result_without_moments_judges_nothing(tmp_path):
    result = evaluate_watch(watched(tmp_path / "lobby", []), table(tmp_path))
    assert (result.num_key_times, result.looks["known"].num) == (0, 0)


def test_what_was_watched_is_measured_by_name_whatever_folder_and_suffix_the_table_gives(tmp_path):
    result = evaluate_watch(watched(tmp_path / "lobby"), table(tmp_path))
    known, novel = result.looks["known"], result.looks["novel"]
    assert (known.num, known.num_seen, known.num_flagged, known.num_named) == (
        3,
        1,
        0,
        1,
    )  # she has moved away at last
    assert (novel.num, novel.num_seen, novel.num_flagged, novel.num_wrongly_named) == (3, 2, 2, 1)
    assert result.looks["unlisted"].num == 2
    assert result.acts is not None
    assert (result.acts.num, result.acts.median_delay_s) == (1, 1.0)
    assert result.naming.precision == 0.5  # she walks; the kicker seems to sit


def test_actions_that_mean_nothing_leave_people_idle(tmp_path):
    result = evaluate_watch(watched(tmp_path / "lobby"), table(tmp_path), nothing=["kick"])
    assert (result.looks["novel"].num, result.looks["idle"].num_flagged) == (0, 2)
    with pytest.raises(RangeError, match=r"'kik' is not\. Did you mean 'kick'\?"):
        evaluate_watch(tmp_path / "lobby", tmp_path / "truth.csv", nothing=["kik"])


def test_rows_without_ids_measure_looks_alone(tmp_path):
    rows = TRUTH.replace(",ann\n", "\n").replace(",bob\n", "\n")
    result = evaluate_watch(
        watched(tmp_path / "lobby"), table(tmp_path, rows, COLUMNS.replace(",actor_id", ""))
    )
    assert result.people is None
    assert result.looks["novel"].num_flagged == 2


def test_folders_of_folders_are_measured_together_and_videos_left_out_are_counted(tmp_path):
    watched(tmp_path / "all" / "lobby")
    watched(tmp_path / "all" / "hall", [moment(video="hall")], header(video="hall"))
    more = TRUTH.replace("lobby", "yard")
    path = table(tmp_path, TRUTH + TRUTH.replace("lobby", "hall") + more)
    result = evaluate_watch(tmp_path / "all", path)
    assert (result.num_videos, result.num_not_watched, result.num_key_times) == (2, 1, 4)
    assert result.looks["known"].num == 4
    both = evaluate_watch([tmp_path / "all" / "lobby", tmp_path / "all" / "hall"], path)
    assert both.looks == result.looks


def test_actions_shown_from_a_larger_probability_on_are_fewer(tmp_path):
    folder = watched(tmp_path / "lobby", [moment(0.0, seen(actions=[opinion("walk", 5.0, 1.0)]))])
    path = table(tmp_path)
    assert evaluate_watch(folder, path).naming.recall == 1.0
    assert evaluate_watch(folder, path, min_probability=0.9).naming.recall == 0.0
    with pytest.raises(RangeError, match=r"between 0\.5, from which actions were reported, and 1; got 0\.2"):
        evaluate_watch(folder, path, min_probability=0.2)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (TRUTH.replace("lobby", "hall"), "must name the watched video 'lobby'; it names 'films/hall.mp4'"),
        (
            TRUTH + TRUTH.replace("films/", "copies/"),
            "'films/lobby.mp4', 'copies/lobby.mp4' all are called so",
        ),
        (
            TRUTH.replace("walk", "Walk"),
            "spelled as the model spells them; got 'Walk', and the model knows 'walk'",
        ),
        (
            TRUTH.replace(KICKER, ",,,"),
            "rows must have a box, so that people can be matched; 3 of 6 have none",
        ),
        ("films/lobby.mp4,,,,,,walk,ann\n", "rows must have a time"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_words(tmp_path, rows, words):
    with pytest.raises(AnnotationError, match=words.replace("(", r"\(")):
        evaluate_watch(watched(tmp_path / "lobby"), table(tmp_path, rows))


def test_folders_that_do_not_fit_are_refused_in_words(tmp_path):
    path = table(tmp_path)
    with pytest.raises(FileError, match="must be a folder that `mule watch` left"):
        evaluate_watch(tmp_path, path)
    first = watched(tmp_path / "a")
    with pytest.raises(AnnotationError, match="a video must be watched once; 'lobby' was watched twice"):
        evaluate_watch([first, first], path)
    other = watched(tmp_path / "b", [], header(classes=["walk"]))
    with pytest.raises(AnnotationError, match="watched with one model and the same options; the classes of"):
        evaluate_watch([first, other], path)


def test_the_command_speaks_to_the_practitioner_first_and_to_machines_in_json(tmp_path):
    out = tmp_path / "result.json"
    arguments = ["evaluate", "watch", str(watched(tmp_path / "lobby")), "--truth", str(table(tmp_path))]
    outcome = CliRunner().invoke(app, [*arguments, "--json", str(out)])
    assert outcome.exit_code == 0, outcome.output
    said = " ".join(outcome.output.split())
    assert said.startswith(
        "0 % of known people were flagged as novel at some time (0 of 1), and 100 % of novel people were flagged while "
        "they did something novel (1 of 1). 1 of 1 novel acts were flagged before they ended, half of these within 1.0 s."
    )
    assert "Novel, because the model does not know them: kick." in said
    assert "A switch: a person is seen as another track" in said
    result = WatchedResult.model_validate_json(out.read_text())
    assert result == evaluate_watch(tmp_path / "lobby", tmp_path / "truth.csv")
    assert json.loads(out.read_text())["people"]["novel"]["num_flagged_in_act"] == 1


def test_a_table_that_is_not_there_ends_the_command_with_one_sentence(tmp_path):
    outcome = CliRunner().invoke(
        app, ["evaluate", "watch", str(tmp_path), "--truth", str(tmp_path / "no.csv")]
    )
    assert outcome.exit_code == 2
    assert "no.csv: must be a table of actors, .csv or .parquet; there is no such file." in outcome.stderr
