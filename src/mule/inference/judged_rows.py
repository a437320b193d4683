"""From every row that a network saw to the rows that are judged: one for each box that is known or novel.

Boxes without a truth under the split are left out. Where several clips of one video show the same box, outputs, features
and evidence are their mean, so α and β are averaged as in the authors' multi-crop test.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evidence.fusion import along_tracks
from mule.inference.outputs import SideOutputs


def judged_rows(outputs: SideOutputs) -> SideOutputs:
    """Return one row for each judged box, and the clips that show one.

    Raises:
        RangeError: no box is judged.
    """
    if outputs.is_judged is not None:
        if not outputs.is_judged.any():
            raise RangeError(
                f"a side must have boxes of known or novel actors; none of its {outputs.num_actors} boxes is one under the "
                "split. `mule data split-report` counts why actors are left out."
            )
        outputs = _taken(outputs, np.flatnonzero(outputs.is_judged))
    return outputs if outputs.box_index is None else _over_clips(outputs, outputs.box_index)


def _taken(outputs: SideOutputs, rows: Int[np.ndarray, " taken"]) -> SideOutputs:
    """Return some rows with all that belongs to them, and the clips that show them."""
    at = torch.from_numpy(rows)
    clips, clip_index = np.unique(outputs.clip_index[rows], return_inverse=True)
    dropped, boxes = outputs.dropout_logits, outputs.box_index
    return replace(
        outputs,
        outputs=outputs.outputs[at],
        evidence=Evidence(outputs.evidence.positive[at], outputs.evidence.negative[at]),
        features=outputs.features[at],
        backbone_features=outputs.backbone_features[at],
        dropout_logits=None if dropped is None else dropped[:, at],
        labels=outputs.labels[rows],
        truth=outputs.truth.at(rows),
        clip_names=tuple(outputs.clip_names[clip] for clip in clips.tolist()),
        clip_index=clip_index,
        box_index=None if boxes is None else boxes[rows],
        is_judged=None,
    )


def _over_clips(outputs: SideOutputs, boxes: Int[np.ndarray, " rows"]) -> SideOutputs:
    """Return a row for each box, the mean over the clips that show it; its clip is the first."""
    _, first, number = np.unique(boxes, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[number]  # boxes in the order of their first rows
    index, num_boxes = torch.from_numpy(number), len(first)

    def mean(rows: torch.Tensor) -> torch.Tensor:
        return along_tracks(rows, index, num_tracks=num_boxes)

    dropped = outputs.dropout_logits
    return replace(
        _taken(outputs, np.sort(first)),
        outputs=mean(outputs.outputs),
        evidence=Evidence(mean(outputs.evidence.positive), mean(outputs.evidence.negative)),
        features=mean(outputs.features),
        backbone_features=mean(outputs.backbone_features),
        dropout_logits=None if dropped is None else mean(dropped.transpose(0, 1)).transpose(0, 1),
        box_index=None,
    )
