"""The boxes that a side shows to the network: true actors or detected persons, with what is true of each.

    true        the actors that the split uses on this side
    detected    every detected person in the annotated frames of this side; a match with a true actor gives it its truth

A person without a match, or matched with an actor that the split leaves out, is seen but not judged: neither known nor
novel. The official closed-set metrics count everyone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from mule.core.config import ConfigError
from mule.core.errors import RangeError, TooFewActors
from mule.core.settings import TableData
from mule.data.batches.video_clips import ClipObjects
from mule.data.convert.origin import read_origin
from mule.data.split.matching import (
    NOBODY,
    DetectedPersons,
    boxes_for_testing,
    boxes_for_training,
    persons_in_clips,
    persons_of_score,
)
from mule.data.split.sides import OpenSetSides
from mule.data.split.splits import Split, listed
from mule.data.table.ava_boxes import is_ava_boxes
from mule.data.table.reading import read_object_table
from mule.data.table.table import ActorTable, ObjectTable, joined_tables


@dataclass(frozen=True)
class DetectionCounts:
    """How many true actors of a side the detector lost, and how many detections match nobody."""

    num_known: int
    num_known_lost: int
    num_novel: int
    num_novel_lost: int
    num_detections: int
    num_unmatched: int


@dataclass(frozen=True)
class SideBoxes:
    """The boxes of a side, in rows as the network sees them."""

    actors: ActorTable
    is_novel: Bool[np.ndarray, " rows"]
    is_judged: Bool[np.ndarray, " rows"]
    """False for persons without a truth under the split."""
    annotated: ActorTable
    """The ground truth of the official metrics: every actor of the side's videos, or those judged on true boxes."""
    counts: DetectionCounts | None = None
    """None where boxes are not detected, or labels are of clips."""


@dataclass(frozen=True)
class TableSides:
    """The table of an experiment under its split, with the paths of its videos, and its objects."""

    table: ActorTable
    """The whole table, whichever side its rows are on."""
    sides: OpenSetSides
    train_actors: ActorTable
    """The actors of the training side, and detected persons who overlap them."""
    split: Split
    videos: Mapping[str, Path]
    """The files of training and validation."""
    objects: ClipObjects | None
    persons: ObjectTable | None
    data: TableData
    digests: Mapping[str, str]

    @cached_property
    def val_boxes(self) -> SideBoxes:
        """The boxes of validation, with what is true of each."""
        return judged_boxes("val", self)

    @cached_property
    def test_boxes(self) -> SideBoxes:
        """The boxes of the test, with what is true of each."""
        return judged_boxes("test", self)

    @cached_property
    def train_boxes(self) -> SideBoxes:
        """The actors of training that scores learn from: those of the split, or the persons in their clips."""
        of_clips = self.data.labels_of == "clips"
        actors = self.train_actors if of_clips else self.sides.train.actors
        is_novel = np.zeros(len(actors), dtype=bool)
        return SideBoxes(actors, is_novel, ~is_novel, actors)

    def boxes(self, side: str) -> SideBoxes:
        """Return the boxes of train, val or test."""
        if side == "train":
            return self.train_boxes
        return self.val_boxes if side == "val" else self.test_boxes

    @cached_property
    def val_actors(self) -> ActorTable:
        """The boxes that training validates on: those of validation that have a truth."""
        return self.val_boxes.actors.at(self.val_boxes.is_judged)

    def require_trainable(self, *, noted: Callable[[str], None]) -> None:
        """Require actors to train and validate on, and note taught actions that nobody does in training.

        Raises:
            TooFewActors: a side is empty.
        """
        for side, actors in (("training", self.train_actors), ("validation", self.val_actors)):
            if not len(actors):
                raise TooFewActors(
                    f"{self.split.name}: a split must have {side} actors to train with; it has none. "
                    + ("Draw some: `mule data split … --val-share 0.15`." if side == "validation" else "")
                )
        taught = self.split.classes.known_train
        labels = self.train_actors.labels_of(taught)
        unseen = [name for at, name in enumerate(taught) if not labels[:, at].any()]
        if unseen:
            noted(
                f"{len(unseen)} of {len(taught)} taught actions have no training actor: {listed(unseen)}. Their outputs "
                "learn from other actors that they are not done; their average precision is undefined."
            )


def read_persons(path: Path, *, beside: Path) -> ObjectTable:
    """Read detected persons: a table of objects, or a published AVA file as it is.

    Args:
        path: the file.
        beside: the table of actors; its origin says at which published time the videos start.
    """
    persons, origin = read_object_table(path), read_origin(beside)
    if origin is None or path.suffix.lower() != ".csv" or not is_ava_boxes(path):
        return persons
    return replace(persons, time_s=persons.time_s - origin.starts_at_s)


def require_persons(data: TableData) -> None:
    """Require a table of persons if persons are to be judged.

    Raises:
        ConfigError: there is none.
    """
    if data.test_boxes == "detected" and data.persons is None:
        raise ConfigError(
            "data.persons must name a table of detected persons where data.test_boxes is 'detected'; it is not set. Add "
            "--set data.persons=FILE, or judge true boxes: --set data.test_boxes=true."
        )


def training_actors(actors: ActorTable, data: TableData, persons: ObjectTable | None) -> ActorTable:
    """Return the actors to train on: those of the split, and detected persons who overlap them or are in their clip."""
    if persons is None:
        return actors
    if data.labels_of == "clips":
        return persons_in_clips(actors, persons, min_score=data.person_score)[0]
    return boxes_for_training(actors, persons, min_score=data.person_score, take=data.person_labels).actors


def judged_boxes(side: str, of: "TableSides") -> SideBoxes:
    """Return the boxes of validation or test.

    Raises:
        RangeError: no detected person is in an annotated frame.
    """
    data, table, persons = of.data, of.table, of.persons
    actors, rows, is_novel = of.sides.judged(side)
    if data.test_boxes == "true" or persons is None:
        return SideBoxes(actors, is_novel, np.ones(len(rows), dtype=bool), actors)
    on_side = _rows_in(table, getattr(of.split.videos, side))
    kind = np.full(len(table), NOBODY)
    kind[rows] = is_novel
    annotated, kind = table.at(on_side), kind[on_side]
    if data.labels_of == "clips":
        actors, row = persons_in_clips(annotated, persons, min_score=data.test_person_score)
        return SideBoxes(actors, kind[row] == 1, kind[row] != NOBODY, annotated)
    found = boxes_for_testing(annotated, persons, min_score=data.test_person_score)
    if annotated.has_box.any() and not len(found.truth_row):
        raise RangeError(
            f"{data.persons}: some persons of score {data.test_person_score:g} or more must be in the annotated frames of "
            f"{side}; none is. Are its times and videos named as in {data.actors}? `mule data from-ava` keeps beside the "
            "table at which second its videos start."
        )
    whole = np.flatnonzero(~annotated.has_box)  # a row about the whole frame needs no detection
    row = np.concatenate([found.truth_row, whole])
    of_row = np.where(row == NOBODY, NOBODY, kind[row])
    actors = joined_tables([found.actors, annotated.at(whole)])
    counts = _counts(found, kind[annotated.has_box], of_row[: len(found.truth_row)])
    return SideBoxes(actors, of_row == 1, of_row != NOBODY, annotated, counts)


def persons_of_videos(side: str, data: TableData, persons: ObjectTable | None) -> ClipObjects | None:
    """Return the persons that are the actors of clips drawn from whole videos; None where the frame is the actor."""
    is_used = side == "train" or data.test_boxes == "detected"
    if persons is None or data.labels_of != "clips" or not is_used:
        return None
    kept = persons_of_score(persons, data.person_score if side == "train" else data.test_person_score)
    return ClipObjects(kept, most=max(len(kept), 1))


def _rows_in(table: ActorTable, videos: Iterable[str]) -> Int[np.ndarray, " rows"]:
    names = set(videos)
    is_in = np.array([video in names for video in table.videos], dtype=bool)
    return np.flatnonzero(is_in[table.video_index])


def _counts(
    found: DetectedPersons, kind: Int[np.ndarray, " boxes"], found_kind: Int[np.ndarray, " persons"]
) -> DetectionCounts:
    """Count from the kind of each true box and of each detection: 0 is known, 1 novel, -1 not judged."""
    known, novel = (int(np.count_nonzero(kind == each)) for each in (0, 1))
    found_known, found_novel = (int(np.count_nonzero(found_kind == each)) for each in (0, 1))
    return DetectionCounts(
        num_known=known,
        num_known_lost=known - found_known,
        num_novel=novel,
        num_novel_lost=novel - found_novel,
        num_detections=len(found.truth_row),
        num_unmatched=int(np.count_nonzero(found.truth_row == NOBODY)),
    )
