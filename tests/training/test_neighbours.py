"""Systems with a memory of clips: trained, resumed and tested on films whose clips have neighbours."""

import pytest
import torch
from made_films import settings_on, two_in_each_film, write_films
from scenes import boxes_of, maps_of
from shared_training import bank_on_films, train_bank_together
from tiny_runs import Heard, curves_of, tiny_experiment
from two_ranks import on_two_ranks  # pyright: ignore[reportMissingImports] - in tests/distributed

from mule.data.batches.batches import ActorBatch, ClipSampler
from mule.data.batches.samples import ClipName
from mule.inference.running import outputs_of
from mule.inference.sides import read_side
from mule.model import RelationModel, neighbourhood
from mule.rivals.networks.clip_memory import ClipMemory
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import tiny_sizes
from mule.training.build import LoadedRun, build_model, build_parts, load_run, run_experiment
from mule.training.loop import TrainingRun, validated
from mule.training.neighbours import Beside, boxes_beside, side_memory
from mule.training.run_folder import RunFolder
from mule.training.step import evaluating, scene_boxes

CPU = torch.device("cpu")
NAMES = ("aia", "acar-bank")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_films(tmp_path_factory.mktemp("films"), two_in_each_film(times=(0.5, 1.0, 1.5)))


def experiment_on(root, name, **changes):
    wanted = {"training__batch_clips": 2, "objective": {"inner_steps": 1}, **changes}
    return tiny_experiment(root, system=name, data=settings_on(root), **wanted)


def stirred(model):
    """A fresh AIA is told nothing by its memory; here it is."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.decide.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


class Interrupting(Heard):
    """Stops a training as Ctrl-C does, after some steps."""

    def stepped(self, step, num_steps, values):
        super().stepped(step, num_steps, values)
        if step == 5:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", NAMES)
def test_a_training_that_is_resumed_ends_with_the_same_bits(root, name, tmp_path):
    experiment = experiment_on(root, name)
    assert run_experiment(experiment, tmp_path / "alone", listener=Heard()).step == 6
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, tmp_path / "stopped", listener=Interrupting())
    run_experiment(experiment, tmp_path / "stopped", listener=Heard(), resumes=True)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("alone", "stopped")]
    assert weights[0] == weights[1]
    assert load_run(tmp_path / "alone").system.name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_holds_the_memory_of_every_clip_that_was_seen(root, name, tmp_path):
    experiment = experiment_on(root, name, training__epochs=1)
    parts, _ = build_parts(experiment, device=CPU, listener=Heard())
    run = TrainingRun(parts, experiment.training, folder=RunFolder(tmp_path), listener=Heard())
    run.train()
    kept, _ = run.checkpoints.last()
    assert kept is not None
    clips = kept.state["clip_memory"]["clips"]
    assert sorted((video, time_s) for video, time_s, *_ in clips) == [
        (film, time_s) for film in ("film0", "film1") for time_s in (0.5, 1.0, 1.5)
    ]
    assert all(actors.dtype == torch.float16 for _, _, actors, _ in clips)
    assert all(loss > 0 for *_, loss in clips)


def batch_on(clips, actors):
    """A batch without pixels worth looking at: as many actors in each clip as given."""
    index = torch.repeat_interleave(torch.tensor(actors))
    boxes = boxes_of(index.tolist(), [])
    none = torch.zeros(0, dtype=torch.int64)
    return ActorBatch(
        pixels=(torch.zeros(len(clips), 1, 1, 1, 1),),
        clip_names=tuple(clips),
        positions=torch.arange(len(clips)),
        actor_boxes_xyxy_px=boxes.actors_xyxy_px,
        actor_clip_index=index,
        actor_index=torch.cat([torch.arange(number) for number in actors]),
        labels=torch.zeros(len(index), 2, dtype=torch.bool),
        actor_ids=("",) * len(index),
        object_boxes_xyxy_px=torch.zeros(0, 4),
        object_clip_index=none,
        object_class=none,
        object_scores=torch.zeros(0),
    )


def test_after_some_steps_the_memory_equals_a_dictionary_kept_by_hand():
    network = SYSTEMS["aia"].build(tiny_sizes(10, 2)).eval()
    assert isinstance(network, RelationModel)
    span = neighbourhood(network)
    assert span is not None
    memory, by_hand = ClipMemory(span), {}
    for step, clips in enumerate(([0.0, 4.0], [1.0, 4.0], [0.0, 40.0])):
        names = [ClipName("a", time_s) for time_s in clips]
        batch, maps = batch_on(names, [2, 6]), maps_of(2, seed=step)
        model = Beside(lambda _, boxes, maps=maps: network([maps], boxes), batch, memory)
        model(batch.pixels, scene_boxes(batch))
        model.remember(loss=1.0)
        actors = network.scene([maps], scene_boxes(batch)).actors.detach()
        for number, name in enumerate(names):
            by_hand[name] = actors[batch.actor_clip_index == number][:5].half()
    state = {ClipName(video, time_s): actors for video, time_s, actors, _ in memory.state_dict()["clips"]}
    assert state.keys() == by_hand.keys()
    assert all(torch.equal(state[name], by_hand[name]) for name in by_hand)


class Backwards(ClipSampler):
    """Visits the clips from the last to the first."""

    def order(self, epoch):
        return super().order(epoch)[::-1].copy()


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_clips_of_a_side_changes_nothing_but_their_neighbours_matter(root, name):
    experiment = experiment_on(root, name, training__batch_clips=1)
    run = LoadedRun(stirred(build_model(experiment)), experiment, ("walk", "run"))
    side, turned = (read_side(experiment, "test", noted=lambda _: None) for _ in range(2))
    turned.batches.sampler = Backwards(**vars(turned.batches.sampler))
    there, back = (outputs_of(run, each, dropout_passes=0) for each in (side, turned))
    assert back.clip_names == there.clip_names[::-1]
    assert len(there.clip_names) == 3
    for number in range(3):
        torch.testing.assert_close(
            back.outputs[back.clip_index == 2 - number], there.outputs[there.clip_index == number]
        )
    with evaluating(run.model):
        alone = torch.cat([run.model(batch.pixels, scene_boxes(batch)).outputs for batch in side.batches])
    assert not torch.allclose(there.outputs, alone, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_validation_sees_the_neighbours_of_its_clips(root, name):
    experiment = experiment_on(root, name)
    parts, _ = build_parts(experiment, device=CPU, listener=Heard())
    model = stirred(parts.model)
    span = neighbourhood(model)
    assert span is not None
    memory = side_memory(model, span, parts.val, device=CPU)
    assert len(memory) == 3
    with evaluating(model):
        outputs = [model(batch.pixels, boxes_beside(batch, memory)) for batch in parts.val]
    assert sum(len(each.outputs) for each in outputs) == 6
    assert validated(model, parts.val, device=CPU).num_actors == 6


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_train_with_one_memory_as_one_process_does(tmp_path):
    (tmp_path / "films").mkdir()
    films = write_films(tmp_path / "films", two_in_each_film(times=(0.5, 1.0, 1.5)))
    run_experiment(bank_on_films(films), tmp_path / "one", listener=Heard())
    first, second = on_two_ranks(train_bank_together, tmp_path)
    assert first == second
    assert len(first) == 6
    alone, together = (
        [line["loss"] for line in curves_of(tmp_path / run) if line["kind"] == "step"]
        for run in ("one", "two")
    )
    assert len(alone) == 9
    assert together == pytest.approx(alone, rel=1e-4)
