"""What decides in a bundle with a frozen backbone: it is read as it was written, and follows teaching and forgetting."""

from dataclasses import replace

import pytest
import torch
from made_outputs import made_outputs

from mule.api.bundling import seen_model
from mule.core.records import Evidence
from mule.features.pooling import FeatureMaps, context_map
from mule.features.weights.classifier import LabelClassifier
from mule.memory.memory import EvidenceMemory, NeighbourKernel, Places
from mule.memory.taught import Remembered, TaughtAction, Whitening
from mule.model import KeptMaps, SceneBoxes, inputs_in_map, looks_of, with_labels
from mule.novelty.known import KnownActors
from mule.watching.engine.judging import Judge
from mule.watching.engine.seen import Eyes, SeenFileError, SeenModel, read_seen, write_seen
from mule.watching.engine.telling import agreeing
from mule.watching.engine.usual import usual_of

ACTIONS = ("run", "sit", "talk")
DIM = 12
WEIGHTS = "ab" * 32
MEANS = 3 * torch.randn(5, DIM, generator=torch.Generator().manual_seed(5))


def inputs_of(does, *, seed):
    return {"roi": MEANS[does] + torch.randn(len(does), DIM, generator=torch.Generator().manual_seed(seed))}


def known(num=90):
    does = torch.arange(num) % 3
    groups = torch.arange(num) // 3
    return KnownActors(
        inputs=inputs_of(does, seed=0),
        labels=does[:, None] == torch.arange(3),
        actions=ACTIONS,
        groups=groups,
        group_names=tuple(f"film {at}" for at in range(int(groups.max()) + 1)),
        tracks=torch.full((num,), -1),
        is_example=torch.zeros(num, dtype=torch.bool),
        group_of={"video 0": "film 0"},
    )


SEEN = SeenModel.of(known())


def remembering(*actions, taught=()):
    """A memory that knows these actions; the rest of it does not matter here."""
    names = (*actions, *(each.name for each in taught))
    count = len(names)
    box = torch.tensor([[0.1, 0.1, 0.5, 0.9]]).repeat(count, 1)
    places = Places.of([f"v{at}" for at in range(count)], torch.zeros(count), box)
    ones = torch.ones(count)
    kernel = NeighbourKernel(1, 1.0, reach=1.0, evidence_scale=1.0)
    return Remembered(
        EvidenceMemory(torch.eye(count, 8), torch.eye(count), ones, ones, places, names, kernel, WEIGHTS),
        None,
        tuple(taught),
    )


def taught(name, inputs, videos):
    whitening = Whitening(torch.zeros(8), torch.eye(8))
    return TaughtAction(name, whitening, torch.eye(1, 8), torch.ones(1), 1.0, 0.0, 0.0, inputs, videos)


def flagged(model, does, *, seed):
    p_values = (
        usual_of(model.fitted).of_one_look(model.fitted.parts.ranks(inputs_of(does, seed=seed))).p_value
    )
    return float((p_values < 0.05).double().mean())


def test_a_file_is_read_as_it_was_written(tmp_path):
    write_seen(tmp_path / "seen.safetensors", SEEN, weights_sha256=WEIGHTS)
    again = read_seen(tmp_path / "seen.safetensors", weights_sha256=WEIGHTS)
    novel = inputs_of(torch.full((6,), 4), seed=1)
    assert torch.equal(again.fitted.parts.ranks(novel), SEEN.fitted.parts.ranks(novel))
    assert again.fitted.idle(novel) is None
    assert again.known.actions == ACTIONS
    assert again.known.group_of == {"video 0": "film 0"}
    assert torch.equal(again.known.labels, SEEN.known.labels)
    assert torch.equal(usual_of(again.fitted).of_one_look(again.fitted.ranks).rank,
                       usual_of(SEEN.fitted).of_one_look(SEEN.fitted.ranks).rank)  # fmt: skip


def test_idle_examples_are_read_as_they_were_written(tmp_path):
    idle = inputs_of(torch.full((12,), 3), seed=2)
    model = SeenModel.of(known().with_idle(["before"] * 12, idle, ["video 0"] * 12))
    write_seen(tmp_path / "seen.safetensors", model, weights_sha256=WEIGHTS)
    again = read_seen(tmp_path / "seen.safetensors", weights_sha256=WEIGHTS)
    assert (again.known.idle, again.known.num_calibrating) == (("before",), 90)
    found, before = again.fitted.idle(idle), model.fitted.idle(idle)
    assert found is not None
    assert before is not None
    assert torch.equal(found, before)
    assert (found > 0.5).all()


def test_a_file_of_other_weights_or_cut_short_is_refused(tmp_path):
    path = tmp_path / "seen.safetensors"
    write_seen(path, SEEN, weights_sha256=WEIGHTS)
    with pytest.raises(SeenFileError, match="belong to the weights"):
        read_seen(path, weights_sha256="cd" * 32)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SeenFileError, match="Build the bundle again"):
        read_seen(path, weights_sha256=WEIGHTS)
    with pytest.raises(SeenFileError, match="must hold"):
        read_seen(tmp_path / "none.safetensors", weights_sha256=WEIGHTS)


def test_it_follows_what_the_memory_was_taught_and_forgets():
    jump = taught("jump", inputs_of(torch.full((12,), 3), seed=2), tuple(f"new {at}" for at in range(12)))
    does_jump, other = torch.full((80,), 3), torch.full((80,), 4)
    after = SEEN.following(remembering(*ACTIONS, taught=[jump]))
    assert after.known.actions == (*ACTIONS, "jump")
    assert flagged(SEEN, does_jump, seed=3) >= 0.6
    assert flagged(after, does_jump, seed=3) <= 0.2
    assert flagged(after, other, seed=4) >= 0.6
    fewer = SEEN.following(remembering("run", "talk"))
    assert fewer.known.actions == ("run", "talk")
    assert flagged(fewer, torch.full((80,), 1), seed=5) >= 0.6
    assert SEEN.following(remembering(*ACTIONS)) is SEEN
    assert SEEN.following(None) is SEEN


def test_an_action_taught_without_what_its_examples_are_seen_by_is_refused():
    with pytest.raises(SeenFileError, match="teach it again"):
        SEEN.following(remembering(*ACTIONS, taught=[taught("jump", {}, ())]))


def test_the_judge_ranks_actors_by_what_they_are_seen_by():
    judge = Judge(None, ACTIONS, None, seen=SEEN.fitted)
    inputs = inputs_of(torch.tensor([0, 4]), seed=6)
    judged = judge(torch.zeros(2, 3), torch.zeros(2, 8), inputs)
    assert torch.equal(judged.ranks, SEEN.fitted.parts.ranks(inputs))
    assert torch.equal(judged.network.positive, torch.ones(2, 3))


def test_too_few_known_people_leave_the_decision_to_network_and_memory_with_the_reason():
    few = replace(made_outputs(9, seed=0), inputs={"roi": torch.randn(9, 6)})
    said: list[str] = []
    assert seen_model(lambda: few, few, noted=said.append) is None
    assert "at least 20 known actors" in said[0]
    assert "The network's evidence and the memory decide" in said[0]


def test_eyes_see_in_standardised_maps_what_training_saw_in_raw_ones():
    draw = torch.Generator().manual_seed(0)
    kept = KeptMaps(16, DIM)
    kept.standardise(torch.randn(DIM, generator=draw), torch.rand(DIM, generator=draw) + 0.5)
    classifier = LabelClassifier(torch.randn(7, DIM - 2, generator=draw), torch.zeros(7), ())
    raw = torch.rand(1, DIM, 1, 6, 8, generator=draw)
    box, first = torch.tensor([[10.0, 5, 60, 90], [0, 0, 128, 96]]), torch.zeros(2, dtype=torch.int64)
    seen = Eyes(kept.mean, kept.deviation, DIM - 2, classifier)(
        kept(raw), SceneBoxes(box, first, box[:0], first[:0])
    )
    last = context_map(FeatureMaps((raw,), 16))[:, : DIM - 2]
    expected = with_labels(inputs_in_map(last, box, first, stride=16), classifier)
    assert set(seen) == {"roi", "frame", "labels"}
    for name, each in expected.items():
        torch.testing.assert_close(seen[name], each, rtol=1e-4, atol=1e-5)


def test_what_the_network_sees_in_a_box_follows_from_what_people_are_seen_by():
    """So it need not be kept beside the inputs."""
    draw = torch.Generator().manual_seed(0)
    kept = KeptMaps(16, DIM)
    kept.standardise(torch.randn(DIM, generator=draw), torch.rand(DIM, generator=draw) + 0.5)
    maps = kept(torch.rand(1, DIM, 1, 6, 8, generator=draw))
    box, first = torch.tensor([[10.0, 5, 60, 90], [0, 0, 128, 96]]), torch.zeros(2, dtype=torch.int64)
    boxes = SceneBoxes(box, first, box[:0], first[:0])
    eyes = Eyes(kept.mean, kept.deviation, DIM, None)
    assert eyes.show_looks
    assert not Eyes(kept.mean, kept.deviation, DIM - 2, None).show_looks
    torch.testing.assert_close(eyes.looks(eyes(maps, boxes)), looks_of([maps], boxes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["known-95", "known-80", "0.9"])
def test_who_is_novel_is_shown_without_belief_in_a_known_action(name):
    usual = usual_of(SEEN.fitted)
    threshold = usual.threshold(name)
    ranks = SEEN.fitted.parts.ranks(inputs_of(torch.arange(200) % 5, seed=7))
    p_values = usual.of_one_look(ranks).p_value.clamp(0, 1)
    sure = Evidence(torch.full((200, 3), 9.0), torch.full((200, 3), 0.1))
    shown = agreeing(sure, p_values, threshold)
    is_novel = 1 - p_values > threshold.value
    assert 0 < int(is_novel.sum()) < 200
    assert (shown.positive[is_novel] == 0).all()
    assert torch.equal(shown.positive[p_values > 0.5], sure.positive[p_values > 0.5])
