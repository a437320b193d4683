"""How well the built-in model watches: rendered takes, watched like any video, compared with the truth."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from examples.builtin_takes import (
    SPLIT,
    Cast,
    Truth,
    matched,
    mixed_take,
    read_truth,
    write_take,
    write_truth,
)
from mule.evaluation.mean_ap import mean_average_precision
from mule.metrics import auroc
from mule.watching.engine.bundle import Bundle
from mule.watching.engine.watch import WatchSettings, open_watch
from mule.watching.moments import Judgement, Moment

SIZES = ((120, 160), (180, 240), (240, 320))
"""Takes alternate between these sizes."""


@dataclass(frozen=True)
class Look:
    """One actor at one key time: its judgement by this look and by all so far, and the truth."""

    probability: dict[str, float]
    p_value: float
    p_value_so_far: float
    is_flagged: bool
    num_looks: int
    actions: tuple[str, ...]
    is_novel: bool


@dataclass(frozen=True)
class Watched:
    """The result of watching some takes."""

    looks: tuple[Look, ...]
    num_there: int
    """Visible actors at key times."""
    num_found: int
    """Boxes the detector found at key times."""


def cast_of(seed: int, index: int, *, is_novel: bool, seconds: float = 20.0) -> Cast:
    """Two to four known actors and one or two others, novel on request: scenes are as crowded either way."""
    num_known, num_others = 2 + index % 3, 1 + index % 2
    if is_novel:
        return Cast(seed=seed, num_known=num_known, num_novel=num_others, seconds=seconds)
    return Cast(seed=seed, num_known=num_known + num_others, num_novel=0, seconds=seconds)


def takes(
    folder: Path, seed: int, indices: Iterable[int], *, is_novel: bool, seconds: float = 20.0
) -> Iterator[tuple[Path, Truth]]:
    """Render the takes of a seed one after another; existing ones are not rendered again."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in indices:
        path = folder / f"take_{seed}_{index:03d}.mp4"
        if not path.with_suffix(".json").exists():
            plan = mixed_take(cast_of(seed, index, is_novel=is_novel, seconds=seconds), index)
            write_truth(path.with_suffix(".json"), write_take(plan, path, SIZES[index % len(SIZES)]))
        yield path, read_truth(path.with_suffix(".json"))


def watched(bundle: Bundle, videos: Iterable[tuple[Path, Truth]]) -> Watched:
    """Watch takes and keep the judgements of actors that are really there."""
    settings = WatchSettings(min_probability=0.0, explains=False, every_s=bundle.card.every_s)
    looks: list[Look] = []
    num_there = num_found = 0
    for path, truth in videos:
        for moment in open_watch(path, bundle, settings=settings):
            looks += looks_of(moment, truth)
            num_found += len(moment.actors)
            num_there += len(truth.get(round(moment.key_time_s * 16), []))
    return Watched(tuple(looks), num_there, num_found)


def looks_of(moment: Moment, truth: Truth) -> Iterator[Look]:
    """Return the actors of a moment that are really there."""
    for seen, true in matched(moment, truth):
        yield Look(
            probability=_probability(seen.now),
            p_value=p_value_of(seen.now),
            p_value_so_far=p_value_of(seen.so_far),
            is_flagged=seen.decision == "novel",
            num_looks=seen.num_looks,
            actions=true.actions,
            is_novel=true.is_novel,
        )


def p_value_of(judgement: Judgement) -> float:
    """Return the share of known actors that look at least this strange."""
    found = judgement.novelty.p_value
    if found is None:
        raise AssertionError("whoever is watched with a bundle has a p-value")
    return found


def _probability(judgement: Judgement) -> dict[str, float]:
    return {action.action: action.probability for action in judgement.actions}


def metrics(found: Watched, *, alarm_rate: float = 0.05) -> dict[str, float]:
    """Return closed-set mAP, AUROC and flag rates, by one look and by all so far, and recall and precision of boxes."""
    looks = found.looks
    is_novel = np.array([look.is_novel for look in looks])
    now = np.array([look.p_value for look in looks])
    so_far = np.array([look.p_value_so_far for look in looks])
    flagged = np.array([look.is_flagged for look in looks])
    return {
        "closed_mean_ap": closed_mean_ap([look for look in looks if not look.is_novel]),
        "auroc_one_look": auroc(-now, is_novel),
        "auroc_so_far": auroc(-so_far, is_novel),
        "known_flagged_one_look": float((now[~is_novel] <= alarm_rate).mean()),
        "novel_flagged_one_look": float((now[is_novel] <= alarm_rate).mean()),
        "known_flagged": float(flagged[~is_novel].mean()),
        "novel_flagged": float(flagged[is_novel].mean()),
        "num_known_looks": float((~is_novel).sum()),
        "num_novel_looks": float(is_novel.sum()),
        "person_recall": len(looks) / max(found.num_there, 1),
        "person_precision": len(looks) / max(found.num_found, 1),
    }


def closed_mean_ap(looks: Sequence[Look]) -> float:
    """Return the mean average precision over known actions, of known actors by one look."""
    names = [name for name in SPLIT.known if any(name in look.actions for look in looks)]
    probability = np.array([[look.probability[name] for name in names] for look in looks])
    targets = np.array([[name in look.actions for name in names] for look in looks], dtype=np.float64)
    return float(mean_average_precision(probability, targets))
