"""The state of all chance in a process, as plain values that a checkpoint can hold."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_chance(seed: int, *, rank: int = 0) -> None:
    """All generators of this process begin anew; ranks differ, so that each drops other units."""
    words = np.random.SeedSequence(seed, spawn_key=(rank,)).generate_state(3, np.uint32).tolist()
    torch.manual_seed(words[0])
    np.random.seed(words[1])
    random.seed(words[2])


def chance_state() -> dict[str, Any]:
    """Where the generators of torch, NumPy and Python are."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest],
        "python": random.getstate(),
    }


def set_chance_state(state: Mapping[str, Any]) -> None:
    """Goes on where `chance_state` was."""
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
