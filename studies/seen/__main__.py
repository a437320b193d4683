"""`python -m studies.seen`: what an actor is seen by, from maps to the table of results.

extract ─▶ maps ─┬─ tune, develop (class splits 100–119) ─▶ the rivals' heads, the recipe
                 └─ report, small (class splits 320–339) ─▶ studies/results/seen*.csv ─▶ page
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from mule.core.files import write_file
from mule.features.weights.cards import find_card
from mule.features.weights.classifier import load_classifier
from studies.commands import noted, run
from studies.convert.jhmdb import actors_from_jhmdb
from studies.outcomes import read_outcomes
from studies.results.numbers import FOLDER
from studies.seen.closed import remembered
from studies.seen.cost import costs
from studies.seen.extract import VIEWS, pairs
from studies.seen.extract import extract as extract_maps
from studies.seen.heads import PLANS
from studies.seen.judging import MEASURES, Judged, interval, mean_of, measured, systems_beside
from studies.seen.material import Drawn, Material, read_material
from studies.seen.page import APART, read_tables, whole_page
from studies.seen.running import (
    CANDIDATES,
    DEVELOPING,
    NEEDS_BLOCKS,
    OURS,
    REPORTING,
    TRANSDUCTIVE_CHOSEN,
    TWIN,
    Found,
    by_columns,
    closed_form,
    crossing,
    heads_together,
    judged,
    kept,
    novel_first,
    read_choice,
    readings,
    recipe,
    rivals,
    transductive,
    tune,
    twin,
)

app = typer.Typer(add_completion=False, no_args_is_help=True)
CARD = "i3d_rgb_kinetics400"
Data = Annotated[Path, typer.Argument(metavar="JHMDB", help="The folder of J-HMDB.")]
Weights = Annotated[Path, typer.Option(metavar="FILE", help="Weights of I3D.")]
Cache = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder of the maps and of what is computed from them.")
]
View = Annotated[str, typer.Option(help="What actors are seen by: Rroi, R1, R2, R4, Pair …")]
Tags = Annotated[bool, typer.Option("--tags", help="Teach view and visible part as tags.")]
MASKED = "closed-form, related labels masked"
PAIR_VIEW = "Pair"
HEADS_OF = {PAIR_VIEW: "Rroi"}
"""The view whose heads the rivals take, where they were not tuned in the view itself."""
SIZES = (40, 80, 160, 400)


@app.command()
def extract(
    data: Data,
    weights: Weights,
    cache: Cache,
    views: Annotated[str, typer.Option(help="In this order.")] = ",".join(VIEWS),
    part: Annotated[int, typer.Option(help="Which share of the rows this process takes, from 0.")] = 0,
    parts: Annotated[int, typer.Option(help="How many processes share the rows.")] = 1,
) -> None:
    """Compute the maps of all clips; a run that was interrupted goes on."""
    table, _ = actors_from_jhmdb(data)
    extract_maps(
        table,
        data / "videos",
        (weights, find_card(CARD)),
        cache,
        views=views.split(","),
        part=(part, parts),
        noted=noted,
    )


@app.command(name="tune")
def tune_rivals(data: Data, weights: Weights, cache: Cache, view: View) -> None:
    """Choose the head of every rival, each by its own AUROC."""
    best = tune(_material(data, weights, cache), view, noted=noted)
    write_file(cache / f"choice-{view}.json", json.dumps(best, indent=1) + "\n")


@app.command()
def develop(
    data: Data,
    weights: Weights,
    cache: Cache,
    view: View,
    tags: Tags = False,
    folds: Annotated[int, typer.Option(help="Most folds of films.")] = 10,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A candidate; repeatable. Default: all.")
    ] = None,
) -> None:
    """Compare the candidates of the closed form, and what else was registered, on the splits that choose."""
    material = _material(data, weights, cache, has_tags=tags)
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in DEVELOPING:
        drawn, inputs = material.drawn(seed), material.inputs(view)
        candidates = readings(drawn.num_actions) if tags else CANDIDATES
        found: Found = {}
        crossed = crossing(material, drawn, inputs, most_folds=folds)
        for name, parts in candidates.items():
            lacks_block = any(block not in inputs for block in NEEDS_BLOCKS.get(name, ()))
            if (only and name not in only) or lacks_block:
                continue
            rank, p_value, by_part = closed_form(crossed, parts)
            found[name] = (rank, p_value)
            if name == OURS and not tags:
                found |= {f"{part} alone": (by_part[:, at], None) for at, part in enumerate(parts)}
                found |= transductive(drawn, inputs, rank)
        if view == "R1" and not (tags or only):
            found |= heads_together(material, drawn, view, read_choice(cache / f"choice-{view}.json"))
        for method, each in judged(material, drawn, found, material.named()).items():
            rows.setdefault(method, []).append(measured(each))
    study = f"{view}{'-tags' * tags}"
    lines = [{"view": study, "method": name, **mean_of(each)} for name, each in rows.items()]
    for line in lines:
        noted(
            " ".join(
                f"{key} {value:.2f}" if isinstance(value, float) else str(value)
                for key, value in line.items()
            )
        )
    write_file(cache / f"develop-{study}.csv", _csv(lines))


@app.command()
def report(
    data: Data,
    weights: Weights,
    cache: Cache,
    view: View,
    tags: Tags = False,
    closed: Annotated[
        bool, typer.Option("--closed", help="Only what trains no head: seconds per class split.")
    ] = False,
    backwards: Annotated[
        bool, typer.Option("--backwards", help="Begin with the last split: beside another process.")
    ] = False,
) -> None:
    """Judge every method on the splits that report; what a split gave is kept, so a run can be resumed."""
    material, study = _material(data, weights, cache, has_tags=tags), f"{view}{'-tags' * tags}"
    named = material.named()
    by_method: dict[str, list[Judged]] = {}
    by_pairs: dict[str, list[tuple[int, float]]] = {}
    for seed in reversed(REPORTING) if backwards else REPORTING:
        drawn, place = material.drawn(seed), cache / "report"
        found = kept(place / f"{study}-{seed}-closed.npz", partial(_closed, material, drawn, view))
        if not closed:
            chosen = read_choice(cache / f"choice-{HEADS_OF.get(view, view)}.json")
            heads = partial(_heads, material, drawn, view, chosen)
            found |= kept(place / f"{study}-{seed}-heads.npz", heads)
        together = transductive(drawn, material.inputs(view), found[OURS][0])
        found[APART] = together[TRANSDUCTIVE_CHOSEN]
        for method, each in judged(material, drawn, found, named).items():
            by_method.setdefault(method, []).append(each)
            if view == PAIR_VIEW:
                won = novel_first(pairs(material.table.labels), drawn.tested, drawn.is_novel, each.novelty)
                by_pairs.setdefault(method, []).append(won)
        noted(
            f"{study}: split {seed} "
            + ", ".join(f"{name} {measured(each[-1])['auroc']:.1f}" for name, each in by_method.items())
        )
    write_file(cache / f"seen-{study}.csv", _csv(_lines(study, by_method)))
    if view == PAIR_VIEW:
        write_file(cache / "seen_pairs.csv", _csv([_of_pairs(*each) for each in by_pairs.items()]))


def _closed(material: Material, drawn: Drawn, view: str) -> Found:
    """Return the closed form, its parts, its control and the memory on one class split."""
    crossed = crossing(material, drawn, material.inputs(view))
    masked = crossing(material, drawn, material.inputs(view, masked=material.related(drawn.novel)))
    ours = recipe(drawn.num_actions)
    whitening, labels = (crossed.columns(each) for each in ours.values())
    memory = crossed.columns(remembered())
    combinations = {
        OURS: (whitening, labels),
        MASKED: (whitening, masked.columns(ours["labels"])),
        "memory": (memory,),
        "memory and labels": (memory, labels),
    }
    found: Found = {
        f"{name} alone": (crossed.columns(part).tested.numpy(), None) for name, part in ours.items()
    }
    return found | {name: by_columns(crossed, columns)[:2] for name, columns in combinations.items()}


def _heads(material: Material, drawn: Drawn, view: str, chosen: Mapping[str, str]) -> Found:
    """Return every rival and the twin of the closed form on one class split."""
    crossed = crossing(material, drawn, material.inputs(view))
    plan, epochs, _ = chosen["joint-energy"].split("/")
    energy = twin(PLANS[int(plan)], int(epochs), drawn.num_actions, seed=drawn.seed)
    both = [crossed.columns(each) for each in (energy, recipe(drawn.num_actions)["labels"])]
    return rivals(material, drawn, view, chosen) | {TWIN: by_columns(crossed, both)[:2]}


@app.command()
def small(data: Data, weights: Weights, cache: Cache, view: View = "Rroi") -> None:
    """Measure the share of known actors flagged at a promise of 5 % where few actors are known."""
    material = _material(data, weights, cache)
    rows: list[dict[str, object]] = []
    for size in SIZES:
        shares: list[list[float]] = []
        for seed in REPORTING:
            drawn = material.drawn(seed)
            chosen = _by_film(material.groups[drawn.known], size, seed)
            crossed = crossing(material, drawn, material.inputs(view), chosen=chosen)
            rank, p_value, _ = closed_form(crossed, CANDIDATES[OURS])
            each = judged(material, drawn, {OURS: (rank, p_value)}, material.named())[OURS]
            found = measured(each)
            shares.append(
                [found["known_flagged"], found["novel_flagged_promised"], found["auroc"], float(len(chosen))]
            )
        mean, deviation = np.mean(shares, axis=0), np.std(shares, axis=0, ddof=1)
        rows.append(
            {
                "actors": size,
                "actors_mean": f"{mean[3]:.1f}",
                "known_flagged": f"{mean[0]:.2f}",
                "known_flagged_sd": f"{deviation[0]:.2f}",
                "novel_flagged": f"{mean[1]:.2f}",
                "auroc": f"{mean[2]:.2f}",
                "draws": len(shares),
            }
        )
        noted(str(rows[-1]))
    write_file(cache / "seen_small.csv", _csv(rows))


@app.command()
def systems(outcomes: Annotated[Path, typer.Argument(metavar="OUTCOMES")], cache: Cache) -> None:
    """Set networks of `mule compare` beside the closed form on the same people, from its file of outcomes."""
    found = read_outcomes(outcomes.read_text(encoding="utf-8"), name=str(outcomes))
    write_file(cache / "seen_systems.csv", _csv(systems_beside(found)))


@app.command()
def cost(data: Data, weights: Weights, cache: Cache) -> None:
    """Measure what each input of a moment costs, as a ratio to one pass over the frame."""
    rows = costs(_material(data, weights, cache), data / "videos", (weights, find_card(CARD)))
    for row in rows:
        noted(str(row))
    write_file(cache / "seen_cost.csv", _csv(rows))


@app.command()
def page(
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Take the numbers that were computed there first.")
    ] = None,
) -> None:
    """Write the page of the study from its CSV files; numbers that were computed replace those of the same view and method."""
    if cache is not None:
        for name, pattern in (("seen", "seen-*.csv"), ("seen_develop", "develop-*.csv")):
            paths = [FOLDER / f"{name}.csv", *sorted(cache.glob(pattern))]
            rows = [row for path in paths for row in csv.DictReader(path.open(newline=""))]
            write_file(
                FOLDER / f"{name}.csv",
                _csv(list({(row["view"], row["method"]): row for row in rows}.values())),
            )
        for name in ("seen_small", "seen_pairs", "seen_cost", "seen_systems"):
            if (cache / f"{name}.csv").is_file():
                write_file(FOLDER / f"{name}.csv", (cache / f"{name}.csv").read_bytes())
    write_file(FOLDER.parent / "pages" / "seen.md", whole_page(read_tables()))


def _by_film(films: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return places of about so many actors: films in random order until there are enough."""
    chosen: list[int] = []
    for film in np.random.default_rng(seed).permutation(np.unique(films)):
        if len(chosen) >= size:
            break
        chosen += np.flatnonzero(films == film).tolist()
    return np.array(sorted(chosen[:size] if len(chosen) > size else chosen))


def _lines(study: str, by_method: dict[str, list[Judged]]) -> list[dict[str, object]]:
    ours = by_method[OURS]
    lines: list[dict[str, object]] = []
    for method, found in by_method.items():
        mean = mean_of([measured(each) for each in found])
        low, high = interval(found)
        line: dict[str, object] = {"view": study, "method": method, "splits": len(found)}
        line |= {name: f"{mean[name]:.2f}" if name in mean else "" for name in MEASURES}
        line |= {
            "low": f"{low:.2f}",
            "high": f"{high:.2f}",
            "ours_minus": "",
            "diff_low": "",
            "diff_high": "",
            "wins": "",
        }
        if method != OURS:
            low, high = interval(ours, found)
            pairs = [(measured(a)["auroc"], measured(b)["auroc"]) for a, b in zip(ours, found, strict=True)]
            line |= {
                "ours_minus": f"{np.mean([a - b for a, b in pairs]):.2f}",
                "diff_low": f"{low:.2f}",
                "diff_high": f"{high:.2f}",
                "wins": str(sum(a > b for a, b in pairs)),
            }
        lines.append(line)
    return lines


def _of_pairs(method: str, found: Sequence[tuple[int, float]]) -> dict[str, object]:
    num_pairs = sum(each for each, _ in found)
    return {
        "method": method,
        "pairs": num_pairs,
        "novel_first": f"{100 * sum(won for _, won in found) / num_pairs:.2f}",
    }


def _csv(lines: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO(newline="")
    names = list(dict.fromkeys(name for line in lines for name in line))
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _material(data: Path, weights: Path, cache: Path, *, has_tags: bool = False) -> Material:
    classifier = load_classifier(weights, find_card(CARD))
    assert classifier is not None  # noqa: S101 - the card has one
    return read_material(data, cache, classifier, has_tags=has_tags)


if __name__ == "__main__":
    run(app, "studies.seen")
