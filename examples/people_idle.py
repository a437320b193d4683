"""People who do nothing in particular, for the model `people`.

    standing by    CAVIAR's labels say who is inactive, and when; a look counts if the person is so through the whole of it
    still          a frame of J-HMDB shown again and again: whoever is in it does not move

People in CAVIAR are small (20 to 50 pixels); those below a twelfth of the frame are left out.
EC Funded CAVIAR project/IST 2001 37540.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from mule.data.table.table import ActorTable
from mule.features.extraction import frozen_backbone
from mule.features.pooling import context_map
from mule.features.weights.cards import find_card
from mule.features.weights.classifier import LabelClassifier
from mule.features.weights.loading import weights_on_disk
from mule.model import inputs_in_map, with_labels
from mule.novelty.crossfit import Inputs
from mule.runtime.openvino import compiled_frozen
from mule.video.clips import ClipShape, clip_window, exact
from mule.video.person_crops import CROP_PX, cut_square, person_square
from mule.video.reading import read_clips, video_facts
from mule.video.sources import video_source
from mule.video.transforms import normalised
from mule.watching.engine.showing import box_in_square

STANDING, STILL = "standing by", "still"
LABEL = "movement:inactive"
EVERY_S, HALF_S, LEAST_HEIGHT = 1.0, 0.5, 0.08
MOST = 20
LOOK = ClipShape(32, 1, num_slow_frames=32)
STRIDE = 32


class IdleLook(NamedTuple):
    """A moment at which a person is inactive, before and after too."""

    video: str
    time_s: float
    box_xyxy_unit: tuple[float, ...]
    kind: str = STANDING


def idle_looks(caviar: Path) -> list[IdleLook]:
    """Return looks at inactive people, at equal steps over all there are."""
    looks = list(_looks(caviar / "labels.csv"))
    if len(looks) <= MOST:
        return looks
    return [looks[round(at)] for at in torch.linspace(0, len(looks) - 1, MOST).tolist()]


def _looks(labels: Path) -> Iterator[IdleLook]:
    times: dict[tuple[str, str], dict[float, tuple[float, ...]]] = defaultdict(dict)
    with labels.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["action"] == LABEL:
                box = tuple(float(row[name]) for name in ("x1", "y1", "x2", "y2"))
                times[row["video"], row["person_id"]][float(row["time_s"])] = box
    for (video, _), boxes in sorted(times.items()):
        last_s = -EVERY_S
        for time_s in sorted(boxes):
            around = [each for each in boxes if abs(each - time_s) <= HALF_S]
            is_whole = min(around) <= time_s - HALF_S + 0.05 and max(around) >= time_s + HALF_S - 0.05
            is_tall = boxes[time_s][3] - boxes[time_s][1] >= LEAST_HEIGHT
            if is_whole and is_tall and time_s >= last_s + EVERY_S:
                last_s = time_s
                yield IdleLook(video, time_s, boxes[time_s])


def still_looks(table: ActorTable, taught: Iterable[str]) -> list[IdleLook]:
    """Return the key frames of some taught clips, at equal steps: shown 32 times over, nobody in them moves."""
    names, kept = set(taught), []
    for row in range(len(table)):
        video = table.videos[table.video_index[row]]
        if video in names and table.has_box[row]:
            kept.append(
                IdleLook(video, float(table.time_s[row]), tuple(table.boxes_xyxy_unit[row].tolist()), STILL)
            )
    return [kept[round(at)] for at in torch.linspace(0, len(kept) - 1, MOST).tolist()]


def idle_inputs(looks: Sequence[tuple[Path, IdleLook]], classifier: LabelClassifier) -> Inputs:
    """Return what idle people are seen by; each look comes with the folder of its video, and costs a pass of the backbone."""
    weights, card = weights_on_disk("i3d_rgb_kinetics400", None)
    backbone = compiled_frozen(frozen_backbone(weights, card or find_card("i3d_rgb_kinetics400")))
    maps: list[torch.Tensor] = []
    boxes: list[torch.Tensor] = []
    for folder, look in looks:
        source = video_source(folder / look.video)
        facts = video_facts(source)
        (clip,) = read_clips(source, [clip_window(exact(look.time_s), LOOK, facts.frame_rate)])
        frames = clip.frames
        if look.kind == STILL:
            frames = frames[len(frames) // 2][None].expand(len(frames), -1, -1, -1)
        rows, cols = frames.shape[2:]
        box = torch.tensor(look.box_xyxy_unit) * torch.tensor([cols, rows, cols, rows])
        square = person_square(box, rows, cols)
        seen = normalised(cut_square(frames, square, CROP_PX), backbone.recipe.normalisation)[None]
        maps.append(context_map(backbone.features(seen)).float())
        boxes.append(box_in_square(box[None], [square]))
    found = inputs_in_map(torch.cat(maps), torch.cat(boxes), torch.arange(len(looks)), stride=STRIDE)
    return with_labels(found, classifier)
