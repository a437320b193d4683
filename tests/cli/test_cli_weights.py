"""`mule weights`: what it prints, and how it ends."""

import hashlib
import os
import pickle

import pytest
import torch
from typer.testing import CliRunner
from weight_files import foreign_state

from mule.cli.main import app
from mule.cli.weights import all_cards
from mule.features.weights.cards import WEIGHT_CARDS, find_card


def mule(*arguments, **environment):
    return CliRunner().invoke(app, ["weights", *map(str, arguments)], env=environment)


@pytest.fixture(scope="module")
def x3d_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "X3D_XS.pyth"
    torch.save({"model_state": foreign_state(find_card("pytorchvideo_x3d_xs"))}, path)
    return path


def assert_refused(outcome, *sentences):
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("mule: ")
    assert outcome.stderr.count("\n") == 1
    for sentence in sentences:
        assert sentence in outcome.stderr


def test_help_names_the_commands():
    outcome = mule("--help")
    assert outcome.exit_code == 0
    assert all(command in outcome.stdout for command in ("list", "pull", "check"))


def test_list_has_one_line_per_card_and_marks_those_on_disk(tmp_path):
    (tmp_path / "mule").mkdir()
    (tmp_path / "mule" / "pytorchvideo_x3d_s.pyth").write_text("")
    outcome = mule("list", XDG_CACHE_HOME=str(tmp_path))
    assert outcome.exit_code == 0
    lines = outcome.stdout.splitlines()
    assert [line[2:].split()[0] for line in lines[:-1]] == list(all_cards())
    assert [line.split()[1] for line in lines[:-1] if line.startswith("*")] == ["pytorchvideo_x3d_s"]
    assert "yolox_nano" in outcome.stdout
    assert lines[-1] == f"* in {tmp_path / 'mule'}. `mule weights list NAME` shows details."


@pytest.mark.parametrize("name", all_cards())
def test_list_of_one_name_says_where_it_comes_from_and_under_which_licence(name, tmp_path):
    outcome = mule("list", name, "--folder", tmp_path)
    card = all_cards()[name]
    assert outcome.exit_code == 0
    assert card.licence in outcome.stdout
    source = card.address or (card.package.in_words if card.package else WEIGHT_CARDS[name].note)
    assert source in outcome.stdout


def test_check_says_what_a_file_is_and_which_cards_it_fits(x3d_file):
    outcome = mule("check", x3d_file)
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines() == [
        f"{x3d_file}: torch zip",
        "  tensors  563, 3.79 M parameters",
        f"  sha256   {hashlib.sha256(x3d_file.read_bytes()).hexdigest()}",
        "  fits     pytorchvideo_x3d_xs: 563 of 563 tensors",
        "  fits     pytorchvideo_x3d_s: 563 of 563 tensors",
        "  fits     pytorchvideo_x3d_m: 563 of 563 tensors",
    ]
    assert mule("check", x3d_file, "--card", "pytorchvideo_x3d_s").stdout.splitlines()[3:] == [
        "  fits     pytorchvideo_x3d_s: 563 of 563 tensors"
    ]


def test_check_refuses_a_card_that_the_file_does_not_fit(x3d_file):
    outcome = mule("check", x3d_file, "--card", "pytorchvideo_x3d_l")
    assert_refused(outcome, "card 'pytorchvideo_x3d_l'", "578 missing: ")


def test_check_refuses_another_checksum_than_the_cards(x3d_file):
    for name in ("mmaction2_slowfast_8x8_r50", "yolox_nano"):
        assert_refused(
            mule("check", x3d_file, "--card", name), f"the SHA-256 checksum of '{name}' must begin with"
        )


def test_check_refuses_what_fits_no_card_and_says_what_comes_nearest(tmp_path, x3d_file):
    tensors = torch.load(x3d_file)["model_state"]
    tensors.pop("blocks.0.norm.weight")
    torch.save(tensors, tmp_path / "a.pth")
    assert_refused(mule("check", tmp_path / "a.pth"), "pytorchvideo_x3d_xs", "1 missing: conv1.norm.weight")
    torch.save({"mine": torch.ones(2)}, tmp_path / "b.pth")
    assert_refused(mule("check", tmp_path / "b.pth"), "must fit a card; none knows names such as mine")


def test_check_refuses_half_a_file(tmp_path, x3d_file):
    (tmp_path / "half.pyth").write_bytes(x3d_file.read_bytes()[:-2000])
    assert_refused(mule("check", tmp_path / "half.pyth"), "half.pyth", "cut short")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.pth", b"", "this is an empty file"),
        ("notes.pth", b"To whom it may concern\n", "this is text"),
        ("broken.onnx", b"\x08\x07", "no card has its checksum"),
    ],
)
def test_check_refuses_what_is_no_weights(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    assert_refused(mule("check", tmp_path / name), name, sentence)


def test_check_refuses_a_file_that_is_not_there(tmp_path):
    assert_refused(
        mule("check", tmp_path / "none.pth"),
        "none.pth: must be a file that can be read; there is no such file",
    )


def test_check_accepts_a_detector_that_runs_though_its_checksum_is_not_published(tmp_path, shared_data):
    file = tmp_path / "mine.onnx"
    file.write_bytes((shared_data / "detectors" / "yolox_nano_coco_416.onnx").read_bytes())
    outcome = mule("check", file)
    assert outcome.exit_code == 0, outcome.output
    assert "weights of a detector" in outcome.stdout
    assert "yolox_nano, as published" in outcome.stdout or "--detector accepts it" in outcome.stdout


def test_check_accepts_the_other_detectors_that_detect_accepts(tmp_path):
    named = mule("check", "builtin")
    assert named.exit_code == 0, named.output
    assert "a centre detector, which --detector accepts" in named.stdout
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("video,time_s,x1,y1,x2,y2,object_class,score\nfilm,1,0.1,0.1,0.5,0.9,person,0.9\n")
    outcome = mule("check", boxes)
    assert outcome.exit_code == 0, outcome.output
    assert "1 in 1 videos, which --detector accepts" in outcome.stdout
    assert_refused(mule("check", "yolox_nan"), "Did you mean 'yolox_nano'?")


def test_check_tells_a_faster_rcnn_without_a_card_by_its_tensors(tmp_path):
    names = ("backbone.body.layer3.22.conv1.weight", "roi_heads.box_head.fc6.weight")
    torch.save({name: torch.zeros(1) for name in names}, tmp_path / "mine.pth")
    outcome = mule("check", tmp_path / "mine.pth")
    assert outcome.exit_code == 0, outcome.output
    assert "no card: its tensors are named as in torchvision's Faster R-CNN resnext101" in outcome.stdout
    assert mule("check", tmp_path / "mine.pth", "--card", "fasterrcnn_resnet50_fpn_coco").exit_code == 2


def test_an_unknown_name_gets_a_suggestion():
    assert_refused(mule("pull", "yolox_nan", "--offline"), "Did you mean 'yolox_nano'?")


class MakesFolder:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_check_runs_nothing_that_a_file_asks_for(tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"blobs": MakesFolder(tmp_path / "trace")}, protocol=2))
    assert_refused(mule("check", tmp_path / "a.pkl"), "asks for 'posix.mkdir'", "It was not run")
    assert not (tmp_path / "trace").exists()


def test_pull_finds_what_is_on_disk_and_says_its_checksum(tmp_path):
    (tmp_path / "pytorchvideo_x3d_xs.pyth").write_bytes(b"abc")
    outcome = mule("pull", "pytorchvideo_x3d_xs", "--folder", tmp_path)
    assert outcome.exit_code == 0
    assert f"{tmp_path / 'pytorchvideo_x3d_xs.pyth'}: was there. sha256 ba7816bf" in outcome.stdout
    assert outcome.stdout.endswith("no checksum is published to compare it with; noted as first used.\n")
    assert outcome.stderr == ""


@pytest.mark.parametrize(("arguments", "environment"), [(["--offline"], {}), ([], {"MULE_OFFLINE": "1"})])
def test_pull_asks_nobody_when_offline(tmp_path, arguments, environment):
    outcome = mule("pull", "yolox_nano", "--folder", tmp_path / "kept", *arguments, **environment)
    assert_refused(outcome, "yolox_nano.onnx must exist when offline; it does not.")
    assert not (tmp_path / "kept").exists()


def test_pull_says_where_a_file_is_that_it_cannot_fetch(tmp_path):
    outcome = mule("pull", "acar_ava_slowfast_r50", "--folder", tmp_path)
    assert_refused(
        outcome,
        "cannot be downloaded automatically",
        "AVA_SLOWFAST_R50_ACAR_HR2O.pth.tar",
        "https://drive.google.com/file/d/",
    )


@pytest.mark.parametrize("command", [["pull", "x3d_xxl"], ["list", "x3d_xxl"]])
def test_an_unknown_name_is_refused(command):
    assert_refused(mule(*command), "there is none for 'x3d_xxl'.", "See `mule weights list`.")
