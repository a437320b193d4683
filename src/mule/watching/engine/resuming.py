"""What a watch that was stopped goes on from, kept beside its moments.

    resume.0.safetensors, resume.1.safetensors

The state after a moment is on the disk before the moment is, and that after the moment before is still there: so there
is one for the last whole line, whenever the process was killed.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mule.core.errors import AnnotationError
from mule.training.checkpoint import weights_file, write_whole

FORMAT = "mule-watch-1"
_ABOUT = "about"


class ResumePoints:
    """The last two states of a watch, in the folder of its result."""

    def __init__(self, folder: Path) -> None:
        self._paths = [folder / f"resume.{slot}.safetensors" for slot in (0, 1)]
        self._slot = 0

    def write(self, state: Mapping[str, Tensor], *, key_time_s: float) -> None:
        """Keeps the state after the moment at this time, in place of the older of the two."""
        about = {_ABOUT: json.dumps({"format": FORMAT, "key_time_s": key_time_s})}
        write_whole(
            self._paths[self._slot], weights_file({name: each.clone() for name, each in state.items()}, about)
        )
        self._slot = 1 - self._slot

    def read(self, *, key_time_s: float) -> dict[str, Tensor]:
        """The state after the moment at this time.

        Raises:
            AnnotationError: there is none.
        """
        for slot, path in enumerate(self._paths):
            if _key_time_s(path) == key_time_s:
                self._slot = 1 - slot
                return safetensors.torch.load_file(path)
        raise AnnotationError(
            f"{self._paths[0].parent}: to go on, the state after the last moment ({key_time_s:g} s) must be there "
            f"({self._paths[0].name} or {self._paths[1].name}); it is not. Watch anew into another folder."
        )


def _key_time_s(path: Path) -> float | None:
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get(_ABOUT, "{}"))
    except (OSError, SafetensorError, ValueError):
        return None
    return about.get("key_time_s") if about.get("format") == FORMAT else None
