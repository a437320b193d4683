"""What decides in a bundle whose backbone is frozen: its known actors as they are seen, in one file.

    BUNDLE/seen.safetensors    known.*   inputs, actions, films and tracks of the known actors of training and validation
                               fitted.*  whitened cosine and label prototypes, and how novel each known actor looks by parts
                                         fitted without its film

The file never changes. Actions taught or forgotten since are in the memory beside it; then everything is fitted again when the
bundle is read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from mule.core.documents import json_of
from mule.core.errors import MuleError, WeightsError
from mule.core.files import write_file
from mule.core.settings import StageData
from mule.features.pooling import FeatureMaps
from mule.features.weights.cards import find_card
from mule.features.weights.classifier import LabelClassifier, last_channels
from mule.memory.taught import Remembered
from mule.model import KeptMaps, SceneBoxes, inputs_in_map, with_labels
from mule.novelty.crossfit import ROI, Inputs, SeenParts
from mule.novelty.known import FittedToKnown, KnownActors
from mule.training.actor_inputs import classifier_of
from mule.training.build import LoadedRun
from mule.training.maps import as_seen

SEEN, SEEN_FORMAT = "seen.safetensors", "mule-seen-1"
_KNOWN, _INPUTS, _FITTED = "known.", "known.inputs.", "fitted."
RANKS = ("ranks", "folds", "tracks", "num_idle")
"""Of what was fitted, a small file keeps these only; the rest is fitted again when it is read, from the known actors."""
_COLUMNS = ("labels", "groups", "tracks", "is_example")


class SeenFileError(WeightsError):
    """The file of known actors cannot be used; the message names it and says what to do."""


@dataclass(frozen=True)
class SeenModel:
    """The known actors of a bundle, and what was fitted to them."""

    known: KnownActors
    fitted: FittedToKnown

    @classmethod
    def of(cls, known: KnownActors) -> "SeenModel":
        """Fit to known actors.

        Raises:
            TooFewActors: they are of one film, or no two do the same.
        """
        return cls(known, known.fitted())

    def following(self, remembered: Remembered | None) -> "SeenModel":
        """Return the model as teaching and forgetting left it: fitted again if the memory knows other actions.

        Raises:
            SeenFileError: an action was taught without what its examples are seen by.
        """
        if remembered is None:
            return self
        known = self.known.only(remembered.network_class_names)
        for action in remembered.taught:
            if not action.inputs:
                raise SeenFileError(
                    f"the taught action '{action.name}' must say what its examples are seen by; it does not, because an "
                    "earlier version taught it. Forget it, and teach it again."
                )
            known = known.taught(action.name, action.inputs, action.videos)
        if known.actions == self.known.actions:
            return self
        fitted = (
            known.fitted()
        )  # −log p of a look means the same as before, so what was watched still calibrates it
        return SeenModel(known, replace(fitted, watched=self.fitted.watched))


@dataclass(frozen=True)
class Eyes:
    """What people are seen by, from the maps that the network gets anyway."""

    mean: Tensor
    """Of each channel over the training maps: the network gets them standardised, on every runtime."""
    deviation: Tensor
    channels: int
    """Of the backbone's last map; a finer one may follow."""
    classifier: LabelClassifier | None

    @classmethod
    def of(cls, run: LoadedRun) -> "Eyes":
        """Return the eyes of a run that was trained on the maps of a frozen backbone."""
        kept, data = run.model.backbone, run.experiment.data
        if not isinstance(kept, KeptMaps) or isinstance(data, StageData):
            raise SeenFileError(
                "people are seen by the maps of a frozen backbone; this network was trained without one. Build the bundle again."
            )
        channels = last_channels(as_seen(find_card(run.experiment.backbone.name), run.experiment, data))
        return cls(kept.mean, kept.deviation, channels, classifier_of(run.experiment))

    def __call__(self, maps: FeatureMaps, boxes: SceneBoxes) -> Inputs:
        """Return what each actor of a scene is seen by."""
        standard = maps.maps[0].squeeze(2)
        raw = standard * self.deviation[:, None, None] + self.mean[:, None, None]
        seen = inputs_in_map(
            raw[:, : self.channels].float(),
            boxes.actors_xyxy_px.float(),
            boxes.actor_clip_index,
            stride=maps.stride,
        )
        return self.with_labels(seen)

    def with_labels(self, seen: Inputs) -> Inputs:
        """Add what the backbone's own classifier says of each actor, which follows from the other inputs."""
        return with_labels(seen, self.classifier)

    @property
    def show_looks(self) -> bool:
        """Whether the inputs show all that the network's map has in a box (`looks`); a finer map may follow the last one."""
        return self.channels == len(self.mean)

    def looks(self, seen: Inputs) -> Float[Tensor, "actors channels"]:
        """Return the mean of the network's map within each box, which is what `roi` is of the raw map."""
        return (seen[ROI] - self.mean) / self.deviation


def write_seen(path: Path, seen: SeenModel, *, weights_sha256: str, is_small: bool = False) -> None:
    """Write the known actors of a bundle and what was fitted to them; a small file rounds, and keeps no fitted parts."""
    known, fitted, precision = seen.known, seen.fitted, torch.float16 if is_small else torch.float32
    tensors = {f"{_INPUTS}{name}": each.to(precision) for name, each in known.inputs.items()}
    tensors |= {f"{_KNOWN}{name}": getattr(known, name) for name in _COLUMNS}
    kept = {name: each for name, each in fitted.tensors().items() if not is_small or name in RANKS}
    tensors |= {f"{_FITTED}{name}": each for name, each in kept.items()}
    about = {
        "format": SEEN_FORMAT,
        "weights_sha256": weights_sha256,
        "actions": known.actions,
        "group_names": known.group_names,
        "group_of": dict(known.group_of),
        "idle": known.idle,
        "inputs": list(known.inputs),
        "blocks": fitted.parts.blocks,
    }
    whole = {name: each.detach().contiguous() for name, each in tensors.items()}
    write_file(path, safetensors.torch.save(whole, {"about": json.dumps(about, ensure_ascii=False)}))


def read_seen(path: Path, *, weights_sha256: str) -> SeenModel:
    """Read the known actors of a bundle and what was fitted to them.

    Raises:
        SeenFileError: the file is missing, damaged, or belongs to other weights.
    """
    try:
        content = path.read_bytes()
        tensors = safetensors.torch.load(content)  # refuses a file that was cut short
        length = int.from_bytes(content[:8], "little")
        header = json_of(content[8 : 8 + length]).get("__metadata__", {})
        about: dict[str, Any] = json_of(header.get("about", "{}"))
        if about.get("format") != SEEN_FORMAT or about.get("weights_sha256") != weights_sha256:
            raise SeenFileError(
                f"{path}: must have the format {SEEN_FORMAT} and belong to the weights {weights_sha256[:12]}…; it has "
                f"{about.get('format')!r} and belongs to {str(about.get('weights_sha256'))[:12]}…. Build the bundle again."
            )
        known = KnownActors(
            inputs={name: tensors[f"{_INPUTS}{name}"].float() for name in about["inputs"]},
            actions=tuple(about["actions"]),
            group_names=tuple(about["group_names"]),
            group_of=about["group_of"],
            idle=tuple(about.get("idle", ())),  # not in files of earlier versions
            **{name: tensors[f"{_KNOWN}{name}"] for name in _COLUMNS},
        )
        fitted = _named(tensors, _FITTED)
        if not fitted.keys() - set(RANKS):
            fitted |= SeenParts.fit(known.inputs, known.labels).tensors()
        return SeenModel(known, FittedToKnown.of(fitted, about["blocks"]))
    except SeenFileError:
        raise
    except (
        MuleError,
        OSError,
        SafetensorError,
        LookupError,
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
    ) as error:
        raise SeenFileError(
            f"{path}: must hold the known actors of the bundle; {error}. Build the bundle again."
        ) from None


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
