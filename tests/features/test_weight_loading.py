"""A file of weights fills the network it was published for, in whichever format and wrapping."""

import argparse
import os
import sys
import types

import foreign_names
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from weight_files import (
    dense,
    foreign_state,
    on_meta,
    promised_state,
    python2_pickle,
    save_caffe2,
    save_legacy,
)

from mule.features.weights.card import build_backbone
from mule.features.weights.cards import find_card
from mule.features.weights.checkpoints import read_checkpoint
from mule.features.weights.keymaps import I3D_FROM_JAX
from mule.features.weights.loading import fitting_cards, load_backbone, load_weights

X3D = find_card("pytorchvideo_x3d_xs")
COUNTER = "num_batches_tracked"
SYSTEM = os.system  # pyright: ignore[reportDeprecated] - what such files use


def wrapped(tensors):
    return {f"module.{name}": tensor for name, tensor in tensors.items()}


def assert_holds(model, card):
    """The model has the number that `promised_state` gave each tensor, and zero where counters were left out."""
    expected = promised_state(card)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]) or (name.endswith(COUNTER) and tensor == 0), name


# --- formats and wrappings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "file", "kind"),
    [
        (lambda t, p: torch.save({"model_state": t, "epoch": 3, "cfg": "A: 1"}, p), "a.pyth", "torch zip"),
        (lambda t, p: torch.save({"state_dict": wrapped(t), "meta": {}}, p), "a.pth", "torch zip"),
        (torch.save, "a.pt", "torch zip"),
        (lambda t, p: torch.save({"model_state": t}, p), "a.pkl", "torch zip"),
        (lambda t, p: save_legacy({"state_dict": t}, p), "a.pth.tar", "torch pickle"),
        (lambda t, p: save_file(dense(t), p), "a.safetensors", "safetensors"),
        (lambda t, p: save_file(dense(wrapped(t)), p), "a.bin", "safetensors"),
    ],
)
def test_every_format_under_any_name_gives_the_same_network(tmp_path, write, file, kind):
    write(foreign_state(X3D), tmp_path / file)
    assert read_checkpoint(tmp_path / file).format == kind
    model = on_meta(X3D)
    assert str(load_weights(model, tmp_path / file, X3D)) == "554 of 554 tensors, 9 ignored: head"
    assert_holds(model, X3D)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("pytorchvideo_slowfast_8x8_r50", "660 of 660 tensors, 2 ignored: head"),
        ("pyslowfast_ava_slowfast_32x2_r101_50_50", "1311 of 1311 tensors, 2 ignored: head"),
        ("pyslowfast_x3d_xs", "559 of 559 tensors, 9 ignored: head"),
        ("mmaction2_slowfast_8x8_r50", "640 of 640 tensors, 2 ignored: head"),
        ("mmaction2_ircsn_152_ig65m", "930 of 930 tensors"),
        ("acar_ava_slowfast_r50", "660 of 660 tensors"),
        ("i3d_rgb_kinetics400", "342 of 342 tensors, 2 ignored: head"),
    ],
)
def test_each_publisher_names_a_whole_backbone(tmp_path, name, found):
    card = find_card(name)
    torch.save(foreign_state(card), tmp_path / "a.pth")
    model = on_meta(card)
    assert str(load_weights(model, tmp_path / "a.pth", card)) == found
    assert_holds(model, card)


def test_the_head_comes_along_where_the_model_has_one(tmp_path):
    torch.save(foreign_state(X3D), tmp_path / "a.pth")
    model = on_meta(X3D, with_head=True)
    assert str(load_weights(model, tmp_path / "a.pth", X3D)) == "563 of 563 tensors"
    assert_holds(model, X3D)


def test_caffe2_blobs_fill_the_network_and_solver_state_is_ignored(tmp_path):
    card = find_card("pyslowfast_slowfast_8x8_r50")
    ours = promised_state(card)
    small = {
        name: ours[str(card.our_name(name))].numpy().astype(np.int8)
        for name in foreign_names.caffe2_slowfast(50)
    }
    solver = {"conv1_w_momentum": np.zeros(3, np.float32), "lr": np.float32(0.1), "model_iter": np.array([7])}
    save_caffe2({"blobs": {**small, **solver}, "cfg": "A: 1"}, tmp_path / "a.pkl")
    model = on_meta(card)
    report = load_weights(model, tmp_path / "a.pkl", card)
    assert str(report) == "550 of 550 tensors, 4 ignored: head, conv1_w_momentum, model_iter"
    assert_holds(model, card)


def test_arrays_written_by_python_2_are_read_bit_by_bit(tmp_path):
    array = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("<f4")
    (tmp_path / "a.pkl").write_bytes(python2_pickle(array))
    checkpoint = read_checkpoint(tmp_path / "a.pkl")
    assert checkpoint.format == "array pickle"
    assert np.array_equal(checkpoint.tensors["conv1_w"].numpy(), array)


def test_a_1x1x1_convolution_stored_as_a_matrix_gets_its_trailing_ones(tmp_path):
    tensors = foreign_state(X3D)
    flat = {name: tensor[..., 0, 0, 0] if "conv_a" in name else tensor for name, tensor in tensors.items()}
    torch.save(flat, tmp_path / "a.pth")
    model = on_meta(X3D)
    load_weights(model, tmp_path / "a.pth", X3D)
    assert_holds(model, X3D)


def test_batch_counters_may_be_absent_altogether(tmp_path):
    tensors = {name: tensor for name, tensor in foreign_state(X3D).items() if not name.endswith(COUNTER)}
    torch.save(tensors, tmp_path / "a.pth")
    model = build_backbone(X3D)
    assert str(load_weights(model, tmp_path / "a.pth", X3D)) == "472 of 472 tensors, 8 ignored: head"
    assert_holds(model, X3D)


def test_half_precision_becomes_the_precision_of_the_model(tmp_path):
    torch.save({name: tensor.half() for name, tensor in foreign_state(X3D).items()}, tmp_path / "a.pth")
    for model in (on_meta(X3D), build_backbone(X3D).double()):
        before = {name: tensor.dtype for name, tensor in model.state_dict().items()}
        load_weights(model, tmp_path / "a.pth", X3D)
        assert {name: tensor.dtype for name, tensor in model.state_dict().items()} == before
        assert_holds(model, X3D)


def test_a_loaded_backbone_is_ready_to_be_used(tmp_path):
    torch.save(foreign_state(X3D), tmp_path / "a.pth")
    model = load_backbone(tmp_path / "a.pth", X3D, res5_stride=1)
    assert not model.training
    assert model.stride == 16
    assert all(weight.requires_grad and not weight.is_meta for weight in model.parameters())


def test_a_backbone_that_ends_at_an_earlier_map_takes_the_weights_up_to_there(tmp_path):
    card = find_card("i3d_rgb_kinetics400")
    torch.save({name: tensor.contiguous() for name, tensor in foreign_state(card).items()}, tmp_path / "a.pt")
    model = load_backbone(tmp_path / "a.pt", card, endpoint="mixed_4f")
    assert model.stride == 16
    assert_holds(model, card)
    assert all(
        weight.is_contiguous(memory_format=torch.channels_last_3d)
        for weight in model.parameters()
        if weight.dim() == 5
    )


def test_the_real_kinetics_weights_of_i3d_are_all_there(shared_data):
    path = shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt"
    card = find_card("i3d_rgb_kinetics400")
    assert fitting_cards(read_checkpoint(path)) == [card]
    model = load_backbone(path, card, with_head=True)
    for name, tensor in torch.load(path, weights_only=True).items():
        assert torch.equal(model.state_dict()[str(I3D_FROM_JAX(name))], tensor.float())


def test_a_file_fits_the_cards_whose_network_it_has_and_no_other(tmp_path):
    torch.save(foreign_state(X3D), tmp_path / "a.pth")
    fitting = fitting_cards(read_checkpoint(tmp_path / "a.pth"))
    assert [card.name for card in fitting] == [
        "pytorchvideo_x3d_xs",
        "pytorchvideo_x3d_s",
        "pytorchvideo_x3d_m",
    ]


# --- what training programs leave in their files -------------------------------------------------------------


@pytest.fixture
def foreign_class(monkeypatch):
    """A class of a package that is there while a file is written, and gone when it is read."""

    def define(module, name, *bases, **members):
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
        made = type(name, bases, {"__module__": module, **members})
        setattr(sys.modules[module], name, made)
        return made

    return define


@pytest.mark.parametrize("save", [torch.save, save_legacy])
@pytest.mark.parametrize(
    "module", ["yacs.config.CfgNode", "fvcore.common.config.CfgNode", "easydict.EasyDict"]
)
def test_settings_beside_the_tensors_are_passed_over(tmp_path, foreign_class, monkeypatch, save, module):
    package, _, name = module.rpartition(".")
    settings = foreign_class(package, name, dict)(LR=0.1)
    settings.frozen = True
    save({"cfg": settings, "model_state": {"a": torch.ones(2)}}, tmp_path / "a.pyth")
    for part in [key for key in sys.modules if key.split(".")[0] == package.split(".")[0]]:
        monkeypatch.delitem(sys.modules, part)
    assert list(read_checkpoint(tmp_path / "a.pyth").tensors) == ["a"]


def test_histories_and_numpy_values_beside_the_tensors_are_passed_over(tmp_path):
    extra = {"best": np.float64(3.5), "curve": np.arange(3), "args": argparse.Namespace(lr=0.1)}
    torch.save({"meta": extra, "state_dict": {"a": torch.ones(2)}}, tmp_path / "a.pth")
    assert list(read_checkpoint(tmp_path / "a.pth").tensors) == ["a"]
