"""Loaders of made-up clips, and the contents of their batches."""

from made_clips import MadeClips
from torch import Tensor

from mule.data.batches.batches import ClipSampler
from mule.data.batches.loading import ClipLoader, ReadAhead
from mule.data.batches.samples import ClipView, TrainingView

VIEW = TrainingView(short_sides_px=(12, 15), crop_px=10, brightness=0.2)


def loader_of(
    samples=None, *, num_workers=0, batch_clips=4, view: ClipView = VIEW, skip_rule=None, **sampler
):
    samples = MadeClips(14) if samples is None else samples
    return ClipLoader(
        samples,
        ClipSampler(len(samples), batch_clips, **sampler),
        view=view,
        read_ahead=ReadAhead(num_workers=num_workers),
        skip_rule=skip_rule,
    )


def contents(batch):
    """Everything in a batch, to the bit."""
    values = [*batch.pixels, *[v for name, v in vars(batch).items() if name != "pixels"]]
    return [(tuple(v.shape), v.numpy().tobytes()) if isinstance(v, Tensor) else v for v in values]


def epoch_of(loader):
    return [contents(batch) for batch in loader]
