"""The paper's visual comparison: the most disputed key frames of the test side under each method."""

from pathlib import Path

import numpy as np
from jaxtyping import Bool

from mule.comparison.sheets import Findings, FinishedRow
from mule.core.errors import RangeError
from mule.evaluation.drawing import write_figure
from mule.evaluation.pictures import Calls, FrameDecisions, KeyFrame, most_disputed, picture_grid
from mule.inference.outputs import SideOutputs
from mule.inference.results import kept_outputs, read_novelties
from mule.inference.sides import key_frame

TRUTH = "truth"
LIKELY = 0.5


def write_pictures(findings: Findings, side: str, path: Path, *, count: int = 4) -> list[str]:
    """The key frames on which methods disagree most, under each method and as they are in truth; their names.

    All methods of the first trial take part; each calls novel whom its score puts above the threshold that flags 5 % of
    the known actors of validation. Actions beside a box are those above even chance.

    Raises:
        RangeError: the methods were not judged on the same actors, or agree on every frame.
    """
    rows = [findings.of(method)[0] for method in findings.methods]
    outputs = [kept_outputs(each.row.folder, side) for each in rows]
    first = outputs[0]
    if any(not np.array_equal(each.clip_index, first.clip_index) for each in outputs):
        raise RangeError("a visual comparison needs methods judged on the same actors; these were not.")
    calls = np.stack([_called_novel(findings, each, side) for each in rows])
    members = [np.flatnonzero(first.clip_index == clip) for clip in range(len(first.clip_names))]
    decisions = [
        FrameDecisions(name.video, name.key_time_s, calls[:, actors])
        for name, actors in zip(first.clip_names, members, strict=True)
    ]
    chosen = most_disputed(decisions, count)
    if not chosen:
        raise RangeError("a visual comparison needs frames on which methods disagree; there are none.")
    row = rows[0].row
    frames: list[KeyFrame] = []
    for clip in chosen:
        name, actors = first.clip_names[clip], members[clip]
        shown = {TRUTH: _truth(first, actors)}
        for each, its, is_novel in zip(rows, outputs, calls[:, actors], strict=True):
            shown[each.method] = _calls(its, actors, is_novel)
        pixels = key_frame(row.experiment, side, (clip, name), test_clips=row.judging.test_clips)
        frames.append(KeyFrame(Path(name.video).name, name.key_time_s, pixels, shown))
    write_figure(picture_grid(frames, [TRUTH, *findings.methods]), path)
    return [str(first.clip_names[clip]) for clip in chosen]


def _called_novel(findings: Findings, each: FinishedRow, side: str) -> Bool[np.ndarray, " actors"]:
    score = findings.judged_by[each.method]
    return read_novelties(each.row.folder, side)[score] > each.results[side].scores[score].threshold


def _truth(outputs: SideOutputs, actors: np.ndarray) -> Calls:
    truth = outputs.truth
    return Calls(
        truth.boxes_xyxy_unit[actors].clip(0, 1),
        tuple(
            tuple(truth.classes[at] for at in np.flatnonzero(truth.labels[actor]))
            for actor in actors.tolist()
        ),
        truth.is_novel[actors],
    )


def _calls(outputs: SideOutputs, actors: np.ndarray, is_called_novel: Bool[np.ndarray, " actors"]) -> Calls:
    likely = outputs.probability[actors] > LIKELY
    labels = [
        () if is_novel else tuple(outputs.classes[at] for at in np.flatnonzero(does))
        for does, is_novel in zip(likely, is_called_novel.tolist(), strict=True)
    ]
    return Calls(
        outputs.truth.boxes_xyxy_unit[actors].clip(0, 1),
        tuple(labels),
        is_called_novel,
        is_right=is_called_novel == outputs.truth.is_novel[actors],
    )
