"""What was watched is decided again without the video, exactly as a watch with the new model would have decided."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_bundles import MadeUpBoxes, leaves, stays

import mule
from mule import Model
from mule.core.errors import AnnotationError, MuleError
from mule.watching.deciding import DecideSettings, decide_again
from mule.watching.engine.bundle import read_bundle
from mule.watching.engine.kept import LEVELS, Coded, KeptLooks, KeptMoment, Place
from mule.watching.outputs.looks_file import LOOKS, LooksFile, LooksWriter
from mule.watching.outputs.moments_file import MOMENTS, MomentsFile

WEIGHTS = "ab" * 32
SECONDS = 6


def frames():
    draw = np.random.default_rng(0)
    picture = draw.integers(0, 255, (96, 128, 3), dtype=np.uint8)
    return (np.roll(picture, 3 * number, axis=1) for number in range(16 * SECONDS))


def people():
    """Two people beside each other, one of whom leaves, so that moments have two, one and different looks."""
    return MadeUpBoxes(stays((0.1, 0.2, 0.4, 0.9)), leaves((0.5, 0.2, 0.8, 0.9), 3.5), has_ball=True)


def watched(folder, model, **options):
    return list(mule.watch(frames(), rate=16, model=model, detector=people(), out=folder, **options))


@pytest.fixture(scope="module")
def stage():
    return read_bundle(Path("stage"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory, stage):
    folder = tmp_path_factory.mktemp("kept") / "hall"
    watched(folder, stage)
    return folder


def copied(kept, folder):
    folder.mkdir()
    for name in (MOMENTS, LOOKS):
        (folder / name).write_bytes((kept / name).read_bytes())
    return folder


def differences(first, second, *, where="moment"):
    """Where two JSON values differ by more than rounding; `contributor` may be left out in the first."""
    if isinstance(second, dict):
        return [
            found
            for name in second
            if not (name == "contributor" and first[name] is None)
            for found in differences(first[name], second[name], where=f"{where}.{name}")
        ]
    if isinstance(second, list | tuple) and len(first) == len(second):
        return [found for a, b in zip(first, second, strict=True) for found in differences(a, b, where=where)]
    if isinstance(second, float):
        return [] if first == pytest.approx(second, rel=1e-5, abs=1e-7) else [(where, first, second)]
    return [] if first == second else [(where, first, second)]


def moments_in(folder):
    return [each.to_dict() for each in MomentsFile(folder / MOMENTS)]


def test_the_same_model_decides_the_same_and_contributors_stay(kept, tmp_path, stage):
    again = copied(kept, tmp_path / "again")
    decide_again(again, stage)
    before, after = moments_in(kept), moments_in(again)
    assert any(actor["reasons"]["contributor"] for moment in before for actor in moment["actors"])
    assert differences(before, after) == differences(after, before) == []
    assert MomentsFile(again / MOMENTS).header == MomentsFile(kept / MOMENTS).header


@pytest.mark.parametrize("change", ["teach", "forget", "threshold"])
def test_a_changed_model_decides_as_if_it_had_watched(kept, tmp_path, change):
    model, options = Model.load("stage"), {}
    if change == "teach":
        clip = np.stack(list(frames())[:32])
        model.teach("juggle", [(clip, [12, 19, 51, 86]), (clip[:16], [64, 19, 102, 86])])
    elif change == "forget":
        model.forget(model.classes[0])
    else:
        options = {"threshold": "0.5", "min_probability": 0.2}
    bundle = read_bundle(model.save(tmp_path / "model"))
    again = copied(kept, tmp_path / "again")
    decide_again(again, bundle, DecideSettings(**options))
    watched(tmp_path / "anew", bundle, **options)
    after, anew = moments_in(again), moments_in(tmp_path / "anew")
    assert differences(after, anew) == []
    assert MomentsFile(again / MOMENTS).header == MomentsFile(tmp_path / "anew" / MOMENTS).header
    assert (again / "summary.txt").read_text() == (tmp_path / "anew" / "summary.txt").read_text()
    assert moments_in(kept) != after


def test_looks_are_kept_unless_they_are_not_wanted(tmp_path, stage):
    watched(tmp_path / "none", stage, keep=False)
    assert not (tmp_path / "none" / LOOKS).exists()
    with pytest.raises(AnnotationError, match="without --no-keep"):
        decide_again(tmp_path / "none", stage)


@pytest.mark.parametrize("killed", ["before the moment", "within the looks", "before any moment"])
def test_a_killed_watch_goes_on_with_all_its_looks(kept, tmp_path, stage, killed):
    folder = tmp_path / "killed"
    watching = mule.watch(frames(), rate=16, model=stage, detector=people(), out=folder)
    for _ in range(3):
        next(watching)
    watching.close()
    lines = (folder / MOMENTS).read_bytes().splitlines(keepends=True)
    looks = (folder / LOOKS).read_bytes()
    if killed == "before the moment":
        (folder / MOMENTS).write_bytes(b"".join(lines[:-1]))
    elif killed == "within the looks":
        (folder / MOMENTS).write_bytes(b"".join(lines[:-1]))
        (folder / LOOKS).write_bytes(looks[:-7])
    else:
        (folder / MOMENTS).write_bytes(lines[0])
    watched(folder, stage, resume=True)
    assert differences(moments_in(folder), moments_in(kept)) == []
    mine, whole = (list(LooksFile(each / LOOKS)) for each in (folder, kept))
    assert [each.place.key_time_s for each in mine] == [each.place.key_time_s for each in whole]
    assert all(torch.equal(a.looks.outputs, b.looks.outputs) for a, b in zip(mine, whole, strict=True))


def test_a_result_is_resumed_with_looks_if_it_began_with_them(tmp_path, stage):
    folder = tmp_path / "hall"
    watching = mule.watch(frames(), rate=16, model=stage, detector=people(), out=folder)
    next(watching)
    watching.close()
    with pytest.raises(MuleError, match="Leave --no-keep out"):
        watched(folder, stage, resume=True, keep=False)


def made_up(count, *, seed, time_s):
    draw = torch.Generator().manual_seed(seed)
    inputs = {
        "roi": 9 * torch.rand(count, 40, generator=draw),
        "frame": torch.rand(1, 30, generator=draw).expand(count, 30),
        "crop": torch.rand(count, 30, generator=draw) - 0.5,
        "labels": torch.rand(count, 5, generator=draw),
    }
    looks = KeptLooks.of(torch.randn(count, 3, generator=draw), torch.randn(count, 7, generator=draw), inputs)
    boxes = 90 * torch.rand(count, 4, generator=draw)
    place = Place(time_s, 72, 128, 5 * torch.arange(count), boxes, torch.rand(count, generator=draw))
    return KeptMoment(place, looks, torch.arange(count) % 3, [None] * count)


def test_a_file_of_looks_is_read_as_it_was_written(tmp_path):
    moments = [made_up(count, seed=at, time_s=at / 3) for at, count in enumerate((2, 0, 1, 5))]
    with LooksWriter(tmp_path / LOOKS, weights_sha256=WEIGHTS, classes=("a", "b", "c")) as writer:
        for each in moments:
            writer.write(each)
    found = list(LooksFile(tmp_path / LOOKS))
    assert [(each.place.key_time_s, each.place.rows, each.place.cols) for each in found] == [
        (at / 3, 72, 128) for at in range(4)
    ]
    for each, written in zip(found, moments, strict=True):
        assert set(each.looks.inputs) == {"roi", "frame", "crop"}
        assert torch.equal(each.place.boxes_xyxy_px, written.place.boxes_xyxy_px)
        assert torch.equal(each.place.track_ids, written.place.track_ids)
        assert torch.equal(each.looks.outputs, written.looks.outputs)
        assert torch.equal(each.looks.features, written.looks.features)
        assert torch.equal(each.likeliest, written.likeliest)
        for name, coded in each.looks.inputs.items():
            assert torch.equal(coded.values, written.looks.inputs[name].values)


def test_changed_or_foreign_files_are_refused_in_one_sentence(tmp_path, kept, stage):
    whole = (kept / LOOKS).read_bytes()
    changed = bytearray(whole)
    changed[-20] ^= 1
    (tmp_path / LOOKS).write_bytes(changed)
    with pytest.raises(AnnotationError, match="checksum"):
        list(LooksFile(tmp_path / LOOKS))
    (tmp_path / LOOKS).write_bytes(whole.replace(b'"version": 1', b'"version": 9'))
    with pytest.raises(AnnotationError, match="version 9"):
        LooksFile(tmp_path / LOOKS)
    for content in (b"", b"\x00\xff\n", b"[1]\n", whole[:30]):
        (tmp_path / LOOKS).write_bytes(content)
        with pytest.raises(AnnotationError, match="header"):
            LooksFile(tmp_path / LOOKS)
    foreign = copied(kept, tmp_path / "foreign")
    (foreign / LOOKS).write_bytes(whole.replace(stage.card.weights_sha256.encode(), WEIGHTS.encode()))
    with pytest.raises(AnnotationError, match="watch again"):
        decide_again(foreign, stage)


def test_codes_lie_within_half_a_step_and_the_ends_are_exact():
    rows = torch.randn(50, 200, generator=torch.Generator().manual_seed(1))
    coded = Coded.of(rows)
    assert int(coded.codes.max()) == LEVELS - 1
    assert ((coded.values - rows).abs() <= coded.step[:, None] * 0.5001).all()
    assert torch.equal(Coded.of(torch.full((1, 3), 2.5)).values, torch.full((1, 3), 2.5))
