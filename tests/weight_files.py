"""Checkpoints as other projects write them, made from our own networks by running the key maps backwards."""

from functools import cache

import torch

from mule.features.keymaps import KEY_MAPS, KeyMap
from mule.features.weights import build_backbone


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
