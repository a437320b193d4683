"""The verdict, the bars and the tables of the study, from its CSV files."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from studies.results.numbers import FOLDER

Row = dict[str, str]
OURS = "closed-form"
PLAIN_RIVALS = ("joint-energy", "knn", "vim")
APART, IN_FLOAT32 = "closed-form, transductive", "closed-form, maps in float32"
PER_PERSON = "Rroi"
VIEW_NAMES = {
    "Rroi": "per person, one pass over the frame (`roi`, labels of the roi)",
    "R1": "per clip, one pass over the frame (`frame`, its labels)",
    "R1both": "`frame` and the flipped frame, two passes",
    "R1roi": "`frame` and `roi` of one pass, labels of both",
    "Rcrop": "`crop`, one pass for each person, its labels",
    "R2": "`frame` and `crop`, two passes, labels of both",
    "R4": "`frame` and `crop`, each also flipped, four passes",
    "Product": "what the product decides by, one pass (`roi` and `frame`, labels of the roi); no bar",
    "Pair": "per person, two people of different films side by side in one pass (`roi`, labels of the roi)",
}
SPLITS = "300–319"
RIVAL_NAMES = {"joint-energy": "JointEnergy", "knn": "kNN", "vim": "ViM"}
ROWS_IN_WORDS = (
    "`closed-form` is what MULE decides by where the backbone is frozen; `whitened alone` and `labels alone` are its two parts. `related labels masked`: "
    "Kinetics labels that resemble a new action are taken away first. `bce-twin`: the same with a trained cross-entropy head in place of whitening. "
    "`memory`: nearest remembered people. The others are published scores on heads trained for them. *named* and *unnamed*: new actions that "
    "Kinetics has a name for, and the others. *FPR95*: new people taken for known where 95 % of known ones pass. *won*: class splits in which the "
    "closed form is better.",
)
NOT_PER_CLIP = ("Rroi", "Pair", "Product")
TAGS = "-tags"


class Bar(NamedTuple):
    """What was registered, and what came out."""

    text: str
    found: str
    is_met: bool


class SeenTables(NamedTuple):
    """Every CSV file of the study."""

    methods: list[Row]
    small: list[Row]
    developed: list[Row]
    pairs: list[Row]
    systems: list[Row]
    costs: list[Row]

    def of(self, view: str) -> list[Row]:
        """Return the methods of a view, best first; what sees all tested people at once is apart."""
        rows = [row for row in self.methods if row["view"] == view and row["method"] != APART]
        return sorted(rows, key=lambda row: -float(row["auroc"]))

    def row(self, view: str, method: str) -> Row:
        """Return the numbers of a method in a view."""
        return next(row for row in self.methods if row["view"] == view and row["method"] == method)

    @property
    def per_clip(self) -> str:
        """The view per clip that the splits of development put first, among those that were reported."""
        reported = {row["view"] for row in self.methods if row["method"] in PLAIN_RIVALS} - set(NOT_PER_CLIP)
        chosen = [row for row in self.developed if row["method"] == OURS and row["view"] in reported]
        return max(chosen, key=lambda row: float(row["auroc"]))["view"]


def read_tables(folder: Path = FOLDER) -> SeenTables:
    """Read the CSV files of the study; one that was not computed has no rows."""
    names = ("seen", "seen_small", "seen_develop", "seen_pairs", "seen_systems", "seen_cost")
    return SeenTables(*(_read(folder / f"{name}.csv") for name in names))


def bars(tables: SeenTables) -> list[Bar]:
    """Return the registered bars and what came out."""
    clip, person = tables.row(tables.per_clip, OURS), tables.row(PER_PERSON, OURS)
    found = [
        _at_least("AUROC per clip ≥ 87", float(clip["auroc"]), 87),
        _at_least("AUROC per person from one pass ≥ 84", float(person["auroc"]), 84),
        _at_least("unnamed novel actions, per clip ≥ 84", float(clip["auroc_unnamed"]), 84),
    ]
    for view, words in ((tables.per_clip, "per clip"), (PER_PERSON, "per person")):
        best = max((tables.row(view, rival) for rival in PLAIN_RIVALS), key=lambda row: float(row["auroc"]))
        margin, low, high = (float(best[name]) for name in ("ours_minus", "diff_low", "diff_high"))
        found.append(
            Bar(
                f"{words}: at least 4 above the best of JointEnergy, kNN and ViM, interval above zero",
                f"+{margin:.1f} ({low:.1f} to {high:.1f}) above {RIVAL_NAMES[best['method']]}, {best['wins']} of {best['splits']} splits",
                margin >= 4 and low > 0,
            )
        )
    fpr, flagged = float(clip["fpr95"]), float(clip["novel_flagged"])
    share = f"{flagged:.1f}" + "".join(
        f" ({float(row['novel_flagged']):.1f} on maps in float32)"
        for row in tables.of(tables.per_clip)
        if row["method"] == IN_FLOAT32
    )
    found += [
        Bar("FPR at 95 % TPR ≤ 50", f"{fpr:.1f}", fpr <= 50),
        Bar("novel actors flagged at 5 % of known ≥ 45 %", share, flagged >= 45),
    ]
    off = max(abs(float(row["known_flagged"]) - 5) for row in tables.small)
    shares = ", ".join(
        f"{float(row['known_flagged']):.1f} % ({row['actors']} actors)" for row in tables.small
    )
    return [
        *found,
        Bar("known actors flagged at a promise of 5 %: within 2 points at every size", shares, off <= 2),
    ]


def section(tables: SeenTables) -> list[str]:
    """Return what the page of results says of the study, the verdict first."""
    clip, person = tables.row(tables.per_clip, OURS), tables.row(PER_PERSON, OURS)
    best = max(
        (tables.row(tables.per_clip, name) for name in PLAIN_RIVALS), key=lambda row: float(row["auroc"])
    )
    numbers = {int(each["splits"]) for each in (clip, person)}
    of_splits = " and ".join(f"{number} of 20" if number < 20 else "20" for number in sorted(numbers))
    num_missed = sum(not each.is_met for each in bars(tables))
    return [
        f"**Whether somebody does something new is told with AUROC {float(clip['auroc']):.1f} from the whole clip and "
        f"{float(person['auroc']):.1f} from the person's box, without training anything** (J-HMDB, {of_splits} class splits "
        f"{SPLITS}, registered before they were drawn). Each person is compared with the known people in two ways: by features of a frozen I3D, and by "
        f"what its own Kinetics classifier answers. The best of JointEnergy, kNN and ViM sees the same and is tuned for itself: {RIVAL_NAMES[best['method']]} has "
        f"{float(best['auroc']):.1f}. New actions that Kinetics has a name for have {float(clip['auroc_named']):.1f}, the others {float(clip['auroc_unnamed']):.1f}. "
        f"Of {len(bars(tables))} goals set before the run, {num_missed} {'is' if num_missed == 1 else 'are'} missed.",
        "",
        *_table(
            ["Goal", "Outcome", ""],
            [[each.text, each.found, "met" if each.is_met else "**missed**"] for each in bars(tables)],
        ),
        "",
        f"All methods on the same inputs ({VIEW_NAMES[tables.per_clip]}); other inputs are in `studies/pages/seen.md`:",
        "",
        *_methods(tables, tables.per_clip),
        "",
        *ROWS_IN_WORDS,
        "",
        "What evidence, relations and the constraint add or cost on the same maps:",
        "",
        *_adds(tables),
        "",
        "Heads without relations, each with the configuration that is best for its own score. Cross-entropy is read as JointEnergy, tied Beta "
        "evidence as its sum or largest, the literal Beta form (ReLU, two outputs) as positive evidence:",
        "",
        *_evidence(tables),
    ]


def whole_page(tables: SeenTables) -> str:
    """Return the page of the study."""
    text = [
        "# What an actor is seen by",
        "",
        "Generated by `python -m studies.seen page`; do not edit. Registered in sections 15 and 16 of `studies/PREREGISTRATION.md`.",
        "",
        *section(tables),
        "",
        "Maps are computed in bfloat16, but the heads of rivals in R1 and Rroi were trained on maps in float32, and are set against the "
        "closed form on those. What trains no head is computed in every view; rivals are there where there was time to train them.",
    ]
    views = list(dict.fromkeys(row["view"] for row in tables.methods))
    for view in views:
        name = VIEW_NAMES[view.removesuffix(TAGS)] + (", taught with tags" if view.endswith(TAGS) else "")
        text += ["", f"## {view}: {name}", "", *_methods(tables, view)]
    text += [
        "",
        "## Whole folders at once",
        "",
        "Where all people are judged together, the novelty of each may be averaged with those of the 5 who look most like it among the "
        "tested. The result depends on who else is tested, so it is not compared with the methods above, which see one person at a time.",
        "",
        *_apart(tables),
        "",
        "## Two people side by side",
        "",
        "Pairs of one known and one novel tested person in one pass: how often the novel one looks more novel. Chance is 50 %; the same "
        "pair counts in every class split that makes one known and one novel.",
        "",
        *_table(
            ["Method", "novel one first, %", "pairs"],
            [
                [row["method"], f"{float(row['novel_first']):.1f}", row["pairs"]]
                for row in sorted(tables.pairs, key=lambda row: -float(row["novel_first"]))
            ],
        ),
        "",
        "## What the inputs cost",
        "",
        "Processor time of each step of a moment divided by that of one pass over the frame (192 × 256, 32 frames, I3D, OpenVINO in float32, "
        "one thread), by the number of people; measured in turn within one run. A crop is 192 × 192; the decision compares with all "
        "known people of a class split.",
        "",
        *_table(
            ["Step", "1 person", "2 people", "4 people"],
            [
                [row["step"], *(f"{float(row[f'people_{num}']):.3f}" for num in (1, 2, 4))]
                for row in tables.costs
            ],
        ),
        "",
        "## Few actors",
        "",
        "Known and novel test actors flagged at a promise of 5 %, per person from one pass, by the number of known actors that the "
        "closed form was fitted to and calibrated on; films drawn at random, one draw for each class split.",
        "",
        *_table(
            [
                "Known actors",
                "known flagged, %",
                "deviation over draws",
                "novel flagged, %",
                "AUROC",
                "draws",
            ],
            [
                [
                    row[name]
                    for name in (
                        "actors",
                        "known_flagged",
                        "known_flagged_sd",
                        "novel_flagged",
                        "auroc",
                        "draws",
                    )
                ]
                for row in tables.small
            ],
        ),
        "",
        "## Development",
        "",
        "Class splits 100–119, which chose; never part of a result. *Transductive* forms see all tested actors at once and are no candidates; "
        "heads together are a rival's; *label sets* and *single actions* are two readings of tags (`-tags`).",
        "",
        *_table(
            ["View", "Candidate", "AUROC", "named", "unnamed", "FPR95", "known flagged", "novel flagged"],
            [
                [row["view"], row["method"]]
                + [
                    _short(row.get(name, ""))
                    for name in (
                        "auroc",
                        "auroc_named",
                        "auroc_unnamed",
                        "fpr95",
                        "known_flagged",
                        "novel_flagged_promised",
                    )
                ]
                for row in tables.developed
            ],
        ),
    ]
    return "\n".join(text) + "\n"


def _apart(tables: SeenTables) -> list[str]:
    rows = [row for row in tables.methods if row["method"] == APART]
    return _table(
        ["View", "AUROC (95 %)", "named", "unnamed", "FPR95", "closed form minus it (95 %)"],
        [
            [
                row["view"],
                f"{_short(row['auroc'])} ({_short(row['low'])} to {_short(row['high'])})",
                *(_short(row[name]) for name in ("auroc_named", "auroc_unnamed", "fpr95")),
                f"{float(row['ours_minus']):+.1f} ({_short(row['diff_low'])} to {_short(row['diff_high'])})",
            ]
            for row in rows
        ],
    )


def _adds(tables: SeenTables) -> list[str]:
    """What relations, evidence and the constraint add to a network, beside the closed form that reads none of them."""
    if not tables.systems:
        return ["No network with relations and the constraint was trained on these inputs."]
    auroc = {row["system"]: float(row["auroc"]) for row in tables.systems}
    steps = (
        ("relations", "bce-aco-r", "slowfast"),
        ("evidence", "mule-without-m-edc", "bce-aco-r"),
        ("the constraint", "mule", "mule-without-m-edc"),
    )
    told = ", ".join(f"{name} {auroc[more] - auroc[less]:+.1f}" for name, more, less in steps)
    closed = float(tables.systems[0]["closed_form"])
    return [
        f"**What each adds to the AUROC of a network on the maps of one pass: {told}. The best network has {max(auroc.values()):.1f}, the closed form, "
        f"which uses none of them, {closed:.1f}.** Networks are trained by `mule compare`; {tables.systems[0]['splits']} class splits from 300 on, "
        "each network by its registered score. Intervals resample class splits only, so they are too narrow.",
        "",
        *_table(
            ["Network", "What it has", "Score", "AUROC", "closed form minus it (95 %)"],
            [
                [
                    f"`{row['system']}`",
                    row["parts"],
                    row["score"],
                    _short(row["auroc"]),
                    f"{float(row['closed_minus']):+.1f} ({_short(row['low'])} to {_short(row['high'])})",
                ]
                for row in tables.systems
            ],
        ),
    ]


def _evidence(tables: SeenTables) -> list[str]:
    rows = [row for row in tables.methods if row["method"] in PLAIN_RIVALS]
    views = [view for view in VIEW_NAMES if any(row["view"] == view for row in rows)]
    names = ("joint-energy", "beta-sum", "beta-max", "literal", "dear")
    return _table(
        ["Head", *(VIEW_NAMES[view].partition(",")[0] for view in views)],
        [[name, *(_short(tables.row(view, name)["auroc"]) for view in views)] for name in names],
    )


def _methods(tables: SeenTables, view: str) -> list[str]:
    head = [
        "Method",
        "AUROC (95 %)",
        "named",
        "unnamed",
        "FPR95",
        "novel flagged at 5 % of known",
        "closed form minus it (95 %)",
        "won",
    ]
    rows: list[Sequence[str]] = []
    for row in tables.of(view):
        minus = row["ours_minus"]
        rows.append(
            [
                row["method"],
                f"{_short(row['auroc'])} ({_short(row['low'])} to {_short(row['high'])})",
                *(_short(row[name]) for name in ("auroc_named", "auroc_unnamed", "fpr95", "novel_flagged")),
                f"{float(minus):+.1f} ({_short(row['diff_low'])} to {_short(row['diff_high'])})"
                if minus
                else "",
                f"{row['wins']} of {row['splits']}" if minus else "",
            ]
        )
    return _table(head, rows)


def _at_least(text: str, value: float, least: float) -> Bar:
    return Bar(text, f"{value:.1f}", value >= least)


def _short(number: str) -> str:
    return f"{float(number):.1f}" if number else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"| :-- {'| --: ' * (len(head) - 1)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _read(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
