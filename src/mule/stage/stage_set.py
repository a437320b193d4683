"""The clips of one role of the benchmark as a data set: plans and pictures by number."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from mule.core.errors import RangeError
from mule.stage.benchmark import NUM_FRAMES, ROLE_CLIPS, ClipRecipe, default_scenes, plan_clip
from mule.stage.classes import VERSION, StageSplit, stage_split
from mule.stage.plans import Plan
from mule.stage.rendering import Size, StageClip, check_size, render


@dataclass(frozen=True)
class StageSet:
    """Clips of one split and role. Clip i depends on nothing but these values and i; not on `num_clips`."""

    split: str = "A"
    role: str = "train"
    seed: int = 0
    scenes: str | None = None
    """uniform, biased or counter; None is biased for training, else uniform."""
    num_clips: int | None = None
    """None is the size of the benchmark: 2000, 300, 400."""
    bias: float = 0.95
    size: Size = (96, 128)
    num_frames: int = NUM_FRAMES

    def __post_init__(self) -> None:
        check_size(self.size)
        if self.num_clips is not None and self.num_clips < 0:
            raise RangeError(f"num_clips must not be negative; got {self.num_clips}.")
        _ = self.recipe

    def __len__(self) -> int:
        return ROLE_CLIPS[self.role] if self.num_clips is None else self.num_clips

    @property
    def recipe(self) -> ClipRecipe:
        """What the plans are drawn from."""
        return ClipRecipe(
            split=self.split,
            role=self.role,
            seed=self.seed,
            scenes=self.scenes or default_scenes(self.role),
            bias=self.bias,
            num_frames=self.num_frames,
        )

    @property
    def classes(self) -> StageSplit:
        """Which actions are known and which are novel."""
        return stage_split(self.split)

    @property
    def parameters(self) -> dict[str, Any]:
        """All that the pixels depend on, as plain values."""
        recipe = self.recipe
        return {
            "version": VERSION,
            "split": recipe.split,
            "role": recipe.role,
            "seed": recipe.seed,
            "scenes": recipe.scenes,
            "bias": recipe.bias,
            "num_clips": len(self),
            "num_frames": recipe.num_frames,
            "rows": self.size[0],
            "cols": self.size[1],
        }

    @property
    def name(self) -> str:
        """A name for files, different for different pixels."""
        text = json.dumps(self.parameters, sort_keys=True, separators=(",", ":"))
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{VERSION}-{self.split}-{self.role}-{self.recipe.scenes}-{key}"

    def plan(self, index: int) -> Plan:
        """What is to be seen in a clip.

        Raises:
            IndexError: there is no clip of this number.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"clip must be from 0 to {len(self) - 1}; got {index}.")
        return plan_clip(self.recipe, index)

    def clip(self, index: int) -> StageClip:
        """The pictures of a clip and what is true of them."""
        return render(self.plan(index), self.size)
