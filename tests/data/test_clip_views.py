"""Views move boxes with pixels, draw all chance from the generator, and say whom a crop has lost."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_clips import made_sample

from mule.core.config import load_experiment
from mule.core.errors import RangeError
from mule.data.batches.samples import WHOLE_FRAME, TrainingView, WholeView
from mule.video.transforms import SLOWFAST, Normalisation, normalised, whole_view

AS_IT_IS = Normalisation(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
STILL = TrainingView(short_sides_px=None, crop_px=None, flip_probability=0.0, box_jitter=0.0)
SMALL_PROTOCOL = TrainingView(short_sides_px=(40, 56), crop_px=36, normalisation=AS_IT_IS)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def lit_sample(box=(0.25, 0.3, 0.75, 0.8), size=(40, 60)):
    """One actor, white on black."""
    frames = torch.zeros(2, 3, *size, dtype=torch.uint8)
    x1, y1, x2, y2 = (round(share * size[1 - i % 2]) for i, share in enumerate(box))
    frames[:, :, y1:y2, x1:x2] = 255
    boxes = torch.tensor([box])
    return replace(made_sample(1, size=size, num_objects=0), frames=frames, actor_boxes_xyxy_unit=boxes)


def test_a_clip_without_boxes_has_views():
    sample = made_sample(0, size=(40, 60), num_actors=0, num_objects=0)
    view = SMALL_PROTOCOL(sample, seeded())
    assert view.pixels.shape == (3, 3, 36, 36)
    assert len(view.actor_index) == len(view.object_index) == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("crop_px", [36, None])
def test_boxes_move_with_the_pixels(seed, crop_px):
    view = replace(SMALL_PROTOCOL, crop_px=crop_px, box_jitter=0.0)(lit_sample(), seeded(seed))
    lit = view.pixels[0, 0] > 0.5
    x1, y1, x2, y2 = view.actor_boxes_xyxy_px[0].tolist()
    rows, cols = torch.nonzero(lit.any(1)).flatten(), torch.nonzero(lit.any(0)).flatten()
    for edge, lit_edge in ((y1, rows[0]), (y2, rows[-1]), (x1, cols[0]), (x2, cols[-1])):
        assert abs(edge - int(lit_edge)) <= 1.5


def test_without_chance_training_sees_what_testing_sees():
    sample = made_sample(3)
    trained, tested = STILL(sample, seeded()), WholeView(short_side_px=None)(sample, seeded())
    assert torch.equal(trained.pixels, tested.pixels)
    assert torch.equal(trained.actor_boxes_xyxy_px, tested.actor_boxes_xyxy_px)
    assert torch.equal(trained.object_boxes_xyxy_px, tested.object_boxes_xyxy_px)


def test_one_seed_gives_one_view_and_another_another():
    sample = made_sample(3, size=(40, 60))
    first, again, other = (SMALL_PROTOCOL(sample, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.pixels, again.pixels)
    assert torch.equal(first.actor_boxes_xyxy_px, again.actor_boxes_xyxy_px)
    assert not torch.equal(first.pixels, other.pixels)


def test_testing_draws_nothing_and_is_the_published_whole_view():
    sample, generator = made_sample(3, size=(20, 30)), seeded(5)
    before = generator.get_state()
    view = WholeView(short_side_px=26)(sample, generator)
    scale = torch.tensor([30.0, 20.0, 30.0, 20.0])
    expected = whole_view(sample.frames, sample.actor_boxes_xyxy_unit * scale, short_side_px=26)
    assert torch.equal(view.pixels, normalised(expected.frames, SLOWFAST))
    assert torch.equal(view.actor_boxes_xyxy_px, expected.boxes_xyxy_px)
    assert torch.equal(generator.get_state(), before)


def test_a_certain_flip_mirrors_pixels_and_boxes():
    sample = lit_sample(box=(0.1, 0.3, 0.4, 0.8))
    plain, mirrored = STILL(sample, seeded()), replace(STILL, flip_probability=1.0)(sample, seeded())
    assert torch.equal(mirrored.pixels, plain.pixels.flip(3))
    x1, y1, x2, y2 = plain.actor_boxes_xyxy_px[0].tolist()
    assert mirrored.actor_boxes_xyxy_px[0].tolist() == pytest.approx([59 - x2, y1, 59 - x1, y2])


def test_jittered_edges_move_evenly_by_up_to_their_share_of_the_box():
    sample, view = lit_sample(size=(200, 300)), replace(STILL, box_jitter=0.075)
    size = torch.tensor([150.0, 100.0, 150.0, 100.0])
    moves = torch.stack([view(sample, seeded(s)).actor_boxes_xyxy_px[0] for s in range(200)]) - torch.tensor(
        [75.0, 60.0, 225.0, 160.0]
    )
    shares = moves / (0.075 * size)
    assert shares.abs().max() <= 1 + 1e-4
    # the mean of 200 draws of U(−1, 1) strays by 0.041, their standard deviation is 0.577
    assert shares.mean(0).abs().max() < 0.15
    assert (shares.std(0) - 3**-0.5).abs().max() < 0.06


def test_jitter_keeps_boxes_in_the_frame_on_all_four_sides():
    corners = torch.tensor([[0.0, 0.0, 0.3, 0.3], [0.7, 0.7, 1.0, 1.0]])
    sample = replace(made_sample(2, size=(40, 60), num_objects=0), actor_boxes_xyxy_unit=corners)
    for seed in range(30):
        boxes = replace(STILL, box_jitter=0.3)(sample, seeded(seed)).actor_boxes_xyxy_px
        assert len(boxes) == 2
        assert boxes.min() >= 0
        assert (boxes <= torch.tensor([59.0, 39.0, 59.0, 39.0])).all()


def test_an_actor_that_is_the_whole_frame_stays_so():
    sample = lit_sample(box=WHOLE_FRAME)
    for seed in range(5):
        view = SMALL_PROTOCOL(sample, seeded(seed))
        (box,) = view.actor_boxes_xyxy_px.tolist()
        assert box == pytest.approx(
            [0, 0, 35, 35], abs=1
        )  # boxes end at the last pixel of the size they came in


def test_whom_a_crop_has_lost_is_left_out():
    boxes = torch.tensor([[0.0, 0.0, 0.05, 1.0], [0.0, 0.0, 1.0, 1.0], [0.95, 0.0, 1.0, 1.0]])
    sample = replace(made_sample(3, size=(40, 160), num_objects=0), actor_boxes_xyxy_unit=boxes)
    seen = [
        SMALL_PROTOCOL(sample, seeded(seed)).actor_index.tolist()
        for seed in range(40)  # the crop is a quarter of the frame wide
    ]
    assert [1] in seen
    assert all(1 in index and index == sorted(index) for index in seen)
    assert not any({0, 2} <= set(index) for index in seen)


def test_a_sliver_beyond_the_last_pixel_is_left_out_and_not_refused():
    boxes = torch.tensor([[0.995, 0.2, 1.0, 0.8], [0.2, 0.2, 0.8, 0.8]])
    sample = replace(made_sample(2, num_objects=0), actor_boxes_xyxy_unit=boxes)
    assert WholeView(short_side_px=None)(sample, seeded()).actor_index.tolist() == [1]


def test_colours_change_pixels_and_nothing_else():
    sample = made_sample(3, size=(40, 60))
    plain = SMALL_PROTOCOL(sample, seeded(4))
    coloured = replace(SMALL_PROTOCOL, brightness=0.4, contrast=0.4, saturation=0.4)(sample, seeded(4))
    assert torch.equal(plain.actor_boxes_xyxy_px, coloured.actor_boxes_xyxy_px)
    assert not torch.equal(plain.pixels, coloured.pixels)
    assert coloured.pixels.min() >= 0
    assert coloured.pixels.max() <= 1 + 1e-6


def test_a_view_leaves_its_sample_as_it_was():
    sample = made_sample(3, size=(40, 60))
    frames, boxes = sample.frames.clone(), sample.actor_boxes_xyxy_unit.clone()
    replace(SMALL_PROTOCOL, brightness=0.4, flip_probability=1.0)(sample, seeded())
    assert torch.equal(sample.frames, frames)
    assert torch.equal(sample.actor_boxes_xyxy_unit, boxes)


def test_the_defaults_are_those_of_the_published_protocol():
    view = TrainingView()
    assert (view.flip_probability, view.box_jitter, view.normalisation) == (0.5, 0.075, SLOWFAST)


def test_the_experiments_on_ava_have_the_sizes_of_the_published_protocol():
    files = sorted((Path(__file__).parents[2] / "experiments").glob("ava*.toml"))
    assert files
    for view in (load_experiment(file).view for file in files):
        assert (view.short_sides_px, view.crop_px, view.val_short_side_px) == ((256, 320), 224, 256)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flip_probability": 1.5}, "flip_probability must lie in"),
        ({"box_jitter": 0.5}, "box_jitter must lie in"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(RangeError, match=message):
        TrainingView(**settings)
