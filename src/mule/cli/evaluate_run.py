"""`mule evaluate run`: how well a trained run recognises actions and flags novel ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.cli.printing import noted, require_folders, said_once, steps_shown

if TYPE_CHECKING:
    from mule.core.settings import Experiment
    from mule.inference.flagged import Flagged, FlaggedByAction
    from mule.inference.judging import Judging
    from mule.inference.results import ScoreResult, SideResult

ALL = "all"
"""`--score all`: show every score."""
LEGEND = (
    "FPR95: FPR at 95 % TPR. known, novel: share flagged at the threshold that flags 5 % of the known people of "
    "validation. ties: people who share their score with another. fisher(A+B): the p-values of A and B among known "
    "people, combined by Fisher's method; a score named twice counts twice."
)

SidesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        metavar="SIDE",
        help="Part of the data: val or test; on Stage val, test-uniform, test-biased or test-counter. Repeatable. "
        "Default: all.",
    ),
]
DataSettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Where the data is now, such as data.root=DIR. Repeatable."
    ),
]
TestClipsOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Clips in each test set of Stage. Default: the benchmark's 400."),
]
ClipResamplesOption = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Bootstrap resamples for confidence intervals; 0 disables them."),
]


def evaluate_run(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run of `mule train`.")],
    splits: SidesOption = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            "--score",
            metavar="NAME|all",
            help="Novelty score to show, or all. Repeatable. Default: the one that decides in `mule watch`.",
        ),
    ] = None,
    all_scores: Annotated[
        bool, typer.Option("--all-scores", help="Show every measure of every novelty score, for research.")
    ] = False,
    settings: DataSettingsOption = None,
    test_clips: TestClipsOption = None,
    resamples: ClipResamplesOption = 1000,
    dropout_passes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Forward passes with dropout, for scores that need them; 0 disables those scores.",
        ),
    ] = 10,
    by: Annotated[
        Literal["look", "track"],
        typer.Option(
            metavar="look|track", help="Judge each look at a person, or all looks of a track together."
        ),
    ] = "look",
    looks: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --by track: use only the first N looks of each track. Repeatable, to compare 1, 2, 4 and 8.",
        ),
    ] = None,
) -> None:
    """Evaluate a trained run: who is flagged as novel, and every measure.

    The report says what the run would do in practice: how many known and novel people it flags, for each action, and how well
    it recognises known actions. --all-scores adds the measures of every novelty score. Results are kept in RUN_DIR/results and reused until weights or data change. --by track fuses
    the evidence of all looks at a person; other scores get the mean of their inputs. --split reads only that part of the
    data and what a score is fitted on. Shares flagged need validation, so `--split test --score PE` leaves them out.
    """
    require_folders(run_dir, what="the folder of a run")
    from mule.inference.judging import Judging, judge_run
    from mule.inference.score_rules import SCORE_NAMES
    from mule.inference.sides import sides_under_test
    from mule.training.run_folder import experiment_of

    shows_all = all_scores or ALL in (scores or ())
    named = tuple(name for name in scores or () if name != ALL)
    experiment = experiment_of(run_dir, settings or [])
    judging = Judging(
        scores=tuple(dict.fromkeys((*SCORE_NAMES, *named))) if shows_all or not named else named,
        dropout_passes=dropout_passes,
        resamples=resamples,
        test_clips=test_clips,
        by=by,
        looks_at_least=bool(splits),
    )
    if looks:
        from mule.inference.judging import judge_looks

        if by == "look":
            raise typer.BadParameter("goes with --by track.", param_hint="--looks")
        for side in splits or sides_under_test(experiment):
            by_looks = judge_looks(run_dir, experiment, side, looks=looks, judging=judging, noted=noted)
            looks_table(side, by_looks)
        return
    with steps_shown():
        results = judge_run(run_dir, experiment, sides=splits or (), judging=judging, noted=said_once())
    side_of = {judging.name_of(side): side for side in ("train", "val", *sides_under_test(experiment))}
    for name, result in results.items():
        run = _Run(run_dir, side_of[name], experiment, judging)
        _print_practice(run, name, result, shows_scores=shows_all or bool(named))
    _print_left_out(results, names=None if shows_all or named else ())


class _Run(NamedTuple):
    """A side of a run, and how it was judged."""

    folder: Path
    side: str
    experiment: "Experiment"
    judging: "Judging"


def _print_practice(run: _Run, name: str, result: "SideResult", *, shows_scores: bool) -> None:
    """Print what the run would do to the people of a side; then its scores, or the one that decides."""
    from mule.inference.flagged import actions_left_out, flagged_in_run, novel_actions
    from mule.inference.sides import sides_under_test

    score, is_test = _first_score(result), run.side in sides_under_test(run.experiment)
    if score is not None:
        _print_flagged(name, result, score)
        counts = flagged_in_run(run.folder, run.side, result, score, judging=run.judging)
        _print_actions(result, counts, novel_actions(run.experiment) if is_test else ())
    for line in _protocol(result):
        _say(line)
    left_out = actions_left_out(run.experiment) if is_test else ()
    if left_out:
        _say(f"Not tested, because the split keeps them for choosing between models: {', '.join(left_out)}.")
    if shows_scores:
        _print_table(name, result, tuple(result.scores))
    elif score is not None:
        _say(_measured(result, score))


def print_results(results: "Mapping[str, SideResult]") -> None:
    """Print every score of every side, then the scores that could not be computed, and the conventions."""
    for name, result in results.items():
        _print_table(name, result, tuple(result.scores))
    _print_left_out(results, names=None)


def _first_score(result: "SideResult") -> str | None:
    """The score that decides, or else the first one computed."""
    from mule.inference.flagged import deciding_score

    return deciding_score(result) or next(iter(result.scores), None)


def _protocol(result: "SideResult") -> list[str]:
    """Whom the detector lost, and the official metric or why there is none."""
    lines = [result.detected.sentence] if result.detected else []
    if result.official is None:
        return [*lines, *filter(None, [result.official_missing])]
    official = result.official
    return [
        *lines,
        f"{official.name[0].upper()}{official.name[1:]}: {official.mean_ap:.4f} ({official.num_classes} have ground truth; "
        f"results/{official.files[0]}).",
    ]


def _print_flagged(name: str, result: "SideResult", score: str) -> None:
    from mule.inference.flagged import deciding_score

    shares = {"known": result.scores[score].known_flagged, "novel": result.scores[score].novel_flagged}
    flagged = " and ".join(f"{share:.1%} of {kind}" for kind, share in shares.items() if share is not None)
    if not flagged:
        return
    by = f"by {score}"
    if score == deciding_score(result):
        by += ", the score `mule watch` decides by"
    Console().print()
    _say(f"{name}: {flagged.replace('%', ' %')} people would be flagged as novel ({by}).", style="bold")


def _print_actions(result: "SideResult", counts: "FlaggedByAction", expected: Sequence[str]) -> None:
    """Print each action: who does it, who is flagged, and how well it is recognised; no action is left out silently."""
    if not (counts.known or counts.novel):
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("action", overflow="fold")
    for title in ("people", "flagged", "recognised (AP)"):
        table.add_column(title, justify="right")
    for name, precision in result.mean_ap_by_class.items():
        recognised = "–" if precision is None else f"{precision:.2f}"
        table.add_row(Text(name), *_people(counts.known.get(name)), recognised)
    for name in dict.fromkeys((*counts.novel, *expected)):
        table.add_row(Text(f"{name} (novel)"), *_people(counts.novel.get(name)), "")
    Console().print(table)
    absent = [name for name in expected if name not in counts.novel]
    if absent:
        _say(f"Not tested, because nobody in this part does them alone: {', '.join(absent)}.")


def _people(count: "Flagged | None") -> tuple[str, str]:
    return ("0", "–") if count is None else (str(count.num_people), str(count.num_flagged))


def _measured(result: "SideResult", score: str) -> str:
    """How well known actions are recognised and, if there are both kinds, how well the score tells them apart."""
    from mule.evaluation.open_set import OpenSetMeasures

    measures = result.scores[score].measures
    recognised = f"Known actions are recognised with a mean AP of {result.mean_ap:.4f}"
    if not isinstance(measures, OpenSetMeasures):
        return f"{recognised}; novelty is not measured ({measures.undefined})."
    return f"{recognised}; {score} tells novel people from known ones with an AUROC of {measures.auroc:.4f} (0.5 is chance)."


def _print_table(name: str, result: "SideResult", scores: Sequence[str]) -> None:
    from mule.inference.flagged import deciding_score

    table = Table(
        title=f"{name}: {result.num_known} known and {result.num_novel} novel actors, "
        f"actor-level mAP {result.mean_ap:.4f}",
        title_justify="left",
        box=None,  # room for whole names in 80 columns
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    table.add_column("score", overflow="fold")
    flags = any(result.scores[score].threshold is not None for score in scores)
    for title in ("AUROC", "AUPR", "FPR95", *(("known", "novel") if flags else ()), "ties"):
        table.add_column(title, justify="right", no_wrap=True)
    decides = deciding_score(result)
    for score in scores:
        mark, style = ("*", "bold") if score == decides else ("", None)
        table.add_row(Text(mark + score), *_cells(result.scores[score], flags=flags), style=style)
    console = Console()
    console.print(table)
    if scores and not flags:
        console.print(
            Text("Shares flagged need validation, which was not looked at; add --split val.", style="dim")
        )
    if decides in scores:
        console.print(Text("* decides in `mule watch`", style="dim"))


def _cells(score: "ScoreResult", *, flags: bool) -> list[str]:
    from mule.evaluation.open_set import OpenSetMeasures

    cells = ["–"] * 3
    if isinstance(score.measures, OpenSetMeasures):
        values = (score.measures.auroc, score.measures.aupr_novel, score.measures.fpr_at_95_tpr)
        cells = [f"{value:.4f}" for value in values]
    shares = (score.known_flagged, score.novel_flagged) if flags else ()
    return [
        *cells,
        *("–" if share is None else f"{share:.1%}" for share in shares),
        f"{score.tied_share:.0%}",
    ]


def _print_left_out(results: "Mapping[str, SideResult]", *, names: Sequence[str] | None) -> None:
    """Print scores that could not be computed, all or only these, then what the columns and numbers mean."""
    first = next(iter(results.values()))
    console = Console()
    for name, reason in first.left_out.items():
        if names is None or name in names:
            console.print(Text(f"left out: {name} ({reason})"), soft_wrap=True)
    if names is not None:
        num_more = len(first.scores) + len(first.left_out)
        console.print(Text(f"--all-scores shows all {num_more} scores, and why some could not be computed."))
        return
    console.print(Text(LEGEND, style="dim"))
    console.print(Text(first.convention, style="dim"))


def _say(sentence: str, style: str = "") -> None:
    Console().print(Text(sentence, style=style))


def looks_table(side: str, results: "Mapping[int, SideResult]") -> None:
    """Print AUROC by number of looks, closed-set mAP first, then the scores that were left out."""
    first = next(iter(results.values()))
    table = Table(
        "AUROC",
        *map(looks_in_words, results),
        title=f"{side}: {first.num_known} known and {first.num_novel} novel tracks",
    )
    table.add_row(
        "closed-set mAP", *(f"{result.mean_ap:.4f}" for result in results.values()), end_section=True
    )
    for name in dict.fromkeys(name for result in results.values() for name in result.scores):
        table.add_row(Text(name), *(_auroc(result, name) for result in results.values()))
    console = Console()
    console.print(table)
    left_out = {name: reason for result in results.values() for name, reason in result.left_out.items()}
    for name, reason in left_out.items():
        console.print(Text(f"left out: {name} ({reason})"), soft_wrap=True)
    console.print(Text(list(results.values())[-1].convention, style="dim"))


def looks_in_words(number: int) -> str:
    """Return the title of a column: `1 look`, `2 looks`."""
    return f"{number} look{'s' if number > 1 else ''}"


def _auroc(result: "SideResult", name: str) -> str:
    from mule.evaluation.open_set import OpenSetMeasures

    score = result.scores.get(name)
    if score is None or not isinstance(score.measures, OpenSetMeasures):
        return "–"
    return f"{score.measures.auroc:.4f}"
