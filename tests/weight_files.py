"""Checkpoints as other projects write them, made from our own networks by running the key maps backwards."""

import pickle
import struct
from functools import cache

import torch

from mule.features.weights.card import build_backbone
from mule.features.weights.keymaps import KEY_MAPS, KeyMap


def inverse(key_map):
    """Their name for one of ours. Where two of theirs mean one of ours, the later in the table is written."""
    return KeyMap(
        words={
            token: {ours: theirs for theirs, ours in table.items()} for token, table in key_map.words.items()
        },
        rules={ours: theirs for theirs, ours in key_map.rules.items()},
    )


@cache
def promised_state(card):
    """A state dict with our names: every tensor filled with a number of its own, one stored value each."""
    with torch.device("meta"):
        model = build_backbone(card, with_head=card.num_classes is not None)
    return {
        name: torch.tensor(1 + index % 100, dtype=tensor.dtype).expand(tensor.shape)
        for index, (name, tensor) in enumerate(model.state_dict().items())
    }


def foreign_state(card):
    """The same tensors under the publisher's names, as the file of that card would have them."""
    theirs = inverse(KEY_MAPS[card.backbone, card.source])
    return {
        str(theirs(name)).removeprefix(card.key_prefix): tensor
        for name, tensor in promised_state(card).items()
    }


def on_meta(card, **options):
    """The card's network, without memory for its weights."""
    with torch.device("meta"):
        return build_backbone(card, **options)


def dense(tensors):
    """The tensors, each with memory of its own."""
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def save_caffe2(content, path):
    """As Caffe2 writes: a pickle of Python 2."""
    path.write_bytes(pickle.dumps(content, protocol=2))


def save_legacy(content, path):
    """As torch wrote before it zipped."""
    torch.save(content, path, _use_new_zipfile_serialization=False)


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
