"""Backbones that are no longer trained, each with the recipe by which features are made with it."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import RangeError, WeightsError
from mule.features.backbones.slowfast import Variant
from mule.features.cache import Recipe
from mule.features.maps import FeatureMaps
from mule.features.weights.cards import BACKBONES, NORMALISATIONS, WeightCard
from mule.features.weights.checkpoints import read_checkpoint
from mule.features.weights.download import sha256_while_unchanged
from mule.features.weights.loading import fitting_cards, load_backbone
from mule.video.clips import ClipShape


@dataclass(frozen=True)
class FrozenBackbone:
    """A backbone in evaluation mode, and everything that its features depend on besides the video."""

    forward: Callable[[Float[Tensor, "clips 3 frames rows cols"]], FeatureMaps]
    recipe: Recipe

    def __post_init__(self) -> None:
        if isinstance(self.forward, nn.Module) and self.forward.training:
            raise RangeError(
                "a frozen backbone must be in evaluation mode; this one is in training mode. Call eval()."
            )

    @torch.inference_mode()
    def features(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """The feature maps, on the device of the backbone's weights."""
        weights = self.forward.parameters() if isinstance(self.forward, nn.Module) else iter(())
        return self.forward(clips.to(next(weights, clips).device))


def frozen_backbone(
    path: Path,
    card: WeightCard | None = None,
    *,
    short_side_px: int | None = None,
    frame_rate: Fraction | None = None,
    half: bool = False,
    device: str = "cpu",
) -> FrozenBackbone:
    """The backbone of a file of weights, and the recipe of its card for whole frames.

    Args:
        path: the weights.
        card: what they are; not needed where only one card fits.
        short_side_px: None is the size at which their publisher tests them.
        frame_rate: of the grid on which clips are cut; None is each video's own.
        half: whether features are kept in half precision. They are computed in single precision all the same.
        device: where the backbone runs, as torch names it.

    Raises:
        RangeError: there is no such device.
        WeightsError: the file is damaged or does not fit the card; no card fits, or more than one.
    """
    card = _only_card(path) if card is None else card
    model = _moved(load_backbone(path, card), device)
    recipe = recipe_of(path, card, short_side_px=short_side_px, frame_rate=frame_rate, half=half)
    return FrozenBackbone(model, recipe)


def recipe_of(
    path: Path,
    card: WeightCard,
    *,
    short_side_px: int | None = None,
    frame_rate: Fraction | None = None,
    half: bool = False,
) -> Recipe:
    """By what features are made with these weights, of which nothing is looked at but their checksum.

    Raises:
        WeightsError: there is no such file.
    """
    if not path.is_file():
        raise WeightsError(f"{path}: must be a file of weights; there is no such file.")
    return Recipe(
        backbone=card.backbone,
        options=_options(card),
        weights_sha256=sha256_while_unchanged(path),
        clip=_clip_shape(card),
        frame_rate=frame_rate,
        short_side_px=card.clip.short_side_px if short_side_px is None else short_side_px,
        normalisation=NORMALISATIONS[card.clip.normalisation],
        half=half,
    )


def _only_card(path: Path) -> WeightCard:
    fitting = fitting_cards(read_checkpoint(path))
    if not fitting:
        raise WeightsError(f"{path}: weights must fit a card; none fits. `mule weights check` says why.")
    if len(fitting) > 1:
        raise WeightsError(
            f"{path}: these weights fit several cards, which differ in the clips they want; say which one: "
            f"{', '.join(card.name for card in fitting)}."
        )
    return fitting[0]


def _moved(model: nn.Module, device: str) -> nn.Module:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        reason = str(error).partition("\n")[0]
        raise RangeError(f"device must be one that torch can use here; got '{device}': {reason}") from error


def _options(card: WeightCard) -> dict[str, Any]:
    """What the backbone is built with, defaults written out: a default that changes must change the key."""
    bound = signature(BACKBONES[card.backbone]).bind(**card.options)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name != "num_classes"}


def _clip_shape(card: WeightCard) -> ClipShape:
    num_frames, stride = card.clip.num_frames, card.clip.stride_frames
    variant = card.options.get("variant")
    if not isinstance(variant, Variant):
        return ClipShape(num_frames, stride, num_slow_frames=num_frames)
    rule = "full_span" if variant.slow_spans_clip else "stride"
    return ClipShape(num_frames, stride, num_frames // variant.alpha, rule)
