"""Small copies of AVA v2.2 and Charades: rendered videos under the official file formats, names and label maps.

    OUT/ava/annotations/   ava_{train,val}_v2.2.csv, the label map, included and excluded times
    OUT/ava/boxes/         ava_{train,val}_predicted_boxes.csv: predicted persons as they are published; objects.csv
    OUT/ava/videos/        films cut from second 900 on
    OUT/charades/          Charades_v1_{train,test}.csv, Charades_v1_classes.txt, videos/, boxes/objects.csv

The actions are those of Stage under AVA's and Charades' labels, so the paper's partition of the labels divides them
into Stage's three sets. Most labels never occur, as some do not in small parts of the real data. The files have the
oddities of the real ones: zero-padded times, names that begin with a dash, labels that are not evaluated, excluded
times, frames without boxes, a person drawn twice, empty label columns, intervals that end after their video, and a
video without actions.

    python -m examples.miniatures OUT
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mule.core.files import write_file
from mule.data.convert.ava_files import AVA_60
from mule.data.split.partition import CHARADES_Z1, CHARADES_Z2, CHARADES_Z3, NUM_CHARADES_CLASSES
from mule.data.table.table import OBJECT_COLUMNS
from mule.stage.classes import ACTIONS, stage_split
from mule.stage.plans import FRAME_RATE, Plan
from mule.stage.rendering import StageClip, render
from mule.stage.takes import TakeRecipe, plan_take
from mule.video.encode import VideoWriter

AVA_ID_OF = {
    **{"walk": 14, "squat": 3, "arm_circle": 4, "clap": 10, "carry_box": 17, "kick_ball": 9, "handshake": 22},
    **{"jump": 30, "bow": 36, "wave": 43, "punch": 34, "bounce_ball": 47, "push_box": 46, "pass_ball": 58},
    **{"run": 76, "sway": 77, "jacks": 67, "salute": 69, "juggle": 59, "overhead_lift": 73, "high_five": 68},
}
"""AVA's id of each action of Stage: each column of Stage lies in one set of the paper's partition."""
NOT_EVALUATED = 18
"""AVA's id of `catch (an object)`, which is annotated and not evaluated."""
FIRST_S = 900
"""Second of the film at which the videos start."""
LEAST_VISIBILITY = 0.3
CHARADES_COLUMNS = (
    *("id", "subject", "scene", "quality", "relevance", "verified"),
    *("script", "objects", "descriptions", "actions", "length"),
)


@dataclass(frozen=True)
class MiniatureSize:
    """How much is rendered."""

    train_videos: int = 10
    test_videos: int = 8
    seconds: int = 8
    rows: int = 96
    cols: int = 128
    seed: int = 0


def write_miniatures(out: Path, size: MiniatureSize = MiniatureSize()) -> None:  # noqa: B008 - frozen
    """Write both data sets."""
    write_ava(out / "ava", size)
    write_charades(out / "charades", size)


def write_ava(out: Path, size: MiniatureSize) -> None:
    """Write the miniature of AVA."""
    for folder in ("annotations", "boxes", "videos"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    annotations = out / "annotations"
    objects: list[Sequence[object]] = [OBJECT_COLUMNS]
    parts = {"train": range(size.train_videos), "val": range(100, 100 + size.test_videos)}
    for part, numbers in parts.items():
        rows: list[Sequence[object]] = []
        boxes: list[Sequence[object]] = []
        names = [_ava_name(number) for number in numbers]
        for number, name in zip(numbers, names, strict=True):
            clip = _rendered(_ava_plan(size, number), size, out / "videos" / f"{name}.mp4")
            rows += _ava_rows(name, clip, size)
            boxes += _predicted_boxes(name, clip, size, np.random.default_rng([size.seed, number]))
            objects += _object_rows(name, clip, size)
        excluded = (names[0], f"{FIRST_S + size.seconds - 3:04d}")
        rows += _odd_rows(rows, names[-1], excluded)
        _write_rows(annotations / f"ava_{part}_v2.2.csv", rows)
        _write_rows(annotations / f"ava_{part}_excluded_timestamps_v2.2.csv", [excluded])
        _write_rows(out / "boxes" / f"ava_{part}_predicted_boxes.csv", boxes)
    _write_rows(out / "boxes" / "objects.csv", objects)
    _write_rows(
        annotations / "ava_included_timestamps_v2.2.txt", [[f"{time:04d}"] for time in range(902, 1799)]
    )
    items = (f'item {{\n  name: "{name}"\n  id: {number}\n}}\n' for number, name in AVA_60.items())
    write_file(annotations / "ava_action_list_v2.2_for_activitynet_2019.pbtxt", "".join(items))


def write_charades(out: Path, size: MiniatureSize) -> None:
    """Write the miniature of Charades."""
    for folder in ("boxes", "videos"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    objects: list[Sequence[object]] = [OBJECT_COLUMNS]
    split = stage_split("A")
    number_of = {
        action: int(number)
        for actions, numbers in zip(
            (split.z1, split.z2, split.z3), (CHARADES_Z1, CHARADES_Z2, CHARADES_Z3), strict=True
        )
        for action, number in zip(actions, numbers.split(), strict=False)
    }
    parts = (("train", 200, 2 * size.train_videos), ("test", 300, 2 * size.test_videos))
    for part, first, count in parts:
        rows: list[Sequence[object]] = [CHARADES_COLUMNS]
        for number in range(first, first + count):
            name = f"{number:05X}".replace("0", "Z")
            plan = _charades_plan(size, number, shows_novel=part == "test" and number % 2 == 1)
            objects += _object_rows(name, _rendered(plan, size, out / "videos" / f"{name}.mp4"), size)
            actions = _intervals(plan, number_of, overhangs=number == first)
            rows.append(_charades_row(name, actions if number != first + 1 else "", size.seconds))
        _write_rows(out / f"Charades_v1_{part}.csv", rows, quoted=True)
    _write_rows(out / "boxes" / "objects.csv", objects)
    classes = (f"c{number:03d} Activity number {number}\n" for number in range(NUM_CHARADES_CLASSES))
    write_file(out / "Charades_v1_classes.txt", "".join(classes))


def _ava_name(number: int) -> str:
    """Names have eleven characters; one begins with a dash, as some of AVA's do."""
    return f"{'-' if number == 0 else 'm'}ini{number:07d}"


def _ava_plan(size: MiniatureSize, number: int) -> Plan:
    recipe = TakeRecipe(
        seconds=float(size.seconds), num_actors=3, seed=size.seed, aspect=size.cols / size.rows
    )
    return plan_take(recipe, number)


def _charades_plan(size: MiniatureSize, number: int, *, shows_novel: bool) -> Plan:
    """A video of known or of novel actions alone; every fifth shows both kinds."""
    split = stage_split("A")
    shown = tuple(ACTIONS) if number % 5 == 0 else split.novel if shows_novel else split.known
    alone = tuple(name for name in shown if ACTIONS[name].group != "pair")
    recipe = TakeRecipe(
        seconds=float(size.seconds),
        num_actors=1,
        classes=alone,
        seed=size.seed,
        aspect=size.cols / size.rows,
        stay_s=(1.5, 3.0),
    )
    return plan_take(recipe, number)


def _rendered(plan: Plan, size: MiniatureSize, path: Path) -> StageClip:
    clip = render(plan, (size.rows, size.cols))
    with VideoWriter(path, (size.rows, size.cols), FRAME_RATE) as video:
        video.write(clip.frames)
    return clip


def _key_seconds(size: MiniatureSize) -> range:
    """AVA's key times begin two seconds after the cut; one second of video must be left after the last."""
    return range(2, size.seconds)


def _ava_rows(name: str, clip: StageClip, size: MiniatureSize) -> list[Sequence[object]]:
    """One row per actor and action, boxes with three decimals."""
    rows: list[Sequence[object]] = []
    for second in _key_seconds(size):
        frame, time = second * FRAME_RATE, f"{FIRST_S + second:04d}"
        boxes, labels = clip.actor_boxes_xyxy_unit[frame], clip.labels(frame)
        for person, box in enumerate(boxes):
            if clip.visibility[frame, person] >= LEAST_VISIBILITY:
                corners = [f"{value:.3f}" for value in box]
                rows += [[name, time, *corners, AVA_ID_OF[action], person] for action in labels[person]]
    return rows


def _odd_rows(
    rows: Sequence[Sequence[object]], empty_video: str, excluded: tuple[str, str]
) -> list[Sequence[object]]:
    """Rows as the official files have them and a converter must handle."""
    first = [*rows[0]]
    again = [*first[:2], *(f"{float(str(value)) - 0.002:.3f}" for value in first[2:6]), *first[6:]]
    return [
        [*first[:6], NOT_EVALUATED, first[7]],
        [*again[:6], AVA_ID_OF["walk"], first[7]],  # the same person, drawn twice
        [*excluded, "0.100", "0.200", "0.500", "0.900", AVA_ID_OF["wave"], 9],
        [empty_video, f"{FIRST_S + 1:04d}"],  # a frame without boxes, at a time that is not included
    ]


def _predicted_boxes(
    name: str, clip: StageClip, size: MiniatureSize, rng: np.random.Generator
) -> list[Sequence[object]]:
    """Persons as a detector finds them: near the true boxes, some missed, some weak, and one that is nobody."""
    rows: list[Sequence[object]] = []
    for second in _key_seconds(size):
        frame = second * FRAME_RATE
        for person, box in enumerate(clip.actor_boxes_xyxy_unit[frame]):
            if clip.visibility[frame, person] < LEAST_VISIBILITY or rng.random() < 0.05:
                continue
            spread = 0.03 * np.tile(box[2:] - box[:2], 2)
            near = np.clip(box + rng.uniform(-spread, spread), 0, 1)
            score = rng.uniform(0.86, 0.999) if rng.random() < 0.9 else rng.uniform(0.5, 0.8)
            rows.append(_predicted_row(name, second, near, score))
        nobody = np.array([0.02, 0.02, 0.12, 0.2])
        rows.append(_predicted_row(name, second, nobody, rng.uniform(0.5, 0.95)))
    return rows


def _object_rows(name: str, clip: StageClip, size: MiniatureSize) -> list[Sequence[object]]:
    """The true boxes of objects at whole seconds, as a detector's table."""
    return [
        [name, second, *(f"{value:.4f}" for value in box), kind, "0.9"]
        for second in range(size.seconds)
        for kind, box, is_there in zip(
            clip.object_classes,
            clip.object_boxes_xyxy_unit[second * FRAME_RATE],
            clip.object_is_there[second * FRAME_RATE],
            strict=True,
        )
        if is_there and box[2] > box[0] and box[3] > box[1]
    ]


def _predicted_row(name: str, second: int, box: np.ndarray, score: float) -> Sequence[object]:
    corners = [f"{value:.3f}" for value in box]
    return [name, f"{FIRST_S + second:04d}", *corners, "", f"{score:.6f}"]


def _intervals(plan: Plan, number_of: dict[str, int], *, overhangs: bool) -> str:
    """The cell of actions, `c092 11.90 21.20;…`; the last interval may end after the video."""
    parts = [
        (number_of[action], part.start_s, part.end_s)
        for actor in plan.actors
        for part in actor.segments
        for action in part.actions
    ]
    length_s = plan.num_frames / FRAME_RATE
    inside = [
        (number, max(start, 0.0), min(end, length_s)) for number, start, end in parts if start < length_s
    ]
    if overhangs:
        inside[-1] = (*inside[-1][:2], length_s + 1.7)
    return ";".join(f"c{number:03d} {start:.2f} {end:.2f}" for number, start, end in inside if end > start)


def _charades_row(name: str, actions: str, seconds: int) -> Sequence[object]:
    script = "A person does one thing after another, then leaves."
    return [name, "MINI", "Stage", 7, 7, "Yes", script, "box;ball", "", actions, f"{float(seconds):.2f}"]


def _write_rows(path: Path, rows: Iterable[Sequence[object]], *, quoted: bool = False) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
        csv.writer(file, quoting=quoting, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    write_miniatures(Path(sys.argv[1]))
