"""Which rows of AVA speak of one actor: the same person, at the same time, in the same place."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from mule.core.text_rows import numbered
from mule.detection.boxes import iou_matrix

SAME_BOX_IOU = 0.9
"""Boxes of one person at one time that overlap as much are one box, drawn twice."""


class Actors(NamedTuple):
    """The actors of some rows, in the order of their first rows."""

    first_row: Int[np.ndarray, " actors"]
    of_row: Int[np.ndarray, " rows"]
    names: list[str]


def actors_of(
    frame: Int[np.ndarray, " rows"],
    persons: list[str],
    boxes: Float[np.ndarray, "rows 4"],
    noted: Counter[str],
) -> Actors:
    """The actors of rows with a frame number, a person (empty where unknown) and a box; oddities are counted.

    Boxes of one person in one frame that overlap by at least `SAME_BOX_IOU` are one, the first. A person in two
    places in one frame is two actors, `17 (1)` and `17 (2)`. Two persons in one box are two actors. Where the person
    is unknown, equal boxes in one frame are one actor.
    """
    columns = np.column_stack([frame, numbered(persons, {}), boxes])
    distinct, first, number = distinct_rows(columns)
    names = [persons[i] for i in first.tolist()]
    leader = np.arange(len(distinct))
    is_new = (distinct[1:, :2] != distinct[:-1, :2]).any(axis=1)
    for group in np.split(np.arange(len(distinct)), np.flatnonzero(is_new) + 1):
        if len(group) > 1 and names[group[0]]:
            group = group[np.argsort(first[group])]
            leader[group] = group[_leaders(distinct[group, 2:])]
            places = list(dict.fromkeys(leader[group].tolist()))
            if len(places) > 1:
                noted["persons_in_two_places_at_one_time"] += 1
                for at, place in enumerate(places, start=1):
                    names[place] += f" ({at})"
    noted["boxes_moved_to_the_first_of_the_person"] = int((leader[number] != number).sum())
    leaders = np.unique(leader)
    leaders = leaders[np.argsort(first[leaders])]
    num_places = len(distinct_rows(distinct[leaders][:, [0, 2, 3, 4, 5]])[0])
    noted["boxes_shared_by_two_persons"] = len(leaders) - num_places
    rank = np.zeros(len(distinct), dtype=np.int64)
    rank[leaders] = np.arange(len(leaders))
    return Actors(first[leaders], rank[leader[number]], [names[i] for i in leaders.tolist()])


def distinct_rows(
    columns: Float[np.ndarray, "rows columns"],
) -> tuple[Float[np.ndarray, "distinct columns"], Int[np.ndarray, " distinct"], Int[np.ndarray, " rows"]]:
    """The distinct rows in sorted order, where each is first, and which of them each row is."""
    order = np.lexsort(columns.T[::-1])  # stable: equal rows keep their order
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (columns[order][1:] != columns[order][:-1]).any(axis=1)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(is_new) - 1
    return columns[order[is_new]], order[is_new], number


def _leaders(boxes: Float[np.ndarray, "boxes 4"]) -> list[int]:
    """For each box the first one it is a repetition of; itself, if of none."""
    iou = iou_matrix(torch.from_numpy(boxes), torch.from_numpy(boxes)).numpy()
    leader: list[int] = []
    for at in range(len(boxes)):
        earlier = [i for i in range(at) if leader[i] == i and iou[at, i] >= SAME_BOX_IOU]
        leader.append(earlier[0] if earlier else at)
    return leader
