"""Teach an action from a few exemplars, without retraining: the model recognises it and no longer calls it novel.

    exemplars ─┐                                       ┌─ left out one by one ─▶ what its actors will score ─┐
    remembered ┴─ whiten ─▶ kernel ridge ─▶ read-out ──┴─ held-out known actors ─▶ what others score ────────┴─▶ log-odds

Exemplars and known actors determine everything. The network's own outputs do not change.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import NotFitted, RangeError, ShapeError, TooFewActors
from mule.memory.building import SeenActors, calibrate, identities, joined_places, without_action
from mule.memory.memory import EvidenceMemory, unit_features
from mule.memory.search import EntrySearch, entry_scales, weigh
from mule.memory.taught import HeldOut, Remembered, TaughtAction, Whitening, sphere_kernel

SHRINKAGE = 0.03
"""Share of the mean variance that is added to every direction before whitening."""
RIDGE = 0.01
MOST_LANDMARKS = 1000
"""Number of remembered actors, drawn by the seed, that serve as negatives."""
LEAST_SLOPE = 0.1
"""For exemplars that resemble known actors: their order is kept, with hardly any belief."""
NEWTON_STEPS = 100


def teach_action(
    remembered: Remembered, exemplars: SeenActors, *, class_name: str, seed: int = 0
) -> Remembered:
    """Teach one more action from exemplars; 10 to 20 are plenty, one is enough.

    Exemplars become entries of the memory, so they appear as reasons. Other entries keep their scales, and ρ
    and S stay. An exemplar that is remembered already for other actions stays one entry, with the labels of
    both.

    Args:
        remembered: a calibrated memory with its held-out known actors.
        exemplars: actors that do the action, with labels for the actions remembered so far (0 if not done).
        class_name: name of the new action.
        seed: random seed for choosing the negatives.
    """
    require_new(remembered, class_name)
    _require_teachable(remembered.memory, exemplars)
    memory, exemplars = _taken_out(remembered.memory, exemplars)
    if len(memory) == 0:
        raise TooFewActors("teaching needs other remembered actors to compare with; this memory has none.")
    held_out = remembered.held_out
    if held_out is None:
        raise NotFitted(
            "teaching needs the held-out known actors that calibrated the memory; this memory has none."
        )
    whitening = whitening_of(memory)
    negatives = _landmark_rows(memory, seed)
    readout = _Readout.fitted(whitening(exemplars.features), whitening(memory.features[negatives]))
    others = readout.scores(whitening(held_out.features))
    does = readout.left_out_scores()
    if len(does) == 1:
        does = _stand_in_scores(memory, held_out, whitening=whitening, negatives=negatives, seed=seed)
    rate = _mean_rate(remembered.memory)
    slope, offset = log_odds_line(does, others, base_rate=rate)
    action = TaughtAction(
        class_name,
        whitening,
        readout.landmarks.float(),
        readout.coefficients.float(),
        slope,
        offset,
        _typical_log_trust(memory, held_out),
        exemplars.inputs,
        tuple(exemplars.places.videos()),
    )
    return Remembered(
        _with_exemplars(memory, exemplars, class_name),
        _with_column(held_out, action),
        (*remembered.taught, action),
    )


def recalibrated(remembered: Remembered, memory: EvidenceMemory) -> Remembered:
    """Return everything with a changed memory, calibrated again on the held-out actors.

    Without held-out actors the memory is not calibrated, and cannot be used until it is.
    """
    held_out = remembered.held_out
    if held_out is None:
        return replace(remembered, memory=memory)
    memory = calibrate(memory, held_out)
    taught = remembered.taught
    if taught:
        typical = _typical_log_trust(memory, held_out)
        taught = tuple(replace(action, typical_log_trust=typical) for action in taught)
    return Remembered(memory, held_out, taught)


def forget_action(remembered: Remembered, class_name: str) -> Remembered:
    """Forget an action, trained or taught, and calibrate again on the held-out actors that are still known."""
    memory = without_action(remembered.memory, class_name)
    taught = tuple(action for action in remembered.taught if action.name != class_name)
    held_out = remembered.held_out
    if held_out is None:
        return Remembered(memory, None, taught)
    columns = [at for at, name in enumerate(held_out.class_names) if name != class_name]
    actions = [at for at in columns if held_out.class_names[at] not in memory.tags]
    rows = (held_out.labels[:, actions] > 0).any(dim=1)
    held_out = replace(
        held_out,
        features=held_out.features[rows],
        outputs=held_out.outputs[rows][:, columns],
        labels=held_out.labels[rows][:, columns],
        class_names=tuple(held_out.class_names[at] for at in columns),
    )
    return recalibrated(Remembered(memory, held_out, taught), memory)


def whitening_of(memory: EvidenceMemory) -> Whitening:
    """Return the whitening that removes how features vary among actors that do the same actions.

    Labels explain features linearly; the covariance of the residuals is divided out. A little of the mean
    variance is added to every direction, so that directions without variance do not explode.
    """
    weight = memory.counts.double()[:, None]
    features, labels = memory.features.double(), memory.labels.double()
    centre = (weight * features).sum(dim=0) / weight.sum()
    explaining = torch.cat([labels, torch.ones_like(weight)], dim=1) * weight.sqrt()
    centred = (features - centre) * weight.sqrt()
    explained = explaining @ (torch.linalg.pinv(explaining) @ centred)
    within = (centred - explained).T @ (centred - explained) / weight.sum()
    shrinkage = SHRINKAGE * centred.square().sum() / weight.sum() / memory.dim
    inverse = torch.linalg.inv(within + shrinkage * torch.eye(memory.dim, dtype=torch.float64))
    return Whitening(centre.float(), torch.linalg.cholesky(inverse).float())


def log_odds_line(
    does: Float[Tensor, " positives"], others: Float[Tensor, " negatives"], *, base_rate: float
) -> tuple[float, float]:
    """Return slope and offset that turn a score into the log-odds of doing the action (Platt's scaling, by Newton steps).

    Positives have the weight `base_rate`, however few there are. Targets are smoothed as by Platt, so that a
    few well separated scores do not count as certainty.
    """
    scores = torch.cat([does, others]).double()
    num_does, num_others = len(does), len(others)
    targets = torch.cat(
        [
            scores.new_full((num_does,), (num_does + 1) / (num_does + 2)),
            scores.new_full((num_others,), 1 / (num_others + 2)),
        ]
    )
    each_other = num_does * (1 - base_rate) / base_rate / num_others
    weight = torch.cat([scores.new_ones(num_does), scores.new_full((num_others,), each_other)])
    middle, spread = scores.mean(), scores.std().clamp(min=1e-12)
    design = torch.stack([(scores - middle) / spread, torch.ones_like(scores)], dim=1)
    ridge = 1e-3 * torch.eye(2, dtype=torch.float64)
    line = torch.tensor([0.0, _logit(base_rate)], dtype=torch.float64)
    for _ in range(NEWTON_STEPS):
        probability = torch.sigmoid(design @ line)
        downhill = design.T @ (weight * (targets - probability)) - ridge @ line
        curvature = (design * (weight * probability * (1 - probability))[:, None]).T @ design + ridge
        line = line + torch.linalg.solve(curvature, downhill).clamp(-2, 2)
    slope = line[0].item() / spread.item()
    if slope < LEAST_SLOPE:
        return LEAST_SLOPE, _logit(base_rate) - LEAST_SLOPE * middle.item()
    return slope, line[1].item() - slope * middle.item()


@dataclass(frozen=True)
class _Readout:
    """Kernel ridge regression: +1 for exemplars, −1 for negatives, both with the same total weight."""

    landmarks: Float[Tensor, "landmarks dim"]
    coefficients: Float[Tensor, " landmarks"]
    own_influence: Float[Tensor, " landmarks"]
    num_exemplars: int

    @classmethod
    def fitted(
        cls, exemplars: Float[Tensor, "exemplars dim"], negatives: Float[Tensor, "negatives dim"]
    ) -> "_Readout":
        landmarks = torch.cat([exemplars, negatives]).double()
        sizes = torch.tensor(
            [len(exemplars)] * len(exemplars) + [len(negatives)] * len(negatives), dtype=torch.float64
        )
        inverse = torch.linalg.inv(sphere_kernel(landmarks, landmarks) + torch.diag(RIDGE * sizes))
        targets = torch.cat([torch.ones(len(exemplars)), -torch.ones(len(negatives))]).double()
        return cls(landmarks, inverse @ targets, inverse.diagonal(), len(exemplars))

    def scores(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, " points"]:
        return sphere_kernel(points.double(), self.landmarks) @ self.coefficients

    def left_out_scores(self) -> Float[Tensor, " exemplars"]:
        """Return the leave-one-out score of each exemplar: 1 − coefficient / (K + ridge)⁻¹ on the diagonal."""
        count = self.num_exemplars
        return 1 - self.coefficients[:count] / self.own_influence[:count]


def _stand_in_scores(
    memory: EvidenceMemory,
    held_out: HeldOut,
    *,
    whitening: Whitening,
    negatives: Int[Tensor, " negatives"],
    seed: int,
) -> Float[Tensor, " scores"]:
    """Return the scores of known actions taught from one actor each; a single exemplar has no leave-one-out score."""
    draw = torch.Generator().manual_seed(seed)
    seen = whitening(held_out.features)
    scores: list[Tensor] = []
    for at, name in enumerate(held_out.class_names):
        doing = torch.nonzero(held_out.labels[:, at] > 0).flatten()
        if len(doing) < 2 or name not in memory.class_names:
            continue
        doing = doing[torch.randperm(len(doing), generator=draw)]
        labels = memory.labels[negatives, memory.class_names.index(name)]
        against = whitening(memory.features[negatives[labels == 0]])
        if len(against):
            scores.append(_Readout.fitted(seen[doing[:1]], against).scores(seen[doing[1:51]]))
    if not scores:
        raise TooFewActors(
            "teaching from one exemplar needs known actions with two held-out actors each. Give two exemplars."
        )
    return torch.cat(scores)


def require_new(remembered: Remembered, class_name: str) -> None:
    """Raise if an action to teach is remembered already, or has no name."""
    names = remembered.memory.class_names
    if class_name in names or not class_name:
        is_taught = any(action.name == class_name for action in remembered.taught)
        what_to_do = (
            "Forget it first, then teach it from all examples"
            if is_taught
            else "Add more actors that do it with `mule memory add`"
        )
        raise RangeError(
            f"a taught action must have a name of its own; got '{class_name}'. Known actions: {', '.join(names)}."
            + (f" {what_to_do}." if class_name else "")
        )


def _taken_out(memory: EvidenceMemory, exemplars: SeenActors) -> tuple[EvidenceMemory, SeenActors]:
    """Return the memory without entries that are exemplars too (same video, time and box), and exemplars with their labels.

    Such an entry would otherwise be a negative for the action it is an example of. An entry that stands for
    several actors stays.
    """
    place_of = {place: row for row, place in enumerate(identities(exemplars.places))}
    found = [place_of.get(place, -1) for place in identities(memory.places)]
    is_exemplar = (torch.tensor(found, dtype=torch.int64) >= 0) & (memory.counts == 1)
    labels = exemplars.labels.float().clone()
    for entry in torch.nonzero(is_exemplar).flatten().tolist():
        labels[found[entry]] = torch.maximum(labels[found[entry]], memory.labels[entry])
    return memory.at(~is_exemplar), replace(exemplars, labels=labels)


def _require_teachable(memory: EvidenceMemory, exemplars: SeenActors) -> None:
    if len(exemplars.features) == 0:
        raise TooFewActors("an action must be taught from at least one exemplar; got none.")
    if exemplars.labels.shape[1] != memory.num_classes or exemplars.features.shape[1] != memory.dim:
        raise ShapeError(
            f"exemplars must have {memory.dim} features and labels for the {memory.num_classes} remembered actions; got "
            f"{exemplars.features.shape[1]} and {exemplars.labels.shape[1]}."
        )


def _typical_log_trust(memory: EvidenceMemory, held_out: HeldOut) -> float:
    return weigh(memory, held_out.features).log_trust.median().item()


def _landmark_rows(memory: EvidenceMemory, seed: int) -> Int[Tensor, " negatives"]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randperm(len(memory), generator=draw)[:MOST_LANDMARKS].sort().values


def _mean_rate(memory: EvidenceMemory) -> float:
    """Return the mean share of actors that do a remembered action: the expected share of a new one."""
    weight = memory.counts[:, None]
    return ((memory.labels * weight).sum() / weight.sum() / memory.num_classes).clamp(1e-3, 0.5).item()


def _with_exemplars(memory: EvidenceMemory, exemplars: SeenActors, class_name: str) -> EvidenceMemory:
    features = unit_features(exemplars.features).float()
    places = joined_places(memory.places, exemplars.places)
    count = len(features)
    old_groups, new_groups = places.group_index.split([len(memory), count])
    search = EntrySearch(memory.features, old_groups)
    num_neighbours = memory.kernel.num_neighbours
    scales = entry_scales(features, new_groups, num_neighbours=num_neighbours, search=search)
    labels = torch.cat(
        [
            torch.cat([memory.labels, torch.zeros(len(memory), 1)], dim=1),
            torch.cat([exemplars.labels.float(), torch.ones(count, 1)], dim=1),
        ]
    )
    return replace(
        memory,
        features=torch.cat([memory.features, features]),
        labels=labels,
        counts=torch.cat([memory.counts, torch.ones(count)]),
        scales=torch.cat([memory.scales, scales]),
        places=places,
        class_names=(*memory.class_names, class_name),
    )


def _with_column(held_out: HeldOut, action: TaughtAction) -> HeldOut:
    return replace(
        held_out,
        outputs=torch.cat([held_out.outputs, action.output(held_out.features)[:, None]], dim=1),
        labels=torch.cat([held_out.labels, torch.zeros(len(held_out), 1)], dim=1),
        class_names=(*held_out.class_names, action.name),
    )


def _logit(probability: float) -> float:
    return torch.logit(torch.tensor(probability, dtype=torch.float64)).item()
