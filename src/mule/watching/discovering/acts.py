"""Novel acts in watched folders: looks at one person that belong together become one row.

moments.jsonl ─▶ who was novel when ─┐
looks.bin ─▶ what was seen of them ──┴─▶ acts: looks at one track, at most `MOST_GAP_S` apart ─▶ mean of the inputs
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import AnnotationError
from mule.watching.engine.bundle import Bundle
from mule.watching.engine.kept import KeptMoment
from mule.watching.moments import SeenActor
from mule.watching.outputs.looks_file import looks_file
from mule.watching.outputs.moments_file import MOMENTS, MomentsFile

MOST_GAP_S = 2.0
"""Novel looks at one person belong to one act unless they are further apart."""


@dataclass(frozen=True)
class Act:
    """Novel looks at one person in a row."""

    watched: Path
    video: str
    track_id: int
    times_s: tuple[float, ...]
    boxes_xyxy_unit: tuple[tuple[float, float, float, float], ...]
    strangest: int
    """The look that is most novel, a place among the times."""


@dataclass
class _Growing:
    """An act to which looks are still added."""

    times_s: list[float]
    actors: list[SeenActor]
    sums: dict[str, Tensor]


@dataclass(frozen=True)
class Acts:
    """Novel acts, and the mean of what was seen in each, one row each."""

    acts: tuple[Act, ...]
    seen: dict[str, Float[Tensor, "acts _dim"]]

    def __len__(self) -> int:
        """Return the number of acts."""
        return len(self.acts)

    @property
    def num_looks(self) -> int:
        """The number of looks in all acts."""
        return sum(len(act.times_s) for act in self.acts)


def novel_acts(watched: Sequence[Path], bundle: Bundle) -> Acts:
    """Return the novel acts in folders that `mule watch` left with this model.

    Raises:
        AnnotationError: a folder keeps no looks, or those of another network.
    """
    acts: list[Act] = []
    sums: list[dict[str, Tensor]] = []
    for folder in watched:
        for act, total in _acts_in(folder, bundle):
            acts.append(act)
            sums.append({name: each / len(act.times_s) for name, each in total.items()})
    names = sums[0] if sums else {}
    return Acts(tuple(acts), {name: torch.stack([each[name] for each in sums]) for name in names})


def _acts_in(folder: Path, bundle: Bundle) -> list[tuple[Act, dict[str, Tensor]]]:
    looks, moments = looks_file(folder), MomentsFile(folder / MOMENTS)
    if looks.weights_sha256 != bundle.card.weights_sha256:
        raise AnnotationError(
            f"{looks.path}: must be the looks of the network {bundle.fingerprint}; they are those of "
            f"{looks.weights_sha256[:12]}. Take the model that watched."
        )
    growing: dict[int, _Growing] = {}
    done: list[tuple[Act, dict[str, Tensor]]] = []
    video = moments.header.source.video
    for moment, kept in zip(moments, looks, strict=False):  # a kill may leave looks without their moment
        if moment.key_time_s != kept.place.key_time_s:
            raise AnnotationError(
                f"{looks.path}: must have the key times of {MOMENTS}; it has {kept.place.key_time_s:g} s where that has "
                f"{moment.key_time_s:g} s. Decide again (`mule decide`), or watch again."
            )
        for number in [n for n, act in growing.items() if moment.key_time_s - act.times_s[-1] > MOST_GAP_S]:
            done.append(_finished(folder, video, number, growing.pop(number)))
        rows = [row for row, actor in enumerate(moment.actors) if actor.is_novel]
        if rows:
            seen = _shown(kept, rows)
            for at, row in enumerate(rows):
                _grow(growing, moment.actors[row], moment.key_time_s, {n: e[at] for n, e in seen.items()})
    done += [_finished(folder, video, number, act) for number, act in growing.items()]
    return sorted(done, key=lambda each: each[0].times_s[0])


def _shown(kept: KeptMoment, rows: Sequence[int]) -> dict[str, Tensor]:
    """Return what was seen of some people; where network and memory decide, what a memory keeps of them."""
    some = kept.looks.at(torch.tensor(rows))
    return some.seen or {FEATURES: some.features}


FEATURES = "features"
"""Stands for the inputs where network and memory decide."""


def _grow(growing: dict[int, _Growing], actor: SeenActor, time_s: float, seen: dict[str, Tensor]) -> None:
    act = growing.setdefault(actor.track_id, _Growing([], [], {}))
    act.times_s.append(time_s)
    act.actors.append(actor)
    act.sums = {name: each + act.sums.get(name, 0) for name, each in seen.items()}


def _finished(folder: Path, video: str, number: int, act: _Growing) -> tuple[Act, dict[str, Tensor]]:
    p_values = [actor.so_far.novelty.p_value or 0.0 for actor in act.actors]
    boxes = tuple(actor.box_xyxy_unit for actor in act.actors)
    strangest = min(range(len(p_values)), key=p_values.__getitem__)
    return Act(folder, video, number, tuple(act.times_s), boxes, strangest), act.sums
