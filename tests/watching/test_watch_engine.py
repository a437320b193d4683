"""From a video to moments: the same every time, by the threshold, whatever is or is not in the picture."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from tiny_bundles import MadeUpBoxes, grey_video, leaves, stays

from mule.core.errors import DetectorError, RangeError, VideoError
from mule.core.records import Evidence
from mule.core.settings import StageData
from mule.inference.running import OutputsOf
from mule.training.build import load_run
from mule.video.reading import Clip
from mule.watching.engine.finding import Scene
from mule.watching.engine.key_times import Rhythm, Sight
from mule.watching.engine.recognising import Recogniser
from mule.watching.engine.telling import Telling, Told, contributors_in, kept_place
from mule.watching.engine.watch import WatchSettings, open_watch
from mule.watching.moments import decide, problems_of
from mule.watching.watch import watch

LEFT, RIGHT = (0.05, 0.2, 0.4, 0.9), (0.55, 0.2, 0.95, 0.9)


@pytest.fixture(scope="module")
def grey(tmp_path_factory):
    return grey_video(tmp_path_factory.mktemp("grey") / "grey.mp4", seconds=4.0)


def moments_of(path, bundle, *finders, **settings):
    finder = finders[0] if finders else None
    return list(open_watch(path, bundle, detector=finder, settings=WatchSettings(**settings)))


def test_nobody_in_the_picture_is_an_ordinary_moment(grey, bundle):
    found = moments_of(grey, bundle, MadeUpBoxes())
    assert [moment.key_time_s for moment in found] == [0, 1, 2, 3]
    assert all(moment.actors == () for moment in found)


def test_watching_twice_gives_identical_moments(take, bundle_dir):
    first, second = (list(watch(take, model=bundle_dir)) for _ in range(2))
    assert first == second
    assert len(first) == 4
    assert any(moment.actors for moment in first)


def test_every_decision_follows_its_threshold(take, bundle):
    for threshold in ("known-95", "known-60", "0.1"):
        watching = open_watch(take, bundle, settings=WatchSettings(threshold=threshold))
        found = list(watching)
        assert all(problems_of(moment, watching.header) == [] for moment in found)
        assert all(
            actor.decision == decide(actor, watching.header.threshold) for m in found for actor in m.actors
        )
    assert any(actor.is_novel for moment in found for actor in moment.actors)


def test_a_longer_look_at_the_same_scene_is_surer(tmp_path, bundle):
    path = grey_video(tmp_path / "still.mp4", seconds=4.0, rate=8)
    found = moments_of(path, bundle, MadeUpBoxes(stays(LEFT)), min_probability=0.0)
    actors = [moment.actors[0] for moment in found]
    assert [actor.num_looks for actor in actors] == [1, 2, 3, 4]
    assert {actor.track_id for actor in actors} == {0}
    first, last = (
        {each.action: each.uncertainty for each in actor.so_far.actions} for actor in (actors[0], actors[-1])
    )
    assert all(last[action] < first[action] for action in first)
    now, so_far = actors[0].now, actors[0].so_far  # one look is itself, to the digits of single precision
    assert [each.action for each in now.actions] == [each.action for each in so_far.actions]
    assert now.novelty.p_value == so_far.novelty.p_value
    for one, other in zip(now.actions, so_far.actions, strict=True):
        numbers = [list(each.model_dump(exclude={"action"}).values()) for each in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-5)


def test_one_person_leaves_and_the_other_keeps_the_number(grey, bundle):
    found = moments_of(grey, bundle, MadeUpBoxes(leaves(LEFT, 1.5), stays(RIGHT)))
    assert [[actor.track_id for actor in moment.actors] for moment in found] == [[0, 1], [0, 1], [1], [1]]


class NumberedBoxes(MadeUpBoxes):
    """Boxes with track ids of their own, written down in no order."""

    def __init__(self, *paths, track_ids):
        super().__init__(*paths)
        self.track_ids = torch.tensor(track_ids)

    def __call__(self, frame, *, key_time_s):
        return replace(super().__call__(frame, key_time_s=key_time_s), track_ids=self.track_ids)


def test_actors_come_by_track_id_each_with_its_own_box(grey, bundle):
    middle = (0.3, 0.1, 0.6, 0.8)
    finder = NumberedBoxes(stays(RIGHT), stays(LEFT), stays(middle), track_ids=[7, 0, 4])
    for moment in moments_of(grey, bundle, finder):
        assert [actor.track_id for actor in moment.actors] == [0, 4, 7]
        for actor, box in zip(moment.actors, (LEFT, middle, RIGHT), strict=True):
            assert actor.box_xyxy_unit == pytest.approx(box, abs=1e-6)


def test_a_video_shorter_than_a_clip_has_one_moment(tmp_path, bundle):
    path = grey_video(tmp_path / "short.mp4", seconds=0.1)
    (only,) = moments_of(path, bundle, MadeUpBoxes(stays(LEFT)))
    assert only.key_time_s == 0
    assert len(only.actors) == 1


def test_a_sliver_outside_what_the_network_sees_is_left_out(grey, bundle):
    sliver = (0.9999, 0.2, 1.0, 0.9)
    found = moments_of(grey, bundle, MadeUpBoxes(stays(LEFT), stays(sliver)))
    assert all([actor.track_id for actor in moment.actors] == [0] for moment in found)


def test_reasons_name_evidence_memory_and_contributor(take, bundle):
    found = [actor for moment in moments_of(take, bundle) for actor in moment.actors]
    assert all(len(actor.reasons.evidence_for) == 3 for actor in found)
    assert all(len(actor.reasons.remembered) == 3 for actor in found)
    for actor in found:
        distances = [each.distance for each in actor.reasons.remembered]
        assert distances == sorted(distances)
    assert any(actor.reasons.contributor is not None for actor in found)
    assert all(
        actor.reasons.contributor is None
        for moment in moments_of(take, bundle, None, explains=False)
        for actor in moment.actors
    )


@pytest.mark.parametrize("view", ["now", "so_far"])
@pytest.mark.parametrize("agrees", [False, True])
def test_reasons_list_the_evidence_of_this_look_or_of_the_opinion_that_agrees(take, bundle, view, agrees):
    watching = open_watch(take, bundle, settings=WatchSettings(threshold="known-50"))
    threshold = watching.header.threshold.model_copy(update={"view": view})
    header = watching.header.model_copy(update={"min_probability": 0.0, "threshold": threshold})
    changed = False
    for _ in watching:
        recognised = watching.recognised
        assert recognised is not None
        now = recognised.looks.now
        ranks = torch.linspace(0, 2, len(now.rank)).double()  # p from 1 to 0.14: some of them are novel
        doubled = Evidence(2 * now.together.positive, 2 * now.together.negative)
        told = Told(
            replace(now, rank=ranks),
            replace(now, together=doubled, rank=ranks.flip(0)),
            recognised.looks.remembered,
            contributors_in(recognised.scene, recognised.contributions),
        )
        place = kept_place(recognised.scene)
        (found,), (plain,) = (
            Telling(header, has_memory=True, agrees=each).moments([place], told) for each in (agrees, False)
        )
        for actor in found.actors:
            opinions = actor.judged(view if agrees else "now").actions
            for kind in ("evidence_for", "evidence_against"):
                expected = sorted((getattr(each, kind) for each in opinions), reverse=True)[:3]
                assert [each.amount for each in getattr(actor.reasons, kind)] == pytest.approx(expected)
        changed |= [each.reasons for each in found.actors] != [each.reasons for each in plain.actors]
    assert changed == agrees


def test_a_detector_looks_between_key_times_and_its_tracks_hold(grey, bundle):
    """A person who crosses the picture within seconds keeps the number: five looks per key time link it."""

    def crosses(time_s):
        left = 0.05 + 0.15 * time_s
        return (left, 0.2, left + 0.3, 0.9)

    finder = MadeUpBoxes(crosses, links_between=True)
    found = moments_of(grey, bundle, finder)
    assert {actor.track_id for moment in found for actor in moment.actors} == {0}
    assert finder.times == pytest.approx([number / 5 for number in range(len(finder.times))])
    assert len(finder.times) >= 16


def test_a_persons_boxes_are_cut_at_the_frame(grey, bundle):
    over = (-0.2, 0.1, 0.5, 1.2)
    (box,) = {
        actor.box_xyxy_unit for m in moments_of(grey, bundle, MadeUpBoxes(stays(over))) for actor in m.actors
    }
    assert box == pytest.approx((0.0, 0.1, 0.5, 1.0), abs=1e-6)


def test_an_error_of_the_detector_arrives_unchanged_after_the_moments_before_it(grey, bundle):
    error = DetectorError("the model file is gone.")
    watching = open_watch(grey, bundle, detector=MadeUpBoxes(stays(LEFT), fails_at_s=2.0, error=error))
    moments = iter(watching)
    assert [next(moments).key_time_s for _ in range(2)] == [0, 1]
    with pytest.raises(DetectorError) as raised:
        next(moments)
    assert raised.value is error


def test_a_live_file_counts_what_it_drops_and_shows_its_latency(tmp_path, bundle):
    path = grey_video(tmp_path / "live.mp4", seconds=1.0)
    watching = open_watch(
        path, bundle, detector=MadeUpBoxes(stays(LEFT)), settings=WatchSettings(every_s=0.1, is_live=True)
    )
    found = list(watching)
    times = [moment.key_time_s for moment in found]
    assert times == sorted(set(times))
    assert len(found) + watching.num_dropped == 10
    assert watching.latency_s is not None
    assert watching.latency_s > 0


def test_windows_begin_in_the_order_of_key_times(bundle):
    rhythm = Rhythm(Fraction(1), bundle.needs.shape, Fraction(16), None, link_steps=5)
    windows = [window for _, window in zip(range(20), rhythm.windows(), strict=False)]
    assert [window.begin_s for window in windows] == sorted(window.begin_s for window in windows)
    assert [len(window.times_s) for window in windows[:6]] == [4, 1, 1, 1, 1, 4]


@pytest.mark.parametrize("link_steps", [1, 5])
def test_clips_lie_inside_the_source_and_windows_behind_its_end_go_on(bundle, link_steps):
    rhythm = Rhythm(
        Fraction(1, 4), bundle.needs.shape, Fraction(16), None, link_steps=link_steps, end_s=Fraction(2)
    )
    windows = [window for _, window in zip(range(100), rhythm.windows(), strict=False)]
    begins = [window.begin_s for window in windows]
    assert begins == sorted(begins)
    assert begins[-1] > 2  # else a reader that waits for the end would hold them all
    inside = [window for window in windows if window.key_time_s < 2]
    assert all(0 <= window.times_s[0] <= window.times_s[-1] < 2 for window in inside)


def clip_of(sample, bundle):
    """A rendered clip as if it had been read from a video at its middle."""
    key_s = Fraction(len(sample.frames) // 2, 16)
    window = next(iter(Rhythm(Fraction(1), bundle.needs.shape, Fraction(16), None).windows(key_s)))
    frames = torch.stack([sample.frames[int(time_s * 16)] for time_s in window.times_s])
    return Clip(window, frames, (frames.shape[2], frames.shape[3]), 0)


def test_clips_are_what_the_network_was_validated_on(bundle, run_dir):
    """Pixels of a window equal those of the rendered clip that validation reads."""
    from mule.training.build import normalisation
    from mule.training.data import stage_clips, views

    experiment = load_run(run_dir).experiment
    assert isinstance(experiment.data, StageData)
    sample = stage_clips(experiment.data, "val", noted=lambda _: None)[0]
    view = views(experiment, normalisation(experiment))[1](sample, torch.Generator())
    torch.testing.assert_close(bundle.needs.pixels(clip_of(sample, bundle).frames)[0], view.pixels)


def test_what_is_seen_and_remembered_of_watched_actors_is_what_validation_kept(bundle, run_dir):
    """The same clip and boxes, once read by a comparison and once looked at: outputs and memory features are equal."""
    from mule.training.data import stage_clips

    source = OutputsOf(run_dir, load_run(run_dir).experiment)
    kept = source.on("val", noted=lambda _: None)
    data = source.experiment.data
    assert isinstance(data, StageData)
    sample = stage_clips(data, "val", noted=lambda _: None)[0]
    clip = clip_of(sample, bundle)
    rows, cols = clip.source_size
    scale = torch.tensor([cols, rows, cols, rows]).float()
    scene = Scene(
        Sight(clip, clip.window.key_time_s, is_key=True, arrived_at=0.0),
        boxes_xyxy_px=sample.actor_boxes_xyxy_unit.float() * scale,
        scores=torch.ones(len(sample.actor_boxes_xyxy_unit)),
        track_ids=torch.arange(len(sample.actor_boxes_xyxy_unit)),
        objects_xyxy_px=sample.object_boxes_xyxy_unit.float() * scale,
        object_names=("thing",) * len(sample.object_boxes_xyxy_unit),
        tracker={},
    )
    recognised = Recogniser(bundle)(scene)
    here = torch.from_numpy(kept.clip_index == 0)
    torch.testing.assert_close(
        recognised.kept.outputs, kept.outputs[here], rtol=1e-3, atol=1e-4
    )  # half precision
    torch.testing.assert_close(
        recognised.looks.features, kept.remembered[here], rtol=1e-3, atol=1e-4
    )  # half precision
    remembered = bundle.judge.remembered
    assert remembered is not None
    assert recognised.looks.features.shape[1] == remembered.memory.dim > kept.features.shape[1]


@pytest.mark.parametrize(("rows", "cols"), [(24, 43), (25, 31)])
def test_sides_become_multiples_the_backbone_takes(bundle, rows, cols):
    pixels = bundle.needs.pixels(torch.zeros(4, 3, rows, cols, dtype=torch.uint8))
    assert pixels.shape[3] % 8 == pixels.shape[4] % 8 == 0
    assert abs(pixels.shape[4] - cols) <= 4


def test_what_cannot_be_watched_is_refused_at_once(tmp_path, bundle, grey):
    with pytest.raises(VideoError, match="nothing is there"):
        watch(tmp_path / "no.mp4", model=bundle)
    with pytest.raises(VideoError, match="must begin with one of"):
        watch("gopher://host/a", model=bundle)
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(VideoError, match="empty"):
        watch(tmp_path / "empty.mp4", model=bundle, detector=MadeUpBoxes())
    with pytest.raises(DetectorError, match="beside it or in the folder above"):
        watch(grey, model=bundle)
    with pytest.raises(RangeError):
        watch(grey, model=bundle, detector=MadeUpBoxes(), every_s=0.0)
    with pytest.raises(RangeError):
        watch(grey, model=bundle, detector=MadeUpBoxes(), min_probability=2.0)
    with pytest.raises(RangeError):
        watch(grey, model=bundle, detector=MadeUpBoxes(), threshold="sure")
