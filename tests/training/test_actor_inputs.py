"""What actors are seen by: each input against a slow loop, kept by everything it depends on, and resumable."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_films import FOUR, settings_on, two_in_each_film, write_films
from tiny_extraction import tiny_backbone

from mule.core.config import ConfigError, experiment_from
from mule.core.errors import RangeError, ShapeError
from mule.data.table.reading import read_actor_table
from mule.features.weights.cards import WEIGHT_CARDS, find_card
from mule.features.weights.classifier import (
    LabelClassifier,
    has_classifier,
    label_names,
    last_channels,
    load_classifier,
)
from mule.model import inputs_in_map, with_labels
from mule.training import actor_inputs, maps
from mule.training.actor_inputs import SeenBy, ViewPass, input_key, inputs_of_table
from mule.video.clips import ClipShape, clip_window
from mule.video.person_crops import cut_square, cut_squares, person_square
from mule.video.reading import read_clips, video_facts
from mule.video.sources import video_source
from mule.video.transforms import PLUS_MINUS_ONE, normalised, resized

CHANNELS = 5
CLASSIFIER = LabelClassifier(
    torch.randn(7, CHANNELS, generator=torch.Generator().manual_seed(1)), torch.arange(7.0) / 7, ()
)


def sample(plane, x, y):
    """The map between its cells, the slow way; outside by less than a cell it is the border."""
    x, y = min(max(x, 0.0), plane.shape[1] - 1), min(max(y, 0.0), plane.shape[0] - 1)
    left, top = min(int(x), plane.shape[1] - 2), min(int(y), plane.shape[0] - 2)
    across, down = x - left, y - top
    upper = plane[top, left] * (1 - across) + plane[top, left + 1] * across
    lower = plane[top + 1, left] * (1 - across) + plane[top + 1, left + 1] * across
    return float(upper * (1 - down) + lower * down)


def test_roi_is_the_mean_of_eight_by_eight_points_in_the_box_and_frame_that_of_all_cells():
    draw = torch.Generator().manual_seed(0)
    last = torch.rand(2, CHANNELS, 6, 8, generator=draw)
    boxes = torch.tensor([[10.0, 20, 150, 170], [40, 0, 250, 90], [64, 64, 128, 160]])
    clip = torch.tensor([0, 1, 1])
    seen = inputs_in_map(last, boxes, clip, stride=32)
    for actor, (box, at) in enumerate(zip((boxes / 32).tolist(), clip.tolist(), strict=True)):
        for channel in range(CHANNELS):
            plane = last[at, channel]
            points = [
                sample(
                    plane,
                    box[0] + (i + 0.5) / 8 * (box[2] - box[0]),
                    box[1] + (j + 0.5) / 8 * (box[3] - box[1]),
                )
                for i in range(8)
                for j in range(8)
            ]
            assert seen["roi"][actor, channel].item() == pytest.approx(sum(points) / 64, abs=1e-5)
            assert seen["frame"][actor, channel].item() == pytest.approx(plane.mean().item(), abs=1e-6)


def test_labels_are_roots_of_what_the_classifier_says_of_the_box_or_of_the_frame_where_there_is_none():
    draw = torch.Generator().manual_seed(2)
    seen = {name: torch.randn(3, CHANNELS, generator=draw) for name in ("roi", "frame", "crop")}
    has_box = torch.tensor([True, False, True])
    for names in (("frame",), ("roi", "frame"), ("roi", "frame", "crop")):
        given_ = {name: seen[name] for name in names}
        labels = with_labels(given_, CLASSIFIER, has_box=has_box)["labels"]
        for actor in range(3):
            first = "roi" if "roi" in names and has_box[actor] else "frame"
            views = [seen[first][actor], *([seen["crop"][actor]] if "crop" in names else [])]
            of_views = [
                [float(w @ view + b) for w, b in zip(CLASSIFIER.weight, CLASSIFIER.bias, strict=True)]
                for view in views
            ]
            logits = [sum(each) / len(views) / 1.5 for each in zip(*of_views, strict=True)]
            total = sum(map(math.exp, logits))
            expected = [math.sqrt(math.exp(logit) / total) for logit in logits]
            assert labels[actor].tolist() == pytest.approx(expected, abs=1e-5)


def test_a_card_without_a_classifier_has_no_labels():
    assert set(with_labels({"frame": torch.zeros(1, CHANNELS)}, None)) == {"frame"}
    with pytest.raises(ShapeError, match="reads 5 channels"):
        CLASSIFIER(torch.zeros(1, 6))


def test_cards_say_whether_there_is_a_classifier_of_how_many_labels_and_what_they_are():
    card = find_card("i3d_rgb_kinetics400")
    assert has_classifier(card)
    assert last_channels(card) == last_channels(card.with_options(also_mixed_4f=True)) == 1024
    assert len(label_names(card)) == card.num_classes == 400
    assert label_names(card)[:2] == ("abseiling", "air drumming")
    assert list(label_names(card)) == sorted(label_names(card))
    assert not has_classifier(card.with_options(endpoint="mixed_4f"))
    for name in ("pytorchvideo_x3d_m", "mmaction2_ircsn_152_ig65m"):
        assert not has_classifier(WEIGHT_CARDS[name])
        assert load_classifier(Path("no such file"), WEIGHT_CARDS[name]) is None
    assert has_classifier(WEIGHT_CARDS["pytorchvideo_slowfast_8x8_r50"])


def test_the_names_are_those_that_came_with_the_weights(shared_data):
    names = (shared_data / "backbones" / "kinetics400_label_map.txt").read_text().splitlines()
    assert list(label_names(find_card("i3d_rgb_kinetics400"))) == names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("video", "action"),
    [
        ("i3d_v_CricketShot_g04_c01_rgb.gif", "playing cricket"),
        ("v_SoccerJuggling_g23_c01.avi", "juggling soccer ball"),
    ],
)
@torch.inference_mode()
def test_labels_of_the_kept_mean_name_real_actions(shared_data, video, action):
    card = find_card("i3d_rgb_kinetics400")
    weights = shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt"
    backbone, classifier = maps.frozen_backbone(weights, card), load_classifier(weights, card)
    source = video_source(shared_data / "videos" / "samples" / video)
    facts, shape = video_facts(source), ClipShape(num_frames=32, stride_frames=1, num_slow_frames=32)
    window = clip_window(16 / facts.frame_rate, shape, facts.frame_rate)
    (clip,) = read_clips(source, [window], short_side_px=192)
    context = maps.context_map(
        backbone.features(normalised(clip.frames, backbone.recipe.normalisation)[None])
    )
    labels = with_labels({"frame": context.mean(dim=(2, 3))}, classifier)["labels"]
    assert classifier is not None
    assert classifier.names[int(labels.argmax())] == action


def test_squares_of_all_people_of_a_clip_are_those_of_each():
    frames = torch.randint(
        0, 256, (3, 3, 24, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(3)
    )
    boxes = torch.tensor([[2.0, 2, 8, 20], [20.0, 10, 31, 23]])
    together = cut_squares(frames, boxes, 16)
    for each, box in zip(together, boxes, strict=True):
        assert torch.equal(each, cut_square(frames, person_square(box, 24, 32), 16))
    assert cut_squares(frames, boxes[:0], 16).shape == (0, 3, 3, 16, 16)


@given(
    crop=st.booleans(),
    flipped=st.booleans(),
    strides=st.sets(st.integers(1, 4), min_size=1),
    actors=st.integers(0, 6),
)
def test_passes_are_views_of_the_frame_and_as_many_of_each_actor(crop, flipped, strides, actors):
    seen_by = SeenBy(crop, flipped, tuple(strides))
    views = len(strides) * (2 if flipped else 1)
    assert seen_by.num_passes(num_actors=actors) == views * (1 + actors * crop)


def test_strides_must_be_different_multiples():
    with pytest.raises(RangeError, match="different multiples"):
        SeenBy(strides=(1, 1))


@pytest.fixture
def frozen(tmp_path, monkeypatch):
    """An experiment on four films whose backbone is one convolution, with a made classifier."""
    tiny = tiny_backbone()
    monkeypatch.setattr(maps, "frozen_backbone", lambda *_, **__: tiny)
    monkeypatch.setattr(actor_inputs, "last_channels", lambda _: CHANNELS)
    monkeypatch.setattr(actor_inputs, "load_classifier", lambda *_: CLASSIFIER)
    write_films(tmp_path, two_in_each_film())
    (tmp_path / "weights.pt").write_bytes(b"weights")
    backbone = {"name": "i3d_rgb_kinetics400", "weights": str(tmp_path / "weights.pt"), "frozen": True}
    experiment = experiment_from(
        {
            "system": "mule",
            "data": {**settings_on(tmp_path), "num_frames": 4, "stride_frames": 1},
            "view": {"val_short_side_px": 24},
            "backbone": backbone,
            "optimizer": {"lr": 1e-3},
            "training": {"epochs": 1},
        },
        source="frozen.toml",
    )
    return experiment, tiny.forward


def asked(experiment, rows=None, seen_by=SeenBy(crop=True, flipped=True, strides=(1, 2))):  # noqa: B008
    table = read_actor_table(experiment.data.root / "actors.csv")
    chosen = table if rows is None else table.at(rows)
    videos = {film: experiment.data.root / "videos" / f"{film}.mp4" for film in FOUR}
    return inputs_of_table(experiment, chosen, videos, seen_by=seen_by, map_times=table)


def test_every_view_of_every_row_is_what_a_pass_of_its_own_shows(frozen):
    experiment, model = frozen
    table = read_actor_table(experiment.data.root / "actors.csv")
    found = asked(experiment)
    for row in range(0, len(table), 3):
        sums = {"roi": torch.zeros(CHANNELS), "frame": torch.zeros(CHANNELS), "crop": torch.zeros(CHANNELS)}
        path = experiment.data.root / "videos" / f"{table.videos[table.video_index[row]]}.mp4"
        for stride in (1, 2):
            rate = maps.backbone_when_asked(experiment, experiment.data).recipe.frame_rate
            shape = ClipShape(4, stride, 4)
            window = clip_window(
                float(table.time_s[row]),
                shape,
                rate or video_facts(video_source(path)).frame_rate,
            )
            (clip,) = read_clips(path, [window])
            rows, cols = clip.frames.shape[2:]
            unit = torch.from_numpy(table.boxes_xyxy_unit[row]).float()
            whole = resized(clip.frames, (24, 24 * cols // rows))
            square = cut_squares(clip.frames, (unit * torch.tensor([cols, rows, cols, rows]))[None])[0]
            for name, frames in (("frame", whole), ("crop", square)):
                for is_flipped in (False, True):
                    pixels = normalised(frames.flip(3) if is_flipped else frames, PLUS_MINUS_ONE)
                    with torch.inference_mode():
                        last = maps.context_map(model(pixels[None]))
                    sums[name] += last[0].mean(dim=(1, 2)) / 4
                    if name == "frame":
                        box = unit[[2, 1, 0, 3]] * torch.tensor([-1.0, 1, -1, 1]) + torch.tensor(
                            [1.0, 0, 1, 0]
                        )
                        px = (box if is_flipped else unit) * torch.tensor([whole.shape[3], 24] * 2)
                        sums["roi"] += (
                            inputs_in_map(last, px[None], torch.tensor([0]), stride=8)["roi"][0] / 4
                        )
        for name, expected in sums.items():
            torch.testing.assert_close(found[name][row], expected, atol=2e-4, rtol=1e-4)
        both = (sums["roi"] + sums["crop"]) / 2
        expected = with_labels({"frame": both[None]}, CLASSIFIER)["labels"][0]
        torch.testing.assert_close(found["labels"][row], expected, atol=1e-4, rtol=1e-3)


def test_rows_keep_their_order_and_a_second_reading_computes_nothing(frozen):
    experiment, model = frozen
    whole, num_seen = asked(experiment), model.num_seen
    assert num_seen > 0
    again = asked(experiment)
    assert model.num_seen == num_seen
    order = torch.randperm(16, generator=torch.Generator().manual_seed(4)).numpy()
    shuffled = asked(experiment, order)
    for name, values in whole.items():
        assert torch.equal(again[name], values)
        torch.testing.assert_close(shuffled[name], values[order])


def test_one_pass_needs_nothing_but_the_kept_maps(frozen):
    experiment, model = frozen
    found = asked(experiment, seen_by=SeenBy())
    assert set(found) == {"roi", "frame", "labels"}
    assert model.num_seen == 8  # a map for each of two times of four films
    assert not (experiment.data.root / "features" / "seen").exists()


def test_what_a_killed_run_left_is_gone_on_with_and_gives_the_same(frozen, monkeypatch):
    experiment, model = frozen
    whole = asked(experiment)
    kept = sorted((experiment.data.root / "features" / "seen").iterdir())
    for path in kept[::2]:
        path.unlink()
    kept[1].write_bytes(kept[1].read_bytes()[:100])  # cut short
    before = model.num_seen
    resumed = asked(experiment)
    assert model.num_seen > before
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    before, write = model.num_seen, actor_inputs.write_file
    for path in kept:
        path.unlink()
    written: list[Path] = []

    def killed(path, content):
        if len(written) == 5:
            raise KeyboardInterrupt
        written.append(path)
        return write(path, content)

    monkeypatch.setattr(actor_inputs, "write_file", killed)
    with pytest.raises(KeyboardInterrupt):
        asked(experiment)
    monkeypatch.setattr(actor_inputs, "write_file", write)
    after_kill = model.num_seen
    assert all(torch.equal(each, whole[name]) for name, each in asked(experiment).items())
    assert model.num_seen - after_kill < after_kill - before + model.num_seen - after_kill


def test_the_key_names_everything_that_a_pass_depends_on(frozen):
    experiment, _ = frozen
    source = video_source(experiment.data.root / "videos" / "film0.mp4")
    other = video_source(experiment.data.root / "videos" / "film1.mp4")
    tiny = tiny_backbone()
    view = ViewPass("crop", 1, is_flipped=False)
    boxes, index = torch.tensor([[0.1, 0.1, 0.4, 0.9]]), torch.tensor([0])
    what = ((Fraction(1, 2),), boxes, index)
    keys = [
        input_key(tiny, source, view, what),
        input_key(tiny, other, view, what),
        input_key(replace(tiny, recipe=replace(tiny.recipe, weights_sha256="cd" * 32)), source, view, what),
        input_key(replace(tiny, recipe=replace(tiny.recipe, short_side_px=32)), source, view, what),
        input_key(replace(tiny, recipe=replace(tiny.recipe, runtime="openvino")), source, view, what),
        input_key(tiny, source, view._replace(over="frame"), what),
        input_key(tiny, source, view._replace(is_flipped=True), what),
        input_key(tiny, source, view._replace(stride=2), what),
        input_key(tiny, source, view, ((Fraction(3, 5),), boxes, index)),
        input_key(tiny, source, view, ((Fraction(1, 2),), boxes + 0.01, index)),
        input_key(
            tiny, source, view, ((Fraction(1, 2), Fraction(1)), boxes.repeat(2, 1), torch.tensor([0, 1]))
        ),
        input_key(
            tiny, source, view, ((Fraction(1, 2), Fraction(1)), boxes.repeat(2, 1), torch.tensor([0, 0]))
        ),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == input_key(tiny, source, view, what)


def test_without_a_frozen_backbone_or_without_times_nothing_can_be_seen(frozen):
    experiment, _ = frozen
    plain = experiment.model_copy(
        update={"backbone": experiment.backbone.model_copy(update={"frozen": False})}
    )
    with pytest.raises(ConfigError, match=r"backbone\.frozen=true"):
        asked(plain)
    table = read_actor_table(experiment.data.root / "actors.csv")
    timeless = replace(table, time_s=table.time_s * float("nan"))
    with pytest.raises(RangeError, match="whole videos"):
        inputs_of_table(experiment, timeless, {})
