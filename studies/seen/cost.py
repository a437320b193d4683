"""What each input of a moment costs, in processor time of one thread, told as a ratio to one pass over the frame."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from mule.features.weights.card import NORMALISATIONS, WeightCard
from mule.features.weights.loading import load_backbone
from mule.model import inputs_in_map, with_labels
from mule.novelty.crossfit import CrossFitted
from mule.runtime.openvino import CompiledBackbone
from mule.video.transforms import normalised
from studies.seen.closed import at
from studies.seen.extract import seen
from studies.seen.material import STRIDE, Material

PEOPLE = (1, 2, 4)
ROUNDS = 3
SEED, ROW = 300, 0


@torch.no_grad()
def costs(material: Material, videos: Path, weights: tuple[Path, WeightCard]) -> list[dict[str, object]]:
    """Return a row per step of a moment: its time divided by that of the pass over the frame, by the number of people.

    Processor time hardly depends on other work on the machine. Steps take turns; each counts with its median.
    """
    path, card = weights
    torch.set_num_threads(1)
    run, norm = CompiledBackbone(load_backbone(path, card)), NORMALISATIONS[card.clip.normalisation]
    frame, crop = (
        normalised(seen(material.table, videos, ROW, view), norm)[None] for view in ("frame", "crop")
    )
    last = run(frame).maps[0].mean(dim=2)
    drawn = material.drawn(SEED)
    known = torch.from_numpy(drawn.known)
    inputs = material.inputs("Rroi")
    groups = torch.from_numpy(material.groups[drawn.known])
    decide = CrossFitted.fit(at(inputs, known), drawn.labels, groups)

    def pooled(people: int) -> None:
        boxes = torch.tensor([[0.3, 0.1, 0.7, 0.9]]).repeat(people, 1)
        boxes = boxes * torch.tensor([last.shape[3], last.shape[2]] * 2) * STRIDE
        features = inputs_in_map(last, boxes, torch.zeros(people, dtype=torch.int64), stride=STRIDE)
        with_labels(features, material.classifier)

    steps: dict[str, Callable[[int], object]] = {
        "one pass over the frame": lambda _: run(frame),
        "`roi`, `frame`, `labels` from its map": pooled,
        "`crop`: a pass per person": lambda people: [run(crop) for _ in range(people)],
        "the decision": lambda people: decide(at(inputs, known[:people])),
    }
    taken = {(name, people): list[float]() for name in steps for people in PEOPLE}
    for _ in range(ROUNDS):
        for (name, people), times in taken.items():
            started = time.process_time()
            steps[name](people)
            times.append(time.process_time() - started)
    whole = median(taken["one pass over the frame", 1])
    return [
        {
            "step": name,
            **{f"people_{people}": f"{median(taken[name, people]) / whole:.4f}" for people in PEOPLE},
        }
        for name in steps
    ]
