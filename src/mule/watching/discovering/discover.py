"""What the novel people of watched folders do: groups with suggested names, from what watching kept.

folders ─▶ novel acts ─▶ whitened space of the model ─▶ groups by density ─▶ typical and doubtful members, names, times
"""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import MuleError
from mule.core.printable import printable
from mule.memory.taught import Remembered
from mule.novelty.crossfit import LABELS_INPUT
from mule.novelty.whitened import WhitenedCosine, joined_blocks
from mule.watching.discovering.acts import FEATURES, Act, Acts, novel_acts
from mule.watching.discovering.grouping import FEWEST, NO_GROUP, grouped
from mule.watching.discovering.groups import FoundGroup, FoundGroups, NovelAct, Suggestion
from mule.watching.engine.bundle import Bundle
from mule.watching.engine.kept import in_half
from mule.watching.moments import ModelFacts

MOST_SUGGESTED = 3
ACTS_AT_ONCE = 4096


def discover(watched: Sequence[Path], bundle: Bundle, *, fewest: int = FEWEST) -> FoundGroups:
    """Group the novel people in folders that `mule watch` left with this model.

    Args:
        watched: the folders.
        bundle: the model that watched, as it was when it decided (`mule decide` renews that).
        fewest: acts that a group has at least.

    Raises:
        MuleError: a folder keeps no looks, or those of another network; or scikit-learn is missing.
    """
    return group_acts(novel_acts(watched, bundle), bundle, fewest=fewest)


def group_acts(acts: Acts, bundle: Bundle, *, fewest: int = FEWEST) -> FoundGroups:
    """Group acts, and say what they resemble."""
    model = ModelFacts(name=printable(bundle.card.name), fingerprint=bundle.fingerprint)
    if not len(acts):
        return FoundGroups(model=model, groups=(), apart=())
    space, names = _space(bundle)
    blocks = (FEATURES,) if bundle.seen is None else bundle.seen.fitted.parts.blocks
    rows = _whitened(space, [acts.seen[name] for name in blocks])
    grouping = grouped(rows, fewest=fewest)
    known = rows @ space.prototypes.float().T
    labels, label_names = _labels(acts, bundle)
    found: list[tuple[list[int], list[NovelAct], list[Suggestion], list[Suggestion]]] = []
    for number in range(grouping.num_groups):
        members = torch.nonzero(grouping.groups == number).flatten()
        typical = rows[members] @ F.normalize(rows[members].mean(dim=0), dim=0)
        order = typical.argsort(descending=True, stable=True)
        places: list[int] = members[order].tolist()
        records = [
            _member(acts.acts[at], typical=value, sureness=float(grouping.sureness[at]))
            for at, value in zip(places, typical[order].tolist(), strict=True)
        ]
        found.append(
            (
                places,
                records,
                _suggested(labels, label_names, members),
                _suggested(known, names, members),
            )
        )
    found.sort(key=lambda each: -sum(act.num_looks for act in each[1]))
    apart = torch.nonzero(grouping.groups == NO_GROUP).flatten().tolist()
    return FoundGroups(
        model=model,
        groups=tuple(
            _group(number, [acts.acts[at] for at in places], records, suggestions, nearest)
            for number, (places, records, suggestions, nearest) in enumerate(found, start=1)
        ),
        apart=tuple(_member(acts.acts[at], typical=0.0, sureness=0.0) for at in apart),
    )


def _whitened(space: WhitenedCosine, blocks: Sequence[Tensor]) -> Float[Tensor, "acts dim"]:
    """Return acts in the space, some at a time: features in double precision would need several times the memory."""
    parts = zip(*(block.split(ACTS_AT_ONCE) for block in blocks), strict=True)
    return torch.cat([space.whitened(joined_blocks(part)).float() for part in parts])


def _space(bundle: Bundle) -> tuple[WhitenedCosine, tuple[str, ...]]:
    """Return the space in which people of one known action vary equally, and the names of the known actions."""
    if bundle.seen is not None:
        known = bundle.seen.known
        return bundle.seen.fitted.parts.whitened, (*known.actions, *known.idle)
    remembered = bundle.judge.remembered
    if remembered is None:
        raise MuleError(
            f"{bundle.folder}: to discover, a model must keep known actors or have a memory; it has neither. Build it again "
            "(`mule bundle --memory`)."
        )
    return _space_of_memory(remembered), tuple(remembered.memory.class_names)


def _space_of_memory(remembered: Remembered) -> WhitenedCosine:
    memory = remembered.memory
    return WhitenedCosine.fit(joined_blocks([in_half(memory.features)]), memory.labels > 0)


def _labels(acts: Acts, bundle: Bundle) -> tuple[Float[Tensor, "acts labels"] | None, tuple[str, ...]]:
    """Return the probability of each label of the backbone for each act, and their names, if both are known."""
    if bundle.eyes is None or bundle.eyes.classifier is None or not bundle.eyes.classifier.names:
        return None, ()
    roots = bundle.eyes.with_labels(acts.seen)[LABELS_INPUT]
    return roots.square(), bundle.eyes.classifier.names


def _suggested(
    shares: Float[Tensor, "acts names"] | None, names: Sequence[str], members: Int[Tensor, " members"]
) -> list[Suggestion]:
    if shares is None:
        return []
    mean = shares[members].mean(dim=0)
    best = mean.topk(min(MOST_SUGGESTED, len(mean)))
    return [
        Suggestion(name=printable(names[at]), share=min(1.0, max(-1.0, value)))
        for at, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _member(act: Act, *, typical: float, sureness: float) -> NovelAct:
    return NovelAct(
        watched=str(act.watched),
        video=act.video,
        track_id=act.track_id,
        begin_s=act.times_s[0],
        end_s=act.times_s[-1],
        num_looks=len(act.times_s),
        shown_s=act.times_s[act.strangest],
        box_xyxy_unit=act.boxes_xyxy_unit[act.strangest],
        typical=min(1.0, max(-1.0, typical)),
        sureness=min(1.0, max(0.0, sureness)),
    )


def _group(
    number: int,
    acts: Sequence[Act],
    members: Sequence[NovelAct],
    suggestions: Sequence[Suggestion],
    nearest: Sequence[Suggestion],
) -> FoundGroup:
    return FoundGroup(
        number=number,
        members=tuple(members),
        suggestions=tuple(suggestions),
        nearest=tuple(nearest),
        num_looks=sum(act.num_looks for act in members),
        num_videos=len({(act.watched, act.video) for act in acts}),
        num_people=len({(act.watched, act.track_id) for act in acts}),
        seconds=sum(act.end_s - act.begin_s for act in members),
    )
