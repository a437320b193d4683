"""Rivals that train a head on the inputs, each tuned by its own AUROC."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mule.evidence.head import EvidenceHead, exp_evidence
from mule.novelty.combining import largest_logit_novelty
from mule.objective.beta_loss import beta_loss
from mule.objective.dirichlet_loss import dirichlet_log_loss, dirichlet_uncertainty
from mule.rivals.scores.features import Mahalanobis, NearestNeighbours, ViM
from mule.rivals.scores.logits import joint_energy
from mule.rivals.scores.outputs import LinearReadout, OutputScore, StoredOutputs

Loss = Literal["bce", "beta", "literal", "dear"]
CHECKPOINTS = (10, 20, 40, 80)
NEIGHBOURS = (1, 3, 5, 10, 20)
BATCH = 128
LEARNING_RATE = 1e-3
DROPOUT = 0.3


class HeadPlan(NamedTuple):
    """How a head is trained."""

    hidden: int
    """Width of the hidden layer; 0 is none."""
    weight_decay: float
    reads_labels: bool
    """Whether it reads the labels of the pre-training beside the features."""


PLANS = (HeadPlan(0, 0.01, False), HeadPlan(0, 0.01, True), HeadPlan(256, 0.01, False))
Scores = dict[str, Float[Tensor, " tested"]]


class Sides(NamedTuple):
    """What a head learns from and is tested on; features are standardised by the former."""

    known: Float[Tensor, "known dim"]
    labels: Bool[Tensor, "known actions"]
    tested: Float[Tensor, "tested dim"]


def standardised(known: Tensor, tested: Tensor, labels: Tensor) -> Sides:
    """Return both sides with mean 0 and deviation 1 on the known actors."""
    mean, deviation = known.mean(dim=0), known.std(dim=0).clamp(min=1e-6)
    return Sides(((known - mean) / deviation).float(), labels, ((tested - mean) / deviation).float())


class Head(nn.Module):
    """An optional hidden layer, and the last layer of a loss."""

    def __init__(self, dim: int, num_actions: int, loss: Loss, hidden: int) -> None:
        super().__init__()
        layers = [nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(DROPOUT)] if hidden else []
        self.before = nn.Sequential(*layers)
        is_literal = loss == "literal"
        self.last = EvidenceHead(
            hidden or dim,
            num_actions,
            parameterisation="independent" if is_literal else "tied",
            function="relu" if is_literal else "exp",
            bias=not is_literal,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the raw outputs."""
        return self.last.outputs(self.before(x))


def loss_of(head: Head, outputs: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    """Return the loss of a batch, summed over actions."""
    if loss == "bce":
        return F.binary_cross_entropy_with_logits(outputs, labels.float(), reduction="none").sum(1).mean()
    if loss == "dear":
        return dirichlet_log_loss(exp_evidence(outputs), labels.float()).mean()
    return beta_loss(head.last.evidence_from(outputs), labels)


def trained(sides: Sides, loss: Loss, plan: HeadPlan, *, epochs: Sequence[int], seed: int) -> dict[int, Head]:
    """Train a head, and return it as it was after each of these epochs."""
    found: dict[int, Head] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = Head(sides.known.shape[1], sides.labels.shape[1], loss, plan.hidden)
        optimizer = torch.optim.AdamW(head.parameters(), lr=LEARNING_RATE, weight_decay=plan.weight_decay)
        for epoch in range(1, max(epochs) + 1):
            for rows in torch.randperm(len(sides.known)).split(BATCH):
                optimizer.zero_grad()
                loss_of(head, head(sides.known[rows]), sides.labels[rows], loss).backward()
                optimizer.step()
            if epoch in epochs:
                found[epoch] = deepcopy(head).eval()
    return found


@torch.no_grad()
def scores_of(head: Head, sides: Sides, loss: Loss, num_actions: int) -> Scores:
    """Return every rival's novelty of the tested actors; tags, the columns after the actions, are not read."""
    outputs = head(sides.tested)
    if loss == "bce":
        return _of_logits(head, sides, num_actions)
    if loss == "dear":
        return {"dear": dirichlet_uncertainty(exp_evidence(outputs[:, :num_actions]))}
    evidence = head.last.evidence_from(outputs).positive[:, :num_actions].double()
    if loss == "literal":
        return {"literal": -evidence.sum(1)}
    return {"beta-max": -evidence.amax(1), "beta-sum": -evidence.sum(1)}


def _of_logits(head: Head, sides: Sides, num_actions: int) -> Scores:
    linear = head.last.linear
    readout = LinearReadout(linear.weight[:num_actions].detach(), linear.bias[:num_actions].detach())
    known, tested = (
        StoredOutputs(readout(features), features, readout)
        for features in (head.before(sides.known), head.before(sides.tested))
    )
    does = sides.labels[:, :num_actions]
    energy = joint_energy(tested.logits)
    found = {
        "joint-energy": -energy,
        "max-logit": largest_logit_novelty(tested.logits).rank,
        "vim": _fitted(ViM(), known, does, tested),
    }
    if len(head.before):  # of the inputs themselves it is a raw score
        found["mahalanobis"] = _fitted(Mahalanobis(), known, does, tested)
    cosine = F.normalize(head.before(sides.tested)) @ F.normalize(head.before(sides.known)).T
    guided = cosine * joint_energy(known.logits).float()
    for k in NEIGHBOURS:
        found[f"knn:{k}"] = -cosine.topk(k).values[:, -1]
        found[f"nnguide:{k}"] = -energy * guided.topk(k).values.mean(1)
    return found


def raw_scores(known: Tensor, tested: Tensor, does: Tensor) -> Scores:
    """Return the rivals that need no head, on the inputs as they are."""
    zeros = [torch.zeros(len(each), does.shape[1]) for each in (known, tested)]
    sides = [StoredOutputs(logits, each.float()) for logits, each in zip(zeros, (known, tested), strict=True)]
    found = {"mahalanobis": _fitted(Mahalanobis(), sides[0], does, sides[1])}
    for k in NEIGHBOURS:
        found[f"knn:{k}"] = _fitted(NearestNeighbours(k), sides[0], does, sides[1])
    return found


def _fitted(score: OutputScore, known: StoredOutputs, does: Tensor, tested: StoredOutputs) -> Tensor:
    score.fit(known, does.float())
    return score(tested).rank.double()


def rival_of(name: str) -> str:
    """Return the rival that a score with a number of neighbours belongs to: `knn:5` is kNN."""
    return name.partition(":")[0]


def best_by_rival(found: Mapping[str, float]) -> dict[str, str]:
    """Return for each rival the configuration with the largest AUROC; keys are `PLAN/EPOCHS/SCORE`."""
    best: dict[str, str] = {}
    for key, value in found.items():
        rival = rival_of(key.rpartition("/")[2])
        if rival not in best or value > found[best[rival]]:
            best[rival] = key
    return best
