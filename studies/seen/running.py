"""Run methods on class splits; the novelty of every tested actor is kept, split by split, so that a run can be resumed."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.files import write_file
from mule.metrics import auroc
from mule.novelty.crossfit import CROP, FRAME, LABELS_INPUT, Inputs
from studies.seen.closed import (
    PLAIN,
    Columns,
    Crossing,
    Part,
    Ranks,
    among_tested,
    at,
    prototypes,
    remembered,
    whitened,
)
from studies.seen.heads import (
    CHECKPOINTS,
    PLANS,
    HeadPlan,
    Loss,
    Scores,
    Sides,
    best_by_rival,
    raw_scores,
    rival_of,
    scores_of,
    standardised,
    trained,
)
from studies.seen.judging import Judged
from studies.seen.material import Drawn, Material

TUNING, DEVELOPING, REPORTING = range(100, 104), range(100, 120), range(320, 340)
LOSSES: tuple[Loss, ...] = ("bce", "beta", "dear", "literal")
LOSS_OF: Mapping[str, Loss] = {"beta-max": "beta", "beta-sum": "beta", "dear": "dear", "literal": "literal"}
RAW = "raw"
OURS, TWIN = "closed-form", "bce-twin"
FIVE = tuple(range(5))
TRANSDUCTIVE = (3, 5, 10)
"""Neighbours among the tested actors."""
TRANSDUCTIVE_CHOSEN = "transductive, 5 neighbours"
"""By class splits 100–119."""
CANDIDATES: Mapping[str, Mapping[str, Part]] = {
    OURS: PLAIN,
    "shrinkage ½": {**PLAIN, "whitened": whitened(shrinkage=0.5)},
    "within the span": {**PLAIN, "whitened": whitened(in_span=True)},
    "temperature 1": {**PLAIN, "labels": prototypes(temperature_ratio=1 / 1.5)},
    "temperature 2": {**PLAIN, "labels": prototypes(temperature_ratio=2 / 1.5)},
    "three parts": {**PLAIN, "memory": remembered()},
    "blocks apart": {FRAME: whitened(only=FRAME), CROP: whitened(only=CROP), "labels": prototypes()},
}
NEEDS_BLOCKS = {"blocks apart": (FRAME, CROP)}
"""Candidates for views with these blocks only."""
Found = dict[str, tuple[np.ndarray, np.ndarray | None]]
"""Novelty and, where promised, p-value of the tested actors, by method."""


def sides_of(
    material: Material, drawn: Drawn, view: str, *, reads_labels: bool, is_raw: bool = False
) -> Sides:
    """Return what a head or a raw score reads of both sides."""
    inputs = material.inputs(view)
    names = [name for name in sorted(inputs) if name != LABELS_INPUT or reads_labels]
    whole = torch.cat([inputs[name].float() for name in names], dim=1)
    known, tested = whole[drawn.known], whole[drawn.tested]
    return Sides(known, drawn.labels, tested) if is_raw else standardised(known, tested, drawn.labels)


def tune(
    material: Material, view: str, *, seeds: Iterable[int] = TUNING, noted: Callable[[str], None]
) -> dict[str, str]:
    """Return each rival's best configuration in a view, by its own AUROC on the splits that choose."""
    values: dict[str, list[float]] = {}

    def kept(scores: Scores, where: str, drawn: Drawn) -> None:
        for name, novelty in scores.items():
            values.setdefault(f"{where}/{name}", []).append(
                100 * auroc(novelty.double().numpy(), drawn.is_novel)
            )

    for seed in seeds:
        drawn = material.drawn(seed)
        raw = sides_of(material, drawn, view, reads_labels=False, is_raw=True)
        kept(raw_scores(raw.known, raw.tested, raw.labels[:, : drawn.num_actions]), f"{RAW}/0", drawn)
        for loss, (number, plan) in product(LOSSES, enumerate(PLANS)):
            sides = sides_of(material, drawn, view, reads_labels=plan.reads_labels)
            for epoch, head in trained(sides, loss, plan, epochs=CHECKPOINTS, seed=seed).items():
                kept(scores_of(head, sides, loss, drawn.num_actions), f"{number}/{epoch}", drawn)
        noted(f"{view}: rivals tuned on split {seed}")
    means = {key: float(np.mean(each)) for key, each in values.items()}
    best = best_by_rival(means)
    for rival, key in best.items():
        noted(f"{view} {rival}: {key} {means[key]:.2f}")
    return best


def rivals(material: Material, drawn: Drawn, view: str, chosen: Mapping[str, str]) -> Found:
    """Return every rival with its own configuration on one class split."""
    epochs: dict[tuple[Loss, int], set[int]] = {}
    for rival, key in chosen.items():
        if not key.startswith(RAW):
            number, epoch, _ = key.split("/")
            epochs.setdefault((loss_of_rival(rival), int(number)), set()).add(int(epoch))
    scores: dict[str, Scores] = {}
    if any(key.startswith(RAW) for key in chosen.values()):
        raw = sides_of(material, drawn, view, reads_labels=False, is_raw=True)
        scores[f"bce {RAW}/0"] = raw_scores(raw.known, raw.tested, raw.labels[:, : drawn.num_actions])
    for (loss, number), wanted in epochs.items():
        sides = sides_of(material, drawn, view, reads_labels=PLANS[number].reads_labels)
        heads = trained(sides, loss, PLANS[number], epochs=sorted(wanted), seed=drawn.seed)
        for epoch, head in heads.items():
            scores[f"{loss} {number}/{epoch}"] = scores_of(head, sides, loss, drawn.num_actions)
    found: Found = {}
    for rival, key in chosen.items():
        where, _, name = key.rpartition("/")
        found[rival] = (scores[f"{loss_of_rival(rival)} {where}"][name].double().numpy(), None)
    return found


def loss_of_rival(rival: str) -> Loss:
    """Return the loss that a rival's head is trained with."""
    return LOSS_OF.get(rival_of(rival), "bce")


def crossing(
    material: Material,
    drawn: Drawn,
    inputs: Inputs,
    *,
    chosen: np.ndarray | None = None,
    most_folds: int = 10,
) -> Crossing:
    """Return the known and tested actors of a class split; `chosen` are the known actors to learn from."""
    rows = np.arange(len(drawn.known)) if chosen is None else chosen
    places = torch.from_numpy(drawn.known[rows])
    known = (at(inputs, places), drawn.labels[rows], torch.from_numpy(material.groups[drawn.known[rows]]))
    return Crossing(known, at(inputs, torch.from_numpy(drawn.tested)), most_folds=most_folds)


def closed_form(crossed: Crossing, parts: Mapping[str, Part]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rank, p-value and ranks by part of the tested actors."""
    return by_columns(crossed, [crossed.columns(part) for part in parts.values()])


def by_columns(crossed: Crossing, columns: Sequence[Columns]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rank, p-value and ranks by part of the tested actors, from parts that are fitted."""
    found = crossed.together(columns)
    return found.rank.numpy(), found.p_value.numpy(), found.by_part.numpy()


def recipe(num_actions: int | None = None, *, has_tags_in_sets: bool = False) -> Mapping[str, Part]:
    """Return the closed form for labels of which the first are actions and the others tags."""
    whitening = whitened(num_actions=num_actions, has_tags_in_sets=has_tags_in_sets)
    return {"whitened": whitening, "labels": prototypes(num_actions=num_actions)}


def readings(num_actions: int) -> Mapping[str, Mapping[str, Part]]:
    """Return both readings of tags: the covariance within label sets, or within single actions."""
    return {
        "label sets": recipe(num_actions, has_tags_in_sets=True),
        "single actions": recipe(num_actions),
    }


def transductive(drawn: Drawn, inputs: Inputs, rank: np.ndarray) -> Found:
    """Return the novelty of tested actors averaged with those who look alike, by the number of neighbours."""
    tested = at(inputs, torch.from_numpy(drawn.tested))
    return {
        f"transductive, {num} neighbours": (
            among_tested(torch.from_numpy(rank), tested, num_neighbours=num).numpy(),
            None,
        )
        for num in TRANSDUCTIVE
    }


def heads_together(material: Material, drawn: Drawn, view: str, chosen: Mapping[str, str]) -> Found:
    """Return JointEnergy of one head, and the sum over five heads that differ by their seed."""
    number, epochs, _ = chosen["joint-energy"].split("/")
    plan = PLANS[int(number)]
    sides = sides_of(material, drawn, view, reads_labels=plan.reads_labels)
    novelty: list[np.ndarray] = []
    for seed in FIVE:
        head = trained(sides, "bce", plan, epochs=(int(epochs),), seed=1000 * seed + drawn.seed)[int(epochs)]
        novelty.append(scores_of(head, sides, "bce", drawn.num_actions)["joint-energy"].double().numpy())
    return {
        "joint-energy, one head": (novelty[0], None),
        "joint-energy, five heads": (np.sum(novelty, axis=0), None),
    }


def twin(plan: HeadPlan, epochs: int, num_actions: int, *, seed: int) -> Part:
    """Return what the twin has in place of the whitened cosine: JointEnergy of a cross-entropy head."""

    def fit(inputs: Inputs, labels: Tensor, _: Tensor) -> Ranks:
        names = [name for name in sorted(inputs) if name != LABELS_INPUT or plan.reads_labels]

        def read(each: Inputs) -> Tensor:
            return torch.cat([each[name].float() for name in names], dim=1)

        own = read(inputs)
        head = trained(standardised(own, own, labels), "bce", plan, epochs=(epochs,), seed=seed)[epochs]

        def ranks(others: Inputs) -> Tensor:
            sides = standardised(own, read(others), labels)
            return scores_of(head, sides, "bce", num_actions)["joint-energy"]

        return ranks

    return fit


def judged(material: Material, drawn: Drawn, found: Found, named: Sequence[str]) -> dict[str, Judged]:
    """Return the tested actors of a class split by every method."""
    action = material.action[drawn.tested]
    is_named = np.isin(np.array(material.actions)[action], list(named))
    film = material.groups[drawn.tested]
    return {
        name: Judged(drawn.seed, novelty, drawn.is_novel, action, film, is_named, p_value)
        for name, (novelty, p_value) in found.items()
    }


def novel_first(
    beside: Mapping[int, int],
    tested: Int[np.ndarray, " tested"],
    is_novel: Bool[np.ndarray, " tested"],
    novelty: Float[np.ndarray, " tested"],
) -> tuple[int, float]:
    """Return the number of pairs of one known and one novel tested actor, and in how many the novel one looks more novel."""
    place = {row: number for number, row in enumerate(tested.tolist())}
    num_pairs, won = 0, 0.0
    for each in beside.items():
        both = [place[row] for row in each if row in place]
        if len(both) == 2 and is_novel[both[0]] != is_novel[both[1]]:
            novel, known = sorted(both, key=lambda at: not is_novel[at])
            num_pairs += 1
            won += (novelty[novel] > novelty[known]) + (novelty[novel] == novelty[known]) / 2
    return num_pairs, won


def kept(path: Path, make: Callable[[], Found]) -> Found:
    """Return what a file holds, or make and write it."""
    if not path.is_file():
        made = make()
        arrays = {
            f"{name}|{kind}": each
            for name, both in made.items()
            for kind, each in zip(("rank", "p"), both, strict=True)
            if each is not None
        }
        write_file(path, partial(_save, arrays))
    loaded = np.load(path)
    names = dict.fromkeys(key.partition("|")[0] for key in loaded.files)
    return {
        name: (loaded[f"{name}|rank"], loaded[f"{name}|p"] if f"{name}|p" in loaded.files else None)
        for name in names
    }


def _save(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def read_choice(path: Path) -> dict[str, str]:
    """Return the configurations that `tune` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))
