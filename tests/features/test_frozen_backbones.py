"""Frozen backbones: the recipe of a card says what its network is really given."""

import hashlib
import json
from fractions import Fraction

import pytest
import torch
from tiny_extraction import TinyBackbone, tiny_backbone, tiny_recipe

from mule.core.errors import RangeError, WeightsError
from mule.features import extraction as frozen
from mule.features.backbones.slowfast import slow_frame_positions
from mule.features.cache import Every, feature_key
from mule.features.extraction import FrozenBackbone, frozen_backbone
from mule.features.weights.card import NORMALISATIONS
from mule.features.weights.cards import WEIGHT_CARDS


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A file that stands for weights, and is loaded as the tiny backbone."""
    monkeypatch.setattr(frozen, "load_backbone", lambda *_: TinyBackbone())
    path = tmp_path / "weights"
    path.write_bytes(b"weights")
    return path


@pytest.mark.parametrize("card", WEIGHT_CARDS.values(), ids=WEIGHT_CARDS)
def test_the_recipe_of_a_card_names_the_frames_that_the_network_sees(weights, card):
    recipe = frozen_backbone(weights, card).recipe
    frames = (recipe.clip.num_frames, recipe.clip.stride_frames)
    assert frames == (card.clip.num_frames, card.clip.stride_frames)
    expected = range(card.clip.num_frames)
    if card.backbone == "slowfast":
        expected = slow_frame_positions(card.clip.num_frames, card.options["variant"]).tolist()
    assert list(recipe.clip.slow_indices) == list(expected)
    assert recipe.short_side_px == card.clip.short_side_px
    assert recipe.normalisation == NORMALISATIONS[card.clip.normalisation]
    assert (
        json.loads(feature_key(recipe, "cd" * 32, Every(Fraction(1))))["recipe"]["backbone"] == card.backbone
    )


def test_defaults_of_the_backbone_are_part_of_the_recipe(weights):
    card = WEIGHT_CARDS["i3d_rgb_kinetics400"]
    recipe = frozen_backbone(weights, card, short_side_px=128, frame_rate=Fraction(30), half=True).recipe
    assert recipe.options == {"endpoint": "mixed_5c", "also_mixed_4f": False}
    assert (recipe.short_side_px, recipe.frame_rate, recipe.half) == (128, 30, True)
    assert recipe.weights_sha256 == hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize(
    ("suffixes", "message"), [(("none",), "none fits"), (("video_x3d_s", "video_x3d_m"), "x3d_s, .*x3d_m")]
)
def test_weights_that_fit_no_card_or_several_need_one(weights, monkeypatch, suffixes, message):
    cards = [card for name, card in WEIGHT_CARDS.items() if name.endswith(suffixes)]
    monkeypatch.setattr(frozen, "read_checkpoint", lambda path: path)
    monkeypatch.setattr(frozen, "fitting_cards", lambda _: cards)
    with pytest.raises(WeightsError, match=f"{weights.name}: .*{message}"):
        frozen_backbone(weights)


def test_a_device_that_is_not_there_is_named(weights):
    with pytest.raises(RangeError, match="device must be one that torch can use here; got 'toaster'"):
        frozen_backbone(weights, WEIGHT_CARDS["i3d_rgb_kinetics400"], device="toaster")


def test_a_backbone_that_still_trains_is_refused():
    with pytest.raises(RangeError, match="evaluation mode"):
        FrozenBackbone(TinyBackbone().train(), tiny_recipe())


def test_nothing_is_kept_for_a_backward_pass():
    features = tiny_backbone().features(torch.zeros(1, 3, 4, 16, 16))
    assert all(each.is_inference() for each in features.maps)


def test_any_function_from_clips_to_maps_is_a_backbone():
    clips = torch.ones(1, 3, 4, 16, 16)
    module = TinyBackbone()
    plain = FrozenBackbone(lambda pixels: module(pixels), tiny_recipe())
    assert torch.equal(plain.features(clips).maps[0], tiny_backbone().features(clips).maps[0])


@pytest.mark.slow
def test_the_card_of_real_weights_is_found_by_what_is_in_the_file(shared_data):
    path = shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt"
    backbone = frozen_backbone(path)
    assert (backbone.recipe.backbone, backbone.recipe.clip.num_frames) == ("i3d", 64)
    assert backbone.features(torch.zeros(0, 3, 64, 64, 64)).maps[0].shape == (0, 1024, 8, 2, 2)
