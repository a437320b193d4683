"""Two heads learn twelve actions; then people turn up who do something neither was taught. Who notices?

`make demo` trains the paper's head and MULE's default on made-up actors (`feature_world.py`), shows what MULE says
of some of them, and writes every actor's novelty to a file that `mule evaluate open-set` reads.
"""

import csv
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from examples.feature_world import Actors, Network, Settings, World, train
from mule.evaluation.mean_ap import mean_average_precision
from mule.evaluation.metrics import auroc, threshold_at_false_alarm_rate
from mule.evidence.opinion import opinion_from
from mule.novelty.scores import NOVELTY_BY_KIND, NoveltyKind, positive_log_evidence_novelty

SEED = 10
SCORES_FILE = Path("runs/demo/scores.csv")
SHOWN: dict[NoveltyKind, str] = {
    "pe": "PE", "pe_log": "log PE", "ne": "NE", "pne": "PNE", "belief": "Belief"
}  # fmt: skip


def main() -> None:
    """Train, compare, show, save."""
    console = Console(width=max(Console().width, 108))
    started_at = time.perf_counter()
    torch.set_num_threads(1)  # tensors this small are slower on two
    methods = {
        "as printed": Settings(parameterisation="independent", function="relu"),
        "default": Settings(),
        "default + M-EDC": Settings(estimator="unbiased"),
    }
    with console.status("training three networks on actors who do known actions only ..."):
        networks = {name: train(settings, seed=SEED)[0] for name, settings in methods.items()}
    test = World(SEED, draw=1).actors(2000, novel_share=0.3)
    calibration = World(SEED, draw=2).actors(1000)

    console.print(comparison(networks, test))
    console.print(
        "[dim]as printed: independent ReLU evidence. default: tied exponential evidence. M-EDC: plus the "
        "constraint that\nevidence must not depend on the scene.[/dim]\n"
    )
    network = networks["default + M-EDC"]
    usual = positive_log_evidence_novelty(network.evidence(calibration.features)).rank
    console.print(closer_look(network, test, usual))
    save_scores(network, test)
    console.print(
        f"\n{len(test.is_novel):,} actors' scores: {SCORES_FILE}   ({time.perf_counter() - started_at:.0f} s in all)"
        f"\nMeasure them: [bold].venv/bin/mule evaluate open-set {SCORES_FILE}[/bold]"
    )


def comparison(networks: dict[str, Network], test: Actors) -> Table:
    """How well each score of each network ranks novel actors above known ones."""
    share = test.is_novel.float().mean().item()
    table = Table(
        title=f"Chance that a novel actor ranks above a known one (AUROC; 0.5 is guessing; {share:.0%} are novel)"
    )
    table.add_column("method")
    for title in SHOWN.values():
        table.add_column(title, justify="right")
    table.add_column("mAP", justify="right")
    known = ~test.is_novel
    for name, network in networks.items():
        evidence = network.evidence(test.features)
        probability = opinion_from(evidence).probability[known]
        table.add_row(
            name,
            *[
                f"{auroc(NOVELTY_BY_KIND[k](evidence).rank.numpy(), test.is_novel.numpy()):.3f}"
                for k in SHOWN
            ],
            f"{mean_average_precision(probability.numpy(), test.targets[known].numpy()):.3f}",
        )
    return table


def closer_look(network: Network, test: Actors, usual: Tensor) -> Table:
    """Some actors, what they are believed to do, and the decision: cyan is known, yellow is novel."""
    table = Table(title="A closer look: known in cyan, novel in yellow; 95 % of known actors pass as known")
    table.add_column("actor", justify="right")
    table.add_column("really does")
    table.add_column("is believed to do (belief, disbelief, uncertainty)")
    table.add_column("more novel than", justify="right")
    table.add_column("decision")
    evidence = network.evidence(test.features)
    opinion, rank = opinion_from(evidence), positive_log_evidence_novelty(evidence).rank
    threshold = threshold_at_false_alarm_rate(usual.numpy(), 0.05)
    found, alarms = (rank[test.is_novel] > threshold).float(), (rank[~test.is_novel] > threshold).float()
    table.caption = (
        f"of all novel actors {found.mean():.0%} are flagged, of all known ones {alarms.mean():.0%}"
    )
    chosen = torch.cat([torch.nonzero(~test.is_novel)[:6, 0], torch.nonzero(test.is_novel)[:6, 0]])
    for actor in chosen.tolist():
        actions = torch.nonzero(test.targets[actor])[:, 0].tolist()
        believed = [
            f"action {a} ({opinion.belief[actor, a]:.2f}, {opinion.disbelief[actor, a]:.2f}, "
            f"{opinion.uncertainty[actor, a]:.2f})"
            for a in torch.nonzero(opinion.probability[actor] > 0.5)[:, 0].tolist()
        ]
        colour, decision = ("yellow", "NOVEL") if rank[actor] > threshold else ("cyan", "known")
        table.add_row(
            str(actor),
            "something new" if test.is_novel[actor] else "action " + ", ".join(map(str, actions)),
            "\n".join(believed) or "nothing",
            f"{(usual < rank[actor]).float().mean():.0%} of known",
            f"[{colour}]{decision}[/{colour}]",
        )
    return table


def save_scores(network: Network, test: Actors) -> None:
    """One row per actor, in the columns `mule evaluate open-set` reads."""
    SCORES_FILE.parent.mkdir(parents=True, exist_ok=True)
    rank = positive_log_evidence_novelty(network.evidence(test.features)).rank
    with SCORES_FILE.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["novelty", "is_novel"])
        writer.writerows(zip(rank.tolist(), test.is_novel.int().tolist(), strict=True))


if __name__ == "__main__":
    main()
