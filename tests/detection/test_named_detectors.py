"""Detectors by name: the names of `mule weights list`, files by what they hold, and a remedy for every refusal."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from mule.cli.weights import all_cards
from mule.core.errors import DetectorError
from mule.core.files import sha256_of
from mule.detection import named
from mule.detection.cards import DETECTOR_CARDS, FASTER_RCNN_CARDS, DetectorCard
from mule.detection.centres import CentreDetector
from mule.detection.detector import YoloxDetector
from mule.detection.faster_rcnn import FasterRcnnDetector
from mule.detection.named import detector_place, load_detector
from mule.features.weights.download import place_of

FASTER_RCNN = FASTER_RCNN_CARDS["resnet50"]


def test_every_detector_of_weights_list_has_its_name_and_place(tmp_path):
    listed = {name: card for name, card in all_cards().items() if isinstance(card, DetectorCard)}
    assert listed == DETECTOR_CARDS
    assert [place_of(card, tmp_path).name for card in listed.values()] == [
        card.file_name for card in listed.values()
    ]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "mule").mkdir()
    return tmp_path / "mule"


def test_a_card_is_its_pulled_file_if_that_is_the_published_one(cache, monkeypatch):
    with pytest.raises(
        DetectorError, match=r"must be on disk; it is not\. Run `mule weights pull yolox_nano`"
    ):
        detector_place("yolox_nano")
    path = cache / "yolox_nano.onnx"
    path.write_bytes(b"another file")
    with pytest.raises(DetectorError, match="must be the published file of 'yolox_nano'"):
        detector_place("yolox_nano")
    card = DetectorCard("mine", "https://host/mine.onnx", "MIT", 416, 1.0, 0.6, sha256=sha256_of(path))
    monkeypatch.setattr(named, "DETECTOR_CARDS", {"mine": card})
    path.rename(cache / "mine.onnx")
    assert detector_place("mine") == cache / "mine.onnx"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "yolox_nan",
            "one of builtin, yolox_nano, .*, fasterrcnn_resnet50_fpn_coco, .*did you mean.*yolox_nano",
        ),
        (
            "fasterrcnn_resnext101",
            "publishes no weights of Faster R-CNN with ResNeXt-101-FPN: train it, and give",
        ),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_a_hint(name, words):
    with pytest.raises(DetectorError, match=rf"(?i){name}: a detector must be a file.*{words}"):
        detector_place(name)


def test_the_built_in_detector_has_a_name():
    assert isinstance(load_detector(detector_place("builtin")), CentreDetector)


def test_other_files_and_devices_are_refused(tmp_path):
    (tmp_path / "net.pkl").write_bytes(b"")
    with pytest.raises(DetectorError, match=r"net\.pkl: a detector must be a YOLOX file \(\.onnx\)"):
        load_detector(tmp_path / "net.pkl")
    with pytest.raises(
        DetectorError, match=r"only Faster R-CNN \(\.pth\) runs on cuda; leave the device out"
    ):
        load_detector(tmp_path / "net.onnx", device="cuda")


def test_yolox_has_the_score_of_its_card(shared_data):
    detector = load_detector(shared_data / "detectors" / "yolox_nano_coco_416.onnx", threads=1)
    assert isinstance(detector, YoloxDetector)
    assert detector.actor_score == 0.3


class Body(nn.Module):
    """Parameters under the names that tell torchvision's networks apart; finds one person, as wide as the batch."""

    def __init__(self, kind, *names):
        super().__init__()
        self.kind = kind
        self.batches = []
        for name in names:
            self.register_parameter(name.replace(".", "_"), nn.Parameter(torch.zeros(1)))
        self.names = names

    def state_dict(self, *_, **__):
        return {name: torch.zeros(1) for name in self.names}

    def load_state_dict(self, state_dict, *_, **__):  # pyright: ignore[reportIncompatibleMethodOverride] - torch's return is unused
        if set(state_dict) != set(self.names):
            raise RuntimeError(f"unexpected {sorted(set(state_dict) ^ set(self.names))}")

    def forward(self, images):
        self.batches.append(len(images))
        return [
            {
                "boxes": torch.tensor([[0.0, 0.0, 2.0 + float(image.mean()), 4.0]]),
                "labels": torch.tensor([1]),
                "scores": torch.tensor([0.9]),
            }
            for image in images
        ]


STATES = {
    "resnet50": ("backbone.body.layer3.5.conv1.weight", "roi_heads.box_head.fc6.weight"),
    "resnet50_v2": ("backbone.body.layer3.5.conv1.weight", "roi_heads.box_head.0.0.weight"),
    "resnext101_32x8d": ("backbone.body.layer3.22.conv1.weight", "roi_heads.box_head.fc6.weight"),
}


@pytest.fixture
def torchvision(monkeypatch):
    """Modules with the parts of torchvision that Faster R-CNN is built of; `built` lists the networks made."""
    built = []

    def faster_rcnn(body, *, num_classes):
        assert num_classes == 91
        built.append(Body(body, *STATES[body]))
        return built[-1]

    def backbone(*, backbone_name, weights, norm_layer):
        assert weights is None
        assert norm_layer.keywords == {"eps": 0.0 if backbone_name == "resnet50" else 1e-5}
        return backbone_name

    detection, utils, ops = (ModuleType(name) for name in ("detection", "backbone_utils", "ops"))
    vars(detection).update(
        FasterRCNN=faster_rcnn,
        fasterrcnn_resnet50_fpn_v2=lambda **_: faster_rcnn("resnet50_v2", num_classes=91),
        backbone_utils=utils,
    )
    vars(utils).update(resnet_fpn_backbone=backbone)
    vars(ops).update(FrozenBatchNorm2d=nn.BatchNorm2d)
    for name, module in {
        "torchvision": ModuleType("torchvision"),
        "torchvision.models": ModuleType("models"),
        "torchvision.models.detection": detection,
        "torchvision.models.detection.backbone_utils": utils,
        "torchvision.ops": ops,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return built


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["state dict", "checkpoint"])
@pytest.mark.parametrize("kind", STATES)
def test_a_state_dict_tells_which_faster_rcnn_it_is(tmp_path, torchvision, kind, is_wrapped):
    state = {name: torch.zeros(1) for name in STATES[kind]}
    torch.save({"model": state, "epoch": 3} if is_wrapped else state, tmp_path / "net.pth")
    detector = load_detector(tmp_path / "net.pth")
    assert isinstance(detector, FasterRcnnDetector)
    assert [body.kind for body in torchvision] == [kind]
    assert detector.actor_score == 0.85


def test_a_pulled_card_of_faster_rcnn_finds_people_and_a_batch_is_its_frames(cache, torchvision, monkeypatch):
    path = cache / FASTER_RCNN.file_name
    torch.save({name: torch.zeros(1) for name in STATES["resnet50"]}, path)
    monkeypatch.setattr(DetectorCard, "is_of", lambda *_: True)
    detector = load_detector(detector_place(FASTER_RCNN.name))
    frames = torch.rand(3, 3, 8, 9)
    together = detector(frames)
    assert torchvision[0].batches == [3]
    assert together.image_index.tolist() == [0, 1, 2]
    for at, frame in enumerate(frames):
        torch.testing.assert_close(detector(frame[None]).boxes_xyxy_px, together.of_image(at).boxes_xyxy_px)
    assert detector(frames[:0]).num_images == 0


def test_weights_that_are_not_of_the_network_are_refused(tmp_path, torchvision):
    torch.save({"fc.weight": torch.zeros(1)}, tmp_path / "net.pth")
    with pytest.raises(
        DetectorError, match=r"net\.pth: must hold the weights of Faster R-CNN resnet50 for 91"
    ):
        load_detector(tmp_path / "net.pth")
    assert len(torchvision) == 1


def test_a_device_that_is_not_here_is_refused(tmp_path, torchvision):
    torch.save({name: torch.zeros(1) for name in STATES["resnet50"]}, tmp_path / "net.pth")
    with pytest.raises(DetectorError, match="the device must be one that torch can use here; got 'cude'"):
        load_detector(tmp_path / "net.pth", device="cude")
    assert len(torchvision) == 1


def test_without_torchvision_one_sentence_names_the_remedy(tmp_path, monkeypatch):
    torch.save({"w": torch.zeros(1)}, tmp_path / "net.pth")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models.detection", None)
    with pytest.raises(
        DetectorError, match=r"pip install 'mule-actions\[torchvision\]'; it could not be imported"
    ) as refused:
        load_detector(tmp_path / "net.pth")
    assert "\n" not in str(refused.value)
