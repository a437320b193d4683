"""A fingerprint of the benchmark: if it changes, pixels changed, and with them the version must."""

import hashlib

import numpy as np

from mule.stage.benchmark import StageSet
from mule.stage.rendering import StageClip

STAGE_1_SHA256 = "20004187b9d0908e5619fcb330e3e7dbd4f38b4905315a2ba1da76cd33fd6c9e"
"""What `benchmark_digest()` gives for version stage-1."""

_SETS = (
    ("train", "biased"),
    ("val", "uniform"),
    ("test", "uniform"),
    ("test", "biased"),
    ("test", "counter"),
)


def benchmark_digest(clips_per_set: int = 2) -> str:
    """SHA-256 of the first clips of every split, role and scene mode: frames, boxes and labels."""
    digest = hashlib.sha256()
    for split in ("A", "B", "C"):
        for role, scenes in _SETS:
            clips = StageSet(split=split, role=role, scenes=scenes, num_clips=clips_per_set)
            for index in range(clips_per_set):
                digest.update(clip_digest(clips.clip(index)))
    return digest.hexdigest()


def clip_digest(clip: StageClip) -> bytes:
    """SHA-256 of a clip: its frames, boxes, objects and labels."""
    digest = hashlib.sha256(clip.frames.tobytes())
    for boxes in (clip.actor_boxes_xyxy_unit, clip.object_boxes_xyxy_unit):
        digest.update(np.rint(boxes * 2**20).astype("<i4").tobytes())
    digest.update(repr((clip.track_ids, clip.object_classes, clip.labels(len(clip.frames) // 2))).encode())
    return digest.digest()
