"""What the rows of the paper's tables cost, from their networks: sizes beside published ones, GPU-hours, disk and memory.

python -m bench.budget                 # prints all parts
python -m bench.budget --write         # and writes them into docs/REPRODUCE.md
python -m bench.budget --write space   # one of them: costs, gpu-hours or space
"""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch.autograd.graph import saved_tensors_hooks

from mule.core.config import systems_by_row
from mule.systems.costs import backbone_costs, some_boxes
from mule.training.build import build_networks
from mule.training.choosing import inner_steps_of, load_for_training, sizes_of, system_of
from mule.training.row_costs import PEAK_TERAFLOPS, USED_SHARE, passes_per_clip, row_cost, training_hours

PAGE = Path(__file__).resolve().parents[1] / "docs" / "REPRODUCE.md"
NUM_CLIPS = {"ava": 235 * 897 - 161, "charades": 7985}
"""Training clips of an epoch at most: AVA's key frames less the excluded ones, Charades' videos."""
VIDEO_SECONDS = {"ava": 299 * 901, "charades": 9848 * 30}
MEGABITS_PER_S = 1.0
NUM_GPUS = 4
"""As in the paper."""
NUM_CHECKPOINTS = 3
"""The last two and the best."""
NUM_REMEMBERED = 5
"""Persons of a clip that AIA and ACAR remember."""


DETECTOR, AFTER = "detector of 80 actions", "all after the backbone, 40 actions"
PUBLISHED = {
    "mule-literal": (25.78, 40, AFTER),
    "slowfast": (59.34, 80, DETECTOR),
    "slowfast-r50": (33.83, 80, DETECTOR),
}
"""Millions of parameters that were published of a row's network, for how many actions, and of what."""
NOT_PUBLISHED = {
    "aia": "the release has no count; sizes are its own",
    "afac": "neither code nor sizes were published",
    "dear": "the release has no count; one branch for each kind of feature is used in training alone",
    "acar": "the release has no count; a test counts its layers one by one and finds as many",
    "mule": "MULE as printed has a second layer of outputs",
    "mule-literal": "that of `mule-literal` on AVA",
    "slowfast": "that of `slowfast` on AVA, for 104 actions",
    "x3d": "published is the classifier above; the layers after its last block are left out",
    "csn": "published is the classifier above; its last layer is replaced",
}
"""What to know of rows without such a number, by the name of their system."""


def rows_of(experiment):
    """Return the rows whose networks differ; mule-unlabel is that of mule."""
    return [name for name in systems_by_row(Path(experiment)) if name != "mule-unlabel"]


def clip_size(row):
    """Frames, rows and columns of a training clip; whole frames are 4:3."""
    side = row.view.crop_px or (row.view.short_sides_px or (256, 256))[0]
    return row.data.num_frames, side, side if row.view.crop_px else side * 4 // 3


def parameters_m(network):
    return sum(each.numel() for each in network.parameters()) / 1e6


def sizes_of_rows(experiment):
    lines = [
        f"| row of `{experiment}` | backbone | after it | together | published | ours, the same | |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for name in rows_of(experiment):
        row = load_for_training(Path(experiment), [], name)
        with torch.device("meta"):
            network, backbone = build_networks(row)
        parts = parameters_m(backbone), parameters_m(network.decide)
        published, alike, what = "–", "–", NOT_PUBLISHED.get(row.system.removesuffix("-bank"), "")
        if name in PUBLISHED and experiment == "ava":
            number, num_classes, what = PUBLISHED[name]
            with torch.device("meta"):
                decide = system_of(row).build(
                    sizes_of(row, channels=backbone.channels, num_classes=num_classes)
                )
            published = f"{number:.2f} M"
            alike = f"{parameters_m(decide) + (what == DETECTOR) * parts[0]:.2f} M"
        numbers = " | ".join(f"{each:.2f} M" for each in (*parts, sum(parts)))
        lines.append(f"| `{name}` | {numbers} | {published} | {alike} | {what} |")
    return "\n".join(lines)


def costs():
    lines = [
        "| backbone, as a classifier of Kinetics-400 | clip | parameters | published | multiply-adds | counted alike | "
        "published | by |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for each in backbone_costs():
        if each.publisher:
            lines.append(
                f"| {each.name} | {' × '.join(map(str, each.input_size))} | {each.num_parameters / 1e6:.2f} M | "
                f"{each.published_parameters_m:.2f} M | {each.num_multiply_adds / 1e9:.2f} G | "
                f"{each.counted_alike / 1e9:.2f} G | {each.published_multiply_adds_g:.2f} G | {each.publisher} |"
            )
    return "\n\n".join(["\n".join(lines), *map(sizes_of_rows, NUM_CLIPS)])


def hours_of(experiment):
    lines = [
        f"| row of `{experiment}` | parameters | multiply-adds of a training clip | epochs | forward passes a clip | "
        + " | ".join(PEAK_TERAFLOPS)
        + " |",
        "|---|--:|--:|--:|--:|" + "--:|" * len(PEAK_TERAFLOPS),
    ]
    for name in systems_by_row(Path(experiment)):
        row = load_for_training(Path(experiment), [], name)
        frames, rows, cols = clip_size(row)
        cost = row_cost(name, row, rows_px=rows, cols_px=cols)
        hours = [
            training_hours(row, cost, num_clips=NUM_CLIPS[experiment], gpu=gpu) for gpu in PEAK_TERAFLOPS
        ]
        lines.append(
            f"| `{name}` | {cost.num_parameters / 1e6:.1f} M | {cost.num_multiply_adds / 1e9:.0f} G "
            f"({frames} × {rows} × {cols}) | {row.training.epochs} | {passes_per_clip(row)} | "
            + " | ".join(f"{each:.1f}" for each in hours)
            + " |"
        )
    return "\n".join(lines)


def hours():
    return (
        f"Hours of one GPU that computes at {100 * USED_SHARE:g} % of its peak in half precision ("
        + ", ".join(f"{name} {peak:g}" for name, peak in PEAK_TERAFLOPS.items())
        + " Tflop/s). A clip holds four actors and five objects; an epoch has at most "
        + " and ".join(f"{num:,} clips of {name}" for name, num in NUM_CLIPS.items())
        + ", fewer with `drop`. A gradient counts as two more forward passes. Loading, validation and evaluation are not"
        " included.\n\n" + "\n\n".join(map(hours_of, NUM_CLIPS))
    )


def saved_bytes(compute, *, besides):
    """Bytes that autograd keeps for the gradient of what is computed, each storage once, without the weights."""
    seen = {weight.untyped_storage()._cdata for weight in besides}
    total = 0

    def pack(tensor):
        nonlocal total
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            kept.append(storage)
            total += storage.nbytes()
        return tensor

    kept = []
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compute()
    return total, result


def space(row):
    """Bytes of the weights, of a clip's activations in single precision, and of what is remembered of an actor."""
    size = clip_size(row)
    with torch.device("meta"):
        network, backbone = build_networks(row)
        clip, decide = torch.empty(1, 3, *size), cast(torch.nn.Module, network.train().decide)
    seen, maps = saved_bytes(lambda: backbone.train()(clip), besides=backbone.parameters())
    decide.to_empty(device="cpu")  # RoIAlign's work depends on where boxes are
    for weight in decide.parameters():
        torch.nn.init.zeros_(weight)
    zeros = replace(maps, maps=tuple(torch.zeros(each.shape, requires_grad=True) for each in maps.maps))
    decided, output = saved_bytes(
        lambda: decide([zeros], some_boxes(size)), besides=[*decide.parameters(), *zeros.maps]
    )
    weights = 4 * sum(each.numel() for part in (backbone, decide) for each in part.parameters())
    numbers = output.outputs.shape[1] + 2 * output.evidence.positive.shape[1] + output.features.shape[1]
    remembered = 2 * output.to_remember[0][0].numel() if output.to_remember else 0
    return weights, seen + decided, 4 * (numbers + maps.channels), remembered


def space_of(experiment):
    lines = [
        f"| row of `{experiment}` | run folder | outputs on 100,000 persons | batches read ahead | memory of clips | "
        "activations of a clip | memory of a GPU |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in rows_of(experiment):
        row = load_for_training(Path(experiment), [], name)
        weights, activations, outputs, remembered = space(row)
        states = 1 if row.optimizer.kind == "sgd" else 2
        folder = weights * (1 + (1 + states) * NUM_CHECKPOINTS)
        batch = 4 * 3 * math.prod(clip_size(row)) * row.training.batch_clips
        ahead = batch * row.loading.workers * row.loading.prefetch_batches
        of_clips = NUM_CLIPS[experiment] * NUM_REMEMBERED * remembered
        copies = 2 + states + (inner_steps_of(row) > 1)
        on_gpu = copies * weights + row.training.batch_clips / NUM_GPUS * activations / 2
        numbers = [folder, outputs * 1e5, ahead, of_clips, activations / 2, on_gpu]
        shown = (f"{each / 1e9:.1f} GB" if each else "–" for each in numbers)
        lines.append(f"| `{name}` | {' | '.join(shown)} |")
    return "\n".join(lines)


def spaces():
    videos = " and ".join(
        f"{name} {seconds:,} s, {seconds * MEGABITS_PER_S / 8e3:.0f} GB"
        for name, seconds in VIDEO_SECONDS.items()
    )
    return (
        f"Videos: {videos}, at {MEGABITS_PER_S:g} Mbit/s, an assumption; frames are never extracted. Per row: a run folder has "
        f"the weights and {NUM_CHECKPOINTS} checkpoints (weights and optimiser). Batches read ahead are those of all loading "
        "workers together, in single precision. A memory of clips holds five persons of each training clip in half precision, "
        "at most; every process holds it in main memory and every checkpoint on disk, `drop` makes it as much smaller as it "
        "drops actors. Activations are what autograd keeps of a clip with four actors and five objects, in half precision; the "
        f"memory of a GPU is that of its share of a batch on {NUM_GPUS} GPUs, with weights, gradients and optimiser in single "
        "precision. Work space of convolutions comes on top. `training.accumulate_batches` divides the activations.\n\n"
        + "\n\n".join(map(space_of, NUM_CLIPS))
    )


PARTS = {"costs": costs, "gpu-hours": hours, "space": spaces}


def main():
    page = PAGE.read_text(encoding="utf-8")
    for part in [name for name in sys.argv[1:] if name in PARTS] or PARTS:
        text = PARTS[part]()
        print(text)
        begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
        page = f"{page.split(begin)[0]}{begin}\n{text}\n{end}{page.split(end)[1]}"
    if "--write" in sys.argv:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
