"""Training on videos, a table and a split; and on maps that were kept of them."""

import numpy as np
import pytest
import torch
from made_films import FOUR, settings_on, two_in_each_film, write_films
from tiny_runs import Heard, tiny_experiment

from mule.core.config import ConfigError
from mule.core.errors import AnnotationError, RangeError, TooFewActors, VideoError
from mule.core.settings import TableData
from mule.data.batches.batches import ClipSampler
from mule.data.batches.samples import ClipName
from mule.data.split.splits import ClassSets, SideVideos, read_split, table_digest
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ObjectTable
from mule.data.table.writing import write_object_table
from mule.features.feature_files import VideoFeatures
from mule.training.build import build_parts, load_run, run_experiment
from mule.training.data import table_sides, tags_of
from mule.training.kept_maps import KeptBatches, kept_batch, kept_table, labelled_actors

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_films(tmp_path_factory.mktemp("films"), two_in_each_film())


def experiment_on(root, **changes):
    data = {**settings_on(root), **changes.pop("data", {})}
    return tiny_experiment(root, data=data, training__batch_clips=2, **changes)


def test_a_training_on_videos_runs_to_its_end_and_says_which_data_it_was(root, tmp_path):
    experiment = experiment_on(root)
    parts, data = build_parts(experiment, device=CPU, listener=Heard())
    assert data.classes == ("walk", "run")
    assert data.digests == {
        "actors": table_digest(read_actor_table(root / "actors.csv")),
        "split": read_split(root / "split.toml").digest,
    }
    assert parts.train.sampler.num_clips == 4  # two moments of two films
    assert parts.val.sampler.num_clips == 2
    progress = run_experiment(experiment, tmp_path / "run", listener=Heard())
    assert progress.step == 4
    assert 0 < (progress.best_mean_ap or 0) <= 1


def test_the_split_knows_how_many_actions_there_are(root, tmp_path):
    experiment = experiment_on(root, data={"num_known": None})
    assert isinstance(experiment.data, TableData)
    assert experiment.data.num_known is None
    run_experiment(experiment, tmp_path / "run", listener=Heard())
    run = load_run(tmp_path / "run")
    assert isinstance(run.experiment.data, TableData)
    assert run.experiment.data.num_known == len(run.classes) == 2
    run_experiment(experiment, tmp_path / "run", listener=Heard(), resumes=True)


def test_detected_persons_who_overlap_an_actor_learn_with_it(root):
    """Of three persons one lies on the walker of film0 at 0.5 s, one on nobody, one scores too little."""
    place = np.array([[0.12, 0.2, 0.42, 0.9], [0.7, 0.0, 0.9, 0.1], [0.5, 0.2, 0.8, 0.9]])
    persons = ObjectTable(
        ("film0",),
        ("person",),
        np.zeros(3, int),
        np.full(3, 0.5),
        place,
        np.zeros(3, int),
        np.array([0.95, 0.95, 0.5]),
    )
    write_object_table(persons, root / "persons.csv")
    data = experiment_on(root, data={"persons": "persons.csv"}).data
    assert isinstance(data, TableData)
    actors = table_sides(data).train_actors
    assert len(actors) == 8 + 1
    assert actors.action_names(8) == ("walk",)
    np.testing.assert_allclose(actors.boxes_xyxy_unit[8], place[0])


def test_d1_a_taught_action_that_nobody_does_is_noted_once_and_trained_as_not_done(tmp_path):
    """As in AVA's subsets without 'fall down': the class is in the split, not in the table."""
    classes = ClassSets(("walk",), ("run", "fall down"), ("fly",), ())
    write_films(tmp_path, two_in_each_film(), classes=classes)
    heard = Heard()
    experiment = experiment_on(tmp_path, data={"num_known": 3})
    progress = run_experiment(experiment, tmp_path / "run", listener=heard)
    told = [note for note in heard.notes if "fall down" in note]
    assert told == [
        "1 of 3 taught actions have no training actor: 'fall down'. Their outputs learn from other actors that they are "
        "not done; their average precision is undefined."
    ]
    assert 0 < (progress.best_mean_ap or 0) <= 1
    parts, data = build_parts(experiment, device=CPU, listener=Heard())
    assert data.classes == ("walk", "run", "fall down")
    assert not next(iter(parts.train)).labels[:, 2].any()


def test_d2_a_split_without_validation_actors_is_refused_before_anything_is_computed(tmp_path):
    write_films(tmp_path, two_in_each_film(), sides=SideVideos(("film0", "film1", "film2"), (), ("film3",)))
    heard = Heard()
    with pytest.raises(TooFewActors, match=r"must have validation actors .*--val-share 0\.15"):
        run_experiment(experiment_on(tmp_path), tmp_path / "run", listener=heard)
    assert not heard.steps


def test_linked_videos_are_trained_on(root, tmp_path):
    for name in ("actors.csv", "split.toml"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    (tmp_path / "videos").mkdir()
    for film in (root / "videos").iterdir():
        (tmp_path / "videos" / film.name).symlink_to(film)
    data = experiment_on(tmp_path).data
    assert isinstance(data, TableData)
    assert sorted(table_sides(data).videos) == ["film0", "film1", "film2"]


def test_a_table_is_read_again_only_when_its_files_have_changed(tmp_path):
    write_films(tmp_path, two_in_each_film())
    data = experiment_on(tmp_path).data
    assert isinstance(data, TableData)
    first = table_sides(data)
    assert table_sides(data) is first
    actors = tmp_path / "actors.csv"
    lines = actors.read_text().splitlines(keepends=True)
    actors.write_text("".join(lines[:-1]))
    assert len(table_sides(data).table) == len(first.table) - 1
    (tmp_path / "split.toml").write_text("format = 'another'")
    for reading in (table_sides, tags_of):
        with pytest.raises(AnnotationError, match="format must be"):
            reading(data)


def test_rare_actions_can_be_drawn_more_often(root):
    parts, _ = build_parts(experiment_on(root, data={"draws_evenly": True}), device=CPU, listener=Heard())
    assert parts.train.sampler.weights is not None
    assert parts.val.sampler.weights is None


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"num_known": 3}, ConfigError, r"num_known must be .* 2; got 3"),
        ({"videos": "split.toml"}, VideoError, "must be a folder of videos"),
        ({"actors": "none.csv"}, ValueError, "none.csv"),
        ({"frame_rate": "fast"}, ConfigError, "frame_rate must be a number"),
    ],
)
def test_data_that_does_not_fit_is_named(root, change, error, told):
    with pytest.raises(error, match=told):
        build_parts(experiment_on(root, data=change), device=CPU, listener=Heard())


def test_missing_videos_are_counted(root, tmp_path):
    for name in ("actors.csv", "split.toml"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    (tmp_path / "videos").mkdir()
    with pytest.raises(VideoError, match=r"3 are not: film0, film1, film2"):
        build_parts(experiment_on(tmp_path), device=CPU, listener=Heard())


def features_of(num_clips=2, size=(4, 6), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return VideoFeatures(
        context=torch.randn(num_clips, 5, *size, generator=generator),
        key_time_s=torch.tensor([0.5, 1.0], dtype=torch.float64)[:num_clips],
        num_clamped=torch.zeros(num_clips, dtype=torch.int64),
        stride=8,
        input_size=(size[0] * 8, size[1] * 8),
        source_size=(64, 96),
    )


def test_kept_clips_have_the_map_of_their_time_and_boxes_in_its_pixels():
    table = two_in_each_film()
    features = {video: features_of(seed=number) for number, video in enumerate(FOUR)}
    clips = kept_table(table, features, classes=("run", "walk"), objects=None)
    assert len(clips) == 8
    clip = clips[5]
    assert clip.name == ClipName("film2", 1.0)
    assert torch.equal(clip.context, features["film2"].context[1])
    assert clip.labels.tolist() == [[False, True], [True, False]]
    expected = torch.tensor(
        [[0.1 * 48, 0.2 * 32, 0.4 * 48, 0.9 * 32], [0.5 * 48, 0.2 * 32, 0.8 * 48, 0.9 * 32]]
    )
    torch.testing.assert_close(clip.actor_boxes_xyxy_px, expected)
    assert clip.actor_ids == ("0", "1")
    labels, clip_index = labelled_actors(clips, 2)
    assert labels.shape == (16, 2)
    assert clip_index.tolist() == [i for i in range(8) for _ in (0, 1)]


def test_kept_clips_of_two_sizes_make_two_stacks_and_none_makes_an_empty_batch():
    features = {video: features_of(size=(4, 6 + 2 * (number == 1))) for number, video in enumerate(FOUR)}
    clips = kept_table(two_in_each_film(), features, classes=("walk",), objects=None)
    batch = kept_batch(clips[1:3], (1, 2), 1)
    assert [tuple(stack.shape) for stack in batch.pixels] == [(1, 5, 1, 4, 6), (1, 5, 1, 4, 8)]
    assert batch.actor_clip_index.tolist() == [0, 0, 1, 1]
    assert kept_batch([], (), 1).num_clips == 0


def test_kept_batches_go_on_where_others_stopped_and_refuse_other_orders():
    features = dict.fromkeys(FOUR, features_of())
    clips = kept_table(two_in_each_film(), features, classes=("walk", "run"), objects=None)

    def batches(seed=0):
        return KeptBatches(clips, ClipSampler(8, 3, seed=seed, drops_last=True), num_classes=2)

    alone, halted, resumed = batches(), batches(), batches()
    expected = [batch.positions.tolist() for _ in range(2) for batch in alone]
    found = [next(iter(halted)).positions.tolist()]
    resumed.load_state_dict(halted.state_dict())
    assert len(resumed) == 1
    found += [batch.positions.tolist() for _ in range(2) for batch in resumed]
    assert found == expected
    with pytest.raises(RangeError, match="must be those of the earlier run"):
        batches(seed=1).load_state_dict(halted.state_dict())


def test_kept_maps_need_times_and_a_map_at_each():
    whole = two_in_each_film(times=(np.nan, 1.0))
    with pytest.raises(RangeError, match="needs a time in every row"):
        kept_table(whole, {}, classes=("walk",), objects=None)
    short = dict.fromkeys(FOUR, features_of(num_clips=1))
    with pytest.raises(VideoError, match=r"film0 at 1 s: there must be a map.*the last is at 0\.5 s"):
        kept_table(two_in_each_film(), short, classes=("walk",), objects=None)
