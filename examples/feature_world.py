"""A synthetic world of actors as feature vectors: small enough to train on in seconds, hard enough to compare methods.

An actor does one to three actions at once. Each action pulls the actor's latent motion its own way; a fixed random
network turns the motion into features. Several actors share a clip, whose scene leaks into the features. In training
every scene has an action that most of its actors do (static bias). Twelve actions are taught, six others are novel.

The same file shows how MULE's parts fit together: head, Beta loss, static bias, primal-dual steps, novelty scores.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from mule.core.records import Evidence
from mule.evidence.head import EvidenceFunction, EvidenceHead, Parameterisation
from mule.objective.beta_loss import Reduction, beta_loss
from mule.objective.hsic import Bandwidth, Estimator, static_bias
from mule.objective.primal_dual import Constraint, Objective, PrimalDual, StepReport

NUM_KNOWN, NUM_NOVEL, NUM_SCENES = 12, 6, 12
LATENT, MOTION, SCENE = 16, 48, 12

Scenes = Literal["uniform", "biased", "counter"]


@dataclass(frozen=True)
class Actors:
    """A batch of actors: features, known actions, whether each is novel, and the clip and scene of each."""

    features: Tensor
    targets: Tensor
    is_novel: Tensor
    clip_index: Tensor
    context: Tensor  # one row per clip


class World:
    """Appearances of actions and scenes, which depend on `seed` alone, and actors drawn from them."""

    def __init__(self, seed: int, *, draw: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.actions = nn.functional.normalize(self._normal(NUM_KNOWN + NUM_NOVEL, LATENT), dim=1)
        self.first = self._normal(LATENT, 64) / LATENT**0.5
        self.second = self._normal(64, MOTION) / 8
        self.scenes = self._normal(NUM_SCENES, SCENE)
        self.random.manual_seed(1000 * seed + draw)

    def actors(self, num_clips: int, *, scenes: Scenes = "uniform", novel_share: float = 0.0) -> Actors:
        """Draw clips with one to four actors each; an actor does known actions only or novel ones only."""
        num_actors = int(torch.randint(1, 5, (num_clips,), generator=self.random).sum())
        clip_index = torch.randint(num_clips, (num_actors,), generator=self.random).sort().values
        scene = torch.randint(NUM_SCENES, (num_clips,), generator=self.random)
        is_novel = self._uniform(num_actors) < novel_share
        done = self._draw_actions(is_novel, self._favoured_action(scene[clip_index], scenes))
        strength = done * (0.8 + 0.4 * self._uniform(*done.shape))
        motion = 3 * strength @ self.actions + 0.8 * self._normal(num_actors, LATENT)
        motion = torch.tanh(motion @ self.first) @ self.second + 0.1 * self._normal(num_actors, MOTION)
        context = self.scenes[scene] + 0.5 * self._normal(num_clips, SCENE)
        features = torch.cat([motion, context[clip_index]], dim=1)
        return Actors(features, done[:, :NUM_KNOWN], is_novel, clip_index, context)

    def _favoured_action(self, scene: Tensor, scenes: Scenes) -> Tensor:
        """The known action an actor does because of the scene, eight times in ten; -1 for none."""
        if scenes == "uniform":
            return torch.full_like(scene, -1)
        goes_with = scene if scenes == "biased" else (scene + NUM_SCENES // 2) % NUM_SCENES
        return torch.where(self._uniform(len(scene)) < 0.8, goes_with, -1)

    def _draw_actions(self, is_novel: Tensor, favoured: Tensor) -> Tensor:
        """One to three actions per actor, of the twelve known ones or of the six novel ones, the favoured one first."""
        action = torch.arange(NUM_KNOWN + NUM_NOVEL)[None]
        rank = self._uniform(len(is_novel), NUM_KNOWN + NUM_NOVEL)
        wrong_kind = (action >= NUM_KNOWN) != is_novel[:, None]
        order = (rank + 2 * wrong_kind - 1.0 * (action == favoured[:, None])).argsort(dim=1).argsort(dim=1)
        how_many = torch.randint(1, 4, (len(is_novel), 1), generator=self.random)
        return (order < how_many).float()

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.random)


@dataclass(frozen=True)
class Settings:
    """One way to train; the defaults are MULE's."""

    parameterisation: Parameterisation = "tied"
    function: EvidenceFunction = "exp"
    reduction: Reduction = "mean"
    estimator: Estimator | None = None
    """None: no debiasing constraint."""
    bandwidth: Bandwidth = "median"
    constraint: Constraint = field(default_factory=Constraint)
    inner_steps: int = 1
    gradient_steps: int = 600


class Network(nn.Module):
    """Two layers in place of the video network, and the evidence head."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(MOTION + SCENE, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.head = EvidenceHead(
            64, NUM_KNOWN, parameterisation=settings.parameterisation, function=settings.function
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return the head's raw outputs."""
        return self.head.outputs(self.trunk(features))

    @torch.no_grad()
    def evidence(self, features: Tensor) -> Evidence:
        """Return evidence for and against each known action."""
        return self.head.evidence_from(self(features))


def train(settings: Settings, *, seed: int) -> tuple[Network, StepReport]:
    """Train a network on known actors in biased scenes; all settings see the same actors and gradient steps."""
    world = World(seed, draw=0)
    torch.manual_seed(seed)
    network = Network(settings)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-4)
    constraints = {"static_bias": settings.constraint} if settings.estimator else {}
    primal_dual = PrimalDual(network, optimizer, constraints, inner_steps=settings.inner_steps)
    report = None
    for _ in range(settings.gradient_steps // max(settings.inner_steps, 1)):
        batch = world.actors(24, scenes="biased")
        report = primal_dual.step(lambda batch=batch: objective(network, batch, settings))
    assert report is not None, "gradient_steps is below inner_steps"  # noqa: S101
    return network, report


def objective(network: Network, batch: Actors, settings: Settings) -> Objective:
    """Return the Beta loss and, on request, how far the outputs depend on the scene."""
    outputs = network(batch.features)
    loss = beta_loss(network.head.evidence_from(outputs), batch.targets, reduction=settings.reduction)
    if settings.estimator is None:
        return Objective(loss)
    bias = static_bias(
        outputs, batch.context, batch.clip_index, estimator=settings.estimator, bandwidth=settings.bandwidth
    )
    return Objective(loss, {"static_bias": bias})
