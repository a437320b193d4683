"""A file that falls short of its card is refused, and the model stays as it was."""

from dataclasses import replace

import pytest
import torch
from weight_files import foreign_state, on_meta

from mule.core.errors import WeightsError
from mule.features.weights.card import build_backbone
from mule.features.weights.cards import find_card
from mule.features.weights.checkpoints import read_checkpoint
from mule.features.weights.loading import load_weights, match_card

X3D = find_card("pytorchvideo_x3d_xs")
COUNTER = "num_batches_tracked"


# --- files that fall short of the card --------------------------------------------------------------------------


def without_one(tensors):
    tensors.pop("blocks.1.res_blocks.0.branch2.conv_a.weight")


def with_a_third_norm(tensors):
    tensors["blocks.1.res_blocks.0.branch1_norm.weight"] = torch.ones(24)


def with_a_narrow_layer(tensors):
    tensors["blocks.0.norm.weight"] = torch.ones(23)


def with_a_nan(tensors):
    tensors["blocks.0.norm.bias"] = torch.full((24,), torch.nan)


def without_the_head(tensors):
    tensors.pop("blocks.5.proj.bias")


def with_some_counters_gone(tensors):
    tensors.pop("blocks.0.norm.num_batches_tracked")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (without_one, r"562 are there \(1 missing: stages\.res2\.0\.a\.weight\)"),
        (with_a_third_norm, r"563 are there \(1 unexpected: stages\.res2\.0\.shortcut\.norm\.weight\)"),
        (with_a_narrow_layer, r"\(1 of another shape: conv1\.norm\.weight \(23,\) instead of \(24,\)\)"),
        (with_a_nan, r"\(1 not finite: conv1\.norm\.bias\)"),
        (without_the_head, r"562 are there \(1 missing: head\.projection\.bias\)"),
        (with_some_counters_gone, r"\(1 missing: conv1\.norm\.num_batches_tracked\)"),
    ],
)
def test_a_file_short_of_the_card_is_refused_and_the_model_stays_as_it_was(tmp_path, spoil, complaint):
    tensors = foreign_state(X3D)
    spoil(tensors)
    torch.save(tensors, tmp_path / "a.pth")
    model = build_backbone(X3D)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(
        WeightsError, match=r"a\.pth: must hold the 563 tensors of card 'pytorchvideo_x3d_xs'.*" + complaint
    ):
        load_weights(model, tmp_path / "a.pth", X3D)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_one_tensor_under_two_names_is_refused(tmp_path):
    card = find_card("pytorchvideo_ava_slowfast_8x8_r50")
    tensors = foreign_state(card)
    torch.save(
        {**tensors, **{f"model.{name}": tensors[name] for name in list(tensors)[:2]}}, tmp_path / "a.pth"
    )
    with pytest.raises(WeightsError, match=r"2 named twice: slow\.conv1\.conv\.weight, slow\.conv1"):
        match_card(read_checkpoint(tmp_path / "a.pth"), card)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "asked", "complaint"),
    [
        (
            "pytorchvideo_x3d_l",
            "pytorchvideo_x3d_xs",
            r"563 are there \(578 unexpected: stages\.res2\.3\.a\.weight",
        ),
        ("pytorchvideo_x3d_xs", "pytorchvideo_x3d_l", r"563 are there \(578 missing: "),
        ("i3d_rgb_kinetics400", "pytorchvideo_x3d_xs", r"0 are there \(480 missing: "),
        ("pytorchvideo_slowfast_8x8_r101", "pytorchvideo_slowfast_16x8_r101_50_50", r"34 of another shape: "),
        (
            "pytorchvideo_slowfast_8x8_r50",
            "pytorchvideo_ava_slowfast_8x8_r50",
            r"2 of another shape: head\.bias",
        ),
        ("pyslowfast_x3d_xs", "pytorchvideo_x3d_xs", "0 are there"),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path, written, asked, complaint):
    torch.save(foreign_state(find_card(written)), tmp_path / "a.pth")
    with pytest.raises(WeightsError, match=rf"card '{asked}'; .*{complaint}"):
        load_weights(on_meta(find_card(asked)), tmp_path / "a.pth", find_card(asked))


def test_a_model_that_is_not_the_cards_is_refused(tmp_path):
    torch.save(foreign_state(X3D), tmp_path / "a.pth")
    for model in (
        torch.nn.Linear(2, 2),
        on_meta(find_card("pytorchvideo_x3d_l")),
        on_meta(X3D, shortcut_norm=True),
    ):
        with pytest.raises(WeightsError, match="the model must be the one of card 'pytorchvideo_x3d_xs'"):
            load_weights(model, tmp_path / "a.pth", X3D)


def test_a_head_of_other_classes_is_refused(tmp_path):
    torch.save(foreign_state(X3D), tmp_path / "a.pth")
    model = on_meta(replace(X3D, num_classes=7), with_head=True)
    with pytest.raises(WeightsError, match=r"2 of its tensors are others \(head\.projection\.weight, head"):
        load_weights(model, tmp_path / "a.pth", X3D)
