"""A memory checks itself at birth, and says everything that is wrong."""

import math
from dataclasses import replace

import pytest
import torch
from remembered_worlds import MODEL, NAMES, held_out, places, small_memory
from strategies import unchecked

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.memory.memory import (
    EvidenceMemory,
    NeighbourKernel,
    Places,
    require_same_model,
    unit_features,
    whole_features,
)


def changed(memory, **parts):
    fields = {name: getattr(memory, name) for name in EvidenceMemory.__dataclass_fields__}
    return EvidenceMemory(**{**fields, **parts})


def test_a_memory_without_entries_is_ordinary():
    memory, none = small_memory(), torch.arange(0)
    empty = replace(
        memory,
        features=memory.features[none],
        labels=memory.labels[none],
        counts=memory.counts[none],
        scales=memory.scales[none],
        places=memory.places[none],
    )
    assert len(empty) == 0
    assert (empty.dim, empty.num_classes) == (12, 4)


def test_features_become_unit_vectors_whatever_their_length():
    features = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for scale in (1e-30, 1.0, 1e30):
        torch.testing.assert_close(
            unit_features(scale * features), features / features.norm(dim=1, keepdim=True)
        )
    assert unit_features(torch.zeros(1, 4)).tolist() == [[0.0] * 4]


def test_what_is_remembered_is_as_far_apart_as_both_its_halves_in_the_mean():
    """d² of [z/‖z‖ | a/‖a‖] on the unit sphere: the mean of both d², however long z and a are."""
    random = torch.Generator().manual_seed(0)
    related, looks = torch.randn(6, 5, generator=random), 100 * torch.randn(6, 9, generator=random).abs()
    whole, *halves = (
        torch.cdist(unit_features(each), unit_features(each)).square()
        for each in (whole_features(related, looks), related, looks)
    )
    torch.testing.assert_close(whole, sum(halves) / 2)


@pytest.mark.parametrize(
    ("part", "spoil", "error", "message"),
    [
        (
            "features",
            lambda t: 2 * t,
            RangeError,
            r"features of length 1 \(60 do not, the first is entry 0\)",
        ),
        ("features", lambda t: t * torch.nan, NotFinite, "features of a memory must be finite"),
        ("labels", lambda t: t - 1, RangeError, "labels from 0 to 1"),
        ("counts", lambda t: 0 * t, RangeError, "a count above 0"),
        ("scales", lambda t: -t, RangeError, "a scale above 0"),
    ],
)
def test_wrong_values_are_refused(part, spoil, error, message):
    memory = small_memory()
    with pytest.raises(error, match=message):
        changed(memory, **{part: spoil(getattr(memory, part))})


def test_all_that_is_wrong_is_said_at_once():
    memory = small_memory()
    with pytest.raises(
        RangeError, match=r"features of length 1 .* and labels from 0 to 1 .* and a scale above 0"
    ):
        changed(memory, features=2 * memory.features, labels=memory.labels + 1, scales=-memory.scales)


def test_parts_of_different_entries_or_classes_are_refused():
    memory = small_memory()
    unchecked_memory = object.__new__(EvidenceMemory)
    for name in EvidenceMemory.__dataclass_fields__:
        object.__setattr__(unchecked_memory, name, getattr(memory, name))
    object.__setattr__(unchecked_memory, "counts", memory.counts[1:].double())
    object.__setattr__(unchecked_memory, "class_names", ("run", "run"))
    object.__setattr__(unchecked_memory, "places", memory.places[torch.arange(2)])
    with pytest.raises(ShapeError) as caught:
        unchecked(EvidenceMemory.__post_init__)(unchecked_memory)
    for sentence in (
        "labels must be float32 (60, 2)",
        "counts must be float32 (60,), got torch.float64 (59,)",
        "places must be 60, got 2",
        "class_names must be different",
    ):
        assert sentence in str(caught.value)


def test_a_model_is_named_by_its_fingerprint():
    with pytest.raises(RangeError, match="64 hexadecimal digits of its weights' SHA-256; got 'mine'"):
        changed(small_memory(), model="mine")
    with pytest.raises(RangeError, match="features of one model; got abababababab… and 000000000000…"):
        require_same_model(MODEL, "0" * 64, what="memories")


def test_places_keep_names_once_and_give_them_back_in_any_order():
    found = Places.of(["b", "a", "b"], torch.arange(3.0), torch.tensor([[0.0, 0, 1, 1]]).repeat(3, 1))
    assert found.video_names == ("b", "a")
    assert found.groups() == ["b", "a", "b"]
    assert found[torch.tensor([2, 1])].videos() == ["b", "a"]
    assert len(places(0)) == 0


@pytest.mark.parametrize("box", [[0.5, 0, 0.5, 1], [0, 0, 1.5, 1], [0, 0, torch.nan, 1], [0, 0.9, 1, 0.1]])
def test_a_box_must_lie_in_the_frame(box):
    with pytest.raises(RangeError, match="a box x1 < x2, y1 < y2 within 0 to 1; 1 of 1 are not"):
        Places.of(["v"], torch.zeros(1), torch.tensor([box], dtype=torch.float32))


def test_a_time_may_be_the_whole_video_and_not_infinite():
    box = torch.tensor([[0.0, 0, 1, 1]])
    assert Places.of(["v"], torch.tensor([torch.nan]), box).time_s.isnan().all()
    with pytest.raises(RangeError, match="must be a finite time"):
        Places.of(["v"], torch.tensor([torch.inf]), box)


def test_places_point_at_names():
    good = places(2)
    with pytest.raises(ShapeError, match="video_index must point at one of 1 names, got 0 to 5"):
        replace(good, video_index=torch.tensor([0, 5]))


def test_held_out_actors_are_known_and_finite():
    good = held_out()
    with pytest.raises(RangeError, match="must do at least one known action; 40 of 40 do none"):
        replace(good, labels=0 * good.labels)
    with pytest.raises(NotFinite, match="must be finite"):
        replace(good, outputs=good.outputs * torch.inf)
    with pytest.raises(RangeError, match="labels of held-out actors must lie from 0 to 1"):
        replace(good, labels=good.labels * 2)
    with pytest.raises(ShapeError, match=r"outputs must be float32 \(40, 3\)"):
        replace(good, class_names=NAMES[:3])


@pytest.mark.parametrize("name", ["typical_scale", "reach", "evidence_scale"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_a_kernel_has_finite_numbers_above_zero_only(name, value):
    with pytest.raises(RangeError, match=f"{name} must be a finite number above zero; got {value}"):
        NeighbourKernel(**{"num_neighbours": 5, "typical_scale": 1.0, name: value})
