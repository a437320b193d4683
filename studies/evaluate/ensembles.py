"""Several trained runs on the same data as one network: features side by side, the mean of the logits.

    member 1: features z₁ ─▶ h₁ ─┐
    member 2: features z₂ ─▶ h₂ ─┴─▶ h = mean of h,  z = z₁ ⊕ z₂, each scaled to the same usual length

h is still one linear layer of z, so every score that works on a network works on the ensemble: memory,
neighbours, ViM and evidence alike. Everything is computed from stored outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import MissingOutputs, RangeError
from mule.core.records import Evidence
from mule.core.settings import Experiment
from mule.evidence.head import exp_evidence
from mule.inference.judging import Judging, judged, yardstick_of
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import reading_of
from mule.inference.results import SideResult
from mule.inference.running import OutputsOf, weights_digest
from mule.inference.score_rules import score_rules
from mule.inference.sides import TRAIN, VAL, require_sides, sides_under_test
from mule.memory.memory import unit_features
from mule.rivals.scores.outputs import LinearReadout
from mule.training.data import Noted

NO_PASSES_TOGETHER = "each member of an ensemble drops other units"
_NO_WEIGHTS = "0" * 64


def usual_lengths(train: Sequence[SideOutputs]) -> list[float]:
    """Return the mean length of the features of each member's training actors."""
    return [float(each.features.double().norm(dim=1).mean()) for each in train]


def ensemble_of(members: Sequence[SideOutputs], lengths: Sequence[float]) -> SideOutputs:
    """Combine the outputs of several networks for the actors of one side.

    Args:
        members: the outputs of each network, for the same actors in the same order.
        lengths: the usual length of each member's features, so that none outweighs another.

    Raises:
        RangeError: the members differ in actors or actions.
        MissingOutputs: a member does not have one logit per action.
    """
    first = members[0]
    _require_same(members)
    logits = torch.stack([each.stored.logits.double() for each in members]).mean(dim=0).float()
    scales = [1 / (length * len(members) ** 0.5) for length in lengths]
    features = torch.cat(
        [scale * each.features.float() for scale, each in zip(scales, members, strict=True)], dim=1
    )
    readout = _readout([each.readout for each in members], scales)
    return replace(
        first,
        outputs=logits,
        evidence=_evidence(logits, first.kind),
        features=features,
        backbone_features=torch.cat([unit_features(each.backbone_features) for each in members], dim=1),
        readout=readout,
        dropout_logits=None,
        not_stored={**first.not_stored, "dropout_logits": NO_PASSES_TOGETHER},
    )


def judge_ensemble(
    runs: Mapping[Path, Experiment], *, sides: Sequence[str] = (), judging: Judging, noted: Noted
) -> dict[str, SideResult]:
    """Judge several finished runs as one network, on each side; nothing is stored.

    Raises:
        RangeError: there are fewer than two runs, or they differ in data or system.
    """
    experiments = list(runs.values())
    if len(runs) < 2 or len({each.system for each in experiments}) > 1:
        raise RangeError(
            "an ensemble needs at least two runs of one system; got "
            f"{', '.join(each.system for each in experiments)}."
        )
    wanted = tuple(dict.fromkeys(sides or (VAL, *sides_under_test(experiments[0]))))
    require_sides(experiments[0], wanted)
    sources = [
        OutputsOf(folder, each, judging.dropout_passes, judging.test_clips) for folder, each in runs.items()
    ]

    def of(side: str) -> list[SideOutputs]:
        return [source.on(side, noted=noted) for source in sources]

    trained = of(TRAIN)
    lengths = usual_lengths(trained)
    train, val = ensemble_of(trained, lengths), ensemble_of(of(VAL), lengths)
    read = reading_of(experiments[0].system, train, val, model=_NO_WEIGHTS)
    val = read(val)
    yardstick = yardstick_of(score_rules(judging.scores), train, judging.rows_of(val))
    results: dict[str, SideResult] = {}
    for side in wanted:
        outputs = val if side == VAL else read(ensemble_of(of(side), lengths))
        facts = {
            "key": "",
            "system": f"{len(runs)} × {experiments[0].system}",
            "side": judging.name_of(side),
            "side_digest": sources[0].side_digest(side),
            "weights_sha256": "+".join(weights_digest(folder)[:12] for folder in runs),
        }
        results[judging.name_of(side)], _ = judged(
            judging.rows_of(outputs), yardstick, judging=judging, facts=facts
        )
    return results


def _require_same(members: Sequence[SideOutputs]) -> None:
    first = members[0]
    for each in members:
        if each.kind not in ("tied", "read"):
            raise MissingOutputs(
                f"an ensemble needs networks with one logit per action; this one has {each.kind} evidence."
            )
        is_same = (
            each.kind == first.kind
            and each.classes == first.classes
            and each.clip_names == first.clip_names
            and np.array_equal(each.clip_index, first.clip_index)
            and np.array_equal(each.truth.labels, first.truth.labels)
        )
        if not is_same:
            raise RangeError(
                "members of an ensemble must be judged on the same actors and actions; these differ. Train "
                "them on the same data with other seeds: --set seed=1 and the same data.seed."
            )


def _readout(readouts: Sequence[LinearReadout | None], scales: Sequence[float]) -> LinearReadout | None:
    there = [each for each in readouts if each is not None]
    if len(there) < len(readouts):
        return None
    weights = [each.weight / (scale * len(there)) for each, scale in zip(there, scales, strict=True)]
    return LinearReadout(torch.cat(weights, dim=1), torch.stack([each.bias for each in there]).mean(dim=0))


def _evidence(logits: Float[Tensor, "actors classes"], kind: str) -> Evidence:
    read = exp_evidence if kind == "tied" else torch.relu
    return Evidence(read(logits), read(-logits))
