"""Make a bundle of a finished run: its weights, a memory of its training actors, and a calibration.

training actors ────────────▶ memory, and a picture of each if wanted
known validation actors ────▶ calibration: how novel known people look
known actors of both ───────▶ what decides where the backbone is frozen (`mule.novelty.crossfit`)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mule.api.calibrating import calibrated_by_watching
from mule.api.memories import model_fingerprint, remember_run
from mule.core.errors import TooFewActors
from mule.core.files import sha256_of
from mule.core.progress import counted
from mule.core.settings import Experiment, StageData, TableData
from mule.detection.tracks import NO_TRACK
from mule.inference.flagged import WITHOUT_MEMORY
from mule.inference.outputs import SideOutputs
from mule.inference.running import OutputsOf
from mule.inference.seen import SEEN_SCORE, known_actors
from mule.inference.sides import TRAIN, VAL, key_frame
from mule.memory.building import calibrate
from mule.memory.pruning import prune_memory
from mule.memory.taught import Remembered
from mule.novelty.combining import DECIDING_SCORE
from mule.training.data import Noted
from mule.training.run_folder import RunFolder, experiment_of
from mule.watching.engine.bundle import (
    SCENE_BOXES,
    Bundle,
    BundleCard,
    BundleContents,
    BundleError,
    HeldOutOutputs,
    own_detector_name,
    write_bundle,
)
from mule.watching.engine.seen import SeenModel
from mule.watching.engine.telling import thumbnail_name
from mule.watching.engine.usual import usual_of
from mule.watching.thumbnails import cut_out_person, png_bytes

RECOMMENDED_DETECTOR = "yolox_nano"
CALIBRATED_EVERY_S = 1.0
"""Seconds between key times; a bundle is watched with as it was calibrated."""


@dataclass(frozen=True)
class BundlePlan:
    """Which run to bundle, where, and what to put in."""

    run_dir: Path
    out: Path
    name: str
    has_memory: bool = True
    memory_share: float = 1.0
    """Share of the memory's entries to keep; 0.1 loses little."""
    has_pictures: bool = False
    """Whether to keep a small picture of every remembered actor."""
    detector: str | Path = RECOMMENDED_DETECTOR
    """Finds people while the bundle is calibrated and when it watches: a name, or a file, which is put in."""
    watches: bool = True
    """Whether to calibrate by watching, where what people are seen by decides."""


def make_bundle(plan: BundlePlan, settings: Sequence[str] = (), *, noted: Noted = lambda _: None) -> Bundle:
    """Make a bundle of a finished run and read it back; settings say where its data lies now (`data.root=DIR`)."""
    if plan.out.exists():
        raise BundleError(f"{plan.out}: must not exist yet; it does. Choose another name, or remove it.")
    experiment = experiment_of(plan.run_dir, settings)
    outputs = OutputsOf(plan.run_dir, experiment)
    val = outputs.on(VAL, noted=noted)
    seen = seen_model(lambda: outputs.on(TRAIN, noted=noted), val, noted=noted)
    figures = None
    if seen is not None and plan.watches:
        seen, figures = calibrated_by_watching(
            seen,
            plan.run_dir,
            experiment,
            detector=plan.detector,
            every_s=CALIBRATED_EVERY_S,
            is_complete=isinstance(experiment.data, TableData) and experiment.data.complete,
            noted=noted,
        )
    remembered = _remembered(plan, settings, val, noted)
    pictures: Mapping[str, bytes] = {}
    if remembered is not None and plan.has_pictures:
        pictures = _pictures(remembered, outputs.on(TRAIN, noted=noted), experiment)
    held_out = held_out_outputs(val)
    return write_bundle(
        plan.out,
        plan.run_dir,
        card=_card(plan, experiment, val, num_held_out=len(held_out.outputs)).model_copy(
            update={"decides_by": _decides_by(seen, remembered), "watched": figures}
        ),
        contents=BundleContents(held_out, remembered, pictures, seen, _own_detector(plan)),
    )


def seen_model(train: Callable[[], SideOutputs], val: SideOutputs, *, noted: Noted) -> SeenModel | None:
    """Fit what decides with a frozen backbone to all known actors; None, with a sentence, where they are too few."""
    if not val.inputs:
        return None
    try:
        seen = SeenModel.of(known_actors([train(), val]))
        usual_of(seen.fitted)
    except TooFewActors as error:
        noted(
            f"what people are seen by cannot decide who is novel: {error} The network's evidence and the memory decide, as "
            "without a frozen backbone."
        )
        return None
    return seen


def _decides_by(seen: SeenModel | None, remembered: Remembered | None) -> str:
    if seen is not None:
        return SEEN_SCORE
    return WITHOUT_MEMORY if remembered is None else DECIDING_SCORE


def held_out_outputs(val: SideOutputs) -> HeldOutOutputs:
    """Return the known actors of a validation side; an actor with the same id in one video is one track."""
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


def _remembered(
    plan: BundlePlan, settings: Sequence[str], val: SideOutputs, noted: Noted
) -> Remembered | None:
    if not plan.has_memory:
        return None
    if val.kind not in ("tied", "read"):
        noted(
            f"no memory: it needs one output per action, and this network's evidence is {val.kind}; novelty rests on the "
            "network's evidence alone"
        )
        return None
    remembered = remember_run(plan.run_dir, settings, noted=noted)
    if plan.memory_share == 1 or remembered.held_out is None:
        return remembered
    smaller = prune_memory(remembered.memory, share=plan.memory_share, seed=0)
    return Remembered(calibrate(smaller, remembered.held_out), remembered.held_out)


def _card(plan: BundlePlan, experiment: Experiment, val: SideOutputs, *, num_held_out: int) -> BundleCard:
    record = RunFolder(plan.run_dir).record()
    best = record.get("progress", {}).get("best_mean_ap")
    weights = experiment.backbone.weights if experiment.backbone.frozen else None
    return BundleCard(
        name=plan.name,
        weights_sha256=model_fingerprint(plan.run_dir),
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
        every_s=CALIBRATED_EVERY_S,
        detector=_detector_name(plan, experiment),
    )


def _detector_name(plan: BundlePlan, experiment: Experiment) -> str:
    own = _own_detector(plan)
    if own is not None:
        return own_detector_name(own)
    return SCENE_BOXES if isinstance(experiment.data, StageData) else str(plan.detector)


def _own_detector(plan: BundlePlan) -> Path | None:
    return plan.detector if isinstance(plan.detector, Path) else None


def _pictures(remembered: Remembered, train: SideOutputs, experiment: Experiment) -> Mapping[str, bytes]:
    """Cut a picture of every remembered actor out of the key frame of its clip."""
    places = remembered.memory.places
    position = {(clip.video, clip.key_time_s): at for at, clip in enumerate(train.clip_names)}
    pictures: dict[str, bytes] = {}
    rows = zip(places.videos(), places.time_s.tolist(), places.boxes_xyxy_unit.tolist(), strict=True)
    for video, time_s, box in counted(list(rows), "cutting out pictures"):
        at = position.get((video, time_s))
        if at is None:  # an actor of a whole video has no key frame
            continue
        x1, y1, x2, y2 = box
        image = key_frame(experiment, TRAIN, (at, train.clip_names[at]))
        name = thumbnail_name(video, time_s, (x1, y1, x2, y2))
        pictures[name] = png_bytes(cut_out_person(image, (x1, y1, x2, y2)))
    return pictures
