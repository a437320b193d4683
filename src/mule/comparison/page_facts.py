"""What a page of results says beside its numbers: what was run on what, row by row, and what could not be scored."""

from collections.abc import Iterable, Mapping, Sequence

from mule.comparison.equal import gradient_steps
from mule.comparison.findings import Findings, FinishedRow
from mule.comparison.sheets import trained_seconds
from mule.core.config import StageData
from mule.evaluation.formats import escaped_markdown
from mule.evaluation.outcomes import Trial
from mule.training.run_record import RunFolder

MOST_TRIALS = 6
"""So many are named one by one."""


def what_was_run(findings: Findings, *, budget: str, elapsed_s: float | None) -> list[str]:
    """Commit, versions, hardware, data, trials and budget, as a table."""
    sessions = [
        session for each in findings.rows for session in RunFolder(each.row.folder).record()["sessions"]
    ]
    packages = _distinct(
        ", ".join(f"{name} {version}" for name, version in session["packages"].items())
        for session in sessions
    )
    hardware = [session["hardware"] for session in sessions]
    machines = _distinct(
        f"{each['processor']}, {each['num_cores']} cores, {each['torch_threads']} thread per row"
        + (f", {', '.join(each['gpus'])}" if each["gpus"] else "")
        for each in hardware
    )
    lines = [
        "| | |",
        "| --- | --- |",
        f"| commit | {_distinct(str(session['git_commit']) for session in sessions)} |",
        f"| versions | Python {_distinct(session['python'] for session in sessions)}, {packages} |",
        f"| hardware | {machines} |",
        f"| data | {_data(findings.rows)} |",
        f"| trials | {_trials(list(dict.fromkeys(each.row.trial for each in findings.rows)))} |",
        f"| budget | {budget} |",
    ]
    if elapsed_s is not None:
        lines.append(
            f"| whole command | {elapsed_s / 60:.1f} minutes, rows that were already there not counted |"
        )
    return lines


def every_row(findings: Findings, failures: Mapping[str, str]) -> list[str]:
    """What each row spent, and which data it saw; then the rows that did not finish, and why."""
    lines = [
        "| row | gradient steps | training | actors judged, known + novel | data |",
        "| --- | --: | --: | --: | --- |",
    ]
    for each in findings.rows:
        result = each.results[findings.tests[0]]
        lines.append(
            f"| {escaped_markdown(each.row.name)} | {gradient_steps(each.row.experiment)} | "
            f"{trained_seconds(each.row):.0f} s | {result.num_known} + {result.num_novel} | {_digests(each)} |"
        )
    return lines + [
        f"| {escaped_markdown(name)} | – | failed: {escaped_markdown(why)} | – | – |"
        for name, why in failures.items()
    ]


def scores_left_out(findings: Findings, side: str) -> list[str]:
    """Which scores say nothing of which methods: a line for each reason and the scores it holds for."""
    methods: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for method in findings.methods:
        left_out = findings.of(method)[0].results[side].left_out
        for reason in dict.fromkeys(left_out.values()):
            scores = tuple(score for score, why in left_out.items() if why == reason)
            methods.setdefault((reason, scores), []).append(method)
    lines = [
        f"- {escaped_markdown(reason)}: {', '.join(map(escaped_markdown, scores))} "
        f"(of {', '.join(map(escaped_markdown, those))})"
        for (reason, scores), those in methods.items()
    ]
    return ["## Scores that were left out", "", *lines] if lines else []


def _trials(trials: Sequence[Trial]) -> str:
    if len(trials) <= MOST_TRIALS:
        return ", ".join(f"split {trial.split} seed {trial.seed}" for trial in trials)
    splits, seeds = (list(dict.fromkeys(map(str, each))) for each in zip(*trials, strict=True))
    return (
        f"{len(trials)}: splits {', '.join(map(escaped_markdown, splits))}; "
        f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
    )


def _digests(each: FinishedRow) -> str:
    digests = RunFolder(each.row.folder).record()["data_digests"]
    return ", ".join(f"{name} {str(digest)[-16:]}" for name, digest in digests.items())


def _data(rows: Sequence[FinishedRow]) -> str:
    data = rows[0].row.experiment.data
    numbers = sorted({each.results[each.row.sides[1]].num_clips for each in rows})
    clips = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    if isinstance(data, StageData):
        return (
            f"Stage, {data.train_clips} training, {data.val_clips} validation and {clips} test clips of "
            f"{data.rows} × {data.cols} pixels, scene bias {data.bias:g} in training"
        )
    splits = {each.row.experiment.data.split for each in rows}
    under = f"{len(splits)} class splits" if len(splits) > 1 else escaped_markdown(data.split)
    return f"{escaped_markdown(data.actors)} under {under}, {clips} test clips"


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))
