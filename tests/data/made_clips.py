"""Clips made of a seed: small noise frames, up to three actors and two objects each; some cannot be read."""

import time

import torch

from mule.core.errors import VideoError
from mule.data.batches.samples import ClipName, ClipSample

CLASSES = ("walk", "run", "wave", "carry")


def random_boxes(num, generator):
    """Boxes of at least a tenth of the frame."""
    low = torch.rand(num, 2, generator=generator) * 0.6
    return torch.cat([low, low + 0.1 + torch.rand(num, 2, generator=generator) * 0.3], dim=1)


def made_sample(position=0, *, size=(12, 16), num_frames=3, num_actors=None, num_objects=None):
    generator = torch.Generator().manual_seed(1000 + position)
    num_actors = position % 4 if num_actors is None else num_actors
    num_objects = position % 3 if num_objects is None else num_objects
    return ClipSample(
        name=ClipName(f"film{position // 4}", float(position)),
        frames=torch.randint(256, (num_frames, 3, *size), generator=generator, dtype=torch.uint8),
        actor_boxes_xyxy_unit=random_boxes(num_actors, generator),
        labels=torch.rand(num_actors, len(CLASSES), generator=generator) < 0.4,
        actor_ids=tuple(f"actor{i}" for i in range(num_actors)),
        object_boxes_xyxy_unit=random_boxes(num_objects, generator),
        object_class=torch.randint(80, (num_objects,), generator=generator),
        object_scores=torch.rand(num_objects, generator=generator),
        source_size=size,
    )


class MadeClips:
    """A data set in memory. `unreadable` positions never can be read, `flaky` ones only at the third try."""

    classes = CLASSES

    def __init__(self, num_clips=20, *, unreadable=(), flaky=(), delay_s=0.0, **settings):
        self.num_clips, self.unreadable, self.flaky = num_clips, set(unreadable), set(flaky)
        self.delay_s, self.settings = delay_s, settings
        self.tries = {}

    def __len__(self):
        return self.num_clips

    def name_of(self, position):
        return ClipName(f"film{position // 4}", float(position))

    def __getitem__(self, position):
        time.sleep(self.delay_s)
        self.tries[position] = self.tries.get(position, 0) + 1
        if position in self.unreadable or (position in self.flaky and self.tries[position] % 3):
            raise VideoError(f"film{position // 4}.mp4: cannot be opened.")
        return made_sample(position, **self.settings)
