"""Films in three parts, reels of each part, and what every person in them is seen by: computed once, and kept.

films of J-HMDB ─┬─ train    acts (one labelled moment per clip), reels: examples of nothing, watched known people
                 ├─ develop  nothing
                 └─ report   reels: judged once
"""

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mule.core.text_rows import read_pairs
from mule.data.table.table import ActorTable
from mule.data.table.videos import find_videos, probe_videos
from mule.data.table.writing import write_actor_table
from mule.features.pooling import FeatureMaps
from mule.features.weights.card import NORMALISATIONS
from mule.features.weights.cards import find_card
from mule.features.weights.loading import load_backbone
from mule.model import SceneBoxes, inputs_in_map
from mule.video.clips import ClipShape, clip_window, exact
from mule.video.reading import read_clips, video_facts
from mule.video.sources import VideoFile
from mule.video.transforms import px_from_unit
from mule.watching.engine.bundle import ClipNeeds
from mule.watching.engine.finding import box_finder
from mule.watching.engine.looking import Looks, Sighting, looks_at
from studies.compose.composites import sources_of
from studies.convert.jhmdb import actors_from_jhmdb
from studies.reels.plans import ReelPlan, draw_reels, true_table
from studies.reels.videos import write_reel
from studies.seen.extract import LastMap

CARD = "i3d_rgb_kinetics400"
SHORT_SIDE_PX = 160
CLIP = ClipShape(num_frames=16, stride_frames=2, num_slow_frames=16)
"""About a second, with half the frames of `studies.seen` and a smaller picture: a third of the cost."""
EVERY_S = Fraction(1)
MOST_ACTS = 10
"""Labelled moments of each action to learn from."""
SHARES = {"train": 0.5, "develop": 0.15, "report": 0.35}
"""Of the films; nothing is made of those that develop."""
MINUTES = {"train": 8.0, "report": 30.0}
SEEDS = {"train": 1, "report": 3}
PEOPLE = "people.csv"
LABELLED_EVERY_S = Fraction(1, 5)


def part_of_films(films: list[str]) -> dict[str, str]:
    """Return the part of each film, drawn once."""
    order = np.random.default_rng(0).permutation(sorted(set(films)))
    ends = np.cumsum([round(share * len(order)) for share in SHARES.values()])
    starts = [0, *ends[:-1]]
    return {
        str(film): part
        for part, begin, end in zip(SHARES, starts, [*ends[:-1], len(order)], strict=True)
        for film in order[begin:end]
    }


def drawn_reels(jhmdb: Path, folder: Path) -> list[tuple[str, ReelPlan]]:
    """Draw the reels of each part and write who is in them; return them in the order in which they are looked at.

    The first three of training and the first three that report come first, so that an unfinished run can be used.
    """
    table, _ = actors_from_jhmdb(jhmdb)
    film = read_pairs(jhmdb / "videos.csv", "video", "source_group")
    part = part_of_films(list(film.values()))
    probed = probe_videos(find_videos(table.videos, jhmdb / "videos").paths)
    usable = sources_of(table, probed.readable).usable
    drawn: list[tuple[str, ReelPlan]] = []
    for name in MINUTES:
        own = [each for each in usable if part[film[each.video.name]] == name and table.has_box[each.row]]
        reels = draw_reels(own, minutes=MINUTES[name], seed=SEEDS[name])
        out = folder / name
        (out / "videos").mkdir(parents=True, exist_ok=True)
        lines = [
            f"{reel.name},person-{number},{visit.source.video.name}"
            for reel in reels
            for number, _, visit in reel.visits()
        ]
        (out / "sources.csv").write_text("\n".join(["reel,actor_id,source_video", *lines]) + "\n")
        write_actor_table(true_table(table, reels, every_s=LABELLED_EVERY_S), out / PEOPLE)
        drawn += [(name, reel) for reel in reels]
    return sorted(drawn, key=lambda each: int(Path(each[1].name).stem.split("-")[1]) > NUM_FIRST)


def reel_on_disk(folder: Path, part: str, reel: ReelPlan) -> Path:
    """Return the video of a reel, written if it is not there."""
    path = folder / part / "videos" / reel.name
    if not path.exists():
        write_reel(reel, path)
    return path


def _eyes(maps: FeatureMaps, boxes: SceneBoxes) -> dict[str, Tensor]:
    mean = maps.maps[0].mean(2).float()
    return inputs_in_map(mean, boxes.actors_xyxy_px.float(), boxes.actor_clip_index, stride=maps.stride)


def sighting(weights: Path) -> Sighting:
    """Return a frozen I3D, compiled in bfloat16, and what it shows of a person: `roi` and `frame`."""
    backbone = load_backbone(weights, find_card(CARD))
    last = LastMap(backbone)

    def run(clips: Tensor) -> FeatureMaps:
        return FeatureMaps((torch.stack([last(clip) for clip in clips]),), stride=backbone.stride)

    normalisation = NORMALISATIONS[find_card(CARD).clip.normalisation]
    return Sighting(ClipNeeds(CLIP, None, SHORT_SIDE_PX, 1, normalisation), run, _eyes)


def look_at_reels(
    jhmdb: Path, folder: Path, seeing: Sighting, detector: Path, *, until: float, noted: Callable[[str], None]
) -> int:
    """Look at the reels that nobody has looked at, until a time; return how many are left."""
    missing = [
        (part, reel)
        for part, reel in drawn_reels(jhmdb, folder)
        if not looks_file(folder, part, Path(reel.name).stem).exists()
    ]
    for done, (part, reel) in enumerate(missing):
        if time.monotonic() > until:
            return len(missing) - done
        started = time.monotonic()
        path = reel_on_disk(folder, part, reel)
        written = time.monotonic()
        looks = looks_at(VideoFile(path), seeing, box_finder(detector, path.stem), every_s=EVERY_S)
        _write_looks(looks_file(folder, part, path.stem), looks)
        noted(
            f"{part} {path.stem}: {len(looks)} looks, written in {written - started:.0f} s, looked at in "
            f"{time.monotonic() - written:.0f} s"
        )
    return 0


NUM_FIRST = 3


def looks_file(folder: Path, part: str, name: str) -> Path:
    """Return where the looks at a reel are kept."""
    return folder / part / "looks" / f"{name}.npz"


def _write_looks(path: Path, looks: Looks) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    growing = path.with_suffix(".part.npz")
    np.savez(
        growing,
        key_times_s=looks.key_times_s.numpy(),
        time_index=looks.time_index.numpy(),
        track_ids=looks.track_ids.numpy(),
        boxes=looks.boxes_xyxy_unit.numpy(),
        roi=looks.inputs["roi"].numpy().astype(np.float16) if len(looks) else np.zeros((0, 1024), np.float16),
        frame=looks.inputs["frame"].numpy().astype(np.float16)
        if len(looks)
        else np.zeros((0, 1024), np.float16),
    )
    growing.replace(path)


def read_looks(path: Path) -> Looks:
    """Read the looks at a reel."""
    with np.load(path) as file:
        times, index, tracks, boxes = (
            torch.from_numpy(file[name]) for name in ("key_times_s", "time_index", "track_ids", "boxes")
        )
        inputs = {name: torch.from_numpy(file[name].astype(np.float32)) for name in ("roi", "frame")}
        return Looks(times, index, tracks, boxes, inputs)


def acts_folder(folder: Path, part: str) -> Path:
    """Return where the looks at labelled moments are kept."""
    return folder / ("acts" if part == "train" else f"acts-{part}")


def look_at_acts(
    jhmdb: Path, folder: Path, part: str, seeing: Sighting, *, until: float, noted: Callable[[str], None]
) -> int:
    """Look at the labelled moments of the clips of a part, some of each action; return how many are left."""
    table, _ = actors_from_jhmdb(jhmdb)
    film = read_pairs(jhmdb / "videos.csv", "video", "source_group")
    part_of = part_of_films(list(film.values()))
    rows = [
        row
        for row, name in enumerate(table.video_names)
        if part_of[film[name]] == part and table.has_box[row]
    ]
    order = np.random.default_rng(0).permutation(rows)
    nth = {
        row: at
        for each in table.classes
        for at, row in enumerate(r for r in order.tolist() if table.labels[r, table.classes.index(each)])
    }
    rows = [row for row in rows if nth[row] < MOST_ACTS]
    place = acts_folder(folder, part)
    place.mkdir(parents=True, exist_ok=True)
    missing = [row for row in rows if not (place / f"{row:04d}.npz").exists()]
    for done, row in enumerate(missing):
        if time.monotonic() > until:
            return len(missing) - done
        seen = _seen(table, row, jhmdb / "videos", seeing)
        np.savez(place / f"{row:04d}.npz", roi=seen["roi"][0].numpy(), frame=seen["frame"][0].numpy())
        if done % 50 == 0:
            noted(f"acts of {part}: {done} of {len(missing)}")
    return 0


@torch.inference_mode()
def _seen(table: ActorTable, row: int, videos: Path, seeing: Sighting) -> dict[str, Tensor]:
    source = VideoFile(videos / table.video_names[row])
    rate = video_facts(source).frame_rate or Fraction(30)
    (clip,) = read_clips(source, [clip_window(exact(float(table.time_s[row])), CLIP, rate)])
    pixels = seeing.needs.pixels(clip.frames)
    unit = torch.from_numpy(table.boxes_xyxy_unit[row])[None]
    boxes = px_from_unit(unit, width_px=pixels.shape[4], height_px=pixels.shape[3])
    none = torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)
    return dict(
        seeing.eyes(seeing.backbone(pixels), SceneBoxes(boxes, torch.zeros(1, dtype=torch.int64), *none))
    )
