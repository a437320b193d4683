"""Known actors against those of other videos: who is taken, who is left out, and that nothing is mixed up."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_outputs import made_outputs
from sklearn.metrics import roc_auc_score
from study_commands import run_study
from typer.testing import CliRunner

from mule.cli import main
from mule.core.errors import RangeError
from mule.data.batches.samples import ClipName
from mule.evaluation.formats import markdown
from mule.inference.judging import Judging, judged, yardstick_of
from mule.inference.score_rules import score_rules
from studies.evaluate.__main__ import app
from studies.evaluate.far import against_far, doubtful_names
from studies.evaluate.run_means import mean_sheets

FACTS = {"key": "", "system": "mule", "side": "far", "side_digest": "", "weights_sha256": "0" * 64}


def other_videos(num_actors, *, actions, seed=7):
    """Actors of other videos: one after another does each action."""
    found = made_outputs(num_actors, seed=seed, shift=1.0)
    labels = np.eye(len(actions), dtype=bool)[np.arange(num_actors) % len(actions)]
    return replace(
        found,
        truth=replace(found.truth, classes=actions, labels=labels),
        clip_names=tuple(ClipName(f"other{i}", 1.0) for i in range(num_actors)),
    )


def test_whoever_does_an_action_of_a_known_name_is_left_out():
    test, far = made_outputs(12, seed=2), other_videos(9, actions=("fence", "run", "skate"))
    test = replace(test, truth=replace(test.truth, is_novel=np.arange(12) >= 10))
    side = against_far(test, far)
    others = [0, 2, 3, 5, 6, 8]  # not those who run
    assert side.truth.is_novel.tolist() == [False] * 10 + [True] * 6
    assert torch.equal(side.features, torch.cat([test.features[:10], far.features[others]]))
    assert torch.equal(
        side.backbone_features, torch.cat([test.backbone_features[:10], far.backbone_features[others]])
    )
    assert torch.equal(side.evidence.negative[10:], far.evidence.negative[others])
    assert side.truth.classes == ("bow", "run", "wave", "fence", "skate")
    assert not side.labels[10:].any()
    assert side.truth.labels[10:, 3:].sum(axis=1).tolist() == [1] * 6
    names = [side.clip_names[at].video for at in side.clip_index]
    assert names == [f"v{i}" for i in range(10)] + [f"other{i}" for i in others]
    assert len(side.video_index) == side.num_actors == 16


def test_far_novelty_is_judged_as_any_side_is():
    train, val, test = (made_outputs(count, seed=seed) for seed, count in enumerate((90, 60, 30)))
    side = against_far(test, other_videos(20, actions=("fence",)))
    judging = Judging(scores=("joint-energy", "whole-memory"), dropout_passes=0, resamples=0)
    result, novelty = judged(
        side, yardstick_of(score_rules(judging.scores), train, val), judging=judging, facts=FACTS
    )
    assert (result.num_known, result.num_novel) == (30, 20)
    for name, score in result.scores.items():
        expected = roc_auc_score(side.truth.is_novel, novelty[name])
        assert score.model_dump()["measures"]["auroc"] == pytest.approx(expected)


@pytest.mark.parametrize("actions", [("run",), ("bow", "wave")])
def test_other_videos_in_which_everybody_is_known_are_refused(actions):
    with pytest.raises(RangeError, match="other videos who do no known action; got 12 and 0"):
        against_far(made_outputs(12, seed=2), other_videos(8, actions=actions))


def near_and_far(seed, *, system="mule"):
    train, val, test = (made_outputs(count, seed=3 * seed + i) for i, count in enumerate((90, 60, 30)))
    test = replace(test, truth=replace(test.truth, is_novel=np.arange(30) >= 20 - seed))
    judging = Judging(scores=("joint-energy", "max-logit", "knn"), dropout_passes=0, resamples=0)
    yardstick = yardstick_of(score_rules(judging.scores), train, val)
    far = against_far(test, other_videos(20, actions=("fence",), seed=40 + seed))
    facts = {**FACTS, "system": system}
    return {
        name: judged(side, yardstick, judging=judging, facts=facts)[0]
        for name, side in (("test", test), ("far", far))
    }


def test_a_sheet_of_several_runs_holds_their_means_and_the_best_near_comes_first():
    runs = [near_and_far(0), near_and_far(1), near_and_far(2, system="slowfast")]
    sheets = mean_sheets(runs)
    assert list(sheets) == ["mule", "slowfast"]
    lines = [
        [cell.strip() for cell in line.split("|")[1:4]] for line in markdown(sheets["mule"]).splitlines()[2:5]
    ]
    means = {
        score: [
            np.mean([run[side].scores[score].model_dump()["measures"]["auroc"] for run in runs[:2]])
            for side in ("test", "far")
        ]
        for score in ("joint-energy", "max-logit", "knn")
    }
    best = np.max(list(means.values()), axis=0)
    expected = {
        score: [
            f"**{100 * value:.2f}**" if value == best[at] else f"{100 * value:.2f}"
            for at, value in enumerate(values)
        ]
        for score, values in means.items()
    }
    assert {name: cells for name, *cells in lines} == expected
    assert [name for name, *_ in lines] == sorted(means, key=lambda score: -means[score][0])
    (note,) = sheets["mule"].notes
    assert "test: 19 to 20 known and 10 to 11 novel actors. far: 19 to 20 known and 20 novel actors." in note


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            ["--actors", "a.csv", "--actors", "b.csv", "--videos", "v"],
            "once per --actors; got 1 for 2 tables",
        ),
        (
            ["--actors", "x/a.csv", "--videos", "v", "--actors", "y/a.csv", "--videos", "v"],
            "their names must differ; got a.csv, a.csv",
        ),
    ],
)
def test_tables_of_other_videos_come_with_their_videos_and_names_of_their_own(tables, said):
    result = run_study(app, "far", "RUN", *tables)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_a_known_action_under_another_name_is_said():
    assert doubtful_names(("bow", "run", "wave"), ("run", "fence")) == []
    (said,) = doubtful_names(("bow", "run", "wave"), ("movement:running", "fence"))
    assert said == "'movement:running' resembles the known 'run', but counts as novel"


def test_the_command_judges_a_run_against_other_videos(done, tmp_path):
    rendered = tmp_path / "elsewhere"
    options = ("--clips", 4, "--role", "test", "--seconds", 4, "--size", "24x32", "--workers", 1)
    drawn = CliRunner().invoke(main.app, ["stage", "render", str(rendered), *map(str, options)])
    assert drawn.exit_code == 0, drawn.output
    runs, page = [each.folder for each in done.rows[-2:]], tmp_path / "far.md"
    actors = ("--actors", rendered / "actors.csv", "--videos", rendered / "videos")
    shown = run_study(app, "far", *runs, *actors, "--score", "joint-energy", "--resamples", 0, "--docs", page)
    assert shown.exit_code == 0, shown.output
    text = page.read_text()
    assert "against actors ↑ |" in text
    assert [text.count(f"## {each.experiment.system}\n") for each in done.rows[-2:]] == [1, 1]
    assert text.count("| joint-energy |") == 2
