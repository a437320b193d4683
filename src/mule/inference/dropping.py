"""Passes with dropout on, at little more than the cost of one: what comes before the first dropped unit is always the same.

The first pass is computed whole. What modules said in it before any unit was dropped is kept, and said again in the
passes after it; from the first dropout on, everything is computed anew.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


def droppers_in(module: nn.Module) -> list[nn.Module]:
    """The modules that drop units when they are switched on."""
    return [each for each in module.modules() if isinstance(each, DROPOUT) and each.p > 0]


def passes_with_dropout(
    module: nn.Module, compute: Callable[[], Tensor], num_passes: int, *, seed: int
) -> list[Tensor]:
    """What `compute`, which goes through the module, makes each time, with units of it dropped by chance from the seed."""
    with _dropping(droppers_in(module), seed=seed):
        with _recording(module) as said:
            found = [compute() for _ in range(min(num_passes, 1))]
        with _saying_again(said):
            return found + [compute() for _ in range(num_passes - 1)]


@contextmanager
def _dropping(droppers: list[nn.Module], *, seed: int) -> Generator[None]:
    """Units are dropped, and nothing else changes; then all is as before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in droppers:
            module.train()
        try:
            yield
        finally:
            for module in droppers:
                module.eval()


@contextmanager
def _recording(module: nn.Module) -> Generator[dict[nn.Module, list[Any]]]:
    """Keeps what parts of the module that drop nothing say, call by call; not of those called after a unit was dropped."""
    said: dict[nn.Module, list[Any]] = {}
    late: set[nn.Module] = set()
    has_dropped = False

    def keep(part: nn.Module, _: object, output: object) -> None:
        if has_dropped:
            late.add(part)
        else:
            said.setdefault(part, []).append(deepcopy(output))  # what follows may change it in place

    def stop(*_: object) -> None:
        nonlocal has_dropped
        has_dropped = True

    with ExitStack() as hooks:
        for part in _parts_without_droppers(module):
            hooks.callback(part.register_forward_hook(keep).remove)
        for dropper in droppers_in(module):
            hooks.callback(dropper.register_forward_pre_hook(stop).remove)
        yield said
    for part in late & said.keys():
        del said[part]


@contextmanager
def _saying_again(said: dict[nn.Module, list[Any]]) -> Generator[None]:
    """The parts say what they said, in its order, pass by pass; nothing in them is computed."""
    with ExitStack() as parts:
        for part, outputs in said.items():
            part.forward = partial(_next_of, cycle(outputs))
            parts.callback(delattr, part, "forward")
        yield


def _next_of(outputs: Iterator[Any], *_: object, **__: object) -> Any:  # noqa: ANN401 - whatever the part says
    return deepcopy(next(outputs))


def _parts_without_droppers(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if not droppers_in(child):
            yield child
        elif not isinstance(child, DROPOUT):
            yield from _parts_without_droppers(child)
