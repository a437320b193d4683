"""`mule.Model`: predictions from arrays are those of watching, changes last, and a folder is never lost."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mule import Model
from mule.core.errors import MuleError, RangeError, ShapeError
from mule.memory.files import read_memory
from mule.video.clips import clip_window
from mule.video.reading import frames_at
from mule.watching.engine.bundle import BundleError, read_bundle
from mule.watching.engine.watch import open_watch

SAVED = Path(__file__).parents[1] / "saved"
TAKE = SAVED / "take" / "videos" / "clip_000000.mp4"


@pytest.fixture(scope="module")
def model():
    return Model.load(SAVED / "bundle")


@pytest.fixture
def own(tmp_path):
    """A model of one's own, in a folder of one's own."""
    shutil.copytree(SAVED / "bundle", tmp_path / "own")
    return Model.load(tmp_path / "own")


@pytest.fixture(scope="module")
def moment(model, tmp_path_factory):
    """What watching says at 1 s, without objects."""
    boxes = tmp_path_factory.mktemp("boxes")
    shutil.copyfile(SAVED / "take" / "tracks.csv", boxes / "tracks.csv")
    return next(each for each in model.watch(TAKE, detector=boxes) if each.key_time_s == 1)


@pytest.fixture(scope="module")
def clip():
    """The frames that watching showed the network at 1 s, rows x columns x 3."""
    needs = read_bundle(SAVED / "bundle").needs
    assert needs.frame_rate is not None
    window = clip_window(1.0, needs.shape, needs.frame_rate)
    return frames_at(TAKE, window.times_s).permute(0, 2, 3, 1).numpy()


def test_a_prediction_is_what_watching_says_of_the_same_clip(model, moment, clip):
    people = model.predict(clip, [actor.box_xyxy_px for actor in moment.actors], min_probability=0.5)
    assert len(people) == len(moment.actors) > 1
    for person, actor in zip(people, moment.actors, strict=True):
        assert person.actions == tuple(each.action for each in actor.now.actions)
        assert person.novelty.p_value == pytest.approx(actor.now.novelty.p_value, rel=1e-3)
        assert person.novelty.pe == pytest.approx(actor.now.novelty.pe, rel=1e-3)
        for opinion, other in zip(person.opinions, actor.now.actions, strict=False):
            assert opinion.action == other.action
            assert opinion.probability == pytest.approx(other.probability, rel=1e-3)
            assert opinion.evidence_for == pytest.approx(other.evidence_for, rel=1e-2)


def test_numpy_and_torch_and_lists_are_the_same(model, clip):
    boxes = [[2.0, 4.0, 12.0, 20.0], [10.0, 2.0, 30.0, 22.0]]
    expected = model.predict(clip, boxes)
    assert model.predict(torch.from_numpy(clip.copy()), torch.tensor(boxes, requires_grad=True)) == expected
    assert model.predict(clip, np.array(boxes)) == expected
    assert [person.box_xyxy_px for person in expected] == [tuple(box) for box in boxes]


def test_every_known_action_has_an_opinion_and_the_record_is_plain(model, clip):
    (person,) = model.predict(clip, [[2, 4, 12, 20]])
    assert {each.action for each in person.opinions} == set(model.classes)
    probabilities = [each.probability for each in person.opinions]
    assert probabilities == sorted(probabilities, reverse=True)
    assert json.loads(json.dumps(person.to_dict()))["decision"] == person.decision
    assert person.is_novel == (person.decision == "novel")
    everything = model.predict(clip, [[2, 4, 12, 20]], min_probability=0.0)[0]
    assert everything.actions == tuple(each.action for each in person.opinions)
    assert model.predict(clip, []) == []


def test_a_model_says_from_which_probability_on_it_names(model, clip):
    box, bundle = [[2, 4, 12, 20]], read_bundle(SAVED / "bundle")
    probability = model.predict(clip, box)[0].opinions[0].probability
    for least, is_named in ((probability - 1e-6, True), (probability + 1e-6, False)):
        changed = replace(bundle, card=bundle.card.model_copy(update={"names_from": least}))
        assert bool(Model(changed).predict(clip, box)[0].actions) == is_named
        assert open_watch(TAKE, changed).header.min_probability == least


def test_the_threshold_decides(model, clip):
    box = [[2, 4, 12, 20]]
    p_value = model.predict(clip, box)[0].novelty.p_value
    assert p_value is not None
    novelty = 1 - p_value
    assert model.predict(clip, box, threshold=f"{max(novelty - 1e-6, 0)}")[0].decision == "novel"
    assert model.predict(clip, box, threshold=f"{min(novelty + 1e-6, 0.999999)}")[0].decision != "novel"


def test_objects_are_seen(model, clip):
    box = [[2, 4, 12, 20]]
    with_ball = model.predict(clip, box, objects=[[10, 10, 16, 16]])
    assert with_ball != model.predict(clip, box)


def test_with_a_rate_the_middle_of_a_longer_clip_is_seen(model, clip):
    """A still frame at either end changes nothing, if the model knows how fast frames come."""
    needs = read_bundle(SAVED / "bundle").needs
    assert needs.frame_rate is not None
    rate = float(needs.frame_rate) / needs.shape.stride_frames
    box = [[2, 4, 12, 20]]
    longer = np.concatenate([clip[:1]] * 3 + [clip] + [clip[-1:]] * 3)
    assert model.predict(longer, box, rate=rate) == model.predict(clip, box)
    assert model.predict(longer, box) != model.predict(clip, box)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((8, 24, 32), np.uint8), ((8, 24, 32, 3), np.float32), ((0, 24, 32, 3), np.uint8)]
)
def test_what_is_no_clip_is_refused(model, shape, dtype):
    with pytest.raises(ShapeError, match="frames x rows x columns x 3"):
        model.predict(np.zeros(shape, dtype), [[2, 4, 12, 20]])


def test_what_is_no_box_is_refused(model, clip):
    with pytest.raises(ShapeError, match="x1, y1, x2, y2"):
        model.predict(clip, [2, 4, 12, 20])
    with pytest.raises(RangeError):
        model.predict(clip, [[500, 500, 600, 600]])


def examples(clip, count):
    """Pairs of a clip and a box; each is a little brighter than the last."""
    return [
        (np.clip(clip.astype(int) + 3 * number, 0, 255).astype(np.uint8), [2, 4, 12, 20])
        for number in range(count)
    ]


def test_a_taught_action_is_known_until_it_is_forgotten(own, clip):
    before = own.predict(clip, [[2, 4, 12, 20]])
    own.teach("juggle", examples(clip, 10))
    assert own.classes[-1] == "juggle"
    (person,) = own.predict(clip, [[2, 4, 12, 20]])
    probability = {each.action: each.probability for each in person.opinions}
    assert probability["juggle"] > 0.5
    assert person.decision == "known"
    with pytest.raises(RangeError, match="a name of its own; got 'juggle'"):
        own.teach("juggle", examples(clip, 2))
    own.forget("juggle")
    assert "juggle" not in own.classes
    after = own.predict(clip, [[2, 4, 12, 20]])
    assert after[0].actions == before[0].actions


def test_what_was_taught_is_saved_where_it_is_wanted(own, clip, tmp_path):
    own.teach("juggle", examples(clip, 5))
    assert "juggle" not in Model.load(tmp_path / "own").classes
    own.save(tmp_path / "new")
    again = Model.load(tmp_path / "new")
    assert again.classes == own.classes
    assert again.predict(clip, [[2, 4, 12, 20]]) == own.predict(clip, [[2, 4, 12, 20]])
    own.save(tmp_path / "own")
    assert Model.load(tmp_path / "own").classes == own.classes
    assert len(read_memory(tmp_path / "own" / "memory.safetensors").taught) == 1
    with pytest.raises(BundleError, match="must not exist yet"):
        own.save(tmp_path / "new")


def test_teaching_from_a_table_is_what_the_command_does(own, tmp_path):
    """The table names 'run', which the model of split A does not know."""
    from typer.testing import CliRunner

    from mule.cli.main import app

    table = SAVED / "take" / "actors.csv"
    novel = "run"
    assert novel not in own.classes
    outcome = CliRunner().invoke(
        app,
        [
            "teach",
            str(tmp_path / "own"),
            "--class",
            novel,
            "--examples",
            str(table),
            "--out",
            str(tmp_path / "m"),
        ],
    )
    assert outcome.exit_code == 0, outcome.output
    own.teach(novel, table)
    own.save(tmp_path / "taught")
    by_command, by_model = (
        read_memory(path) for path in (tmp_path / "m", tmp_path / "taught/memory.safetensors")
    )
    assert by_command.memory.class_names == by_model.memory.class_names
    assert torch.equal(by_command.memory.features, by_model.memory.features)


def test_the_builtin_model_is_not_written_over():
    model = Model.load("stage")
    with pytest.raises(BundleError, match="a model of the package cannot be changed"):
        model.save(read_bundle(Path("stage")).folder)


def test_a_model_without_memory_is_not_taught(tmp_path, clip):
    shutil.copytree(SAVED / "bundle", tmp_path / "own")
    (tmp_path / "own" / "memory.safetensors").unlink()
    model = Model.load(tmp_path / "own")
    assert "no memory" in repr(model)
    for change in (lambda: model.teach("juggle", examples(clip, 2)), lambda: model.forget(model.classes[0])):
        with pytest.raises(RangeError, match="must have a memory"):
            change()


def test_a_model_says_what_it_is(model):
    assert repr(model).startswith(f"Model('{model.card.name}', 14 actions: ")
    assert "remembered actors; calibrated on" in repr(model)
    with pytest.raises(MuleError, match="there is no such folder"):
        Model.load("nowhere")
