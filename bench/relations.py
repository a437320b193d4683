"""Grid and factored relations compared with the printed concatenation; how time and memory grow.

    python -m bench.relations

Published sizes unless stated otherwise: 1024 channels, 16 × 22 cells, width 512, two blocks; in training mode
with dropout, forward and backward. The literal construction is the reference of the tests: 3C channels for
every pair of a clip, with activations in place as in ours. Peak memory is that of a fresh process (VmHWM,
Linux) minus its memory before the first pass, when weights and features are already loaded.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bench.timing import Comparison, take_turns
from mule.relations.aco import FactoredRelations, GridRelations, SceneFeatures
from mule.relations.maps import PUBLISHED, RelationSettings

LITERAL, GRID, FACTORED = "literal", "grid", "factored"
CHANNELS, CELLS = 1024, (16, 22)
SMALL_CHANNELS, SMALL_CELLS, SMALL = 96, (12, 16), RelationSettings(width=32)
BUSY, CROWDED = (8, 10), (16, 20)
MEMORY_GOAL = 0.65
GROWTH = [(1, 0), (1, 5), (2, 5), (4, 5), (8, 5), (8, 10), (8, 20), (16, 20)]
REPEATS = 2


class Cost(NamedTuple):
    """Time and memory of a pass, measured in a process of its own."""

    elapsed_s: float
    above_start_mb: float
    whole_process_mb: float


def main() -> None:
    print(Comparison.HEADER)
    for comparison in comparisons():
        print(comparison.row(), flush=True)
    print()
    for line in [*memory(), "", *growth()]:
        print(line, flush=True)


def comparisons() -> list[Comparison]:
    """Time forward and backward of one busy clip, one crowded clip and a small training batch."""
    small, num_pairs = _small_batch()
    rows = []
    for what, scene, settings, kinds in [
        (_named(BUSY), _scene(BUSY), PUBLISHED, {GRID: "≥ 1.3", FACTORED: "≥ 5"}),
        (_named(CROWDED), _scene(CROWDED), PUBLISHED, {FACTORED: "≥ 10"}),
        (f"16 small clips, {num_pairs} pairs", small, SMALL, {GRID: "", FACTORED: ""}),
    ]:
        times = take_turns({kind: _pass(kind, scene, settings) for kind in (LITERAL, *kinds)})
        rows += [
            Comparison(f"{kind} relations, {what}", "literal grid", times[kind], times[LITERAL], goal)
            for kind, goal in kinds.items()
        ]
    return rows


def memory() -> list[str]:
    """Report the peak memory of the grid relative to the literal construction."""
    literal, grid = _cost(LITERAL, BUSY), _cost(GRID, BUSY)
    above, whole = (
        grid.above_start_mb / literal.above_start_mb,
        grid.whole_process_mb / literal.whole_process_mb,
    )
    return [
        f"- peak memory of a pass, {_named(BUSY)}: grid {grid.above_start_mb:.0f} MB, literal "
        f"{literal.above_start_mb:.0f} MB, a ratio of {above:.2f} (goal: at most {MEMORY_GOAL}); "
        f"for the whole process, including weights and torch, {whole:.2f}"
    ]


def growth() -> list[str]:
    """Report time and memory of a pass for growing numbers of actors and objects."""
    rows = [
        "| actors | objects | grid: maps | time | memory | factored: maps | time | memory | speedup |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for num_actors, num_objects in GROWTH:
        grid, factored = (_cost(kind, (num_actors, num_objects)) for kind in (GRID, FACTORED))
        maps = num_actors * max(num_objects, 1), num_actors + max(num_objects, 1)
        rows.append(
            f"| {num_actors} | {num_objects} | {maps[0]} | {grid.elapsed_s:.2f} s | {grid.above_start_mb:.0f} MB "
            f"| {maps[1]} | {factored.elapsed_s:.2f} s | {factored.above_start_mb:.0f} MB "
            f"| {grid.elapsed_s / factored.elapsed_s:.2f} |"
        )
    return rows


def _cost(kind: str, size: tuple[int, int]) -> Cost:
    child = subprocess.run(
        [sys.executable, "-m", "bench.relations", kind, *map(str, size)],
        check=True,
        capture_output=True,
        text=True,
    )
    return Cost(*(float(word) for word in child.stdout.split()))


def measure(kind: str, size: tuple[int, int]) -> Cost:
    """Measure the cost in this process, which must be fresh because the peak never falls."""
    run = _pass(kind, _scene(size), PUBLISHED)
    before_mb = _memory_mb("VmRSS")
    run()
    peak_mb = _memory_mb("VmHWM")
    times = []
    for _ in range(REPEATS):
        started_at = perf_counter()
        run()
        times.append(perf_counter() - started_at)
    return Cost(median(times), peak_mb - before_mb, peak_mb)


def _memory_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def _pass(kind: str, scene: SceneFeatures, settings: RelationSettings) -> Callable[[], None]:
    module = (FactoredRelations if kind == FACTORED else GridRelations)(scene.channels, settings)
    if kind == LITERAL:  # torch's default layout is faster here than channels last
        nn.utils.convert_conv2d_weight_memory_format(module, torch.contiguous_format)
    relate = partial(_literal_features(), module) if kind == LITERAL else module

    def run() -> None:
        module.zero_grad()
        for each in (*scene.context, scene.actors, scene.objects):
            each.grad = None
        relate(scene).square().sum().backward()

    return run


def _literal_features() -> Callable[[nn.Module, SceneFeatures], Tensor]:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    return import_module("literal_relations").literal_features


def _named(size: tuple[int, int]) -> str:
    return f"{size[0]} actors, {size[1]} objects"


def _scene(size: tuple[int, int]) -> SceneFeatures:
    num_actors, num_objects = torch.tensor(size[:1]), torch.tensor(size[1:])
    return _drawn(num_actors, num_objects, channels=CHANNELS, cells=CELLS)


def _small_batch() -> tuple[SceneFeatures, int]:
    generator = torch.Generator().manual_seed(0)
    num_actors = torch.randint(2, 5, (16,), generator=generator)
    num_objects = torch.randint(0, 5, (16,), generator=generator)
    num_pairs = int((num_actors * num_objects.clamp(min=1)).sum())
    return _drawn(num_actors, num_objects, channels=SMALL_CHANNELS, cells=SMALL_CELLS), num_pairs


def _drawn(
    num_actors: Tensor, num_objects: Tensor, *, channels: int, cells: tuple[int, int]
) -> SceneFeatures:
    """Random features that require gradients, for one clip per number of actors."""
    generator = torch.Generator().manual_seed(1)

    def features(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    clips = torch.arange(len(num_actors))
    return SceneFeatures(
        context=tuple(features(channels, *cells) for _ in clips),
        actors=features(int(num_actors.sum()), channels),
        actor_clip_index=clips.repeat_interleave(num_actors),
        objects=features(int(num_objects.sum()), channels),
        object_clip_index=clips.repeat_interleave(num_objects),
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*measure(sys.argv[1], (int(sys.argv[2]), int(sys.argv[3]))))
    else:
        main()
