"""Every rival's score by name: each call makes a new one that reads `StoredOutputs`; larger is more novel."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from mule.novelty.combining import largest_logit_novelty
from mule.rivals.scores.dropout import (
    InformedDemocracy,
    bald_novelty,
    dropout_mean_novelty,
    dropout_variance_novelty,
)
from mule.rivals.scores.features import Mahalanobis, NearestNeighbours, ViM, ViMResidual
from mule.rivals.scores.logits import (
    Odin,
    OpenMax,
    energy_novelty,
    joint_energy_novelty,
    max_softmax_novelty,
    relu_evidence_novelty,
)
from mule.rivals.scores.outputs import DropoutScore, LogitScore, OutputScore

ScoreName = Literal[
    "relu-pe",
    "relu-ne",
    "relu-ne-inverse",
    "relu-pne",
    "relu-belief",
    "max-softmax",
    "max-sigmoid",
    "max-logit",
    "energy",
    "joint-energy",
    "odin",
    "odin-softmax",
    "dropout-mean",
    "dropout-variance",
    "bald",
    "openmax",
    "openmax-above-least",
    "informed-democracy",
    "mahalanobis",
    "knn",
    "vim",
    "vim-softmax",
    "vim-residual",
]

SCORE_BY_NAME: Mapping[ScoreName, Callable[[], OutputScore]] = {
    "relu-pe": partial(LogitScore, partial(relu_evidence_novelty, kind="pe")),
    "relu-ne": partial(LogitScore, partial(relu_evidence_novelty, kind="ne")),
    "relu-ne-inverse": partial(LogitScore, partial(relu_evidence_novelty, kind="ne_inverse")),
    "relu-pne": partial(LogitScore, partial(relu_evidence_novelty, kind="pne")),
    "relu-belief": partial(LogitScore, partial(relu_evidence_novelty, kind="belief")),
    "max-softmax": partial(LogitScore, max_softmax_novelty),
    "max-sigmoid": partial(LogitScore, largest_logit_novelty),
    "max-logit": partial(LogitScore, largest_logit_novelty),
    "energy": partial(LogitScore, energy_novelty),
    "joint-energy": partial(LogitScore, joint_energy_novelty),
    "odin": Odin,
    "odin-softmax": partial(Odin, "softmax"),
    "dropout-mean": partial(DropoutScore, dropout_mean_novelty),
    "dropout-variance": partial(DropoutScore, dropout_variance_novelty),
    "bald": partial(DropoutScore, bald_novelty),
    "openmax": OpenMax,
    "openmax-above-least": partial(OpenMax, activations="above_least"),
    "informed-democracy": InformedDemocracy,
    "mahalanobis": Mahalanobis,
    "knn": NearestNeighbours,
    "vim": ViM,
    "vim-softmax": partial(ViM, "softmax"),
    "vim-residual": ViMResidual,
}
