"""Faults that were found by trying, one case each: what broke, and the sentence that answers it."""

import json
import struct
import time
from fractions import Fraction
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import safetensors.torch
import torch

from mule.core.config import ConfigError, load_experiment
from mule.core.documents import DocumentError, json_of, toml_of
from mule.core.errors import DownloadError, MuleError, RangeError, VideoError
from mule.core.manifest import MANIFEST, require_sealed, seal
from mule.core.text_rows import read_json
from mule.data.convert.cvat import actors_from_cvat
from mule.data.split.splits import read_split
from mule.data.table.reading import read_actor_table
from mule.detection.detector import YoloxDetector
from mule.features.weights.cards import WEIGHT_CARDS
from mule.features.weights.download import pull
from mule.training.build import load_run
from mule.video.clips import ClipShape, clip_windows
from mule.video.encode import VideoWriter
from mule.video.reading import read_clips, video_facts
from mule.video.sources import video_source
from mule.watching.engine.bundle import PEOPLE, packaged_folder, read_bundle, read_known_examples
from mule.watching.engine.seen import SEEN
from tests.hostile.good_files import ACTORS, AT_25, BUNDLE, CVAT, SAVED
from tests.hostile.good_weights import card_signed, onnx_bytes
from tests.hostile.mutations import of_safetensors, random_of
from tests.hostile.readers import copied


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Turn off the shape checks that tests add: users run without them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    copied(SAVED / "run", ("card.json", "experiment.toml", "model.safetensors"))(tmp_path)
    return tmp_path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    copied(SAVED / "bundle", BUNDLE)(tmp_path)
    return tmp_path


DEEP = 100_000


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[]", "card.json: must be the card of a run; the whole: input should be a valid dict"),
        ("[" * DEEP + "]" * DEEP, "card.json: must be the card of a run; .* nest at most 100 deep"),
        (
            '{"format": "mule-run-1", "classes": "walk", "weights_sha256": 3}',
            "classes: input should be a valid list",
        ),
        (
            '{"format": "mule-run-1", "classes": ["a"], "weights_sha256": "3"}',
            "weights_sha256: string should match",
        ),
    ],
)
def test_a_card_that_is_no_card_is_refused_by_name(run: Path, content: str, told: str) -> None:
    (run / "card.json").write_text(content)
    with pytest.raises(MuleError, match=told):
        load_run(run)


def test_weights_of_other_shapes_are_refused_though_the_card_vouches_for_them(run: Path) -> None:
    tensors = safetensors.torch.load_file(run / "model.safetensors")
    name = next(iter(tensors))
    safetensors.torch.save_file({**tensors, name: torch.zeros(2, 2)}, run / "model.safetensors")
    card_signed(run)
    with pytest.raises(MuleError, match=r"model.safetensors: must be the weights .*, got float32 \(2, 2\)"):
        load_run(run)


def test_a_short_tensor_in_the_calibration_is_refused_by_name(bundle: Path) -> None:
    path = bundle / "calibration.safetensors"
    content = path.read_bytes()
    about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    tensors = safetensors.torch.load(content)
    tensors["clip_index"] = tensors["clip_index"][:5].clone()
    path.write_bytes(safetensors.torch.save(tensors, about))
    with pytest.raises(
        MuleError, match=r"calibration.safetensors: .* clip_index must be int64 \(\d+\), got int64 \(5,\)"
    ):
        read_bundle(bundle)


def test_a_bundle_of_100_000_frames_a_clip_is_refused(bundle: Path) -> None:
    path = bundle / "experiment.toml"
    path.write_text(path.read_text().replace("num_frames = 8", "num_frames = 100000"))
    with pytest.raises(MuleError, match="num_frames = 100000: input should be less than or equal to 1024"):
        read_bundle(bundle)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * DEEP + "]" * DEEP, "nest at most 100 deep; they nest 100000 deep"),
        ('{"a":' * 500 + "1" + "}" * 500, "they nest 500 deep"),
        ('{"a": ' + "9" * 5000 + "}", "at most 4300 digits"),
        ('{"a": NaN}', "numbers must be finite; got NaN"),
        ('{"a": "[[[["', "Unterminated string|delimiter"),
    ],
)
def test_json_beyond_the_limits_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(MuleError, match=rf"a.json.*({told})"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("k = " + "[" * DEEP + "]" * DEEP, "nest at most 100 deep"),
        ("k = " + "{a=" * 500 + "1" + "}" * 500, "nest at most 100 deep"),
        ("k = " + "9" * 5000, "at most 4300 digits"),
        (".".join(["k"] * 50_000) + " = 1", "at most 100 parts; one near line 2 has more"),
        ("[" + " . ".join(["k"] * 2000) + "]", "at most 100 parts"),
    ],
)
def test_toml_beyond_the_limits_is_refused_at_once(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.toml").write_text("seed = 1\n" + text)
    began = time.process_time()
    with pytest.raises(MuleError, match=rf"a.toml.*({told})"):
        load_experiment(tmp_path / "a.toml")
    with pytest.raises(MuleError, match=rf"a.toml.*({told})"):
        read_split(tmp_path / "a.toml")
    assert time.process_time() - began < 2


def test_brackets_and_dots_within_text_do_not_count() -> None:
    text = "[" * 500 + "a." * 500 + '\\"' + "{" * 500
    assert json_of(json.dumps({"a": text})) == {"a": text}
    assert toml_of(f"a = '''{text}'''  # {text}") == {"a": text}
    assert toml_of('a = "1.5"\nb = [1.5, 2.5]\n') == {"a": "1.5", "b": [1.5, 2.5]}


def test_documents_are_refused_exactly_beyond_their_limit() -> None:
    assert json_of("[" * 100 + "]" * 100)
    with pytest.raises(DocumentError):
        json_of("[" * 101 + "]" * 101)
    assert toml_of(".".join(["k"] * 100) + " = 1")
    with pytest.raises(DocumentError):
        toml_of(".".join(["k"] * 101) + " = 1")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ('data.root="a\\u0000b"', "must not contain the character NUL"),
        (f"data.root=/data/{'x' * 300}", "at most 255 bytes; one has 300"),
        ("loading.workers=5000", "less than or equal to 256"),
        ("view.val_short_side_px=100000", "less than or equal to 8192"),
        ("typo=", "unknown key 'typo'"),
        ("training.epoch=", "unknown key 'epoch'. Did you mean 'epochs'"),
        ("seed.more=", "'seed' is a value, not a table"),
        (f"seed={'9' * 5000}", "seed"),
    ],
)
def test_a_setting_beyond_its_limit_is_refused(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_experiment(SAVED / "run" / "experiment.toml", [override])


def test_keys_can_still_return_to_their_defaults() -> None:
    path = SAVED / "run" / "experiment.toml"
    overrides = ["training.patience_epochs=", "view.crop_px=", "backbone.options.width=", "data.bias="]
    assert load_experiment(path, overrides).seed == 10


def test_a_nul_in_a_class_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ACTORS.replace("sit", "s\0t"))
    with pytest.raises(MuleError, match=r"a.csv, line 3: must be text without the character NUL"):
        read_actor_table(tmp_path / "a.csv")


def test_20_000_classes_are_refused_at_once(tmp_path: Path) -> None:
    rows = "".join(f"film{number},act {number}\n" for number in range(20_000))
    (tmp_path / "a.csv").write_text("video,actions\n" + rows)
    began = time.process_time()
    with pytest.raises(MuleError, match=r"a.csv: a table must have at most 2000 classes; this one has 20000"):
        read_actor_table(tmp_path / "a.csv")
    assert time.process_time() - began < 5


def test_a_row_of_100_000_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("video,actions" + ",x" * 100_000 + "\n")
    with pytest.raises(MuleError, match=r"a.csv, line 1: a row must have at most 10000 columns; got 100002"):
        read_actor_table(tmp_path / "a.csv")


def test_a_name_of_300_letters_is_no_video() -> None:
    with pytest.raises(VideoError, match="nothing is there"):
        video_source("x" * 300 + ".mp4")


def test_an_attribute_of_5_mb_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(CVAT.replace('label="walk"', f'label="{"x" * 5_000_000}"'))
    began = time.process_time()
    with pytest.raises(
        MuleError, match=r"a.xml, line .*: a tag with its attributes must have at most 524,288 bytes"
    ):
        actors_from_cvat([tmp_path / "a.xml"], AT_25)
    assert time.process_time() - began < 3


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (onnx_bytes((1, 3, 100_000, 100_000)), "multiples of 32, at most 4096"),
        (onnx_bytes((1, 3, 64, 64), broken_at="run"), "must run on 64x64 px; onnxruntime reports"),
    ],
    ids=["100000 px", "fails while running"],
)
def test_a_detector_that_cannot_run_is_refused_by_name(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(MuleError, match=rf"a.onnx.*{told}"):
        YoloxDetector(tmp_path / "a.onnx", threads=1)


def test_a_video_far_longer_than_high_is_refused(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.mp4", (16, 4000), Fraction(5)) as video:
        video.write(np.zeros((2, 16, 4000, 3), np.uint8))
    with pytest.raises(
        VideoError,
        match=r"a.mp4: the longer side .* at most 32 times .*; these have 16 rows and 4000 columns",
    ):
        video_facts(tmp_path / "a.mp4")


@pytest.mark.parametrize(("frames", "short_side_px"), [(100_000, None), (8, 100_000)])
def test_a_clip_of_too_many_pixels_is_refused(tmp_path: Path, frames: int, short_side_px: int | None) -> None:
    with VideoWriter(tmp_path / "a.mp4", (64, 96), Fraction(5)) as video:
        video.write(np.zeros((2, 64, 96, 3), np.uint8))
    windows = clip_windows([0], ClipShape(frames, 1, 1), 5)
    with pytest.raises(RangeError, match="a clip must have at most 268,435,456 pixels"):
        next(read_clips(tmp_path / "a.mp4", windows, short_side_px=short_side_px))


def test_an_address_that_ffmpeg_cannot_open_says_so() -> None:
    with pytest.raises(VideoError, match=r"FFmpeg must (know the protocol|be able to open it)"):
        video_facts("srt://127.0.0.1:9")


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/x", "..", ".hidden", "a\0b", ""])
def test_a_card_whose_name_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    from dataclasses import replace

    card = replace(next(iter(WEIGHT_CARDS.values())), name=name)
    with pytest.raises(DownloadError, match="must be plain file names"):
        pull(card, tmp_path / "cache", offline=True)
    assert not list(tmp_path.iterdir())


def test_a_safetensors_header_that_claims_terabytes_is_refused(run: Path) -> None:
    (run / "model.safetensors").write_bytes(struct.pack("<Q", 2**42) + b"{}")
    card_signed(run)
    with pytest.raises(MuleError, match=r"model.safetensors: cannot be read"):
        load_run(run)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    package = packaged_folder(PEOPLE)
    assert package is not None
    copied(package, (*BUNDLE, SEEN, MANIFEST))(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [*BUNDLE, SEEN, MANIFEST])
def test_a_changed_file_of_the_bundle_of_people_is_refused_by_name(people: Path, name: str) -> None:
    content = bytearray((people / name).read_bytes())
    content[len(content) // 2] ^= 1
    (people / name).write_bytes(content)
    with pytest.raises(MuleError, match=name if name != MANIFEST else r"\.(json|toml|safetensors): must"):
        require_sealed(people, is_needed=True)


def test_known_people_that_are_damaged_under_a_new_manifest_are_refused_by_name(people: Path) -> None:
    good, refused = (people / SEEN).read_bytes(), 0
    for number in range(6):
        (people / SEEN).write_bytes(of_safetensors(good, random_of("people", number)))
        seal(people)
        require_sealed(people, is_needed=True)
        try:
            read_known_examples(people)
        except MuleError as error:
            assert SEEN in str(error)  # noqa: PT017 - some changes do no harm
            refused += 1
    assert refused > 2
