"""Pixels and boxes move together: a box drawn in the pixels is found again where its coordinates say."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.video import transforms
from mule.video.transforms import (
    ACAR_R101,
    IMAGENET,
    MMACTION2,
    PLUS_MINUS_ONE,
    SLOWFAST,
    Normalisation,
    clip_boxes,
    crop,
    flip,
    jitter_boxes,
    jitter_colours,
    normalised,
    random_crop,
    random_short_side,
    random_view,
    require_boxes,
    resize_short_side,
    resized,
    short_side_size,
    whole_view,
)

NO_BOXES = torch.zeros(0, 4)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(boxes, rows=60, cols=80, num_frames=2):
    """Black frames with each box filled white, edges included; and the boxes as a tensor."""
    frames = torch.zeros(num_frames, 3, rows, cols, dtype=torch.uint8)
    for x1, y1, x2, y2 in boxes:
        frames[:, :, y1 : y2 + 1, x1 : x2 + 1] = 255
    return frames, torch.tensor(boxes, dtype=torch.float32)


def found(frames):
    """The box of what is white in the first frame."""
    ys, xs = torch.nonzero(frames[0, 0] > 127, as_tuple=True)
    return torch.stack([xs.min(), ys.min(), xs.max(), ys.max()]).float()


def test_without_actors_every_transform_returns_no_boxes():
    frames = torch.zeros(2, 3, 60, 80, dtype=torch.uint8)
    view = whole_view(frames, NO_BOXES, short_side_px=30)
    assert (view.boxes_xyxy_px.shape, view.is_visible.shape) == ((0, 4), (0,))
    view = random_view(frames, NO_BOXES, short_sides_px=(30, 40), crop_px=20, generator=seeded())
    assert view.boxes_xyxy_px.shape == (0, 4)
    assert jitter_boxes(NO_BOXES, 0.1, seeded()).shape == (0, 4)


@given(rows=st.integers(1, 2000), cols=st.integers(1, 2000), size=st.integers(1, 512))
def test_short_side_gets_the_size_and_the_other_rounds_down(rows, cols, size):
    new_rows, new_cols = short_side_size(rows, cols, size)
    assert min(new_rows, new_cols) == size
    long, short = max(rows, cols), min(rows, cols)
    assert max(new_rows, new_cols) == int(np.floor(np.float64(long) * size / short + 1e-9))


@pytest.mark.parametrize("size", [15, 30, 60, 120])
def test_boxes_scale_with_the_pixels(size):
    frames, boxes = drawn([[20, 10, 59, 39]])
    small, moved = resize_short_side(frames, boxes, size)
    assert small.shape[2:] == (size, size * 80 // 60)
    torch.testing.assert_close(found(small), moved[0], atol=max(1.0, size / 60), rtol=0)


def test_resizing_is_bilinear_without_smoothing():
    frames = torch.randint(256, (1, 3, 23, 31), generator=seeded(1)).to(torch.uint8)
    new = resized(frames, (10, 14))
    image = frames[0].double().numpy()
    y, x = ((np.arange(n) + 0.5) * old / n - 0.5 for n, old in ((10, 23), (14, 31)))
    y0, x0 = (np.clip(np.floor(p).astype(int), 0, old - 2) for p, old in ((y, 23), (x, 31)))
    wy, wx = (y - y0)[:, None], (x - x0)[None]
    corner = lambda dy, dx: image[:, (y0 + dy)[:, None], (x0 + dx)[None]]  # noqa: E731
    expected = (corner(0, 0) * (1 - wx) + corner(0, 1) * wx) * (1 - wy) + (
        corner(1, 0) * (1 - wx) + corner(1, 1) * wx
    ) * wy
    assert new.dtype == torch.uint8
    assert np.abs(new[0].numpy() - expected).max() <= 1


def test_resizing_to_the_same_size_changes_nothing():
    frames, boxes = drawn([[20, 10, 59, 39]])
    same, unmoved = resize_short_side(frames, boxes, 60)
    assert torch.equal(same, frames)
    assert torch.equal(unmoved, boxes)


def test_cropping_moves_boxes_by_the_corner():
    frames, boxes = drawn([[20, 10, 59, 39]])
    square, moved = crop(frames, boxes, top=5, left=12, size_px=50)
    assert square.shape[2:] == (50, 50)
    assert torch.equal(found(square), moved[0])


def test_random_crops_fall_everywhere_and_nowhere_else():
    frames, boxes = drawn([[1, 1, 2, 2]], rows=12, cols=14)
    corners = set()
    generator = seeded(2)
    for _ in range(300):
        square, moved = random_crop(frames, boxes, 10, generator)
        assert square.shape[2:] == (10, 10)
        corners.add(tuple((boxes - moved)[0, :2].int().tolist()))
    assert corners == {(left, top) for left in range(5) for top in range(3)}


def test_flipping_mirrors_boxes_with_the_pixels_and_twice_is_nothing():
    frames, boxes = drawn([[20, 10, 59, 39]])
    mirrored, moved = flip(frames, boxes)
    assert torch.equal(found(mirrored), moved[0])
    again, back = flip(mirrored, moved)
    assert torch.equal(again, frames)
    assert torch.equal(back, boxes)


def test_short_sides_are_drawn_evenly():
    generator = seeded(3)
    plain = np.array([random_short_side(256, 320, generator) for _ in range(4000)])
    assert (plain.min(), plain.max()) == (256, 320)
    assert plain.mean() == pytest.approx(288, abs=1)


def test_clipped_boxes_lie_between_the_first_and_the_last_pixel():
    boxes = torch.tensor([[-5.0, -5, 100, 100], [10, 10, 20, 20], [90, 10, 95, 20], [79.5, 0, 90, 9]])
    clipped, is_visible = clip_boxes(boxes, 60, 80)
    assert clipped.tolist() == [[0, 0, 79, 59], [10, 10, 20, 20], [79, 10, 79, 20], [79, 0, 79, 9]]
    assert is_visible.tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("box", "error", "said"),
    [
        ([float("nan"), 0, 5, 5], NotFinite, r"must be finite; actor 1 has \[nan"),
        ([0, 0, float("inf"), 5], NotFinite, r"must be finite; actor 1 has \[0\.0, 0\.0, inf"),
        ([9, 0, 5, 5], RangeError, r"x1 < x2 and y1 < y2; actor 1 has \[9\.0, 0\.0, 5\.0, 5\.0\]"),
        ([0, 5, 5, 5], RangeError, "x1 < x2 and y1 < y2; actor 1"),
        ([90, 0, 95, 5], RangeError, "cover some of the frame, 60 rows × 80 columns; actor 1"),
        ([0, -9, 5, -1], RangeError, "cover some of the frame, 60 rows × 80 columns; actor 1"),
    ],
)
def test_boxes_that_mean_nothing_are_refused_by_actor(box, error, said):
    boxes = torch.tensor([[1.0, 1, 5, 5], box])
    frames = torch.zeros(1, 3, 60, 80, dtype=torch.uint8)
    for use in (
        lambda: require_boxes(boxes, 60, 80),
        lambda: whole_view(frames, boxes),
        lambda: random_view(frames, boxes, generator=seeded()),
    ):
        with pytest.raises(error, match=said):
            use()


def test_the_whole_view_keeps_every_actor_and_counts_boxes_that_stick_out():
    frames, _ = drawn([[0, 0, 1, 1]])
    boxes = torch.tensor([[0.0, 0, 80, 60], [70, 50, 90, 70], [-3, 10, 20, 20], [5, 5, 9, 9]])
    view = whole_view(frames, boxes, short_side_px=120)
    assert view.frames.shape == (2, 3, 120, 160)
    assert view.is_visible.all()
    assert view.boxes_xyxy_px.tolist() == [
        [0, 0, 159, 119],
        [140, 100, 159, 119],
        [0, 20, 40, 40],
        [10, 10, 18, 18],
    ]


def test_a_random_view_shows_the_actor_where_its_box_says_or_marks_it_lost():
    frames, boxes = drawn([[20, 10, 39, 29]], num_frames=1)
    num_lost = 0
    generator = seeded(4)
    for _ in range(60):
        view = random_view(frames, boxes, short_sides_px=(56, 70), crop_px=40, generator=generator)
        assert view.frames.shape == (1, 3, 40, 40)
        if view.is_visible[0]:
            torch.testing.assert_close(found(view.frames), view.boxes_xyxy_px[0], atol=1.01, rtol=0)
        else:
            num_lost += 1
            assert (view.frames > 127).any(dim=2).sum() <= 3 * 40
    assert 0 <= num_lost < 60


def test_one_seed_gives_one_view_and_another_another():
    frames = torch.randint(256, (2, 3, 60, 80), generator=seeded(5)).to(torch.uint8)
    boxes = torch.tensor([[10.0, 10, 50, 50]])
    one, same, other = (
        random_view(frames, boxes, short_sides_px=(56, 70), crop_px=40, generator=seeded(s))
        for s in (1, 1, 2)
    )
    assert torch.equal(one.frames, same.frames)
    assert torch.equal(one.boxes_xyxy_px, same.boxes_xyxy_px)
    assert not torch.equal(one.frames, other.frames)


def test_flips_happen_as_often_as_asked():
    frames, boxes = drawn([[0, 10, 9, 29]], num_frames=1)
    generator = seeded(6)
    at_right = [
        random_view(
            frames, boxes, short_sides_px=(60, 60), crop_px=60, flip_probability=0.25, generator=generator
        ).boxes_xyxy_px[0, 2]
        > 40
        for _ in range(400)
    ]
    # A crop may lose the actor on the left; mirrored, it is lost on the right. Either way the share is a quarter.
    assert sum(bool(x) for x in at_right) / 400 == pytest.approx(0.25, abs=0.06)


def test_jittered_boxes_move_by_at_most_their_share_and_keep_their_sides_apart():
    boxes = torch.tensor([[10.0, 20, 30, 80]]).repeat(2000, 1)
    moved = jitter_boxes(boxes, 0.075, seeded(7)) - boxes
    limits = torch.tensor([20.0, 60, 20, 60]) * 0.075
    assert (moved.abs() <= limits).all()
    torch.testing.assert_close(moved.amax(0), limits, rtol=0.01, atol=0)
    torch.testing.assert_close(moved.mean(0), torch.zeros(4), rtol=0, atol=0.15)


NORMALISATIONS = {
    "imagenet": (IMAGENET, lambda x: (x / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]),
    "slowfast": (SLOWFAST, lambda x: (x / 255 - 0.45) / 0.225),
    "plus_minus_one": (PLUS_MINUS_ONE, lambda x: x / 127.5 - 1),
    "acar": (
        ACAR_R101,
        lambda x: (x - [110.63666788, 103.16065604, 96.29023126]) / [38.7568578, 37.88248729, 40.02898126],
    ),
    "mmaction2": (MMACTION2, lambda x: (x - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]),
}


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_normalised_pixels_are_those_of_the_formula(name):
    normalisation, formula = NORMALISATIONS[name]
    frames = torch.randint(256, (4, 3, 5, 6), generator=seeded(8)).to(torch.uint8)
    expected = formula(frames.permute(0, 2, 3, 1).double().numpy())
    clip = normalised(frames, normalisation)
    assert clip.shape == (3, 4, 5, 6)
    assert clip.dtype == torch.float32
    np.testing.assert_allclose(clip.permute(1, 2, 3, 0), expected, atol=2e-6, rtol=2e-6)


def test_weights_that_expect_bgr_get_blue_first():
    frames = torch.randint(256, (2, 3, 4, 4), generator=seeded(9)).to(torch.uint8)
    mean, std = (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)
    clip = normalised(frames, Normalisation(mean, std, scale=1.0, channel_order="bgr"))
    torch.testing.assert_close(clip[0], (frames[:, 2].float() - 1) / 4)
    torch.testing.assert_close(clip[2], (frames[:, 0].float() - 3) / 6)


def test_colours_without_strength_stay_and_with_strength_stay_in_range():
    frames = torch.randint(256, (3, 3, 8, 8), generator=seeded(10)).to(torch.uint8)
    torch.testing.assert_close(jitter_colours(frames, generator=seeded()), frames.float())
    wild = jitter_colours(frames, brightness=1.0, contrast=1.0, saturation=1.0, generator=seeded(11))
    assert wild.min() >= 0
    assert wild.max() <= 255


def test_brightness_scales_saturation_keeps_grey_contrast_keeps_the_mean():
    frames = torch.randint(100, 150, (3, 3, 8, 8), generator=seeded(12)).to(torch.uint8)
    grey = lambda x: (x.float() * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1)  # noqa: E731
    brighter = jitter_colours(frames, brightness=0.4, generator=seeded(13))
    ratio = brighter / frames
    torch.testing.assert_close(ratio, ratio[0, 0, 0, 0].expand_as(ratio))
    assert 0.6 <= ratio[0, 0, 0, 0] <= 1.4
    faded = jitter_colours(frames, saturation=0.4, generator=seeded(13))
    torch.testing.assert_close(grey(faded), grey(frames), rtol=1e-4, atol=1e-2)
    flat = jitter_colours(frames, contrast=0.4, generator=seeded(13))
    torch.testing.assert_close(grey(flat).mean((1, 2)), grey(frames).mean((1, 2)), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    ("use", "error", "said"),
    [
        (
            lambda: Normalisation((0.0, 0.0, 0.0), (1.0, 0.0, 1.0)),
            RangeError,
            "std and scale must be above zero",
        ),
        (lambda: random_short_side(300, 200, seeded()), RangeError, "1 <= low <= high; got 300 and 200"),
        (lambda: jitter_boxes(NO_BOXES, 0.5, seeded()), RangeError, "inside out; got 0.5"),
        (
            lambda: random_crop(torch.zeros(1, 3, 50, 80), NO_BOXES, 60, seeded()),
            RangeError,
            r"60 px .* inside frames of 50 × 80\. Resize the short side first",
        ),
        (
            lambda: jitter_colours(torch.zeros(1, 3, 2, 2), brightness=1.5, generator=seeded()),
            RangeError,
            r"must lie in \[0, 1\]",
        ),
        (lambda: normalised(torch.zeros(2, 1, 4, 4), IMAGENET), ShapeError, "must have 3 channels"),
    ],
)
def test_what_cannot_be_done_is_refused(use, error, said):
    with pytest.raises(error, match=said):
        use()


def test_no_transform_changes_what_it_is_given():
    frames = torch.randint(256, (2, 3, 60, 80), generator=seeded(14)).to(torch.uint8)
    boxes = torch.tensor([[-3.0, 10, 50, 50]])
    frames_before, boxes_before = frames.clone(), boxes.clone()
    whole_view(frames, boxes, short_side_px=60)
    random_view(frames, boxes, short_sides_px=(60, 60), crop_px=60, flip_probability=1.0, generator=seeded())
    jitter_colours(frames, brightness=0.5, generator=seeded())
    jitter_boxes(boxes, 0.1, seeded())
    normalised(frames.float(), IMAGENET)
    assert torch.equal(frames, frames_before)
    assert torch.equal(boxes, boxes_before)


def test_no_other_image_library_is_needed():
    source = inspect.getsource(transforms)
    assert not any(name in source for name in ("torchvision", "cv2", "PIL"))
