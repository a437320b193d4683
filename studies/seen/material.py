"""What the study reads: maps of every clip as inputs of actors, and the class splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.text_rows import read_pairs
from mule.data.batches.samples import WHOLE_FRAME
from mule.data.split.leakage import met_in_pretraining
from mule.data.split.planning import SplitPlan, planned_split
from mule.data.split.sides import apply_split
from mule.data.table.table import ActorTable
from mule.features.weights.classifier import LabelClassifier
from mule.model import inputs_in_map, with_labels
from mule.novelty.crossfit import CROP, FRAME, LABELS_INPUT, ROI, Inputs
from mule.novelty.pretraining import root_probabilities
from studies.convert.jhmdb import VIDEOS, actors_from_jhmdb
from studies.seen.extract import PAIR, VIEWS, pairs, place

STRIDE = 32
CHANGE = "change"
"""How much the mean of the map varies over time."""
TAG_MARK = ":"
SEEN_AS: Mapping[str, tuple[str, ...]] = {
    "Rroi": (ROI,),
    "R1": (FRAME,),
    "R1both": (FRAME,),
    "R1roi": (FRAME, ROI),
    "Rcrop": (CROP,),
    "R2": (FRAME, CROP),
    "R4": (FRAME, CROP),
    "Pair": (ROI,),
    "R1change": (FRAME, CHANGE),
    "Product": (FRAME, ROI),
}
"""Which features each view of the registration reads; R1both and R4 average them with those of flipped frames."""
OF_BOX = ("Rroi", "Pair", "Product")
"""Views whose labels are read in the box; those of others are read in all their features together."""
FORMS: Mapping[str, str] = {"R1both": "-both", "R4": "-both", "Pair": "-pair"}
"""Which form of these features a view reads, where it is not the plain one."""
NAMED, RELATED = 1.0, 0.5
"""How alike a name of a novel action and a label of the pre-training must be to count as named, and as related."""


@dataclass(frozen=True)
class Drawn:
    """One class split: who is learnt from, and who is tested."""

    seed: int
    known: Int[np.ndarray, " known"]
    """Rows of training and validation."""
    labels: Bool[Tensor, "known actions"]
    tested: Int[np.ndarray, " tested"]
    is_novel: Bool[np.ndarray, " tested"]
    novel: tuple[str, ...]
    """The novel actions."""
    num_actions: int
    """Columns of labels that are no tags; they come last."""


@dataclass(frozen=True)
class Material:
    """All clips of J-HMDB as rows, with what a frozen backbone saw of them."""

    folder: Path
    """J-HMDB."""
    table: ActorTable
    features: Mapping[str, Float[Tensor, "rows channels"]]
    """By `roi`, `frame`, `crop`, and their forms with flipped views where these are computed."""
    classifier: LabelClassifier
    has_tags: bool = False

    @cached_property
    def groups(self) -> Int[np.ndarray, " rows"]:
        """The film of each row."""
        film = read_pairs(self.folder / VIDEOS, "video", "source_group")
        return np.unique([film[name] for name in self.table.video_names], return_inverse=True)[1]

    @cached_property
    def action(self) -> Int[np.ndarray, " rows"]:
        """The action of each row, a place in `actions`; tags do not count."""
        columns = [at for at, name in enumerate(self.table.classes) if TAG_MARK not in name]
        return self.table.labels[:, columns].argmax(axis=1)

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of all actions."""
        return tuple(name for name in self.table.classes if TAG_MARK not in name)

    def inputs(self, view: str, *, masked: Sequence[int] = ()) -> Inputs:
        """Return what all rows are seen by in a view; `masked` labels are removed before the softmax."""
        names = SEEN_AS[view]
        form = FORMS.get(view, "")
        wanted = {name: name + form for name in names}
        lacking = [each for each in wanted.values() if each not in self.features]
        if lacking:
            raise RangeError(
                f"{view} needs the passes of {', '.join(lacking)}; run `extract` to the end first."
            )
        seen = {name: self.features[key] for name, key in wanted.items()}
        keeps = np.setdiff1d(np.arange(len(self.classifier.bias)), list(masked))
        classifier = LabelClassifier(self.classifier.weight[keeps], self.classifier.bias[keeps], ())
        if view in OF_BOX:
            both = {**seen, FRAME: self.features[FRAME + form]}
            answers = with_labels(both, classifier, has_box=torch.from_numpy(self.table.has_box))
            return {name: answers[name] for name in (*names, LABELS_INPUT)}
        mean = torch.stack([seen[name] for name in names if name != CHANGE]).mean(dim=0)
        return {**seen, LABELS_INPUT: root_probabilities(classifier(mean))}

    def drawn(self, seed: int) -> Drawn:
        """Draw a class split and its sides, as `mule data split` does."""
        plan = SplitPlan(
            "random",
            seed=seed,
            groups=f"{self.folder / VIDEOS}:source_group",
            tags=TAG_MARK if self.has_tags else None,
        )
        split = planned_split(plan, self.table, None, table_name="jhmdb")
        sides = apply_split(self.table, split)
        taught = split.classes.known_train
        order = [at for at, name in enumerate(taught) if TAG_MARK not in name]
        tags = [at for at, name in enumerate(taught) if TAG_MARK in name]
        labels = np.concatenate([sides.train.labels, sides.val.labels])[:, order + tags]
        return Drawn(
            seed,
            np.concatenate([sides.train.rows, sides.val.rows]),
            torch.from_numpy(labels),
            sides.test.rows,
            sides.test.is_novel,
            split.classes.z3,
            len(order),
        )

    def named(self) -> tuple[str, ...]:
        """Return the actions that the pre-training has a name for."""
        return tuple(
            each.action
            for each in met_in_pretraining(self.actions, self.classifier.names, min_likeness=NAMED)
        )

    def related(self, novel: Sequence[str]) -> list[int]:
        """Return the labels of the pre-training that resemble one of these actions."""
        names = self.classifier.names
        return [
            at for at, name in enumerate(names) if met_in_pretraining(novel, [name], min_likeness=RELATED)
        ]


def read_material(
    jhmdb: Path, folder: Path, classifier: LabelClassifier, *, has_tags: bool = False
) -> Material:
    """Read all maps that are computed for every row, as inputs of actors."""
    table, _ = actors_from_jhmdb(jhmdb, with_tags=has_tags)
    first, _ = actors_from_jhmdb(jhmdb)
    row_of = {name: at for at, name in enumerate(first.video_names)}  # maps are numbered by the plain table
    rows = [row_of[name] for name in table.video_names]
    features: dict[str, Tensor] = {}
    for view in VIEWS:
        paths = [place(folder, view, row) for row in rows]
        if all(path.exists() for path in paths):
            kept = [np.load(path) for path in paths]
            maps = torch.stack([torch.from_numpy(each["map"]) for each in kept])
            features |= _of_view(view, maps, table)
            if view == FRAME:
                features[CHANGE] = torch.stack([torch.from_numpy(each["times"]).std(dim=0) for each in kept])
    if all(place(folder, PAIR, left).exists() for left in pairs(first.labels)):
        features |= {name: each[rows] for name, each in _of_pairs(folder, first).items()}
    for name in (ROI, FRAME, CROP):
        if f"{name}-flip" in features:
            features[f"{name}-both"] = (features[name] + features[f"{name}-flip"]) / 2
    return Material(jhmdb, table, features, classifier, has_tags)


def _of_pairs(folder: Path, table: ActorTable) -> dict[str, Tensor]:
    """Return what two people side by side are each seen by: the box, and the half of the map that their clip fills."""
    found: dict[str, Tensor] = {}
    for left, right in pairs(table.labels).items():
        maps = torch.from_numpy(np.load(place(folder, PAIR, left))["map"])[None]
        for row, begin in ((left, 0.0), (right, 0.5)):
            box = table.boxes_xyxy_unit[row] if table.has_box[row] else WHOLE_FRAME
            half = torch.tensor([box, WHOLE_FRAME]) * torch.tensor([0.5, 1, 0.5, 1]) + torch.tensor(
                [begin, 0, begin, 0]
            )
            size = torch.tensor([maps.shape[3], maps.shape[2]] * 2) * STRIDE
            inside = inputs_in_map(maps, half.float() * size, torch.zeros(2).long(), stride=STRIDE)[ROI]
            for name, values in ((ROI, inside[0]), (FRAME, inside[1])):
                found.setdefault(f"{name}-pair", torch.zeros(len(table), len(values)))[row] = values
    return found


def _of_view(view: str, maps: Tensor, table: ActorTable) -> dict[str, Tensor]:
    mark = "-flip" if view.endswith("-flip") else ""
    if view.startswith(CROP):
        return {CROP + mark: maps.mean(dim=(2, 3))}
    unit = np.where(table.has_box[:, None], table.boxes_xyxy_unit, WHOLE_FRAME)
    if mark:
        unit = np.stack([1 - unit[:, 2], unit[:, 1], 1 - unit[:, 0], unit[:, 3]], axis=1)
    size = torch.tensor([maps.shape[3], maps.shape[2]] * 2) * STRIDE
    seen = inputs_in_map(maps, torch.from_numpy(unit).float() * size, torch.arange(len(maps)), stride=STRIDE)
    return {name + mark: each for name, each in seen.items()}
