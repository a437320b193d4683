"""Key maps: the names of tensors in other projects' checkpoints, and in our state dicts.

A key map turns a key of a foreign checkpoint into the key of our state dict, or None if the key does not belong to the
backbone or its classification head (optimiser state, another head, a learning rate). It is a table of rules: a
template of the foreign name, and one of ours. `words` lists what may replace each token in braces, and what it
becomes; {block}, which has no table, is a number and stays.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

Words = Mapping[str, Mapping[str, str]]

_TORCH_LEAVES = {
    leaf: leaf for leaf in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
}


@dataclass(frozen=True)
class KeyMap:
    """Rules for every tensor of one backbone in one foreign format."""

    words: Words
    rules: Mapping[str, str]
    prefixes: Sequence[str] = ("",)
    """Possible prefixes of every key: names of wrappers."""

    def __call__(self, key: str) -> str | None:
        """Return our name of a foreign key; None if no rule matches."""
        for pattern, ours in self._patterns:
            if match := pattern.fullmatch(key):
                words = match.groupdict()
                return ours.format_map({token: self._become(token, word) for token, word in words.items()})
        return None

    def _become(self, token: str, word: str) -> str:
        return self.words[token][word] if token in self.words else word

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        before = f"(?:{'|'.join(map(re.escape, self.prefixes))})"
        return [(re.compile(before + self._regex(theirs)), ours) for theirs, ours in self.rules.items()]

    def _regex(self, template: str) -> str:
        literals_and_tokens = re.split(r"\{(\w+)\}", template)
        parts = [re.escape(literal) for literal in literals_and_tokens]
        for position in range(1, len(parts), 2):
            token = literals_and_tokens[position]
            words = "|".join(map(re.escape, self.words[token])) if token in self.words else r"\d+"
            parts[position] = f"(?P<{token}>{words})"
        return "".join(parts)


_NUMBERED_FROM_0 = {"0": "res2", "1": "res3", "2": "res4", "3": "res5"}
_NUMBERED_FROM_1 = {"1": "res2", "2": "res3", "3": "res4", "4": "res5"}
_NUMBERED_FROM_2 = {"2": "res2", "3": "res3", "4": "res4", "5": "res5"}
_PATHS = {"0": "slow", "1": "fast"}
_NAMED_PATHS = {"slow": "slow", "fast": "fast"}

# Names of the three convolutions of a residual block and their norms, by project
_PYSLOWFAST_LAYERS = {"a": "a", "a_bn": "a_norm", "b": "b", "b_bn": "b_norm", "c": "c", "c_bn": "c_norm"}
_PYTORCHVIDEO_LAYERS = {
    "conv_a": "a",
    "norm_a": "a_norm",
    "conv_b": "b",
    "norm_b": "b_norm",
    "conv_c": "c",
    "norm_c": "c_norm",
}
_ACAR_LAYERS = {"conv1": "a", "bn1": "a_norm", "conv2": "b", "bn2": "b_norm", "conv3": "c", "bn3": "c_norm"}
_MMACTION2_LAYERS = {
    "conv1.conv": "a",
    "conv1.bn": "a_norm",
    "conv2.conv": "b",
    "conv2.bn": "b_norm",
    "conv2.0.conv": "b",  # CSN has its depthwise convolution in a sequence of one
    "conv2.0.bn": "b_norm",
    "conv3.conv": "c",
    "conv3.bn": "c_norm",
}
_CONV_BN = {"conv": "conv", "bn": "norm"}
_CONV_NORM = {"conv": "conv", "norm": "norm"}
_PYSLOWFAST_SHORTCUT = {"branch1": "conv", "branch1_bn": "norm"}
_PYTORCHVIDEO_SHORTCUT = {"branch1_conv": "conv", "branch1_norm": "norm"}
_MMACTION2_HEADS = {"cls_head": "head", "roi_head.bbox_head": "head"}

SLOWFAST_FROM_PYSLOWFAST = KeyMap(
    prefixes=("", "module."),
    words={
        "path": _PATHS,
        "stage": _NUMBERED_FROM_2,
        "into": _NUMBERED_FROM_1,
        "conv": _CONV_BN,
        "fuse": {"conv_f2s": "conv", "bn": "norm"},
        "layer": _PYSLOWFAST_LAYERS,
        "shortcut": _PYSLOWFAST_SHORTCUT,
        "nl": {"conv_theta": "theta", "conv_phi": "phi", "conv_g": "g", "conv_out": "out", "bn": "norm"},
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "s1.pathway{path}_stem.{conv}.{leaf}": "{path}.conv1.{conv}.{leaf}",
        "s{into}_fuse.{fuse}.{leaf}": "lateral.{into}.{fuse}.{leaf}",
        "s{stage}.pathway{path}_res{block}.branch2.{layer}.{leaf}": "{path}.{stage}.{block}.{layer}.{leaf}",
        "s{stage}.pathway{path}_res{block}.{shortcut}.{leaf}": "{path}.{stage}.{block}.shortcut.{shortcut}.{leaf}",
        "s{stage}.pathway{path}_nonlocal{block}.{nl}.{leaf}": "{path}.{stage}.nonlocal{block}.{nl}.{leaf}",
        "head.projection.{leaf}": "head.{leaf}",
    },
)

# Blobs of the caffe2 .pkl files; "t_" is the Fast pathway, and norms have no num_batches_tracked
SLOWFAST_FROM_CAFFE2 = KeyMap(
    words={
        "path": {"": "slow", "t_": "fast"},
        "stage": _NUMBERED_FROM_2,
        "into": {"2": "res3", "3": "res4", "4": "res5"},
        "layer": {"a": "a", "b": "b", "c": "c"},
        "nl": {"theta": "theta", "phi": "phi", "g": "g", "out": "out"},
        "leaf": {"w": "weight", "b": "bias"},
        "stat": {"s": "weight", "b": "bias", "rm": "running_mean", "riv": "running_var"},
    },
    rules={
        "{path}conv1_{leaf}": "{path}.conv1.conv.{leaf}",
        "{path}res_conv1_bn_{stat}": "{path}.conv1.norm.{stat}",
        "t_pool1_subsample_{leaf}": "lateral.res2.conv.{leaf}",
        "t_pool1_subsample_bn_{stat}": "lateral.res2.norm.{stat}",
        "t_res{into}_{block}_branch2c_bn_subsample_{leaf}": "lateral.{into}.conv.{leaf}",
        "t_res{into}_{block}_branch2c_bn_subsample_bn_{stat}": "lateral.{into}.norm.{stat}",
        "{path}res{stage}_{block}_branch2{layer}_{leaf}": "{path}.{stage}.{block}.{layer}.{leaf}",
        "{path}res{stage}_{block}_branch2{layer}_bn_{stat}": "{path}.{stage}.{block}.{layer}_norm.{stat}",
        "{path}res{stage}_{block}_branch1_{leaf}": "{path}.{stage}.{block}.shortcut.conv.{leaf}",
        "{path}res{stage}_{block}_branch1_bn_{stat}": "{path}.{stage}.{block}.shortcut.norm.{stat}",
        "nonlocal_conv{stage}_{block}_{nl}_{leaf}": "slow.{stage}.nonlocal{block}.{nl}.{leaf}",
        "nonlocal_conv{stage}_{block}_bn_{stat}": "slow.{stage}.nonlocal{block}.norm.{stat}",
        "pred_{leaf}": "head.{leaf}",
    },
)

SLOWFAST_FROM_PYTORCHVIDEO = KeyMap(
    prefixes=("", "model."),
    words={
        "path": _PATHS,
        "stage": _NUMBERED_FROM_1,
        "into": _NUMBERED_FROM_0,
        "conv": _CONV_NORM,
        "fuse": {"conv_fast_to_slow": "conv", "norm": "norm"},
        "layer": _PYTORCHVIDEO_LAYERS,
        "shortcut": _PYTORCHVIDEO_SHORTCUT,
        "head": {"blocks.6": "head", "detection_head": "head"},
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "blocks.0.multipathway_blocks.{path}.{conv}.{leaf}": "{path}.conv1.{conv}.{leaf}",
        "blocks.{into}.multipathway_fusion.{fuse}.{leaf}": "lateral.{into}.{fuse}.{leaf}",
        "blocks.{stage}.multipathway_blocks.{path}.res_blocks.{block}.branch2.{layer}.{leaf}": (
            "{path}.{stage}.{block}.{layer}.{leaf}"
        ),
        "blocks.{stage}.multipathway_blocks.{path}.res_blocks.{block}.{shortcut}.{leaf}": (
            "{path}.{stage}.{block}.shortcut.{shortcut}.{leaf}"
        ),
        "{head}.proj.{leaf}": "{head}.{leaf}",
    },
)

SLOWFAST_FROM_ACAR = KeyMap(
    prefixes=("", "module.", "backbone.", "backbone.module.", "module.backbone.", "module.backbone.module."),
    words={
        "path": _NAMED_PATHS,
        "stage": _NUMBERED_FROM_1,
        "conv": {"conv1": "conv", "bn1": "norm"},
        "fuse": {"": "conv", "0.": "conv", "1.": "norm"},  # in R101 a connection is only a convolution
        "layer": _ACAR_LAYERS,
        "shortcut": {"downsample.0": "conv", "downsample_bn": "norm"},
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "{path}_{conv}.{leaf}": "{path}.conv1.{conv}.{leaf}",
        "Tconv{stage}.{fuse}{leaf}": "lateral.{stage}.{fuse}.{leaf}",
        "{path}_res{stage}.{block}.{layer}.{leaf}": "{path}.{stage}.{block}.{layer}.{leaf}",
        "{path}_res{stage}.{block}.{shortcut}.{leaf}": "{path}.{stage}.{block}.shortcut.{shortcut}.{leaf}",
    },
)

SLOWFAST_FROM_MMACTION2 = KeyMap(
    words={
        "path": _NAMED_PATHS,
        "stage": _NUMBERED_FROM_1,
        "into": {"conv1": "res2", "layer1": "res3", "layer2": "res4", "layer3": "res5"},
        "conv": _CONV_BN,
        "layer": _MMACTION2_LAYERS,
        "head": _MMACTION2_HEADS,
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "backbone.{path}_path.conv1.{conv}.{leaf}": "{path}.conv1.{conv}.{leaf}",
        "backbone.slow_path.{into}_lateral.{conv}.{leaf}": "lateral.{into}.{conv}.{leaf}",
        "backbone.{path}_path.layer{stage}.{block}.{layer}.{leaf}": "{path}.{stage}.{block}.{layer}.{leaf}",
        "backbone.{path}_path.layer{stage}.{block}.downsample.{conv}.{leaf}": (
            "{path}.{stage}.{block}.shortcut.{conv}.{leaf}"
        ),
        "{head}.fc_cls.{leaf}": "{head}.{leaf}",
    },
)

X3D_FROM_PYTORCHVIDEO = KeyMap(
    words={
        # upstream calls the spatial convolution conv_t and the temporal one conv_xy
        "stem": {"conv.conv_t": "spatial", "conv.conv_xy": "temporal", "norm": "norm"},
        "stage": _NUMBERED_FROM_1,
        "layer": {**_PYTORCHVIDEO_LAYERS, "norm_b.0": "b_norm"},
        "se": {"0": "squeeze", "2": "excite"},
        "shortcut": _PYTORCHVIDEO_SHORTCUT,
        "head": {
            "pool.pre_conv": "conv5",
            "pool.pre_norm": "conv5_norm",
            "pool.post_conv": "lin5",
            "proj": "projection",
        },
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "blocks.0.{stem}.{leaf}": "conv1.{stem}.{leaf}",
        "blocks.{stage}.res_blocks.{block}.branch2.{layer}.{leaf}": "stages.{stage}.{block}.{layer}.{leaf}",
        "blocks.{stage}.res_blocks.{block}.branch2.norm_b.1.block.{se}.{leaf}": (
            "stages.{stage}.{block}.se.{se}.{leaf}"
        ),
        "blocks.{stage}.res_blocks.{block}.{shortcut}.{leaf}": "stages.{stage}.{block}.shortcut.{shortcut}.{leaf}",
        "blocks.5.{head}.{leaf}": "head.{head}.{leaf}",
    },
)

X3D_FROM_PYSLOWFAST = KeyMap(
    prefixes=("", "module."),
    words={
        "stem": {"conv_xy": "spatial", "conv": "temporal", "bn": "norm"},
        "stage": _NUMBERED_FROM_2,
        "layer": _PYSLOWFAST_LAYERS,
        "se": {"fc1": "squeeze", "fc2": "excite"},
        "shortcut": _PYSLOWFAST_SHORTCUT,
        "head": {"conv_5": "conv5", "conv_5_bn": "conv5_norm", "lin_5": "lin5", "projection": "projection"},
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "s1.pathway0_stem.{stem}.{leaf}": "conv1.{stem}.{leaf}",
        "s{stage}.pathway0_res{block}.branch2.{layer}.{leaf}": "stages.{stage}.{block}.{layer}.{leaf}",
        "s{stage}.pathway0_res{block}.branch2.se.{se}.{leaf}": "stages.{stage}.{block}.se.{se}.{leaf}",
        "s{stage}.pathway0_res{block}.{shortcut}.{leaf}": "stages.{stage}.{block}.shortcut.{shortcut}.{leaf}",
        "head.{head}.{leaf}": "head.{head}.{leaf}",
    },
)

CSN_FROM_PYTORCHVIDEO = KeyMap(
    words={
        "stage": _NUMBERED_FROM_1,
        "conv": _CONV_NORM,
        "layer": _PYTORCHVIDEO_LAYERS,
        "shortcut": _PYTORCHVIDEO_SHORTCUT,
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "blocks.0.{conv}.{leaf}": "conv1.{conv}.{leaf}",
        "blocks.{stage}.res_blocks.{block}.branch2.{layer}.{leaf}": "stages.{stage}.{block}.{layer}.{leaf}",
        "blocks.{stage}.res_blocks.{block}.{shortcut}.{leaf}": "stages.{stage}.{block}.shortcut.{shortcut}.{leaf}",
        "blocks.5.proj.{leaf}": "head.{leaf}",
    },
)

CSN_FROM_MMACTION2 = KeyMap(
    words={
        "stage": _NUMBERED_FROM_1,
        "conv": _CONV_BN,
        "layer": _MMACTION2_LAYERS,
        "head": _MMACTION2_HEADS,
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "backbone.conv1.{conv}.{leaf}": "conv1.{conv}.{leaf}",
        "backbone.layer{stage}.{block}.{layer}.{leaf}": "stages.{stage}.{block}.{layer}.{leaf}",
        "backbone.layer{stage}.{block}.downsample.{conv}.{leaf}": "stages.{stage}.{block}.shortcut.{conv}.{leaf}",
        "{head}.fc_cls.{leaf}": "{head}.{leaf}",
    },
)

I3D_FROM_JAX = KeyMap(
    words={
        "unit": {"c1": "conv_1a", "c2b": "conv_2b", "c2c": "conv_2c"},
        "mixed": {
            f"Mixed_{name}": f"mixed_{name}"
            for name in ("3b", "3c", "4b", "4c", "4d", "4e", "4f", "5b", "5c")
        },
        "branch": {
            "b0": "plain",
            "b1a": "cubic1.0",
            "b1b": "cubic1.1",
            "b2a": "cubic2.0",
            "b2b": "cubic2.1",
            "b3": "pooled",
        },
        "conv": _CONV_BN,
        "leaf": _TORCH_LEAVES,
    },
    rules={
        "{unit}.{conv}.{leaf}": "{unit}.{conv}.{leaf}",
        "body.{mixed}.{branch}.{conv}.{leaf}": "mixed.{mixed}.{branch}.{conv}.{leaf}",
        "logits.conv.{leaf}": "head.{leaf}",
    },
)

KEY_MAPS: Mapping[tuple[str, str], Callable[[str], str | None]] = {
    ("slowfast", "pyslowfast"): SLOWFAST_FROM_PYSLOWFAST,
    ("slowfast", "caffe2"): SLOWFAST_FROM_CAFFE2,
    ("slowfast", "pytorchvideo"): SLOWFAST_FROM_PYTORCHVIDEO,
    ("slowfast", "acar"): SLOWFAST_FROM_ACAR,
    ("slowfast", "mmaction2"): SLOWFAST_FROM_MMACTION2,
    ("x3d", "pytorchvideo"): X3D_FROM_PYTORCHVIDEO,
    ("x3d", "pyslowfast"): X3D_FROM_PYSLOWFAST,
    ("csn", "pytorchvideo"): CSN_FROM_PYTORCHVIDEO,
    ("csn", "mmaction2"): CSN_FROM_MMACTION2,
    ("i3d", "jax"): I3D_FROM_JAX,
}
"""Key maps by backbone and publisher."""
