"""Load published weights into our backbones: everything that the card lists, or nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mule.core.errors import WeightsError
from mule.core.files import cache_folder, sha256_of
from mule.features.weights.card import Backbone, WeightCard, build_backbone
from mule.features.weights.cards import WEIGHT_CARDS, find_card
from mule.features.weights.checkpoints import WeightFile, read_checkpoint
from mule.features.weights.download import place_of, require_checksum, require_first_used

COUNTER = "num_batches_tracked"  # of a batch norm; unused, and missing in some formats
NUM_SHOWN = 3


@dataclass(frozen=True)
class Match:
    """Tensors of a file under our names, complete and with the right shapes, and the ignored keys."""

    tensors: Mapping[str, Tensor]
    num_wanted: int
    """Number of tensors of the network; batch counters count if the file has them."""
    ignored: tuple[str, ...]
    """Keys of the file that the network does not use."""

    def __str__(self) -> str:
        text = f"{len(self.tensors)} of {self.num_wanted} tensors"
        if not self.ignored:
            return text
        groups = list(dict.fromkeys(key.partition(".")[0] for key in self.ignored))
        return f"{text}, {len(self.ignored)} ignored: {_first(groups)}"


def load_weights(model: nn.Module, path: Path, card: WeightCard) -> Match:
    """Load a file into a model built for the card, with or without its head.

    The file must hold everything that the card lists, even if the model has no head. A model on the meta device gets
    the file's tensors themselves. After an error the model is unchanged.

    Raises:
        WeightsError: the file cannot be read or does not match the card, or the model is not the card's.
    """
    wanted = model.state_dict()
    _require_model_of(card, wanted)
    match = match_card(read_checkpoint(path), card)
    tensors = {name: tensor for name, tensor in match.tensors.items() if name in wanted}
    complete = {
        name: tensors[name].to(old.dtype) if name in tensors else torch.zeros(old.shape, dtype=old.dtype)
        for name, old in wanted.items()
    }
    is_on_meta = any(tensor.is_meta for tensor in wanted.values())
    model.load_state_dict(complete, assign=is_on_meta)
    if is_on_meta:  # the tensors bring the file's memory layout; the backbones' own is faster
        nn.utils.convert_conv3d_weight_memory_format(model, torch.channels_last_3d)
    left_out = tuple(name for name in match.tensors if name not in wanted)
    num_wanted = match.num_wanted - len(left_out)
    return Match(tensors, num_wanted, ignored=left_out + match.ignored)


def load_backbone(path: Path, card: WeightCard, *, with_head: bool = False, **overrides: Any) -> Backbone:  # noqa: ANN401
    """Build the backbone of a card with the weights of a file, in evaluation mode.

    >>> from mule import find_card
    >>> load_backbone(Path("i3d.pt"), find_card("i3d_rgb_kinetics400"))
    Traceback (most recent call last):
    mule.core.errors.WeightsError: ...
    """
    with torch.device("meta"):
        model = build_backbone(card, with_head=with_head, **overrides)
    load_weights(model, path, card)
    return model.eval()


def match_card(checkpoint: WeightFile, card: WeightCard) -> Match:
    """Return the tensors that a card lists, including the head, under our names.

    Raises:
        WeightsError: names are missing, unexpected or doubled, shapes differ, or values are not finite.
    """
    named, ignored, doubled = _renamed(checkpoint, card)
    promised = _shapes_promised(card)
    if not any(name.endswith(COUNTER) for name in named):
        promised = {name: shape for name, shape in promised.items() if not name.endswith(COUNTER)}
    fitted = {name: _with_shape(tensor, promised.get(name)) for name, tensor in named.items()}
    shared = fitted.keys() & promised.keys()
    problems = {
        "missing": [name for name in promised if name not in fitted],
        "unexpected": [name for name in fitted if name not in promised],
        "named twice": doubled,
        "of another shape": [
            f"{name} {tuple(fitted[name].shape)} instead of {tuple(promised[name])}"
            for name in sorted(shared)
            if fitted[name].shape != promised[name]
        ],
        "not finite": [name for name in sorted(shared) if not fitted[name].isfinite().all()],
    }
    if any(problems.values()):
        counted = [f"{len(names)} {kind}: {_first(names)}" for kind, names in problems.items() if names]
        raise WeightsError(
            f"{checkpoint.path}: must hold the {len(promised)} tensors of card '{card.name}'; "
            f"{len(shared)} are there ({'; '.join(counted)}). Pull the file again, or pick the card it belongs to."
        )
    return Match(fitted, len(promised), tuple(ignored))


def fitting_cards(checkpoint: WeightFile) -> list[WeightCard]:
    """Return the cards that a file fits; several may fit, as X3D-XS, S and M differ only in their clips."""
    has_counters = any(name.endswith(COUNTER) for name in checkpoint.tensors)
    known = {card: num_known(checkpoint, card) for card in WEIGHT_CARDS.values()}
    likely = [card for card in known if known[card] == card.num_tensors or (known[card] and not has_counters)]
    return [card for card in likely if _keeps(checkpoint, card)]


def nearest_card(checkpoint: WeightFile) -> WeightCard:
    """Return the card that knows most of a file's names, so that its error says most about the file.

    Raises:
        WeightsError: no card knows any of them.
    """
    known = {card: num_known(checkpoint, card) for card in WEIGHT_CARDS.values()}
    if not any(known.values()):
        names = ", ".join(list(checkpoint.tensors)[:3])
        raise WeightsError(f"{checkpoint.path}: must fit a card; none knows names such as {names}.")
    return max(known, key=lambda card: (known[card], -abs(card.num_tensors - known[card])))


def weights_on_disk(card_or_file: str, card_name: str | None) -> tuple[Path, WeightCard | None]:
    """Find weights by the name of a card that was pulled, or by file; the card is None unless it was named.

    Raises:
        WeightsError: the card's file is not on disk, or there is no such card.
    """
    path = Path(card_or_file)
    if path.is_file() or card_or_file not in WEIGHT_CARDS:
        return path, None if card_name is None else find_card(card_name)
    card = find_card(card_or_file)
    path = place_of(card, cache_folder())
    if not path.is_file():
        raise WeightsError(
            f"{path}: weights must be on disk; these are not. Run `mule weights pull {card.name}`. {card.note}".rstrip()
        )
    sha256 = sha256_of(path)
    require_checksum(card, sha256, path)
    require_first_used(card, sha256, path)
    return path, card


def num_known(checkpoint: WeightFile, card: WeightCard) -> int:
    """How many keys of a file the card's key map knows."""
    return len(_renamed(checkpoint, card)[0])


def _keeps(checkpoint: WeightFile, card: WeightCard) -> bool:
    try:
        match_card(checkpoint, card)
    except WeightsError:
        return False
    return True


def _renamed(checkpoint: WeightFile, card: WeightCard) -> tuple[dict[str, Tensor], list[str], list[str]]:
    named: dict[str, Tensor] = {}
    ignored: list[str] = []
    doubled: list[str] = []
    for key, tensor in checkpoint.tensors.items():
        name = card.our_name(key)
        if name is None:
            ignored.append(key)
        elif name in named:
            doubled.append(name)
        else:
            named[name] = tensor
    return named, ignored, doubled


@cache
def _shapes_promised(card: WeightCard) -> Mapping[str, torch.Size]:
    with torch.device("meta"):
        model = build_backbone(card, with_head=card.num_classes is not None)
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def _require_model_of(card: WeightCard, wanted: Mapping[str, Tensor]) -> None:
    promised = _shapes_promised(card)
    strange = [name for name, tensor in wanted.items() if promised.get(name) != tensor.shape]
    parts = {_part(name) for name in wanted}  # a model may end early: without its head or at an earlier map
    lacking = [name for name in promised if name not in wanted and _part(name) in parts]
    if strange or lacking:
        raise WeightsError(
            f"the model must be the one of card '{card.name}', whole or ending early; "
            f"{len(strange)} of its tensors are others ({_first(strange)}), {len(lacking)} are lacking "
            f"({_first(lacking)}). Build it with build_backbone."
        )


def _part(name: str) -> str:
    """Return the stage of a tensor: `slow.res4`, `mixed.mixed_5b`, `head.projection`."""
    return ".".join(name.split(".")[:2])


def _with_shape(tensor: Tensor, shape: torch.Size | None) -> Tensor:
    """Add trailing ones to a 1 × 1 × 1 convolution that is stored as a matrix."""
    if shape is not None and tuple(tensor.shape) + (1,) * (len(shape) - tensor.dim()) == tuple(shape):
        return tensor.reshape(shape)
    return tensor


def _first(names: list[str]) -> str:
    more = ", …" if len(names) > NUM_SHOWN else ""
    return ", ".join(names[:NUM_SHOWN]) + more if names else "none"
