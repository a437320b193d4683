"""What was seen, in the formats of annotation tools: COCO and KWCOCO, VIAME (DIVE) and CVAT for video.

See `labels` for what is said of an actor, and when.
"""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mule.data.table.writing import write_whole
from mule.watching.moments import Header, Moment, SeenActor, novelty_of
from mule.watching.outputs.cvat_xml import write_cvat
from mule.watching.outputs.labels import PERSON, Label, frame_number, labels_of, novel_label

_VIAME_COLUMNS = (
    "# 1: Detection or Track-id",
    "2: Video or Image Identifier",
    "3: Unique Frame Identifier",
    "4-7: Img-bbox(TL_x",
    "TL_y",
    "BR_x",
    "BR_y)",
    "8: Detection or Length Confidence",
    "9: Target Length (0 or -1 if invalid)",
    "10-11+: Repeated Species",
    "Confidence Pairs or Attributes",
)


def write_coco(path: Path, header: Header, moments: Iterable[Moment]) -> None:
    """COCO with videos, as KWCOCO and CocoVID read it: an image per key time, an annotation per actor and class.

    Annotations of one actor share `track_id`, and `score` is the class's probability or the novelty.
    """
    source = header.source
    names = list(dict.fromkeys((*header.classes, novel_label(header), PERSON)))
    category = {name: number for number, name in enumerate(names, start=1)}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    tracks: set[int] = set()
    for moment in moments:
        frame = frame_number(moment.key_time_s, header)
        image = {"id": len(images) + 1, "video_id": 1, "frame_index": frame, "time_s": moment.key_time_s}
        size = {"width": moment.cols, "height": moment.rows}
        images.append(image | size | {"name": f"frame {frame}", "file_name": None})
        for actor in moment.actors:
            tracks.add(actor.track_id)
            for label in labels_of(actor, header):
                number = {"id": len(annotations) + 1, "image_id": image["id"]}
                annotations.append(
                    number | {"category_id": category[label.name]} | _coco_actor(actor, header, label)
                )
    content = {
        "info": {"description": f"{source.video}, watched by {header.model.name}"},
        "videos": [_coco_video(header)],
        "categories": [{"id": number, "name": name} for name, number in category.items()],
        "tracks": [{"id": number, "name": f"actor {number}"} for number in sorted(tracks)],
        "images": images,
        "annotations": annotations,
    }
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    write_whole(path, lambda unfinished: unfinished.write_text(text + "\n", encoding="utf-8"))


def _coco_video(header: Header) -> dict[str, Any]:
    source = header.source
    size = {"width": source.cols, "height": source.rows}
    return {"id": 1, "name": source.video, "file_name": source.address, "fps": float(source.rate)} | size


def _coco_actor(actor: SeenActor, header: Header, label: Label) -> dict[str, Any]:
    x1, y1, x2, y2 = actor.box_xyxy_px
    novelty = actor.judged(header.threshold.view).novelty
    return {
        "track_id": actor.track_id,
        "bbox": [x1, y1, x2 - x1, y2 - y1],
        "area": (x2 - x1) * (y2 - y1),
        "iscrowd": 0,
        "score": label.confidence,
        "decision": actor.decision,
        "novelty": novelty_of(actor, header.threshold),
        "p_value": novelty.p_value,
    }


def write_viame(path: Path, header: Header, moments: Iterable[Moment]) -> None:
    """VIAME CSV, which DIVE opens: a row per actor and key time, classes with confidences, novelty as attributes."""

    def write(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(_VIAME_COLUMNS)
            rows.writerow(["# metadata", f"fps: {float(header.source.rate):.12g}", 'exported_by: "mule"'])
            for moment in moments:
                for actor in moment.actors:
                    rows.writerow(_viame_row(actor, moment, header))

    write_whole(path, write)


def _viame_row(actor: SeenActor, moment: Moment, header: Header) -> list[str]:
    labels = sorted(labels_of(actor, header), key=lambda label: -label.confidence)
    return [
        str(actor.track_id),
        moment.video,
        str(frame_number(moment.key_time_s, header)),
        *(f"{value:.3f}" for value in actor.box_xyxy_px),
        f"{actor.detection_score:.4f}",
        "-1",
        *(cell for label in labels for cell in (label.name, f"{label.confidence:.4f}")),
        f"(atr) decision {actor.decision}",
        f"(atr) novelty {novelty_of(actor, header.threshold):.6f}",
    ]


EXPORTS: dict[str, tuple[str, Callable[[Path, Header, Iterable[Moment]], None]]] = {
    "coco": ("coco.json", write_coco),
    "viame": ("viame.csv", write_viame),
    "cvat": ("cvat.xml", write_cvat),
}
"""By the name a user gives: the file and what writes it."""
