"""Worlds in which the right answer is known: classes are directions, and novel actors leave them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mule.rivals.scores.outputs import LinearReadout, StoredOutputs


@dataclass(frozen=True)
class World:
    """Training outputs with targets, and test outputs with who is novel among them."""

    train: StoredOutputs
    targets: Tensor
    test: StoredOutputs
    is_novel: Tensor


def easy_world(
    *, seed: int = 0, num_train: int = 400, num_test: int = 200, classes: int = 6, dim: int = 64
) -> World:
    """Known actors do one or two actions; novel ones go half-way towards one, and far where nobody went."""
    draw = torch.Generator().manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(dim, dim, generator=draw)).Q
    taught, strange = axes[:classes], axes[classes : classes + 4]
    readout = LinearReadout(weight=3 * taught, bias=torch.full((classes,), -8.0))

    def known(count: int) -> tuple[Tensor, Tensor]:
        targets = torch.zeros(count, classes)
        for _ in range(2):
            targets[torch.arange(count), torch.randint(classes, (count,), generator=draw)] = 1
        return 8 * targets @ taught + 0.4 * torch.randn(count, dim, generator=draw), targets

    def novel(count: int) -> Tensor:
        near = taught[torch.randint(classes, (count,), generator=draw)]
        far = strange[torch.randint(len(strange), (count,), generator=draw)]
        return 2.7 * near + 8 * far + 0.4 * torch.randn(count, dim, generator=draw)

    train_features, targets = known(num_train)
    test_features = torch.cat([known(num_test)[0], novel(num_test)])
    return World(
        train=outputs_of(train_features, readout, draw=draw),
        targets=targets,
        test=outputs_of(test_features, readout, draw=draw),
        is_novel=torch.arange(2 * num_test) >= num_test,
    )


def outputs_of(
    features: Tensor, readout: LinearReadout, *, draw: torch.Generator, passes: int = 20, kept: float = 0.7
) -> StoredOutputs:
    """One plain pass of the read-out and several with dropout on its input."""
    masks = torch.rand(passes, *features.shape, generator=draw) < kept
    return StoredOutputs(
        logits=readout(features),
        features=features,
        readout=readout,
        dropout_logits=torch.stack([readout(features * mask / kept) for mask in masks]),
    )


def only(outputs: StoredOutputs, rows: Tensor) -> StoredOutputs:
    """The same outputs of these actors, in this order."""
    return StoredOutputs(
        logits=outputs.logits[rows],
        features=None if outputs.features is None else outputs.features[rows],
        readout=outputs.readout,
        dropout_logits=None if outputs.dropout_logits is None else outputs.dropout_logits[:, rows],
    )
