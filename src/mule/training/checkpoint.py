"""Checkpoints that are complete or absent: everything a step changes, in a folder that appears by one rename.

    checkpoints/step-00000400/model.safetensors     weights
                              average.safetensors   their moving average, if there is one
                              state.pt              the rest; nothing in it can run code
                              digests.json          SHA-256 of the files above

A folder is written under another name and flushed to disk, and only then gets its name. The next run removes what a
killed one left half-written. The random state of a process is saved as plain values.
"""

import hashlib
import io
import json
import os
import random
import re
import shutil
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from mule.core.documents import json_of
from mule.core.errors import MuleError, NotFinite
from mule.core.files import os_reason, sync_folder, write_to_disk
from mule.core.tensors import safetensors_bytes


def seed_chance(seed: int, *, rank: int = 0) -> None:
    """Seed all random generators of this process; ranks differ, so that each drops other units."""
    words = np.random.SeedSequence(seed, spawn_key=(rank,)).generate_state(3, np.uint32).tolist()
    torch.manual_seed(words[0])
    np.random.seed(words[1])
    random.seed(words[2])


def chance_state() -> dict[str, Any]:
    """Return the state of the generators of torch (on the CPU and the current GPU), NumPy and Python."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest],
        "python": random.getstate(),
    }


def set_chance_state(state: Mapping[str, Any]) -> None:
    """Restore the state that `chance_state` returned."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"][0])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


NAME = re.compile(r"step-(\d{8,})")
WEIGHTS, AVERAGE, STATE, DIGESTS = "model.safetensors", "average.safetensors", "state.pt", "digests.json"
NUM_KEPT = 2

Weights = Mapping[str, Tensor]


class CheckpointError(MuleError, OSError):
    """A checkpoint, or another file of a run, cannot be written or trusted; the message names it."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a step changes."""

    step: int
    model: Weights
    average: Weights | None
    state: Mapping[str, Any]
    """Optimiser, multipliers, scale of gradients, position in the data, random states, best validation: plain values and tensors."""


class Checkpoints:
    """The checkpoints of one run: the last two, and the best one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, checkpoint: Checkpoint, *, best_step: int | None) -> Path:
        """Write a checkpoint, and remove older ones except the last and the best.

        Raises:
            NotFinite: a weight is not finite; nothing is written.
            CheckpointError: the disk is full, or the folder may not be written; earlier checkpoints are untouched.
        """
        _require_finite(checkpoint)
        place = self.path_of(checkpoint.step)
        files = {WEIGHTS: _weights_bytes(checkpoint.model), STATE: _state_bytes(checkpoint)}
        if checkpoint.average is not None:
            files[AVERAGE] = _weights_bytes(checkpoint.average)
        files[DIGESTS] = json.dumps({name: _sha256(file) for name, file in files.items()}).encode()
        growing = self.folder / f".{place.name}.{os.getpid()}"
        try:
            self.folder.mkdir(exist_ok=True)  # its parent must exist: the run was not removed
            _write_folder(growing, files)
            if place.exists():
                self._remove(place)
            growing.rename(place)
            sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(growing, ignore_errors=True)
            size_mb = sum(map(len, files.values())) / 2**20
            raise CheckpointError(
                f"{place}: a checkpoint of {size_mb:.1f} MB must be written here; {os_reason(error)}. Nothing "
                "half-written was left."
            ) from error
        self._forget({*self.steps()[-NUM_KEPT:], best_step})
        return place

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in order."""
        names = [entry.name for entry in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(int(found[1]) for name in names if (found := NAME.fullmatch(name)))

    def path_of(self, step: int) -> Path:
        """Return the folder of a step's checkpoint."""
        return self.folder / f"step-{step:08d}"

    def last(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the last intact checkpoint, or None, and what is wrong with later ones.

        Raises:
            CheckpointError: there are checkpoints, and all are damaged.
        """
        wrong: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.load(step), wrong
            except CheckpointError as error:
                wrong.append(str(error))
        if wrong:
            raise CheckpointError(
                f"{self.folder}: at least one checkpoint must be intact; none is. {' '.join(wrong)} Remove the folder "
                "to start from the beginning."
            )
        return None, wrong

    def load(self, step: int) -> Checkpoint:
        """Load the checkpoint of a step, after checking every byte of it."""
        place = self.path_of(step)
        try:
            digests = dict(json_of((place / DIGESTS).read_bytes()))
            files = {name: (place / name).read_bytes() for name in digests}
            damaged = [name for name, file in files.items() if _sha256(file) != digests[name]]
            if damaged:
                raise CheckpointError(f"{place / damaged[0]}: damaged; its bytes are not those written.")
            return Checkpoint(
                step=step,
                model=safetensors.torch.load(files[WEIGHTS]),
                average=safetensors.torch.load(files[AVERAGE]) if AVERAGE in files else None,
                state=torch.load(io.BytesIO(files[STATE]), map_location="cpu", weights_only=True),
            )
        except CheckpointError:
            raise
        except Exception as error:  # a damaged file of torch can raise nearly anything
            raise CheckpointError(f"{place}: cannot be read ({os_reason(error)}).") from error

    @contextmanager
    def explaining(self, step: int) -> Generator[None]:
        """Say in one sentence that the state of a step does not fit, whatever goes wrong while it is taken over."""
        try:
            yield
        except MuleError:
            raise
        except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200] or "it does not"
            raise CheckpointError(
                f"{self.path_of(step)}: must hold the state of this training; {reason}. Remove the folder to continue from an "
                "earlier checkpoint."
            ) from error

    def sweep(self) -> None:
        """Remove what killed runs left half-written."""
        for entry in self.folder.glob(".step-*"):
            shutil.rmtree(entry, ignore_errors=True)

    def _forget(self, kept: set[int | None]) -> None:
        for step in set(self.steps()) - kept:
            self._remove(self.path_of(step))

    def _remove(self, place: Path) -> None:
        leaving = place.with_name(f".{place.name}.{os.getpid()}.old")
        place.rename(leaving)  # a half-removed folder must not look like a checkpoint
        shutil.rmtree(leaving, ignore_errors=True)


def weights_file(weights: Weights, metadata: Mapping[str, str]) -> bytes:
    """Return weights as the bytes of a safetensors file."""
    return safetensors_bytes(
        {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, metadata
    )


def _weights_bytes(weights: Weights) -> bytes:
    return weights_file(weights, {})


def _state_bytes(checkpoint: Checkpoint) -> bytes:
    file = io.BytesIO()
    torch.save(dict(checkpoint.state), file)
    return file.getvalue()


def _write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        write_to_disk(folder / name, content)
    sync_folder(folder)


def _require_finite(checkpoint: Checkpoint) -> None:
    names = _not_finite(checkpoint.model.items())
    if names:
        raise NotFinite(
            f"weights must be finite to be kept; {len(names)} tensors are not after step {checkpoint.step}, the first "
            f"is {names[0]}."
        )


def _not_finite(tensors: Iterable[tuple[str, Tensor]]) -> list[str]:
    return [name for name, tensor in tensors if not torch.isfinite(tensor).all()]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
