"""Looks along a track judged as one: fused and averaged as a loop over tracks does it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from mule.cli.evaluate import app
from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.data.batches.samples import ClipName
from mule.evaluation.open_set import OpenSetMeasures
from mule.evidence.fusion import fused_evidence, look_sums
from mule.inference.judging import Judging, judged, yardstick_of
from mule.inference.outputs import SideOutputs
from mule.inference.results import read_novelties, read_result
from mule.inference.score_rules import score_rules
from mule.inference.sides import ActorTruth
from mule.inference.tracks import by_track
from mule.rivals.scores.outputs import LinearReadout

CLASSES = ("walk", "sit")
FACTS = {"key": "", "system": "", "side": "test", "side_digest": "", "weights_sha256": ""}


def looks(seed=0, *, num_clips=30, num_videos=3, is_open=True, actors=("x", "y", "z")):
    """Outputs of a tied network on clips of films, in no order of time; some looks at an actor are novel."""
    draw = np.random.default_rng(seed)
    names = tuple(
        ClipName(f"film{at % num_videos}", float(time)) for at, time in enumerate(draw.permutation(num_clips))
    )
    clip_index = np.sort(draw.integers(0, num_clips, 3 * num_clips))
    num = len(clip_index)
    is_novel = draw.random(num) < 0.4 if is_open else np.zeros(num, dtype=bool)
    labels = draw.random((num, 2)) < 0.5
    labels[~is_novel & ~labels.any(axis=1), 0] = True
    labels[is_novel] = False
    readout = LinearReadout(torch.from_numpy(draw.normal(size=(2, 4))).float(), torch.zeros(2))
    features = torch.from_numpy(draw.normal(size=(num, 4)) + is_novel[:, None]).float()
    outputs = readout(features)
    return SideOutputs(
        classes=CLASSES,
        kind="tied",
        outputs=outputs,
        evidence=Evidence(outputs.exp(), (-outputs).exp()),
        features=features,
        backbone_features=features,
        readout=readout,
        dropout_logits=torch.stack([outputs + 1, outputs - 2]),
        labels=labels,
        truth=ActorTruth(
            classes=(*CLASSES, "fly"),
            labels=np.column_stack([labels, is_novel]),
            is_novel=is_novel,
            boxes_xyxy_unit=draw.random((num, 4)) / 2 + [0, 0, 0.5, 0.5],
            actor_ids=tuple(draw.choice(actors, num)),
        ),
        clip_names=names,
        clip_index=clip_index,
        not_stored={},
    )


def tracks_one_by_one(found, most_looks):
    """The looks of every track in the order of time: rows, by (video, actor, whether it is novel)."""
    tracks = {}
    for row in range(found.num_actors):
        name = found.clip_names[found.clip_index[row]]
        key = (name.video, found.truth.actor_ids[row], bool(found.truth.is_novel[row]))
        tracks.setdefault(key, []).append((name.key_time_s, row))
    return {key: [row for _, row in sorted(rows)][:most_looks] for key, rows in tracks.items()}


def by_name(found):
    return {
        (found.clip_names[clip].video, actor, bool(is_novel)): row
        for row, (clip, actor, is_novel) in enumerate(
            zip(found.clip_index, found.truth.actor_ids, found.truth.is_novel, strict=True)
        )
    }


@pytest.mark.parametrize("most_looks", [None, 1, 2, 4])
def test_a_track_is_what_a_loop_over_its_looks_makes_of_it(most_looks):
    before = looks()
    found = by_track(before, most_looks=most_looks)
    expected, rows_of = tracks_one_by_one(before, most_looks), by_name(found)
    assert set(rows_of) == set(expected)
    assert found.num_actors == len(expected) < before.num_actors
    for key, rows in expected.items():
        row, sums = rows_of[key], look_sums(Evidence(torch.zeros(1, 2), torch.zeros(1, 2)))
        for look in rows:
            one = Evidence(before.evidence.positive[[look]], before.evidence.negative[[look]])
            sums = sums + look_sums(one)
        fused = fused_evidence(sums)
        torch.testing.assert_close(found.evidence.positive[row], fused.positive[0])
        torch.testing.assert_close(found.evidence.negative[row], fused.negative[0])
        torch.testing.assert_close(found.outputs[row], before.outputs[rows].mean(dim=0))
        torch.testing.assert_close(found.features[row], before.features[rows].mean(dim=0))
        assert found.dropout_logits is not None
        torch.testing.assert_close(found.dropout_logits[0, row], before.outputs[rows].mean(dim=0) + 1)
        assert found.labels[row].tolist() == before.labels[rows].any(axis=0).tolist()
        assert found.truth.labels[row].tolist() == before.truth.labels[rows].any(axis=0).tolist()
        assert found.clip_index[row] == before.clip_index[rows[0]]
        assert found.truth.boxes_xyxy_unit[row].tolist() == before.truth.boxes_xyxy_unit[rows[0]].tolist()
    assert found.stored.readout is not None  # a mean of logits is the last layer of a mean of features


def test_the_first_look_alone_is_itself():
    before = looks()
    found, rows_of = by_track(before, most_looks=1), tracks_one_by_one(before, 1)
    for key, row in by_name(found).items():
        assert torch.equal(found.outputs[row], before.outputs[rows_of[key][0]])
        torch.testing.assert_close(found.evidence.positive[row], before.evidence.positive[rows_of[key][0]])


def test_who_was_never_followed_cannot_be_judged_by_track():
    with pytest.raises(RangeError, match="needs an actor_id"):
        by_track(looks(actors=("x", "")))


@pytest.mark.parametrize("most_looks", [1, 8])
def test_every_score_and_rival_is_judged_on_the_same_tracks(most_looks):
    train, val, test = (
        looks(1, is_open=False),
        looks(2, is_open=False, num_videos=15),
        looks(3, num_videos=10),
    )
    names = ("PE of log", "Belief", "joint-energy", "knn", "vim", "dropout-mean", "memory")
    judging = Judging(scores=names, by="track", most_looks=most_looks, resamples=10)
    yardstick = yardstick_of(score_rules(names), train, judging.rows_of(val))
    result, novelties = judged(judging.rows_of(test), yardstick, judging=judging, facts=FACTS)
    expected = tracks_one_by_one(test, most_looks)
    assert (result.num_known, result.num_novel) == tuple(
        sum(key[2] == is_novel for key in expected) for is_novel in (False, True)
    )
    there = set(names) - set(result.left_out)
    assert {"PE of log", "Belief", "joint-energy", "memory"} <= there == set(novelties)
    assert all(isinstance(each.measures, OpenSetMeasures) for each in result.scores.values())
    assert f"the first {most_looks} looks" in result.convention


def test_results_by_track_have_names_and_words_of_their_own():
    by_look, whole, few = Judging(), Judging(by="track"), Judging(by="track", most_looks=4)
    assert [each.name_of("test") for each in (by_look, whole, few)] == [
        "test",
        "test-by-track",
        "test-by-track-4",
    ]
    assert len({each.convention for each in (by_look, whole, few)}) == 3
    assert by_look.rows_of(outputs := looks()) is outputs
    with pytest.raises(RangeError, match="needs by='track'"):
        Judging(most_looks=4)
    with pytest.raises(RangeError, match="at least 1"):
        Judging(by="track", most_looks=0)


def test_the_command_judges_a_run_by_track_and_keeps_both_results(done, tmp_path):
    judged_before = next(row.folder for row in done.rows if row.contestant == "slowfast")
    folder = Path(shutil.copytree(judged_before, tmp_path / "row"))
    command = ["run", str(folder), "--split", "test-uniform", "--score", "joint-energy", "--score", "Belief"]
    command += ["--test-clips", "8", "--dropout-passes", "3", "--resamples", "0"]
    before = read_result(folder, "test-uniform")
    outcome = CliRunner().invoke(app, [*command, "--by", "track", "--looks", "1", "--looks", "2"])
    assert outcome.exit_code == 0, outcome.output
    assert "2 looks" in outcome.output
    one, two = (read_result(folder, f"test-uniform-by-track-{number}") for number in (1, 2))
    assert one is not None
    assert two is not None
    assert read_result(folder, "test-uniform") == before
    assert before is not None
    assert (
        one.num_known == two.num_known == before.num_known
    )  # rendered clips are seen once: every look is a track
    novelty = read_novelties(folder, "test-uniform")["joint-energy"]
    by_one_look = read_novelties(folder, "test-uniform-by-track-1")["joint-energy"]
    np.testing.assert_allclose(np.sort(by_one_look), np.sort(novelty), rtol=1e-6)
    assert CliRunner().invoke(app, [*command, "--looks", "1"]).exit_code == 2
