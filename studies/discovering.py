"""Measure discovering: are novel people grouped by what they do, where nobody says how many things they do?

    python -m studies.discovering --out studies/pages/discover.md

actors of `people` ─▶ 14 known, 7 novel actions ─▶ whitened space of the known ones ─▶ groups of the novel ones ─▶ true actions
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
import typer
from jaxtyping import Float, Int
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

from mule.core.files import write_file
from mule.novelty.crossfit import LABELS_INPUT
from mule.novelty.known import KnownActors
from mule.novelty.whitened import WhitenedCosine, joined_blocks
from mule.watching.discovering.grouping import NO_GROUP, grouped, main_directions
from mule.watching.engine.bundle import PEOPLE, packaged_folder
from mule.watching.engine.bundle_card import read_bundle_card
from mule.watching.engine.seen import SEEN, read_seen

CHOSE, REPORT = range(610, 616), range(600, 610)
"""Class splits on which the settings were chosen, and those that report."""
NUM_NOVEL = 7
PURE = 0.8
FEWEST_FOUND = 3
"""Members of a group that finds an action."""

Groups = Int[np.ndarray, " actors"]
Way = Callable[[Float[Tensor, "actors dim"]], Groups]


@dataclass(frozen=True)
class Agreement:
    """How well groups agree with true actions."""

    nmi: float
    """Normalised mutual information; the actors in no group count as one group."""
    purity: float
    """The share of grouped actors that do what most of their group do."""
    found: float
    """The share of actions with a group of purity 0.8 or more and at least three members."""
    share: float
    """Of the actors, in a group."""
    num_groups: float


def agreement(groups: Groups, does: Groups) -> Agreement:
    """Compare groups with true actions, both numbered from 0; −1 is in no group.

    >>> agreement(np.array([0, 0, 0, 1, 1, -1]), np.array([0, 0, 0, 1, 0, 1])).found
    0.5
    """
    numbers = np.unique(groups[groups != NO_GROUP])
    counts = [np.bincount(does[groups == number]) for number in numbers]
    num_in = sum(int(each.sum()) for each in counts)
    found = {
        int(each.argmax())
        for each in counts
        if each.max() >= PURE * each.sum() and each.sum() >= FEWEST_FOUND
    }
    return Agreement(
        float(normalized_mutual_info_score(does, groups)),
        sum(int(each.max()) for each in counts) / num_in if num_in else 0.0,
        len(found) / len(np.unique(does)),
        num_in / len(groups),
        float(len(numbers)),
    )


def by_density(rows: Float[Tensor, "actors dim"]) -> Groups:
    """Group as `mule discover` does."""
    return grouped(rows).groups.numpy()


def by_k_means(rows: Float[Tensor, "actors dim"]) -> Groups:
    """Group by k-means with the true number of actions, along the same main directions."""
    options: dict[str, Any] = {"n_init": 10, "random_state": 0}
    return KMeans(NUM_NOVEL, **options).fit_predict(main_directions(rows).double().numpy())


def by_single_linkage(rows: Float[Tensor, "actors dim"]) -> Groups:
    """Group by single linkage, cut at the true number of actions."""
    return AgglomerativeClustering(NUM_NOVEL, linkage="single", metric="cosine").fit(rows.numpy()).labels_


WAYS: Mapping[str, tuple[Way, str]] = {
    "`mule discover`: density, whitened": (by_density, "whitened"),
    "density, raw features": (by_density, "raw"),
    "k-means, true number, whitened": (by_k_means, "whitened"),
    "k-means, true number, raw features": (by_k_means, "raw"),
    "single linkage, true number, whitened": (by_single_linkage, "whitened"),
    "single linkage, true number, raw features": (by_single_linkage, "raw"),
}
"""What is compared, and in which space."""


def measured(known: KnownActors, split: int) -> dict[str, Agreement]:
    """Hold out actions of a class split, and group the actors that do them in every way."""
    num_actions = len(known.actions)
    order = torch.randperm(num_actions, generator=torch.Generator().manual_seed(split))
    is_novel = torch.zeros(num_actions, dtype=torch.bool)
    is_novel[order[:NUM_NOVEL]] = True
    labels = known.labels[:, :num_actions]
    does_novel = labels[:, is_novel].any(dim=1)
    features = joined_blocks([each for name, each in sorted(known.inputs.items()) if name != LABELS_INPUT])
    space = WhitenedCosine.fit(features[~does_novel], labels[~does_novel][:, ~is_novel])
    spaces = {
        "whitened": space.whitened(features[does_novel]),
        "raw": F.normalize(features[does_novel], dim=1),
    }
    does = labels[does_novel][:, is_novel].double().argmax(dim=1).numpy()
    return {name: agreement(way(spaces[where]), does) for name, (way, where) in WAYS.items()}


def table(known: KnownActors, splits: Sequence[int]) -> list[str]:
    """Return the mean over class splits of every way, as rows of Markdown."""
    found = [measured(known, split) for split in splits]
    rows = [
        "| | NMI | purity | novel actions found | people in a group | groups |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for name in WAYS:
        mean = np.mean([astuple(each[name]) for each in found], axis=0)
        cells = " | ".join(f"{value:.3f}" for value in mean[:4])
        rows.append(f"| {name} | {cells} | {mean[4]:.1f} |")
    return rows


def page(known: KnownActors) -> str:
    """Return the page."""
    lines = [
        "# Discovering: are novel people grouped by what they do?",
        "",
        f"`python -m studies.discovering`; {len(known)} labelled moments of J-HMDB as the model `people` keeps them (frozen I3D, a "
        f"square around each person), {len(known.actions) - NUM_NOVEL} known and {NUM_NOVEL} novel actions. The whitened space is "
        "fitted to the known ones. Registered in [section 19](../PREREGISTRATION.md).",
        "",
        f"A novel action counts as found if a group of at least {FEWEST_FOUND} people has it with purity {PURE} or more. People in "
        "no group count as one group in NMI, and not in purity. Only the ways with the true number are told how many actions there are.",
        "",
        f"## Class splits {REPORT[0]}–{REPORT[-1]}, which chose nothing",
        "",
        *table(known, REPORT),
        "",
        f"## Class splits {CHOSE[0]}–{CHOSE[-1]}, on which the settings were chosen",
        "",
        *table(known, CHOSE),
    ]
    return "\n".join(lines) + "\n"


def main(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the page goes.")] = Path(
        "studies/pages/discover.md"
    ),
) -> None:
    """Measure discovering on J-HMDB's actions, and write the page."""
    folder = packaged_folder(PEOPLE)
    if folder is None:
        raise typer.BadParameter(f"there is a folder {PEOPLE} here; run this from another one.")
    known = read_seen(folder / SEEN, weights_sha256=read_bundle_card(folder).weights_sha256).known
    write_file(out, page(known))
    typer.echo(out)


if __name__ == "__main__":
    typer.run(main)
