"""Build a memory, calibrate it, add to it, merge two, and forget an action."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.core.records import Evidence
from mule.evidence.head import exp_evidence
from mule.memory.memory import (
    NUM_NEIGHBOURS,
    EvidenceMemory,
    NeighbourKernel,
    Places,
    require_same_model,
    unit_features,
)
from mule.memory.opinion import best_evidence_scale
from mule.memory.search import EntrySearch, entry_scales, reach_of, weigh
from mule.memory.taught import HeldOut, apart_from

VIDEOS_SHOWN = 5


@dataclass(frozen=True)
class SeenActors:
    """Actors to remember: the features of each (`whole_features`), its actions, and where it was seen."""

    features: Float[Tensor, "actors dim"]
    labels: Shaped[Tensor, "actors classes"]
    places: Places
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """What each is seen by, where that decides about novelty (`mule.novelty.crossfit.Inputs`); else empty."""

    def __post_init__(self) -> None:
        if not len(self.features) == len(self.labels) == len(self.places):
            raise ShapeError(
                "features, labels and places must have one row per actor; got "
                f"{len(self.features)}, {len(self.labels)} and {len(self.places)}."
            )
        is_wrong = ~torch.isfinite(self.features).all(dim=1)
        if is_wrong.any():
            raise NotFinite(
                f"a remembered actor must have finite features; {int(is_wrong.sum())} of {len(self.features)} do not, the "
                f"first is actor {int(torch.nonzero(is_wrong)[0])}. Look for NaN in the network's outputs."
            )
        is_zero = self.features.abs().amax(dim=1) == 0 if self.features.numel() else torch.zeros(0)
        if is_zero.any():
            raise RangeError(
                f"a remembered actor must have a feature other than zeros; {int(is_zero.sum())} of "
                f"{len(self.features)} do not, the first is actor {int(torch.nonzero(is_zero)[0])}. The network outputs nothing "
                "for them: train it again."
            )

    def at(self, rows: Shaped[Tensor, " chosen"]) -> "SeenActors":
        """Return some of these actors."""
        inputs = {name: each[rows] for name, each in self.inputs.items()}
        return SeenActors(self.features[rows], self.labels[rows], self.places[rows], inputs)


def build_memory(
    actors: SeenActors,
    *,
    class_names: Sequence[str],
    model: str,
    num_neighbours: int = NUM_NEIGHBOURS,
    tags: Sequence[str] = (),
) -> EvidenceMemory:
    """Build a memory of training actors, seen without augmentation. Calibrate it before use."""
    kernel = NeighbourKernel(num_neighbours, typical_scale=1.0)  # measured below
    return _measured(_entries(actors, tuple(class_names), kernel, model, tuple(tags)))


def calibrate(memory: EvidenceMemory, held_out: HeldOut) -> EvidenceMemory:
    """Return the memory with ρ and S fitted on held-out known actors.

    The network's outputs are read as tied exponential evidence: e⁺ = e^h, e⁻ = e^−h.
    """
    require_same_model(memory.model, held_out.model, what="memory and held-out actors")
    missing = [name for name in memory.class_names if name not in held_out.class_names]
    if missing:
        raise RangeError(
            f"held-out actors must have outputs for every remembered action; {', '.join(missing)} have none."
        )
    columns = torch.tensor(
        [held_out.class_names.index(name) for name in memory.class_names], dtype=torch.int64
    )
    labels, outputs = held_out.labels[:, columns], held_out.outputs[:, columns]
    is_known = (labels[:, memory.is_action] > 0).any(dim=1)  # a forgotten action is no longer known
    features, labels, outputs = held_out.features[is_known], labels[is_known], outputs[is_known]
    # takes minutes for many entries, so it is made once
    search = EntrySearch(memory.features, memory.places.group_index)
    reach = reach_of(memory, features, search=search)
    kernel = replace(memory.kernel, reach=reach, evidence_scale=None)
    reached = replace(memory, kernel=kernel)
    network = Evidence(exp_evidence(outputs), exp_evidence(-outputs))
    weighed = weigh(reached, features, search=search)
    scale = best_evidence_scale(reached, weighed, network=network, labels=labels)
    return replace(reached, kernel=replace(kernel, evidence_scale=scale))


def add_actors(
    memory: EvidenceMemory, actors: SeenActors, *, held_out: HeldOut | None = None
) -> EvidenceMemory:
    """Return the memory with more actors of the same model and classes, measured again but not calibrated.

    Actors that are remembered already (same video, time and box) are left out, and so are those from videos
    of held-out actors (`apart_from`).
    """
    entries = _entries(actors, memory.class_names, memory.kernel, memory.model, memory.tags)
    return merge_memories(memory, entries, held_out=held_out)


def merge_memories(
    first: EvidenceMemory, second: EvidenceMemory, *, held_out: HeldOut | None = None
) -> EvidenceMemory:
    """Merge two memories, measured again but not calibrated.

    Entries of the second that the first has too (same video, time and box) are left out, and so are those
    from videos of held-out actors (`apart_from`). Both must know the same actions: nobody knows whether the
    actors of one memory do an action that only the other knows.
    """
    require_same_model(first.model, second.model, what="merged memories")
    if set(first.class_names) != set(second.class_names):
        only = [
            f"only the {which} knows {', '.join(name for name in ours if name not in theirs)}"
            for which, ours, theirs in (
                ("first", first.class_names, second.class_names),
                ("second", second.class_names, first.class_names),
            )
            if set(ours) - set(theirs)
        ]
        raise RangeError(
            f"merged memories must know the same actions; {' and '.join(only)}. Forget these actions in one memory, "
            "or teach them to the other."
        )
    columns = torch.tensor([second.class_names.index(name) for name in first.class_names], dtype=torch.int64)
    known_places = set(identities(first.places))
    is_new = torch.tensor([each not in known_places for each in identities(second.places)], dtype=torch.bool)
    is_new &= apart_from(held_out, second.places.videos())
    new = second.at(is_new)
    return _measured(
        replace(
            first,
            features=torch.cat([first.features, new.features]),
            labels=torch.cat([first.labels, new.labels[:, columns]]),
            counts=torch.cat([first.counts, new.counts]),
            scales=torch.cat([first.scales, new.scales]),
            places=joined_places(first.places, new.places),
        )
    )


def without_action(memory: EvidenceMemory, class_name: str) -> EvidenceMemory:
    """Return the memory without an action or tag, and without entries that did nothing else; not calibrated."""
    if class_name not in memory.class_names:
        raise RangeError(
            f"an action to forget must be remembered; got '{class_name}'. Remembered are {', '.join(memory.class_names)}."
        )
    kept = torch.tensor([name != class_name for name in memory.class_names], dtype=torch.bool)
    if not (kept & memory.is_action).any():
        raise RangeError(
            f"a memory must keep an action; '{class_name}' is the only one. Remove the file to remember nothing."
        )
    entries = memory.at((memory.labels[:, kept & memory.is_action] > 0).any(dim=1))
    names, tags = (
        tuple(name for name in some if name != class_name) for some in (memory.class_names, memory.tags)
    )
    return _measured(replace(entries, labels=entries.labels[:, kept], class_names=names, tags=tags))


def known_among(actors: SeenActors, memory: EvidenceMemory, *, source: object = "examples") -> SeenActors:
    """Return the actors that do a remembered action; a tag is none. Errors name the `source` of the actors."""
    is_known = (actors.labels[:, memory.is_action] > 0).any(dim=1)
    if not is_known.any():
        raise RangeError(
            f"{source}: some actors must do a remembered action; none of {len(is_known)} does. Teach new actions with `mule teach`."
        )
    return actors.at(is_known)


def usable_among(actors: SeenActors, held_out: HeldOut | None, *, source: object = "examples") -> SeenActors:
    """Return the actors from videos that no held-out actor is from (`apart_from`). Errors name their `source`."""
    is_apart = apart_from(held_out, actors.places.videos())
    if not is_apart.any():
        raise RangeError(
            f"{source}: some examples must be from videos without held-out actors; none of {len(is_apart)} is. Take them from other "
            "videos."
        )
    return actors.at(is_apart)


def left_out_sentence(held_out: HeldOut | None, videos: Sequence[str]) -> str | None:
    """Say which actors of these videos are left out because of held-out actors; None if there is nothing to say."""
    if held_out is None:
        return None
    if held_out.videos is None:
        return (
            "this memory does not say which videos its held-out actors are from. If the new actors share videos with them, "
            "more known actors will be flagged than promised. Build the memory again to keep the names of the videos."
        )
    is_apart = apart_from(held_out, videos).tolist()
    shared = sorted({video for video, apart in zip(videos, is_apart, strict=True) if not apart})
    if not shared:
        return None
    names = ", ".join(shared[:VIDEOS_SHOWN]) + (", …" if len(shared) > VIDEOS_SHOWN else "")
    return (
        f"{is_apart.count(False)} of {len(videos)} actors left out: held-out actors are from their videos ({names}). "
        "Remembering them would flag more known actors than promised. Rename videos that only share a name."
    )


def _require_known(actors: SeenActors) -> None:
    is_novel = ~(actors.labels > 0).any(dim=1)
    if is_novel.any():
        raise RangeError(
            f"remembered actors must do a known action; {int(is_novel.sum())} of {len(is_novel)} do none, the first is "
            f"actor {int(torch.nonzero(is_novel)[0])}. Leave them out, or teach what they do."
        )


def _entries(
    actors: SeenActors,
    class_names: tuple[str, ...],
    kernel: NeighbourKernel,
    model: str,
    tags: tuple[str, ...],
) -> EvidenceMemory:
    """Return a memory with an entry for each actor, whose scales are still to be measured."""
    _require_known(actors)
    ones = torch.ones(len(actors.labels))
    features, labels = unit_features(actors.features).float(), actors.labels.float()
    return EvidenceMemory(features, labels, ones, ones, actors.places, class_names, kernel, model, tags)


def _measured(memory: EvidenceMemory) -> EvidenceMemory:
    """Return the memory with the scales of its entries measured, not calibrated."""
    num_neighbours = memory.kernel.num_neighbours
    scales = entry_scales(memory.features, memory.places.group_index, num_neighbours=num_neighbours)
    typical = scales.median().item() if len(scales) else 1.0
    return replace(memory, scales=scales, kernel=NeighbourKernel(num_neighbours, typical))


def identities(places: Places) -> list[tuple[object, ...]]:
    """Return what identifies each actor: video, time and box."""
    return [
        (video, None if math.isnan(time_s) else time_s, *box)
        for video, time_s, box in zip(
            places.videos(), places.time_s.tolist(), places.boxes_xyxy_unit.tolist(), strict=True
        )
    ]


def joined_places(first: Places, second: Places) -> Places:
    """Return the places of both, the first ones first; the same name is the same video or group."""
    return Places.of(
        [*first.videos(), *second.videos()],
        torch.cat([first.time_s, second.time_s]),
        torch.cat([first.boxes_xyxy_unit, second.boxes_xyxy_unit]),
        groups=[*first.groups(), *second.groups()],
    )
