"""From a finished run to a bundle, and what became of it, in words."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import typer

from mule.cli import remember
from mule.cli.show_compare import experiment_of, noted
from mule.core.config import Experiment, StageData
from mule.core.files import sha256_of
from mule.inference.outputs import SideOutputs
from mule.inference.running import OutputsOf
from mule.inference.sides import TRAIN, VAL, key_frame
from mule.memory.building import calibrate
from mule.memory.pruning import prune
from mule.memory.taught import Remembered
from mule.training.run_folder import RunFolder
from mule.watching.engine.bundle import (
    SCENE_BOXES,
    BundleCard,
    BundleError,
    HeldOutOutputs,
    read_bundle,
    write_bundle,
)
from mule.watching.engine.judging import NO_TRACK
from mule.watching.engine.accumulating import thumbnail_name
from mule.watching.thumbnails import cut_out, png_bytes

USUAL_DETECTOR = "yolox_nano"


@dataclass(frozen=True)
class Wanted:
    """What is to be made of which run."""

    run_dir: Path
    out: Path
    name: str
    has_memory: bool
    share: float


def made(wanted: Wanted, settings: Sequence[str], *, has_pictures: bool) -> None:
    """Makes the bundle, reads it back, and says what it is."""
    if wanted.out.exists():
        raise BundleError(f"{wanted.out}: must not exist yet; it does. Choose another name, or remove it.")
    experiment = experiment_of(wanted.run_dir, settings)
    source = OutputsOf(wanted.run_dir, experiment)
    val = source.on(VAL, noted=noted)
    remembered = _remembered(wanted, settings, val)
    pictures: Mapping[str, bytes] = {}
    if remembered is not None and has_pictures:
        pictures = _pictures(remembered, source.on(TRAIN, noted=noted), experiment)
    held_out = held_out_outputs(val)
    write_bundle(
        wanted.out,
        wanted.run_dir,
        card=_card(wanted, experiment, val, num_held_out=len(held_out.outputs)),
        held_out=held_out,
        remembered=remembered,
        thumbnails=pictures,
    )
    _told(wanted.out)


def held_out_outputs(val: SideOutputs) -> HeldOutOutputs:
    """The known actors of a validation side; who was followed in a video is one track."""
    is_known = torch.from_numpy(val.does_known)
    tracks: dict[tuple[str, str], int] = {}
    track_index: list[int] = []
    clips = [val.clip_names[at] for at in val.clip_index.tolist()]
    for clip, actor_id in zip(clips, val.truth.actor_ids, strict=True):
        key = (clip.video, actor_id)
        track_index.append(tracks.setdefault(key, len(tracks)) if actor_id else NO_TRACK)
    return HeldOutOutputs(
        val.outputs[is_known].float(),
        val.remembered[is_known],
        torch.from_numpy(val.clip_index)[is_known],
        torch.tensor(track_index, dtype=torch.int64)[is_known],
        torch.from_numpy(val.labels)[is_known].float(),
    )


def _remembered(wanted: Wanted, settings: Sequence[str], val: SideOutputs) -> Remembered | None:
    if not wanted.has_memory:
        return None
    if val.kind not in ("tied", "read"):
        noted(f"a network whose evidence is {val.kind} has no memory; its novelty is PE of log alone")
        return None
    remembered = remember.from_run(wanted.run_dir, settings)
    if wanted.share == 1 or remembered.held_out is None:
        return remembered
    smaller = calibrate(prune(remembered.memory, share=wanted.share, seed=0), remembered.held_out)
    return Remembered(smaller, remembered.held_out)


def _card(wanted: Wanted, experiment: Experiment, val: SideOutputs, *, num_held_out: int) -> BundleCard:
    record = RunFolder(wanted.run_dir).record()
    best = record.get("progress", {}).get("best_mean_ap")
    weights = experiment.backbone.weights if experiment.backbone.frozen else None
    return BundleCard(
        name=wanted.name,
        weights_sha256=remember.fingerprint(wanted.run_dir),
        backbone_sha256=None if weights is None else sha256_of(weights),
        seed=experiment.seed,
        commit=record.get("sessions", [{}])[-1].get("git_commit"),
        data=record.get("data_digests", {}),
        tags=val.tags,
        metrics={
            **({} if best is None else {"validation_mean_ap": best}),
            "num_held_out_actors": float(num_held_out),
            "num_validation_actors": float(val.num_actors),
        },
        detector=SCENE_BOXES if isinstance(experiment.data, StageData) else USUAL_DETECTOR,
    )


def _pictures(remembered: Remembered, train: SideOutputs, experiment: Experiment) -> Mapping[str, bytes]:
    """A picture of every entry, cut out of the key frame of its clip."""
    places = remembered.memory.places
    position = {(clip.video, clip.key_time_s): at for at, clip in enumerate(train.clip_names)}
    found: dict[str, bytes] = {}
    for video, time_s, box in zip(
        places.videos(), places.time_s.tolist(), places.boxes_xyxy_unit.tolist(), strict=True
    ):
        at = position.get((video, time_s))
        if at is None:  # a whole video, or a place of its own
            continue
        x1, y1, x2, y2 = box
        image = key_frame(experiment, TRAIN, (at, train.clip_names[at]))
        found[thumbnail_name(video, time_s, (x1, y1, x2, y2))] = png_bytes(cut_out(image, (x1, y1, x2, y2)))
    return found


def _told(out: Path) -> None:
    found = read_bundle(out)
    remembered = found.judge.remembered
    scores = " and ".join(
        name if times == 1 else f"{name} ({times} times)"
        for name, times in Counter(found.judge.score_names).items()
    )
    size_mb = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    typer.echo(f"{out}: {len(found.classes)} actions, {size_mb:.1f} MB, weights {found.fingerprint}…")
    typer.echo(
        "no memory: novelty is PE of log, calibrated on held-out known actors"
        if remembered is None
        else f"memory of {len(remembered.memory)} entries; novelty is {scores}, by Fisher's rule"
    )
    typer.echo(
        f"calibrated on {found.usual.num_held_out} held-out known actors; over several looks: {found.usual.looks_rule}"
    )
    typer.echo(f"detector: {found.card.detector}; mule watch SOURCE --model {out}")
