"""The actors of a clip speak for it: where labels are of whole clips, as in Charades, nobody said who does what.

    actor 1   h = ( 2.1  −3.0   0.4)   walk run sit        An action is done in a clip if somebody does it, so of each
    actor 2   h = (−1.0   0.7  −2.2)                       action the actor who does it most surely speaks (the maximum of
    the clip  h = ( 2.1   0.7   0.4)                       multiple-instance learning), for it and against it.

One actor speaks for itself. The order of actors does not matter. Only who speaks of an action learns from it.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import ShapeError


def strongest_actors(
    outputs: Float[Tensor, "actors outputs"], clip_index: Int[Tensor, " actors"], *, num_classes: int
) -> Int[Tensor, "clips classes"]:
    """Who speaks for each clip of each action: the actor with the largest output, as its row.

    Where an action has two outputs, for and against, it is the largest difference. Clips are those that have actors, in
    the order of their numbers. A value that is not a number is the largest, so that nobody hides it.
    """
    if outputs.shape[1] not in (num_classes, 2 * num_classes):
        raise ShapeError(f"{num_classes} actions must have one output or two; got {outputs.shape[1]}.")
    logits = outputs.detach()[:, :num_classes] - (
        0 if outputs.shape[1] == num_classes else outputs.detach()[:, num_classes:]
    )
    logits = logits.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    clips, clip = clip_index.unique(return_inverse=True)
    to_clip = clip[:, None].expand_as(logits)
    most = logits.new_full((len(clips), num_classes), -torch.inf).scatter_reduce(0, to_clip, logits, "amax")
    row = torch.arange(len(logits), device=logits.device)[:, None].expand_as(logits)
    candidates = torch.where(logits == most[clip], row, len(logits))
    nobody = row.new_full((len(clips), num_classes), len(logits))
    return nobody.scatter_reduce(0, to_clip, candidates, "amin")


def of_strongest(
    values: Float[Tensor, "actors values"], strongest: Int[Tensor, "clips classes"]
) -> Float[Tensor, "clips values"]:
    """What the strongest actors say: of each action the value, or the values, of whoever speaks for the clip."""
    num_classes = strongest.shape[1]
    parts = [part.gather(0, strongest) for part in values.split(num_classes, dim=1)]
    return torch.cat(parts, dim=1)
