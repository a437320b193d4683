"""Decide again from what watching kept, without the video: after teaching, forgetting, another threshold or calibration.

    looks.bin ─▶ `judged_looks` ─▶ looks along tracks ─▶ moments.jsonl, as `mule watch` with the model would have written it

Everything is the same to the last digits of a float but who or what contributed: others are not left out again. A contributor
stays where the likeliest action is the same as before, and is left out elsewhere.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from mule.core.errors import AnnotationError
from mule.core.locks import only_writer
from mule.core.printable import printable
from mule.watching.engine.accumulating import Counting, TrackLooks, forget_after_s
from mule.watching.engine.bundle import Bundle
from mule.watching.engine.judging import Judgements
from mule.watching.engine.kept import KeptLooks, KeptMoment
from mule.watching.engine.recognising import judged_looks
from mule.watching.engine.telling import Telling, Told
from mule.watching.engine.watch import WatchSettings
from mule.watching.moments import Contributor, Header, ModelFacts, Moment
from mule.watching.outputs.looks_file import LooksFile, looks_file
from mule.watching.outputs.moments_file import MOMENTS, MomentsFile
from mule.watching.outputs.results import write_decided
from mule.watching.outputs.summary import Summary

AT_ONCE = 256
"""Key times that are judged together."""


@dataclass(frozen=True)
class DecideSettings:
    """What may differ from the watch; None keeps what the folder has."""

    threshold: str | None = None
    min_probability: float | None = None
    most_looks: int = WatchSettings.most_looks


def decide_again(
    watched: Path,
    bundle: Bundle,
    settings: DecideSettings = DecideSettings(),  # noqa: B008 - frozen
) -> Summary:
    """Replace the moments in a folder that `mule watch` left, and what is made of them without the video.

    Raises:
        MuleError: the folder keeps no looks, or those of a network with other weights.
        FolderInUseError: another process writes into the folder.
    """
    with only_writer(watched):
        header = header_of(MomentsFile(watched / MOMENTS).header, bundle, settings)
        moments = list(decided(looks_file(watched), bundle, header, most_looks=settings.most_looks))
        return write_decided(watched, header, moments)


def header_of(earlier: Header, bundle: Bundle, settings: DecideSettings) -> Header:
    """Return the header that a watch with this model and these settings has."""
    chosen = WatchSettings(
        every_s=earlier.every_s,
        threshold=settings.threshold or earlier.threshold.name,
        min_probability=earlier.min_probability
        if settings.min_probability is None
        else settings.min_probability,
    )
    changed = {
        "model": ModelFacts(name=printable(bundle.card.name), fingerprint=bundle.fingerprint),
        "classes": bundle.classes,
        "threshold": bundle.usual.threshold(chosen.threshold),
        "min_probability": chosen.min_probability,
    }
    return earlier.model_copy(update=changed)


def decided(looks: LooksFile, bundle: Bundle, header: Header, *, most_looks: int) -> Iterator[Moment]:
    """Yield the moments again, as this model decides them.

    Raises:
        MuleError: the looks are those of other weights.
    """
    _require_weights(looks, bundle)
    telling = Telling.by(bundle, header)
    along = TrackLooks(bundle.usual, len(bundle.classes), most_looks=most_looks)
    rest = iter(looks)
    while kept := list(islice(rest, AT_ONCE)):
        judged = judged_looks(bundle, KeptLooks.joined([each.looks for each in kept]))
        contributors = _contributors(kept, judged.likeliest, before=looks.classes, now=bundle.classes)
        with _one_thread():
            so_far = _along_tracks(kept, judged.now, along, header)
            told = Told(judged.now, so_far, judged.remembered, contributors)
            moments = telling.moments([each.place for each in kept], told)
        yield from moments


def _along_tracks(
    kept: Sequence[KeptMoment], now: Judgements, along: TrackLooks, header: Header
) -> Judgements:
    """Return what all looks at each track say together up to each of these key times."""
    counting: list[Counting] = []
    end = 0
    for each in kept:
        begin, end = end, end + len(each.place)
        looked = along.remember(
            each.place.track_ids.tolist(),
            now.at(slice(begin, end)),
            key_time_s=each.place.key_time_s,
            forget_after_s=forget_after_s(header.every_s),
        )
        counting.append(looked)
    return along.together(counting, idle=now.idle)


@contextmanager
def _one_thread() -> Generator[None]:
    """Use one core for the length of the context: steps of microseconds would wait for the threads of others."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _contributors(
    kept: Sequence[KeptMoment], likeliest: Tensor, *, before: Sequence[str], now: Sequence[str]
) -> list[Contributor | None]:
    """Return who contributed most, where it was asked about the action that is likeliest now."""
    earlier = [before[at] for each in kept for at in each.likeliest.tolist()]
    told = [each for moment in kept for each in moment.contributors]
    return [
        each if action == now[at] else None
        for each, action, at in zip(told, earlier, likeliest.tolist(), strict=True)
    ]


def _require_weights(looks: LooksFile, bundle: Bundle) -> None:
    if looks.weights_sha256 != bundle.card.weights_sha256:
        raise AnnotationError(
            f"{looks.path}: must be the looks of the network {bundle.fingerprint}, which '{bundle.card.name}' has; they are those of "
            f"{looks.weights_sha256[:12]}. Take a model that was taught or calibrated from the one that watched, or watch again."
        )
    blocks = () if bundle.seen is None else bundle.seen.fitted.parts.blocks
    if not set(blocks) <= looks.inputs.keys():
        raise AnnotationError(
            f"{looks.path}: must say what people are seen by ({', '.join(blocks)}); it has "
            f"{', '.join(looks.inputs) or 'nothing of that'}. Watch again with this model."
        )
