"""The model that follows from a review: new actions taught, known ones with more examples, idle people learnt.

    review ─▶ looks of its acts ─▶ examples ─┬─ of new actions ──▶ taught, in the memory
                                             ├─ of known actions ▶ entries of the memory, and known people who decide
                                             ╰─ of idle people ──▶ known people who decide

The bundle is never written over: every review makes a folder of its own.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mule.core.errors import AnnotationError, RangeError
from mule.core.locks import new_folder
from mule.core.manifest import write_sealed
from mule.core.printable import printable
from mule.memory.building import SeenActors, add_actors, left_out_sentence, usable_among
from mule.memory.files import write_memory
from mule.memory.memory import Places
from mule.memory.taught import Remembered
from mule.memory.teaching import recalibrated, teach_action
from mule.watching.engine.bundle import MEMORY, Bundle, read_bundle
from mule.watching.engine.kept import KeptMoment
from mule.watching.engine.recognising import judged_looks
from mule.watching.engine.seen import SEEN, SeenModel, read_seen, write_seen
from mule.watching.outputs.looks_file import looks_file
from mule.watching.outputs.moments_file import MOMENTS, MomentsFile
from mule.watching.reviewing.log import Review, WatchedAct

LOOKS_EACH = 3
"""Examples from one act: more of them look alike."""
IDLE = "idle"
"""The kind of idleness that a review teaches."""


@dataclass(frozen=True)
class Applied:
    """The bundle that was made, and how many examples went into it."""

    bundle: Bundle
    examples: dict[str, int]


def apply_review(
    review: Review, bundle: Bundle, out: Path, *, noted: Callable[[str], None] = lambda _: None
) -> Applied:
    """Make a bundle that has learnt what a review says.

    Raises:
        RangeError: nothing is named, the bundle has no memory, or a name cannot be taught.
        AnnotationError: an act is not among the looks that were kept.
        FileError: the folder exists.
    """
    named = review.named()
    idle = review.marked("idle")
    if not named and not idle:
        raise RangeError("a review must name an action or mark somebody as idle; this one does neither.")
    remembered = bundle.judge.remembered
    if remembered is None:
        raise RangeError(
            f"{bundle.folder}: a model must have a memory to learn actions; this one has none. Make it with `mule bundle "
            "--memory`."
        )
    examples = {action: _examples(members, bundle) for action, members in named.items()}
    taught_idle = _examples(idle, bundle) if idle else None
    for action, actors in examples.items():
        remembered = _learnt(remembered, action, actors, noted=noted)
    with new_folder(out) as parts, tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(bundle.folder, parts, dirs_exist_ok=True)
        write_memory(Path(scratch) / MEMORY, remembered)
        contents = {MEMORY: (Path(scratch) / MEMORY).read_bytes()}
        if bundle.seen is not None:
            seen = _seen_with(bundle, {n: e for n, e in examples.items() if n in bundle.classes}, taught_idle)
            if seen is not None:
                write_seen(Path(scratch) / SEEN, seen, weights_sha256=bundle.card.weights_sha256)
                contents[SEEN] = (Path(scratch) / SEEN).read_bytes()
        write_sealed(parts, contents)
        made = replace(read_bundle(parts), folder=out)
    counts = {action: len(actors.features) for action, actors in examples.items()}
    return Applied(made, counts if taught_idle is None else {**counts, IDLE: len(taught_idle.features)})


def _learnt(
    remembered: Remembered, action: str, actors: SeenActors, *, noted: Callable[[str], None]
) -> Remembered:
    """Return the memory with examples of an action, new or known."""
    sentence = left_out_sentence(remembered.held_out, actors.places.videos())
    if sentence is not None:
        noted(sentence)
    actors = usable_among(actors, remembered.held_out, source=f"examples of '{action}'")
    names = remembered.memory.class_names
    labels = torch.zeros(len(actors.features), len(names))
    if action not in names:
        return teach_action(remembered, replace(actors, labels=labels), class_name=action)
    if action in {each.name for each in remembered.taught}:
        raise RangeError(
            f"'{action}' was taught before, so examples cannot be added to it. Apply the review to the model as it was before, "
            "or forget the action first."
        )
    labels[:, names.index(action)] = 1
    return recalibrated(remembered, add_actors(remembered.memory, replace(actors, labels=labels)))


def _seen_with(bundle: Bundle, more: dict[str, SeenActors], idle: SeenActors | None) -> SeenModel | None:
    """Return the known people who decide, with more examples; None if there are none."""
    if not more and idle is None:
        return None
    before = read_seen(bundle.folder / SEEN, weights_sha256=bundle.card.weights_sha256)
    known = before.known
    for action, actors in more.items():
        known = known.with_examples([action] * len(actors.features), actors.inputs, actors.places.videos())
    if idle is not None:
        known = known.with_idle([IDLE] * len(idle.features), idle.inputs, idle.places.videos())
    fitted = (
        known.fitted()
    )  # −log p of a look means the same as before, so what was watched still calibrates it
    return SeenModel(known, replace(fitted, watched=before.fitted.watched))


def _examples(members: Sequence[WatchedAct], bundle: Bundle) -> SeenActors:
    """Return some looks of each act as actors to learn from, without labels."""
    kept: list[tuple[str, KeptMoment, int]] = []
    for folder in dict.fromkeys(member.watched for member in members):
        wanted = [member for member in members if member.watched == folder]
        kept += _looks_of(Path(folder), wanted, bundle)
    looks = [moment.looks.at(torch.tensor([row])) for _, moment, row in kept]
    joined = type(looks[0]).joined(looks)
    seen = {} if bundle.eyes is None else dict(bundle.eyes.with_labels(joined.seen))
    boxes = [
        moment.place.boxes_xyxy_px[row] / torch.tensor([moment.place.cols, moment.place.rows] * 2)
        for _, moment, row in kept
    ]
    places = Places.of(
        [video for video, _, _ in kept],
        torch.tensor([moment.place.key_time_s for _, moment, _ in kept], dtype=torch.float64),
        torch.stack(boxes).clamp(0, 1),
    )
    features = judged_looks(bundle, joined).features
    return SeenActors(features, torch.zeros(len(kept), 0), places, seen)


def _looks_of(
    folder: Path, members: Sequence[WatchedAct], bundle: Bundle
) -> list[tuple[str, KeptMoment, int]]:
    """Return up to `LOOKS_EACH` looks of each act in a folder, at equal steps."""
    file = looks_file(folder)
    if file.weights_sha256 != bundle.card.weights_sha256:
        raise AnnotationError(
            f"{file.path}: must be the looks of the network {bundle.fingerprint}; they are those of {file.weights_sha256[:12]}."
        )
    video = printable(MomentsFile(folder / MOMENTS).header.source.video)
    found: dict[WatchedAct, list[tuple[str, KeptMoment, int]]] = {member: [] for member in members}
    for moment in file:
        tracks: list[int] = moment.place.track_ids.tolist()
        for member, looks in found.items():
            if member.begin_s <= moment.place.key_time_s <= member.end_s and member.track_id in tracks:
                looks.append((video, moment, tracks.index(member.track_id)))
    for member, looks in found.items():
        if not looks:
            raise AnnotationError(
                f"{file.path}: must have person {member.track_id} from {member.begin_s:g} s to {member.end_s:g} s, whom the "
                "review names; it has not. Review the folder as it is now."
            )
    return [look for looks in found.values() for look in _spread(looks)]


def _spread(looks: list[tuple[str, KeptMoment, int]]) -> list[tuple[str, KeptMoment, int]]:
    if len(looks) <= LOOKS_EACH:
        return looks
    return [looks[round(at * (len(looks) - 1) / (LOOKS_EACH - 1))] for at in range(LOOKS_EACH)]
