"""What is fitted on the novelty of held-out known actors: checked once, kept in buffers, saved with the model."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mule.core.errors import NotFinite, NotFitted, ShapeError, TooFewActors


def require_novelty(novelty: Tensor) -> None:
    """One finite number per actor; NaN has no rank, and infinite scores tie where the actors differ."""
    if novelty.ndim != 1 or not novelty.is_floating_point():
        raise ShapeError(
            f"novelty must be one floating-point number per actor; got {tuple(novelty.shape)} of {novelty.dtype}."
        )
    is_wrong = ~torch.isfinite(novelty)
    if is_wrong.any():
        first = int(torch.nonzero(is_wrong)[0])
        raise NotFinite(
            f"novelty must be finite; {int(is_wrong.sum())} of {len(novelty)} are not, the first is "
            f"{novelty[first].item()} at actor {first}. Use a score that does not overflow (`Novelty.rank`)."
        )


def sorted_held_out(novelty: Tensor, *, fewest: int, purpose: str) -> Float[Tensor, " held_out"]:
    """The novelty of held-out known actors, ascending, in float64 (so that equal scores stay equal)."""
    require_novelty(novelty)
    if len(novelty) < fewest:
        raise TooFewActors(
            f"{purpose} needs at least {fewest} held-out known actors; got {len(novelty)}. "
            "Hold out more actors that neither trained the model nor are tested."
        )
    return novelty.detach().double().sort().values


def num_at_or_above(
    novelty: Float[Tensor, " actors"], held_out: Float[Tensor, " held_out"]
) -> Int[Tensor, " actors"]:
    """How many held-out actors (ascending) are at least as novel as each actor; equal ones count."""
    return len(held_out) - torch.searchsorted(held_out, novelty.detach().to(held_out).contiguous())


class HeldOutModule(nn.Module):
    """Something learnt from held-out known actors, in buffers whose sizes come from those actors.

    `state_dict` saves it; `load_state_dict` brings it back into one that has seen nobody.
    """

    is_fitted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("is_fitted", torch.tensor(False))
        self.register_load_state_dict_pre_hook(_make_room)

    def require_fitted(self) -> None:
        """It has seen held-out known actors."""
        if not self.is_fitted:
            raise NotFitted(
                f"{type(self).__name__} has not seen held-out known actors yet. Call fit on their novelty, or load "
                "a state_dict that was saved after it."
            )


def _make_room(module: nn.Module, state_dict: Mapping[str, Tensor], prefix: str, *_: object) -> None:
    """Buffers take the sizes that were saved, which an unfitted module cannot know."""
    for name, buffer in list(module.named_buffers(recurse=False)):
        saved = state_dict.get(prefix + name)
        if saved is not None:
            setattr(module, name, torch.empty_like(saved, device=buffer.device))
