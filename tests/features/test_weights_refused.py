"""What is no file of weights is refused by name, and nothing in it is run."""

import os
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from weight_files import python2_pickle, save_caffe2, save_legacy

from mule.core.errors import WeightsError
from mule.features.weights.checkpoints import read_checkpoint

SYSTEM = os.system  # pyright: ignore[reportDeprecated] - what such files use


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
        (b"\x80\x02}.", "none were found in this array pickle"),
        (b"\x80\x02K\x07.", "none were found in this array pickle"),
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
