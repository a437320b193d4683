"""Passes that say again what comes before the first dropped unit are, to the last bit, passes computed whole."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from mule.features.pooling import FeatureMaps
from mule.inference.running import dropout_modules, passes_with_dropout
from mule.model import SceneBoxes
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import small_sizes

CHANNELS, NUM_CLASSES, NUM_PASSES, SEED = 12, 4, 4, 3


def scene():
    generator = torch.Generator().manual_seed(0)
    maps = FeatureMaps((torch.randn(2, CHANNELS, 2, 6, 8, generator=generator),), 8)
    corners = torch.rand(5, 2, generator=generator) * 20
    boxes = torch.cat([corners, corners + 16], dim=1)
    clips = torch.tensor([0, 0, 1, 1, 0])
    return [maps], SceneBoxes(boxes[:3], clips[:3], boxes[3:], clips[3:])


def computed_whole(module, compute):
    """The same passes, every one from the beginning."""
    torch.manual_seed(SEED)
    for each in dropout_modules(module):
        each.train()
    found = [compute() for _ in range(NUM_PASSES)]
    module.eval()
    return found


def built(name, *, block_dropout):
    sizes = small_sizes(CHANNELS, NUM_CLASSES)
    torch.manual_seed(1)
    relations = replace(sizes.relations, block_dropout=block_dropout)
    return SYSTEMS[name].build(replace(sizes, relations=relations)).eval()


@pytest.mark.parametrize(
    ("name", "block_dropout"),
    [("mule", 0.0), ("mule", 0.2), ("acar", 0.2), ("aia-parallel", 0.0), ("dear", 0.0), ("slowfast", 0.0)],
)
@torch.no_grad()
def test_passes_are_those_computed_whole(name, block_dropout):
    decide, (maps, boxes) = built(name, block_dropout=block_dropout), scene()

    def compute():
        return decide(maps, boxes).outputs

    before = compute()
    found = passes_with_dropout(decide, compute, NUM_PASSES, seed=SEED)
    expected = computed_whole(decide, compute)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert not torch.equal(found[0], found[1])
    assert torch.equal(compute(), before)  # nothing is dropped or said again afterwards


class Counted(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.calls = 0

    def forward(self, input):
        self.calls += 1
        return super().forward(input)


class Chain(nn.Module):
    """first → dropout → last, with a layer that is used on both sides of the dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.shared, self.last = Counted(), Counted(), Counted()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.last(self.shared(self.dropout(self.shared(self.first(x).relu_()))))


@torch.no_grad()
def test_only_what_comes_after_the_first_dropout_is_computed_again():
    chain, x = Chain().eval(), torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    found = passes_with_dropout(chain, lambda: chain(x), NUM_PASSES, seed=SEED)
    assert (chain.first.calls, chain.shared.calls, chain.last.calls) == (1, 2 * NUM_PASSES, NUM_PASSES)
    assert all(map(torch.equal, found, computed_whole(chain, lambda: chain(x))))


@torch.no_grad()
def test_an_error_leaves_the_module_as_it_was():
    chain, x = Chain().eval(), torch.ones(1, 8)
    before, calls = chain(x), iter([chain(x)])
    with pytest.raises(StopIteration):
        passes_with_dropout(chain, lambda: (chain(x), next(calls))[1], 3, seed=SEED)
    assert torch.equal(chain(x), before)
    assert not any(each.training for each in dropout_modules(chain))


@torch.no_grad()
def test_no_passes_are_none():
    chain = Chain().eval()
    assert passes_with_dropout(chain, lambda: chain(torch.ones(1, 8)), 0, seed=0) == []
    assert chain.first.calls == 0
