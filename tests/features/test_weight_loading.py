"""A file of weights fills the network it was published for, or is refused and changes nothing and runs nothing."""

import argparse
import os
import pickle
import struct
import sys
import types
from dataclasses import replace

import foreign_names
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from weight_files import foreign_state, promised_state

from mule.errors import WeightsError
from mule.features.checkpoints import read_checkpoint
from mule.features.keymaps import I3D_FROM_JAX
from mule.features.loading import fitting_cards, load_backbone, load_weights, match_card
from mule.features.published import find_card
from mule.features.weights import build_backbone

X3D = find_card("pytorchvideo_x3d_xs")
COUNTER = "num_batches_tracked"
SYSTEM = os.system  # pyright: ignore[reportDeprecated] - what such files use


def on_meta(card, **options):
    with torch.device("meta"):
        return build_backbone(card, **options)


def dense(tensors):
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def save_caffe2(content, path):
    path.write_bytes(pickle.dumps(content, protocol=2))


def save_legacy(content, path):
    torch.save(content, path, _use_new_zipfile_serialization=False)


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


def python2_pickle(array):
    """{'blobs': {'conv1_w': array}}, instruction by instruction as Python 2 and numpy 1 wrote it."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + text(b"f4") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"<") + b"NNN" + number(-1) + number(-1) + b"K\x00tb"
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    shape = b"(" + b"".join(number(side) for side in array.shape) + b"t"
    state = b"(K\x01" + shape + dtype + b"\x89" + text(array.tobytes()) + b"tb"
    return b"\x80\x02}" + text(b"blobs") + b"}" + text(b"conv1_w") + made + state + b"ss."


def test_arrays_written_by_python_2_are_read_bit_by_bit(tmp_path):
    array = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("<f4")
    (tmp_path / "a.pkl").write_bytes(python2_pickle(array))
    checkpoint = read_checkpoint(tmp_path / "a.pkl")
    assert checkpoint.format == "caffe2 pickle"
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


# --- files that want something run -----------------------------------------------------------------------------


class Runs:
    """Unpickled as usual, it calls a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("save", [save_caffe2, torch.save, save_legacy])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (SYSTEM, r"(posix|nt)\.system"),
        (eval, "(builtins.|__builtin__.)?eval"),
        (os.mkdir, r"(posix|nt)\.mkdir"),
        (np.fromfile, r"numpy\.\S*fromfile"),
    ],
)
def test_a_pickle_that_would_run_code_is_refused_by_name_and_not_run(tmp_path, save, function, name):
    trace = tmp_path / "trace"
    argument = {SYSTEM: f"touch {trace}", eval: f"open({str(trace)!r}, 'w')"}.get(function, str(trace))
    save({"blobs": {"a": Runs(function, argument)}}, tmp_path / "a.pkl")
    with pytest.raises(
        WeightsError, match=rf"a\.pkl: .* asks for '{name}', which could run code\. It was not run"
    ):
        read_checkpoint(tmp_path / "a.pkl")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (lambda trace: np.array([Runs(os.mkdir, trace)]), r"asks for '(posix|nt)\.mkdir'"),
        (lambda _: np.array(["text"]), "none were found"),
        (lambda _: np.zeros(2, dtype=[("x", "f4")]), "none were found"),
        (lambda _: Runs(np.dtype, "O"), "none were found"),
        (lambda _: Runs(np.ndarray, (10**15,)), r"asks for 'numpy\.|none were found"),
    ],
)
def test_arrays_that_are_no_numbers_are_neither_weights_nor_a_way_to_code(tmp_path, content, found):
    save_caffe2({"blobs": {"a": content(str(tmp_path / "trace"))}}, tmp_path / "a.pkl")
    with pytest.raises(WeightsError, match=rf"a\.pkl.*{found}"):
        read_checkpoint(tmp_path / "a.pkl")
    assert not (tmp_path / "trace").exists()


def test_a_pickle_cannot_spoil_the_types_of_numpy(tmp_path):
    flags = python2_pickle(np.ones(2, "<f4")).replace(
        b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00", b"NNNK\x08K\x08K\x3f"
    )
    (tmp_path / "a.pkl").write_bytes(flags)
    assert read_checkpoint(tmp_path / "a.pkl").tensors["conv1_w"].tolist() == [1.0, 1.0]
    assert not np.dtype("f4").hasobject


@pytest.mark.parametrize(
    "array", [np.arange(6, dtype=">f4").reshape(2, 3), np.asfortranarray(np.eye(3, 2)), np.array(7)]
)
def test_arrays_of_any_order_are_read_as_they_were(tmp_path, array):
    save_caffe2({"blobs": {"a": array}}, tmp_path / "a.pkl")
    assert np.array_equal(read_checkpoint(tmp_path / "a.pkl").tensors["a"].numpy(), array)


def test_contents_that_cannot_be_tensors_are_refused(tmp_path):
    endless = {}
    endless["state_dict"] = endless
    for content in (endless, {"blobs": {"a": np.ones(2, np.longdouble)}}):
        save_caffe2(content, tmp_path / "a.pkl")
        with pytest.raises(WeightsError, match=r"a\.pkl: weights must be readable"):
            read_checkpoint(tmp_path / "a.pkl")


def test_a_network_saved_whole_is_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "a.pth")
    with pytest.raises(WeightsError, match=r"asks for 'torch\.nn\.modules\.linear\.Linear'"):
        read_checkpoint(tmp_path / "a.pth")


# --- files that are no weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "this is an empty file"),
        (b"Weights are at https://example.org\n", "this is text"),
        (b"\n<!DOCTYPE html><html>Can't scan this file for viruses</html>", "this is a web page"),
        (b"\x08\x07\x12\x07pytorch\x1a\x051.13", "this is other data"),
        (b"cposix\nsystem\n(S'true'\ntR.", "this is text"),
        (b"\x80\x02}.", "none were found in this caffe2 pickle"),
        (b"\x80\x02K\x07.", "none were found in this caffe2 pickle"),
        (b"\x80\x02", "damaged, cut short"),
        (b"PK\x03\x04", "damaged, cut short"),
        (struct.pack("<Q", 40) + b'{"a": {"dtype"', "damaged, cut short"),
    ],
)
def test_what_is_no_file_of_weights_is_said_to_be_what_it_is(tmp_path, content, found):
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(WeightsError, match=rf"a\.pth: .*{found}"):
        read_checkpoint(tmp_path / "a.pth")


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    for path in (tmp_path, tmp_path / "none.pth"):
        with pytest.raises(WeightsError, match="there is no such file"):
            read_checkpoint(path)


@pytest.mark.parametrize(
    "write",
    [
        torch.save,
        save_legacy,
        lambda t, p: save_caffe2({"blobs": {name: tensor.numpy() for name, tensor in t.items()}}, p),
        save_file,
    ],
    ids=["torch zip", "torch pickle", "caffe2", "safetensors"],
)
def test_a_file_cut_short_anywhere_is_refused(tmp_path, write):
    whole, cut = tmp_path / "whole.pth", tmp_path / "cut.pth"
    write({"a": torch.arange(60.0), "b": torch.ones(7, 3)}, whole)
    assert len(read_checkpoint(whole).tensors) == 2
    content = whole.read_bytes()
    for length in {*range(0, len(content), 13), len(content) - 1}:
        cut.write_bytes(content[:length])
        with pytest.raises(WeightsError, match=r"cut\.pth"):
            read_checkpoint(cut)


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
