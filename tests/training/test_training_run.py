"""A training from its experiment to its weights, and what becomes of it when something goes wrong."""

import json
import multiprocessing
import resource
from dataclasses import replace

import pytest
import torch
from tiny_runs import Heard, curves_of, tiny_experiment

from mule.core.config import ConfigError
from mule.core.errors import RangeError, WeightsError
from mule.model import KeptMaps
from mule.objective.primal_dual import PrimalDual
from mule.stage.classes import stage_split
from mule.systems.catalogue import SYSTEMS
from mule.training.build import build_model, build_parts, load_run, run_experiment
from mule.training.checkpoint import Checkpoints
from mule.training.loop import TrainingStopped, validated
from mule.training.step import BatchObjective, in_single, scene_boxes

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Where rendered clips are kept, for all tests of this file."""
    return tmp_path_factory.mktemp("stage")


@pytest.fixture(scope="module")
def finished(root, tmp_path_factory):
    """A run that was left alone."""
    run_dir = tmp_path_factory.mktemp("runs") / "alone"
    run_experiment(tiny_experiment(root), run_dir, listener=Heard())
    return run_dir


def weights_of(run_dir):
    return (run_dir / "model.safetensors").read_bytes()


def last_checkpoint(run_dir):
    """The last checkpoint, which is sound."""
    found, wrong = Checkpoints(run_dir / "checkpoints").last()
    assert found is not None
    assert wrong == []
    return found


def test_an_epoch_without_a_batch_is_refused(root, tmp_path):
    with pytest.raises(RangeError, match="12 clips, and a batch takes 13"):
        run_experiment(tiny_experiment(root, training__batch_clips=13), tmp_path / "run", listener=Heard())


def test_a_run_leaves_all_that_is_needed_to_repeat_and_to_use_it(finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "experiment.toml",
        "run.json",
        "metrics.jsonl",
        "checkpoints",
        "model.safetensors",
        "card.json",
        "mule-manifest.json",
    }
    record = json.loads((finished / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["experiment"]["training"]["epochs"] == 2
    assert set(record["data_digests"]) == {"train", "val", "split"}
    (session,) = record["sessions"]
    assert session["packages"]["torch"] == torch.__version__
    assert session["step_s"] > 0
    assert session["hardware"]["num_cores"] >= 1
    lines = curves_of(finished)
    assert [line["step"] for line in lines if line["kind"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [3, 6]
    assert all(line["constraints"]["static_bias"] is not None for line in lines if line["kind"] == "step")


def test_a_loaded_run_says_what_the_trained_model_said(root, finished):
    model, experiment, classes = load_run(finished)
    assert experiment == tiny_experiment(root)
    assert classes == stage_split("A").known
    parts, _ = build_parts(experiment, device=CPU, listener=Heard())
    best = max(line["mean_ap"] for line in curves_of(finished) if line["kind"] == "validation")
    assert validated(model, parts.val, device=CPU).mean_ap == pytest.approx(best, abs=1e-12)


def test_an_unfinished_or_changed_run_is_not_loaded(finished, tmp_path):
    with pytest.raises(WeightsError, match=r"must have a card.*--resume"):
        load_run(tmp_path)
    for name in ("card.json", "experiment.toml", "mule-manifest.json"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    with pytest.raises(WeightsError, match=r"model\.safetensors: must exist, because the manifest lists it"):
        load_run(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(weights_of(finished)[:-1] + b"\x00")
    with pytest.raises(WeightsError, match="its card vouches for"):
        load_run(tmp_path)


@pytest.mark.slow
def test_the_same_experiment_gives_the_same_bits_with_any_number_of_workers(root, finished, tmp_path):
    run_experiment(tiny_experiment(root, loading__workers=1), tmp_path / "again", listener=Heard())
    assert weights_of(tmp_path / "again") == weights_of(finished)
    assert curves_of(tmp_path / "again") == curves_of(finished)


@pytest.mark.slow
def test_another_seed_gives_other_weights(root, finished, tmp_path):
    run_experiment(tiny_experiment(root, seed=11, training__epochs=1), tmp_path / "other", listener=Heard())
    assert weights_of(tmp_path / "other") != weights_of(finished)


@pytest.mark.parametrize("name", [name for name, each in SYSTEMS.items() if each.backbone is None])
def test_every_system_takes_a_step_that_lowers_its_loss(root, name):
    experiment = tiny_experiment(root, system=name, objective={"inner_steps": 0}, optimizer={"lr": 1e-3})
    parts, _ = build_parts(experiment, device=CPU, listener=Heard())
    parts.model.eval()  # no units are dropped, so that losses can be compared
    batch = next(iter(parts.train))
    primal_dual = PrimalDual(parts.model, parts.optimizer, parts.constraints, inner_steps=0)
    objective = BatchObjective(parts.model, batch, parts.objective, progress=0.5)
    losses = [primal_dual.step(objective).loss for _ in range(4)]
    assert losses[-1] < losses[0]


def test_a_network_learns_what_it_is_shown(root, tmp_path):
    experiment = tiny_experiment(
        root,
        system="slowfast",
        objective={"inner_steps": 1},
        optimizer={"kind": "adamw", "lr": 5e-3},
        schedule={},
        training__epochs=8,
        training__validate_every_epochs=8,
    )
    heard = Heard()
    run_experiment(experiment, tmp_path / "run", listener=heard)
    losses = [values["loss"] for values in heard.steps]
    assert sum(losses[-3:]) < 0.6 * sum(losses[:3])


def test_a_new_run_needs_a_new_folder(root, finished):
    with pytest.raises(ConfigError, match=r"this one holds a run.*--resume"):
        run_experiment(tiny_experiment(root), finished, listener=Heard())


def test_a_run_goes_on_only_with_the_experiment_it_began_with(root, finished):
    with pytest.raises(
        ConfigError, match=r"system was 'mule-without-aco-r', is 'mule'.*batch_clips was 4, is 2"
    ):
        run_experiment(
            tiny_experiment(root, system="mule", training__batch_clips=2),
            finished,
            listener=Heard(),
            resumes=True,
        )


def test_a_finished_run_that_is_resumed_stays_as_it_is(root, finished):
    before = weights_of(finished)
    run_experiment(tiny_experiment(root), finished, listener=Heard(), resumes=True)
    assert weights_of(finished) == before
    assert len(json.loads((finished / "run.json").read_text())["sessions"]) == 2


def test_training_stops_when_validation_no_longer_gets_better(root, tmp_path):
    experiment = tiny_experiment(
        root,
        optimizer={"lr": 1e-12},
        training__epochs=9,
        training__patience_epochs=2,
        backbone={"norm": "frozen"},
    )
    heard = Heard()
    progress = run_experiment(experiment, tmp_path / "run", listener=heard)
    assert len(heard.validations) == 3  # the best, and two that are no better
    assert (progress.step, progress.best_step) == (9, 9)  # of equally good ones, the one that learnt longest


@pytest.mark.slow
def test_the_moving_average_is_what_is_kept(root, tmp_path):
    for name, keeps in (("average", 0.5), ("plain", None)):
        changes = {} if keeps is None else {"training__average_decay": keeps}
        run_experiment(
            tiny_experiment(root, training__epochs=1, training__keeps="last", **changes),
            tmp_path / name,
            listener=Heard(),
        )
    average, plain = (load_run(tmp_path / name).model for name in ("average", "plain"))
    last = last_checkpoint(tmp_path / "average")
    assert last.average is not None
    for key, value in average.state_dict().items():
        assert torch.equal(value, last.average[f"module.{key}"])
    key = "decide.head.linear.weight"
    assert not torch.equal(average.state_dict()[key], plain.state_dict()[key])
    assert torch.equal(last.model[key], plain.state_dict()[key])  # averaging does not disturb training


class Interfering(Heard):
    """A listener that does something at a step, or at that step and all later ones."""

    def __init__(self, step, act, *, keeps_on=False):
        super().__init__()
        self.at, self.act, self.keeps_on = step, act, keeps_on

    def stepped(self, step, num_steps, values):
        super().stepped(step, num_steps, values)
        if step == self.at or (self.keeps_on and step > self.at):
            self.act()


def test_a_loss_that_is_not_finite_stops_the_run_and_spares_the_checkpoint(root, tmp_path):
    run_dir = tmp_path / "run"
    experiment = tiny_experiment(
        root,
        optimizer={"kind": "sgd", "lr": 1e-3},
        schedule={"kind": "step", "milestones": [1.2], "factor": 1e30},
    )
    with pytest.raises(TrainingStopped) as told:
        run_experiment(experiment, run_dir, listener=Heard())
    assert "training stopped at step" in str(told.value)
    assert "step-00000004, is intact" in str(told.value) or "step-00000003, is intact" in str(told.value)
    assert "lower optimizer.lr" in str(told.value)
    record = json.loads((run_dir / "run.json").read_text())
    assert record["status"] == "stopped"
    assert record["reason"] == str(told.value)
    last = last_checkpoint(run_dir)
    assert all(torch.isfinite(tensor).all() for tensor in last.model.values())
    sane = tiny_experiment(root, optimizer={"kind": "sgd", "lr": 1e-3}, schedule={"kind": "constant"})
    heard = Heard()
    assert run_experiment(sane, run_dir, listener=heard, resumes=True).step == 6
    assert any("schedule.factor was 1e+30" in note for note in heard.notes)


def test_a_full_disk_stops_the_run_and_it_goes_on_to_the_same_bits(root, finished, tmp_path):
    run_dir = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    full = Interfering(3, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1])))
    try:
        with pytest.raises(
            TrainingStopped, match=r"(?s)a checkpoint of .* MB must be written.*step-00000002, is intact"
        ):
            run_experiment(tiny_experiment(root), run_dir, listener=full)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert Checkpoints(run_dir / "checkpoints").steps() == [2]
    run_experiment(tiny_experiment(root), run_dir, listener=Heard(), resumes=True)
    assert weights_of(run_dir) == weights_of(finished)
    assert curves_of(run_dir) == curves_of(finished)


def kill_workers():
    for worker in multiprocessing.active_children():
        worker.kill()
        worker.join()


@pytest.mark.slow
def test_a_worker_lost_twice_stops_the_run_and_it_goes_on_to_the_same_bits(root, tmp_path):
    wanted = {"training__epochs": 3, "training__validate_every_epochs": 3}
    with pytest.raises(TrainingStopped, match=r"(?s)worker processes must live.*is intact.*--resume"):
        run_experiment(
            tiny_experiment(root, loading__workers=1, **wanted),
            tmp_path / "lost",
            listener=Interfering(4, kill_workers, keeps_on=True),
        )
    run_experiment(tiny_experiment(root, **wanted), tmp_path / "lost", listener=Heard(), resumes=True)
    run_experiment(tiny_experiment(root, **wanted), tmp_path / "alone", listener=Heard())
    assert weights_of(tmp_path / "lost") == weights_of(tmp_path / "alone")


@pytest.mark.slow
def test_a_damaged_last_checkpoint_is_told_and_the_one_before_is_used(root, finished, tmp_path):
    run_dir = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(tiny_experiment(root), run_dir, listener=Interfering(5, interrupt))
    kept = Checkpoints(run_dir / "checkpoints")
    assert kept.steps() == [3, 4]
    (kept.path_of(4) / "state.pt").write_bytes(b"")
    heard = Heard()
    run_experiment(tiny_experiment(root), run_dir, listener=heard, resumes=True)
    assert any("Using the checkpoint before it" in note for note in heard.notes)
    assert weights_of(run_dir) == weights_of(finished)


def interrupt():
    raise KeyboardInterrupt


def test_kept_maps_say_what_the_backbone_says(root, finished, tmp_path):
    frozen = tiny_experiment(root, backbone={"frozen": True, "weights": str(finished)})
    parts, data = build_parts(frozen, device=CPU, listener=Heard())
    whole = load_run(finished).model
    parts.model.get_submodule("decide").load_state_dict(whole.get_submodule("decide").state_dict())
    kept = parts.model.get_submodule("backbone")
    assert isinstance(kept, KeptMaps)
    assert not torch.equal(kept.mean, torch.zeros_like(kept.mean))  # of the training clips
    kept.standardise(torch.zeros_like(kept.mean), torch.ones_like(kept.deviation))
    pixels, _ = build_parts(tiny_experiment(root), device=CPU, listener=Heard())
    expected = validated(whole, pixels.val, device=CPU)
    found = validated(parts.model, parts.val, device=CPU)
    assert found.mean_ap == pytest.approx(expected.mean_ap, abs=1e-9)
    progress = run_experiment(frozen, tmp_path / "frozen", listener=Heard())
    assert progress.step == 6
    assert isinstance(load_run(tmp_path / "frozen").model.backbone, KeptMaps)
    assert len(data.classes) == 14


@pytest.mark.slow
def test_training_on_kept_maps_goes_on_where_it_was(root, finished, tmp_path):
    frozen = tiny_experiment(root, backbone={"frozen": True, "weights": str(finished)})
    run_experiment(frozen, tmp_path / "alone", listener=Heard())
    with pytest.raises(KeyboardInterrupt):
        run_experiment(frozen, tmp_path / "run", listener=Interfering(5, interrupt))
    run_experiment(frozen, tmp_path / "run", listener=Heard(), resumes=True)
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "alone")


def test_a_frozen_backbone_needs_weights(root, tmp_path):
    with pytest.raises(ConfigError, match="must have weights"):
        run_experiment(tiny_experiment(root, backbone={"frozen": True}), tmp_path / "run", listener=Heard())


def test_a_published_backbone_does_not_start_from_chance_unasked(root, tmp_path):
    experiment = tiny_experiment(root, backbone={"name": "pytorchvideo_x3d_xs"})
    with pytest.raises(WeightsError, match=r"mule weights pull pytorchvideo_x3d_xs.*from_chance"):
        run_experiment(experiment, tmp_path / "run", listener=Heard())


def test_data_must_say_where_it_lies(tmp_path):
    experiment = tiny_experiment(tmp_path)
    nowhere = experiment.model_copy(update={"data": experiment.data.model_copy(update={"root": None})})
    with pytest.raises(ConfigError, match=r"--set data\.root=DIR"):
        run_experiment(nowhere, tmp_path / "run", listener=Heard())


@pytest.mark.parametrize("name", ["tiny", "pytorchvideo_x3d_xs"])
def test_options_that_a_backbone_does_not_have_are_refused(root, name):
    experiment = tiny_experiment(root, backbone={"name": name, "options": {"depth": 3}})
    with torch.device("meta"), pytest.raises(ConfigError, match=r"backbone\.options.*depth"):
        build_model(experiment)


def test_where_mixed_precision_is_not_used_it_is_said_once(root, tmp_path):
    heard = Heard()
    experiment = tiny_experiment(root, training__precision="bfloat16", training__epochs=1)
    run_experiment(experiment, tmp_path / "run", listener=heard)
    has_gpu = torch.cuda.is_available()
    assert sum("Training in float32" in note for note in heard.notes) == (0 if has_gpu else 1)


def test_losses_see_single_precision_whatever_the_network_computed_in(root):
    parts, _ = build_parts(tiny_experiment(root), device=CPU, listener=Heard())
    batch = next(iter(parts.train))
    output = parts.model(batch.pixels, scene_boxes(batch))
    assert in_single(output).outputs is output.outputs
    half = in_single(replace(output, outputs=output.outputs.bfloat16(), context=output.context.bfloat16()))
    assert {half.outputs.dtype, half.context.dtype, half.features.dtype} == {torch.float32}


@pytest.mark.slow
def test_event_files_are_written_where_tensorboard_is_installed(root, tmp_path):
    heard = Heard()
    run_experiment(
        tiny_experiment(root, training__tensorboard=True, training__epochs=1),
        tmp_path / "run",
        listener=heard,
    )
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        assert sum("mule-actions[tensorboard]" in note for note in heard.notes) == 1
    else:
        assert list((tmp_path / "run" / "events").iterdir())


def test_boxes_of_a_batch_go_to_the_model_unchanged(root):
    parts, _ = build_parts(tiny_experiment(root), device=CPU, listener=Heard())
    batch = next(iter(parts.train))
    boxes = scene_boxes(batch)
    assert torch.equal(boxes.actors_xyxy_px, batch.actor_boxes_xyxy_px)
    assert torch.equal(boxes.object_clip_index, batch.object_clip_index)
