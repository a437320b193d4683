"""The card of a bundle: what the folder contains and was made from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mule.core.config import reasons_of
from mule.core.errors import WeightsError
from mule.core.files import os_reason
from mule.training.run_folder import CARD as RUN_CARD

BUNDLE, BUNDLE_FORMAT = "bundle.json", "mule-bundle-2"
OLD_BUNDLE_FORMAT = "mule-bundle-1"
"""Of bundles without a manifest, before version 0.2."""


class BundleError(WeightsError):
    """A folder is no usable bundle; the message names the file and says what to do."""


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class WatchedFigures(BaseModel):
    """What was said of people in the videos that a bundle was calibrated on, films left out in turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_videos: int
    num_known_people: int
    """They set the threshold, so of these the promised share is flagged."""
    num_novel_people: int = 0
    num_novel_flagged: int = 0
    """While they did something novel."""
    num_idle_looks: int = 0
    num_idle_recognised: int = 0
    num_known_looks: int = 0
    num_known_called_idle: int = 0

    def in_words(self) -> str:
        """Return what a user will get.

        >>> WatchedFigures(num_videos=8, num_known_people=40, num_novel_people=10, num_novel_flagged=6).in_words()
        'watched 8 videos: 40 known people set the threshold, so that 5 % of them are flagged; 6 of 10 novel people were flagged'
        """
        said = [
            f"watched {self.num_videos} videos: {self.num_known_people} known people set the threshold, so that 5 % of them are "
            "flagged"
        ]
        if self.num_novel_people:
            said.append(f"{self.num_novel_flagged} of {self.num_novel_people} novel people were flagged")
        if self.num_idle_looks:
            said.append(
                f"{self.num_idle_recognised} of {self.num_idle_looks} idle looks were recognised as idle"
            )
            said.append(
                f"{self.num_known_called_idle} of {self.num_known_looks} looks at known acts were called idle"
            )
        return "; ".join(said)


class BundleCard(BaseModel):
    """What a bundle contains and was made from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = BUNDLE_FORMAT
    name: Annotated[str, Field(min_length=1, max_length=200)]
    weights_sha256: Sha256
    backbone_sha256: Sha256 | None = None
    """Of the frozen backbone's weights, of which the folder holds a copy; None if the run has its own."""
    seed: int
    commit: str | None = None
    data: Mapping[str, str] = {}
    """Digests of the training data."""
    tags: tuple[str, ...] = ()
    """Taught labels that do not count for novelty."""
    metrics: Mapping[str, float] = {}
    detector: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=200)]
    """The recommended detector: `detector.` and a suffix in the folder, `scene`, or a card of `mule weights list`."""
    every_s: Annotated[float, Field(ge=0.01, le=3600)] = 1.0
    names_from: Annotated[float, Field(ge=0, le=1)] = 0.5
    """A known action is reported when its probability is at least this."""
    sees: Literal["frame", "person"] = "frame"
    """What the network is shown: the whole frame, or a square around each person, a pass for each."""
    backbone_card: str | None = None
    """The card of the frozen backbone's weights, if the folder holds no copy: `mule weights pull` fetches them."""
    decides_by: str | None = None
    """The score that decides who is novel, as `mule evaluate run` names it; None in folders of earlier versions."""
    watched: WatchedFigures | None = None
    """What calibration by watching found; None if thresholds are those of labelled moments."""


def read_bundle_card(folder: Path) -> BundleCard:
    """Read the card of the bundle in a folder.

    Raises:
        BundleError: there is no bundle, or the card is damaged.
    """
    path = folder / BUNDLE
    if not folder.is_dir():
        raise BundleError(
            f"{folder}: a model must be a folder that `mule bundle` wrote, people or stage; there is no such folder."
        )
    try:
        card = BundleCard.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        what = "This folder is a run: " if (folder / RUN_CARD).exists() else ""
        raise BundleError(
            f"{path}: must exist in the folder of a model; it does not. {what}`mule bundle RUN_DIR --out DIR` makes a "
            "model of a finished run."
        ) from None
    except (OSError, ValidationError) as error:
        reason = reasons_of(error) if isinstance(error, ValidationError) else os_reason(error)
        raise BundleError(
            f"{path}: must be the card of a bundle; {reason}. Build the bundle again."
        ) from None
    if card.format not in (BUNDLE_FORMAT, OLD_BUNDLE_FORMAT):
        raise BundleError(
            f"{path}: format must be {BUNDLE_FORMAT!r}; got {card.format!r}. Build the bundle again."
        )
    return card
