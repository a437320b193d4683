"""More looks in takes that are no part of a run's data: who is novel there, what sets thresholds, and what is told."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from study_commands import run_study
from tiny_rows import silent
from typer.testing import CliRunner

from mule.cli.main import app
from mule.core.errors import RangeError
from mule.inference.judging import Judging
from mule.inference.score_rules import score_rules
from mule.inference.table_actors import outputs_in_table
from mule.inference.tracks import by_track
from studies.evaluate.__main__ import app as study
from studies.evaluate.takes import Takes, judge_takes

JUDGING = Judging(scores=("joint-energy",), dropout_passes=0, resamples=0)


def command(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def takes(tmp_path_factory):
    """Takes of four seconds, rendered small: three to judge, with novel actors, and two of known ones."""
    folder = tmp_path_factory.mktemp("takes")
    for role, clips in (("test", 3), ("val", 2)):
        result = command(
            "stage", "render", folder / role, "--clips", clips, "--role", role, "--seconds", 4,
            "--size", "24x32", "--workers", 1, "--lossless",
        )  # fmt: skip
        assert result.exit_code == 0, result.output
    return folder


def asked(takes):
    return (
        "--actors", takes / "test/actors.csv", "--videos", takes / "test/videos",
        "--held-out", takes / "val/actors.csv", "--held-out-videos", takes / "val/videos",
    )  # fmt: skip


@pytest.fixture(scope="module")
def seen(done, takes):
    """What the reference says of every look."""
    folder = done.rows[-1].folder
    return Takes(
        *(
            outputs_in_table(folder, takes / role / "actors.csv", takes / role / "videos", settings=[])
            for role in ("test", "val")
        )
    )


def while_doing_the_same(outputs):
    """A name for each actor and all it does, so that a track ends where its actions change."""
    truth = outputs.truth
    done_by = [[name for name, does in zip(truth.classes, row, strict=True) if does] for row in truth.labels]
    return tuple(f"{who}: {'; '.join(names)}" for who, names in zip(truth.actor_ids, done_by, strict=True))


def test_whoever_does_what_was_not_taught_is_novel_along_as_many_looks(done, seen):
    row, test = done.rows[-1], seen.test
    found = judge_takes(row.folder, row.experiment, seen, looks=(1, 3), judging=JUDGING, noted=silent)
    taught = set(test.classes)
    is_novel = np.array(
        [
            any(done_by and name not in taught for name, done_by in zip(test.truth.classes, row, strict=True))
            for row in test.truth.labels
        ]
    )
    marked = replace(test, truth=replace(test.truth, is_novel=is_novel, actor_ids=while_doing_the_same(test)))
    (rule,) = score_rules(["joint-energy"])
    for number, result in found.items():
        tracks = by_track(marked, most_looks=number)
        expected = roc_auc_score(tracks.truth.is_novel, rule.novelty(tracks).rank)
        assert result.scores["joint-energy"].model_dump()["measures"]["auroc"] == pytest.approx(expected)
        assert (result.num_known, result.num_novel) == (
            int((~tracks.truth.is_novel).sum()),
            int(tracks.truth.is_novel.sum()),
        )


def test_thresholds_are_of_the_held_out_tracks_alone(done, seen):
    row = done.rows[-1]
    (rule,) = score_rules(["joint-energy"])
    found = judge_takes(row.folder, row.experiment, seen, looks=(2,), judging=JUDGING, noted=silent)
    held = replace(
        seen.held_out, truth=replace(seen.held_out.truth, actor_ids=while_doing_the_same(seen.held_out))
    )
    held_out = rule.novelty(by_track(held, most_looks=2)).rank.double().numpy()
    threshold = found[2].scores["joint-energy"].threshold
    assert (held_out > threshold).mean() <= 0.05
    assert threshold == pytest.approx(held_out.max())  # so few tracks: none may be flagged


def test_takes_of_strangers_alone_are_refused(done, seen):
    row, test = done.rows[-1], seen.test
    everybody = replace(
        test, truth=replace(test.truth, classes=tuple(f"new {name}" for name in test.truth.classes))
    )
    with pytest.raises(RangeError, match="must show actors who do only actions that the run was taught; all"):
        judge_takes(
            row.folder, row.experiment, Takes(everybody, seen.held_out), judging=JUDGING, noted=silent
        )


def test_the_command_prints_a_table_of_one_run_and_means_of_several(done, takes, tmp_path):
    first, second = done.rows[-1].folder, done.rows[-2].folder
    one = run_study(study, "looks", first, *asked(takes), "--score", "joint-energy", "--resamples", 0)
    assert one.exit_code == 0, one.output
    assert "8 looks" in one.output
    page = tmp_path / "looks.md"
    two = run_study(
        study, "looks", first, second, *asked(takes), "--score", "max-logit", "--looks", 1, "--looks", 3,
        "--resamples", 0, "--docs", page,
    )  # fmt: skip
    assert two.exit_code == 0, two.output
    text = page.read_text()
    assert "| Score | 1 look ↑ | 3 looks ↑ |" in text
    assert text.count("| max-logit |") == 2
