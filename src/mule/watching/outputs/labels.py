"""What exported files say of an actor, and when.

What is said is what decided: the track so far, or the key time alone, as the threshold says. Novel actors bear a
class of their own, `novel`, beside the known actions above the least probability, if any; a known actor without such
an action is a `person`. Frames are those on screen at the key times.
"""

import math
from typing import NamedTuple

from mule.video.clips import SAME_INSTANT_S, exact
from mule.watching.moments import Header, SeenActor, novelty_of

PERSON = "person"


class Label(NamedTuple):
    """A class and how sure it is."""

    name: str
    confidence: float


def novel_label(header: Header) -> str:
    """What novel actors are called: `novel`, with a star where a known class is called so already."""
    name = "novel"
    while name in header.classes:
        name += "*"
    return name


def labels_of(actor: SeenActor, header: Header) -> tuple[Label, ...]:
    """The classes of an actor, at least one: its known actions, and novel with its novelty if it was decided so."""
    actions = actor.judged(header.threshold.view).actions
    labels = [Label(each.action, each.probability) for each in actions]
    if actor.is_novel:
        labels.append(Label(novel_label(header), novelty_of(actor, header.threshold)))
    return tuple(labels) or (Label(PERSON, actor.detection_score),)


def frame_number(key_time_s: float, header: Header) -> int:
    """The frame on screen at a key time, counted from 0 at the source's frame rate."""
    return math.floor((exact(key_time_s) + SAME_INSTANT_S) * header.source.rate)
