"""Weights and clips that anyone can make again: each tensor depends on its foreign name alone.

The order of modules, and who built them, play no part, so the oracle and our backbone can be given the very
same numbers. They are chosen so that activations stay near one through any number of residual blocks, and so
that no norm is trivial.
"""

import hashlib
import math

import numpy as np
import torch

LAST_NORMS = (
    "norm_c.weight",
    "c_bn.weight",
)  # of a residual branch: small, or sums would grow block by block


def _uniform(name, shape):
    """Evenly spread over (−1, 1): plain integer arithmetic, so the same on every machine."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    values = np.random.Generator(np.random.PCG64(seed)).random(tuple(shape), dtype=np.float32)
    return torch.from_numpy(np.asarray(2 * values - 1))


def seeded_tensor(name, shape):
    """The tensor that a foreign checkpoint would hold under this name."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(0)
    spread = _uniform(name, shape)
    if name.endswith("running_var"):
        return 1 + 0.5 * spread
    if len(shape) > 1:  # a convolution or linear map that keeps the variance of its input
        return spread * math.sqrt(3 / math.prod(shape[1:]))
    if name.endswith(LAST_NORMS):
        return 0.25 + 0.1 * spread
    is_norm_weight = name.endswith("weight")
    return 1 + 0.3 * spread if is_norm_weight else 0.2 * spread


def seeded_clip(shape):
    """A clip of frames, rows and columns, values in (−1, 1)."""
    return _uniform("clip", (1, 3, *shape))


def seeded_model(build, names, key_map):
    """A network with the seeded weights of a foreign checkpoint, come through a key map, and their digest."""
    with torch.device("meta"):  # every weight is about to be replaced
        model = build()
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    foreign = {name: seeded_tensor(name, shapes[key_map(name)]) for name in names}
    model.load_state_dict({key_map(name): tensor for name, tensor in foreign.items()}, assign=True)
    model.to(memory_format=torch.channels_last_3d)  # as it was built
    return model, digest(foreign)


def digest(tensors):
    """SHA-256 over names and values, in the order of the names."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(tensors[name].numpy()).tobytes())
    return sha.hexdigest()
