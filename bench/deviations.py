"""Measure the effect of each deviation from the paper on the synthetic actors of `examples/feature_world.py`.

`make deviations` trains every setting three times and writes the tables of docs/DEVIATIONS.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch

from bench.timing import machine, replace_section
from examples.feature_world import Actors, Network, Scenes, Settings, World, train
from mule.evaluation.mean_ap import mean_average_precision
from mule.evidence.head import opinion_from
from mule.metrics import auroc
from mule.novelty.scores import NOVELTY_BY_KIND, belief_novelty
from mule.objective.hsic import static_bias
from mule.objective.primal_dual import Constraint

PAGE = Path("docs/DEVIATIONS.md")
SEEDS = (0, 1, 2)
SCENES: tuple[Scenes, ...] = ("uniform", "biased", "counter")
LITERAL = Settings(parameterisation="independent", function="relu")


@dataclass
class Run:
    """A trained network and its test actors in three kinds of scenes."""

    network: Network
    multiplier: float
    tests: dict[str, Actors]

    def auroc(self, score, scenes="uniform", *, of="rank") -> float:
        test = self.tests[scenes]
        novelty = score(self.network.evidence(test.features))
        return auroc(getattr(novelty, of).numpy(), test.is_novel.numpy())

    def closed_set(self) -> float:
        test = self.tests["uniform"]
        known = ~test.is_novel
        probability = opinion_from(self.network.evidence(test.features[known])).probability
        return mean_average_precision(probability.numpy(), test.targets[known].numpy())

    def dead_outputs(self) -> float:
        evidence = self.network.evidence(self.tests["uniform"].features)
        return (
            (torch.cat([evidence.positive, evidence.negative], dim=1) == 0).all(dim=0).float().mean().item()
        )

    def ties(self, score) -> float:
        value = score(self.network.evidence(self.tests["uniform"].features)).value.numpy()
        return 1 - len(np.unique(value)) / len(value)

    def bias(self) -> float:
        test = self.tests["biased"]
        known = ~test.is_novel
        with torch.no_grad():
            hsic = static_bias(self.network(test.features[known]), test.context, test.clip_index[known])
        return hsic.item() if hsic is not None else float("nan")

    def gap(self) -> float:
        score = NOVELTY_BY_KIND["pe_log"]
        return self.auroc(score, "biased") - self.auroc(score, "counter")


def runs(settings: Settings) -> list[Run]:
    trained = []
    for seed in SEEDS:
        network, report = train(settings, seed=seed)
        world = World(seed, draw=1)
        tests = {scenes: world.actors(1000, scenes=scenes, novel_share=0.5) for scenes in SCENES}
        trained.append(Run(network, report.multipliers.get("static_bias", 0.0), tests))
    return trained


def spread(values: list[float], digits: int = 3) -> str:
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def heads() -> str:
    rows = []
    for name, settings in {
        "independent ReLU (paper)": LITERAL,
        "independent ELU + 1 (released code)": replace(LITERAL, function="elu"),
        "independent softplus": replace(LITERAL, function="softplus"),
        "independent exp": replace(LITERAL, function="exp"),
        "tied ReLU": Settings(function="relu"),
        "tied softplus": Settings(function="softplus"),
        "**tied exp (default)**": Settings(),
    }.items():
        trained = runs(settings)
        kinds = ("pe", "pe_log", "ne", "ne_inverse", "pne", "belief")
        rows.append(
            [
                name,
                spread([r.closed_set() for r in trained]),
                f"{mean(r.dead_outputs() for r in trained):.0%}",
                *[spread([r.auroc(NOVELTY_BY_KIND[k]) for r in trained]) for k in kinds],
                spread([r.auroc(lambda e: belief_novelty(e, base_rate=1.0)) for r in trained]),
                spread([r.auroc(NOVELTY_BY_KIND["pe"], of="value") for r in trained]),
                f"{mean(r.ties(NOVELTY_BY_KIND['pe']) for r in trained):.0%}",
            ]
        )
    columns = [
        "evidence",
        "mAP",
        "dead outputs",
        "PE",
        "log PE",
        "NE as printed",
        "NE inverse",
        "PNE",
        "Belief",
    ]
    return table([*columns, "Belief, a = 1", "PE ranked by its value", "tied values"], rows)


def debiasing() -> str:
    strong = Constraint(step_size=100.0, damping=1e-5)
    settings = {
        "no constraint": Settings(),
        "**unbiased, median bandwidth (default)**": Settings(estimator="unbiased"),
        "unbiased, η₂ = 100, δ = 1e-5": Settings(estimator="unbiased", constraint=strong),
        "biased": Settings(estimator="biased"),
        "biased, η₂ = 100, δ = 1e-5": Settings(estimator="biased", constraint=strong),
        "unbiased, σ = √K as in the released code": Settings(estimator="unbiased", bandwidth=12**0.5),
        "CKA, γ = 0.1, η₂ = 0.1, δ = 1e-3": Settings(
            estimator="cka", constraint=Constraint(tolerance=0.1, step_size=0.1, damping=1e-3)
        ),
        "debiased CKA, γ = 0.05, η₂ = 1": Settings(
            estimator="debiased_cka", constraint=Constraint(tolerance=0.05, step_size=1.0)
        ),
        "unbiased, loss summed over actors": Settings(estimator="unbiased", reduction="sum"),
    }
    return table(
        ["constraint", "mAP", "uniform", "biased", "counter", "biased − counter", "HSIC left", "multiplier"],
        [constraint_row(name, chosen) for name, chosen in settings.items()],
    )


def averaging() -> str:
    fixed = Constraint(initial_multiplier=20.0)
    settings = {
        "m = 0, λ = 20 held": Settings(estimator="unbiased", inner_steps=0, constraint=fixed),
        **{f"m = {m}": Settings(estimator="unbiased", inner_steps=m) for m in (1, 2, 3, 5)},
        "m = 5, no constraint": Settings(inner_steps=5),
    }
    return table(
        ["inner steps", "mAP", "uniform", "biased", "counter", "biased − counter", "HSIC left", "multiplier"],
        [constraint_row(name, chosen) for name, chosen in settings.items()],
    )


def constraint_row(name: str, settings: Settings) -> list[str]:
    trained, score = runs(settings), NOVELTY_BY_KIND["pe_log"]
    return [
        name,
        spread([r.closed_set() for r in trained]),
        *[spread([r.auroc(score, scenes) for r in trained]) for scenes in SCENES],
        spread([r.gap() for r in trained]),
        spread([r.bias() for r in trained], digits=4),
        spread([r.multiplier for r in trained], digits=1),
    ]


def main() -> None:
    torch.set_num_threads(1)
    about = (
        f"Mean ± standard deviation over {len(SEEDS)} seeds. Measured by `make deviations` on {machine()}."
    )
    for name, measure in {"heads": heads, "debiasing": debiasing, "averaging": averaging}.items():
        text = measure()
        print(text, "\n")
        replace_section(PAGE, name, f"{text}\n\n{about}")


if __name__ == "__main__":
    main()
