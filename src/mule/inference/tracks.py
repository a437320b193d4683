"""Judge all looks at an actor together: one row per track, from all of its looks or the first few.

    look      one actor at one key time
    track     the looks at one actor of one video, as long as it stays known or stays novel
    evidence  fused along the track (`evidence/fusion.py`): many looks are surer than one
    rivals    the mean of the looks' outputs and features, so they see the same looks

A track of one look equals that look. Scores learn from single looks, of which there are many; thresholds and
p-values come from held-out tracks with the same number of looks.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evidence.fusion import along_tracks, fused_evidence, is_among_first_looks, sums_along_tracks
from mule.inference.outputs import SideOutputs
from mule.inference.sides import ActorTruth

By = Literal["look", "track"]


def by_track(outputs: SideOutputs, *, most_looks: int | None = None) -> SideOutputs:
    """The same outputs with one row per track.

    A track has every label that one of its looks has; its clip and box are those of the first look. The
    number of looks does not change which tracks there are; a shorter track uses all its looks.

    Args:
        outputs: one row per look.
        most_looks: use only the first so many looks of each track, by time; None uses all.

    Raises:
        RangeError: some rows have no actor_id, so their looks cannot be grouped.
    """
    if not all(outputs.truth.actor_ids):
        raise RangeError(
            "evaluating tracks needs an actor_id in every row of the table; some rows have none. Evaluate looks instead."
        )
    time_s = np.array([outputs.clip_names[clip].key_time_s for clip in outputs.clip_index.tolist()])
    order = np.argsort(time_s, kind="stable")
    track = _tracks(outputs)[order]
    if most_looks is not None:
        is_taken = is_among_first_looks(torch.from_numpy(track), most_looks).numpy()
        order, track = order[is_taken], track[is_taken]
    return _fused(outputs, order, track)


def _tracks(outputs: SideOutputs) -> Int[np.ndarray, " looks"]:
    """The track number of each look, in the order of rows."""
    truth = outputs.truth
    who = zip(outputs.video_index.tolist(), truth.actor_ids, truth.is_novel.tolist(), strict=True)
    numbers: dict[tuple[int, str, bool], int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in who], dtype=np.int64)


def _fused(
    outputs: SideOutputs, order: Int[np.ndarray, " looks"], track: Int[np.ndarray, " looks"]
) -> SideOutputs:
    rows, tracks = torch.from_numpy(order), torch.from_numpy(track)
    _, first = np.unique(track, return_index=True)
    num, earliest = len(first), order[first]
    looks = Evidence(outputs.evidence.positive[rows], outputs.evidence.negative[rows])
    dropped = outputs.dropout_logits
    if dropped is not None:
        dropped = along_tracks(dropped[:, rows].transpose(0, 1), tracks, num_tracks=num).transpose(0, 1)
    return replace(
        outputs,
        outputs=along_tracks(outputs.outputs[rows], tracks, num_tracks=num),
        evidence=fused_evidence(sums_along_tracks(looks, tracks, num_tracks=num)),
        features=along_tracks(outputs.features[rows], tracks, num_tracks=num),
        backbone_features=along_tracks(outputs.backbone_features[rows], tracks, num_tracks=num),
        dropout_logits=dropped,
        labels=_any(outputs.labels[order], track, num),
        truth=_of_tracks(outputs.truth, order, track, earliest),
        clip_index=outputs.clip_index[earliest],
        inputs={
            name: along_tracks(each[rows], tracks, num_tracks=num) for name, each in outputs.inputs.items()
        },
    )


def _of_tracks(
    truth: ActorTruth,
    order: Int[np.ndarray, " looks"],
    track: Int[np.ndarray, " looks"],
    earliest: Int[np.ndarray, " tracks"],
) -> ActorTruth:
    return replace(
        truth,
        labels=_any(truth.labels[order], track, len(earliest)),
        is_novel=truth.is_novel[earliest],
        boxes_xyxy_unit=truth.boxes_xyxy_unit[earliest],
        actor_ids=tuple(truth.actor_ids[row] for row in earliest.tolist()),
    )


def _any(labels: np.ndarray, track: Int[np.ndarray, " looks"], num_tracks: int) -> np.ndarray:
    of_track = np.zeros((num_tracks, labels.shape[1]), dtype=bool)
    np.logical_or.at(of_track, track, labels)
    return of_track
