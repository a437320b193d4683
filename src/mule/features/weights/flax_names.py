"""I3D as a Flax program keeps it, under the names and in the layout of its torch weights.

params/Mixed_5b/Branch_1/Conv3d_0b_3x3/Conv_0/kernel (3, 3, 3, in, out)  ─▶  body.Mixed_5b.b1b.conv.weight (out, in, 3, 3, 3)
batch_stats/…/BatchNorm_0/mean (1, 1, 1, 1, out)                         ─▶  body.Mixed_5b.b1b.bn.running_mean (out)
"""

import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_STEMS = {"Conv3d_1a_7x7": "c1", "Conv3d_2b_1x1": "c2b", "Conv3d_2c_3x3": "c2c"}
_BRANCHES = {
    ("0", "0a"): "b0",
    ("1", "0a"): "b1a",
    ("1", "0b"): "b1b",
    ("2", "0a"): "b2a",
    ("2", "0b"): "b2b",
    ("3", "0b"): "b3",
}
_BRANCH = re.compile(r"(Mixed_\w\w)/Branch_(\d)/Conv3d_(0[ab])_\dx\d")
_LEAVES = {
    "Conv_0/kernel": "conv.weight",
    "Conv_0/bias": "conv.bias",
    "BatchNorm_0/bias": "bn.bias",
    "BatchNorm_0/mean": "bn.running_mean",
    "BatchNorm_0/var": "bn.running_var",
}
_PARTS = ("params", "batch_stats")


def is_flax(content: object) -> bool:
    """Whether these are the variables of a Flax program with batch norms."""
    return isinstance(content, Mapping) and set(content) == set(_PARTS)


def i3d_from_flax(content: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of I3D by their torch names; names that are not I3D's stay as they are.

    Batch norms have no scale there: it is one.

    Args:
        content: tensors by their path, such as `params/Conv3d_1a_7x7/Conv_0/kernel`.
    """
    named = dict(_renamed(content))
    for name, mean in list(named.items()):
        if name.endswith(".running_mean"):
            unit = name.removesuffix(".running_mean")
            named[f"{unit}.weight"] = torch.ones_like(mean)
            named[f"{unit}.num_batches_tracked"] = torch.zeros((), dtype=torch.int64)
    return named


def _renamed(content: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for path, tensor in content.items():
        unit, leaf = _unit_and_leaf(path.partition("/")[2])
        if unit is None or leaf not in _LEAVES:
            yield path, tensor
        elif leaf == "Conv_0/kernel":
            yield f"{unit}.{_LEAVES[leaf]}", tensor.permute(4, 3, 0, 1, 2).contiguous()
        else:
            yield f"{unit}.{_LEAVES[leaf]}", tensor.flatten().contiguous()


def _unit_and_leaf(path: str) -> tuple[str | None, str]:
    place, _, last = path.rpartition("/")
    place, _, kind = place.rpartition("/")
    leaf = f"{kind}/{last}"
    if place == "Logits/Conv3d_0c_1x1":
        return "logits", leaf
    if branch := _BRANCH.fullmatch(place):
        name = _BRANCHES.get((branch[2], branch[3]))
        return (None if name is None else f"body.{branch[1]}.{name}"), leaf
    return _STEMS.get(place), leaf
