"""The 80 classes of COCO, and cards of published detector weights: address, checksum, input size and score."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from mule.core.packages import IndexPackage, Member
from mule.detection.detections import PAPER_ACTOR_SCORE

COCO_CLASSES: tuple[str, ...] = tuple(
    """
    person|bicycle|car|motorcycle|airplane|bus|train|truck|boat|traffic light|fire hydrant|stop sign|parking meter|
    bench|bird|cat|dog|horse|sheep|cow|elephant|bear|zebra|giraffe|backpack|umbrella|handbag|tie|suitcase|frisbee|
    skis|snowboard|sports ball|kite|baseball bat|baseball glove|skateboard|surfboard|tennis racket|bottle|
    wine glass|cup|fork|knife|spoon|bowl|banana|apple|sandwich|orange|broccoli|carrot|hot dog|pizza|donut|cake|
    chair|couch|potted plant|bed|dining table|toilet|tv|laptop|mouse|remote|keyboard|cell phone|microwave|oven|
    toaster|sink|refrigerator|book|clock|vase|scissors|teddy bear|hair drier|toothbrush
    """.replace("\n", "")
    .replace("    ", "")
    .split("|")
)
"""Class names by class index; 0 is `person`."""

_UNUSED_CATEGORY_IDS = frozenset({12, 26, 29, 30, 45, 66, 68, 69, 71, 83})

CLASS_INDEX_BY_CATEGORY_ID: Mapping[int, int] = {
    category_id: class_index
    for class_index, category_id in enumerate(n for n in range(1, 91) if n not in _UNUSED_CATEGORY_IDS)
}
"""Class index by category id, as in COCO files and torchvision's detectors: 1..90 with ten gaps."""

OTHER_OBJECT = len(COCO_CLASSES)
"""Class index of an object whose class is unknown or not in COCO."""


@dataclass(frozen=True)
class DetectorCard:
    """A published file of detector weights.

    Attributes:
        input_px: Side of the square input, or the short side for Faster R-CNN.
        coco_ap: Published average precision on COCO val2017 (IoU 0.50 to 0.95, percent), if it is known.
        actor_score: Least score of an actor. Small detectors give correct boxes low scores, so the paper's 0.85
            would lose most actors. Measured for nano, a proposal for the others.
        package: A package of the Python index that carries the file; asked where the address has nothing.
        sha256: Checksum of the published file, or None if only `hash_prefix` is known.
        hash_prefix: First digits of the checksum, as in the published file name.
    """

    name: str
    address: str | None
    licence: str
    input_px: int
    coco_ap: float | None
    actor_score: float
    package: IndexPackage | None = None
    sha256: str | None = None
    hash_prefix: str | None = None

    @property
    def file_name(self) -> str:
        """Name of the file on disk: the card's name with the suffix of its address or package."""
        if self.address is None:
            return self.name + next(iter(self.package.members if self.package else ()), "")
        return self.name + PurePosixPath(urlsplit(self.address).path).suffix

    def is_of(self, sha256: str) -> bool:
        """Whether a file with this checksum is the published one."""
        return sha256.startswith(self.sha256 or self.hash_prefix or "no checksum")


def _yolox(size: str, input_px: int, coco_ap: float, actor_score: float, sha256: str) -> DetectorCard:
    release = "https://github.com/Megvii-BaseDetection/YOLOX/releases/download/0.1.1rc0"
    return DetectorCard(
        name=f"yolox_{size}",
        address=f"{release}/yolox_{size}.onnx",
        licence="Apache-2.0",
        input_px=input_px,
        coco_ap=coco_ap,
        actor_score=actor_score,
        sha256=sha256,
    )


YOLOX_CARDS: Mapping[str, DetectorCard] = {
    card.name: card
    for card in (
        _yolox("nano", 416, 25.8, 0.3, "c789161ed43c8269fcd4e67c67eeeb4e80c622da2eb296a20bc6007bd18a0b7d"),
        _yolox("tiny", 416, 32.8, 0.4, "427cc366d34e27ff7a03e2899b5e3671425c262ea2291f88bb942bc1cc70b0f7"),
        _yolox("s", 640, 40.5, 0.5, "c5c2d13e59ae883e6af3b45daea64af4833a4951c92d116ec270d9ddbe998063"),
        _yolox("m", 640, 46.9, 0.6, "21ff6cfdeb53b013bac2249599e55f00bff3cfdfdab37ed7a4620818c1d15b3f"),
        _yolox("l", 640, 49.7, 0.6, "7860ae79de6c89a3c1eb72ae9a2756c0ccfbe04b7791bb5880afabd97855a411"),
        _yolox("x", 640, 51.1, 0.6, "c892d7aaf1c4746d8a4d675bec669a4db4f434b4ee1efb654bc9b353379c7c55"),
    )
}
"""The official YOLOX release 0.1.1rc0 for COCO; the files do not decode their boxes."""

FASTER_RCNN_CARDS: Mapping[str, DetectorCard] = {
    "resnet50": DetectorCard(
        name="fasterrcnn_resnet50_fpn_coco",
        address="https://download.pytorch.org/models/fasterrcnn_resnet50_fpn_coco-258fb6c6.pth",
        licence="BSD-3-Clause",
        input_px=800,
        coco_ap=37.0,
        actor_score=PAPER_ACTOR_SCORE,
        hash_prefix="258fb6c6",
    ),
    "resnet50_v2": DetectorCard(
        name="fasterrcnn_resnet50_fpn_v2_coco",
        address="https://download.pytorch.org/models/fasterrcnn_resnet50_fpn_v2_coco-dd69338a.pth",
        licence="BSD-3-Clause",
        input_px=800,
        coco_ap=46.7,
        actor_score=PAPER_ACTOR_SCORE,
        hash_prefix="dd69338a",
    ),
}
"""torchvision's Faster R-CNN weights for COCO. torchvision publishes none for the paper's ResNeXt-101-FPN."""

_PICODET = "paddlelabel_ml/model/PicoDet/ckpt/model"
PICODET_CARDS: Mapping[str, DetectorCard] = {
    "picodet_416": DetectorCard(
        name="picodet_416",
        address=None,
        package=IndexPackage(
            name="paddlelabel-ml",
            version="1.0.0",
            archive="paddlelabel_ml-1.0.0-py3-none-any.whl",
            archive_sha256="d3590ed527f3130536ec8cf2d1223f8cca18a320c9f98a109f2f93d9afd131bd",
            size_bytes=67_196_952,
            licence="Apache-2.0",
            members={
                ".pdmodel": Member(
                    f"{_PICODET}.pdmodel",
                    "da078fd535d21b3ef57e81f67e7e8f68514c4d38f1cb7df02f135966f4b1119f",
                ),
                ".pdiparams": Member(
                    f"{_PICODET}.pdiparams",
                    "e3922b2a8f1bc0d9ee9dce7152484f6a8a7d40f18f8701a222c884469b4546f2",
                ),
            },
            notices=("paddlelabel_ml-1.0.0.dist-info/LICENSE",),
        ),
        licence="Apache-2.0",
        input_px=416,
        coco_ap=None,
        actor_score=0.4,
        sha256="da078fd535d21b3ef57e81f67e7e8f68514c4d38f1cb7df02f135966f4b1119f",
    )
}
"""PicoDet of Paddle for COCO, run by OpenVINO."""

DETECTOR_CARDS: Mapping[str, DetectorCard] = {
    **YOLOX_CARDS,
    **PICODET_CARDS,
    **{card.name: card for card in FASTER_RCNN_CARDS.values()},
}
"""All cards by the names of `mule weights list`."""
