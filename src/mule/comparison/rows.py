"""The rows of a comparison: every experiment with every seed and class split, each in a folder of its own.

    OUT/rows/NAME-SPLIT-sSEED/   a run as `mule train` leaves it, its outputs and results, and log.txt

A row is trained, then evaluated. Finished work is kept: a finished row is not touched again, an unfinished
one resumes from its last checkpoint, and a row whose experiment has changed is refused.

A row whose training would give the weights of another row takes them over instead of training again:

    RUN/model.safetensors, outputs/*   the same files, linked where the disk allows it (they are replaced, never changed)
        card.json, run.json            the same, with the name of the row's own system
        experiment.toml                the row's own
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mule.core.config import ConfigError, experiment_from, experiment_toml, load_experiment
from mule.core.config import differences as changed_settings
from mule.core.errors import WeightsError
from mule.core.files import write_file
from mule.core.locks import only_writer
from mule.core.manifest import write_sealed
from mule.core.settings import Experiment, StageData
from mule.evaluation.outcomes import Trial
from mule.inference.judging import Judging, judge_run, result_key
from mule.inference.results import SideResult, read_result
from mule.inference.running import OutputsOf
from mule.inference.sides import VAL, keep_maps, render_sides, sides_under_test
from mule.systems.catalogue import SYSTEMS
from mule.training.build import run_experiment
from mule.training.choosing import inner_steps_of
from mule.training.data import Noted, table_sides
from mule.training.maps import maps_key
from mule.training.monitor import Validation
from mule.training.run_folder import CARD, EXPERIMENT, METRICS, MODEL, RUN, RunFolder, read_card, read_metrics

ROWS, LOG = "rows", "log.txt"
OUTPUTS = "outputs"
TRAINING_SHARE = 0.9
"""The share of a row's time that training takes, roughly; the rest is evaluation."""


def take_over(run_dir: Path, folder: Path, experiment: Experiment) -> None:
    """Make `folder` a finished run of `experiment` with the weights and outputs of another run.

    The card is written last, so its presence means all is there.

    Raises:
        WeightsError: the other run is not finished.
    """
    if not (run_dir / CARD).exists():
        raise WeightsError(
            f"{run_dir}: {experiment.system} takes its weights from this run, which is not finished. Finish it first; the same "
            "command resumes both."
        )
    with only_writer(folder):
        _take_over(run_dir, folder, experiment)


def _take_over(run_dir: Path, folder: Path, experiment: Experiment) -> None:
    write_file(folder / EXPERIMENT, experiment_toml(experiment))
    record = RunFolder(run_dir).record()
    record |= {"experiment": experiment.model_dump(mode="json"), "weights_of": run_dir.name}
    write_file(folder / RUN, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    _link(run_dir / MODEL, folder / MODEL)
    (folder / OUTPUTS).mkdir(exist_ok=True)
    for path in sorted((run_dir / OUTPUTS).glob("*.*")):
        if path.suffix in (".safetensors", ".json"):
            _link(path, folder / OUTPUTS / path.name)
    card = {**read_card(run_dir), "system": experiment.system}
    text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
    write_sealed(folder, {CARD: text.encode()}, begins=True, known={MODEL: card["weights_sha256"]})


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class Contestant:
    """An experiment, and the name of its rows."""

    name: str
    experiment: Experiment
    text: str = ""
    """How tables name it; empty names it after its system."""


@dataclass(frozen=True)
class Row:
    """One training and one evaluation."""

    contestant: str
    experiment: Experiment
    trial: Trial
    folder: Path
    judging: Judging
    trained_in: Path | None = None
    """The folder of the row whose weights it takes over; None if it is trained itself."""

    @property
    def name(self) -> str:
        """Its name in messages and for the engine."""
        return self.folder.name

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides it is evaluated on."""
        return (VAL, *sides_under_test(self.experiment))


def planned_rows(
    contestants: Sequence[Contestant],
    out: Path,
    *,
    seeds: Sequence[int],
    splits: Sequence[str] = (),
    judging: Judging,
) -> tuple[Row, ...]:
    """One row for every experiment, class split and seed, trial by trial.

    Args:
        contestants: the experiments.
        out: the folder of the comparison.
        seeds: each sets the seed of the experiment and, on Stage, of the rendered data.
        splits: class splits; none uses the one of each experiment.
        judging: settings of the evaluation.

    Raises:
        ConfigError: there are no experiments, or two of one name.
    """
    names = [each.name for each in contestants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        raise ConfigError(
            f"experiments must have different names; got {', '.join(twice)} twice. Rename a file."
            if twice
            else "a comparison needs at least one experiment; got none. Name their files, or use --quick."
        )
    rows: list[Row] = []
    for seed in seeds:
        for split in splits or (None,):
            for each in contestants:
                experiment = trial_experiment(each, seed=seed, split=split)
                trial = Trial(Path(experiment.data.split).stem, seed)
                folder = out.absolute() / ROWS / folder_name(each, trial)
                rows.append(Row(each.name, experiment, trial, folder, judging))
    return tuple(replace(row, trained_in=_same_training(row, rows)) for row in rows)


def _same_training(row: Row, rows: Sequence[Row]) -> Path | None:
    """The folder of the row that differs only in its system and is trained the same way."""
    system = SYSTEMS.get(row.experiment.system)
    if system is None or system.trained_as is None:
        return None
    twin = row.experiment.model_copy(update={"system": system.trained_as})
    return next((each.folder for each in rows if each.experiment == twin), None)


@runtime_checkable
class KeptTraining(Protocol):
    """A training with a folder of its own: a row's, or a shared backbone's."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    @property
    def experiment(self) -> Experiment:
        """What is trained."""
        ...

    @property
    def folder(self) -> Path:
        """Where it is saved."""
        ...


def require_same_rows(rows: Sequence[KeptTraining]) -> None:
    """Require that the folders of the rows hold nothing or runs of the same experiments.

    Raises:
        ConfigError: some hold other experiments; every changed key is named.
    """
    changed: list[str] = []
    for row in rows:
        path = row.folder / EXPERIMENT
        if path.exists():
            changes = changed_settings(load_experiment(path), row.experiment)
            changed += [f"{row.name}: {key} was {old!r}, is {new!r}" for key, (old, new) in changes.items()]
    if changed:
        raise ConfigError(
            "a row must keep the experiment it was started with; these have changed:\n  "
            + "\n  ".join(changed[:10])
            + ("\n  …" if len(changed) > 10 else "")
            + "\nRestore them, use another folder (--out), or remove the folders of these rows."
        )


def results_of(row: Row) -> Mapping[str, SideResult] | None:
    """The results of a finished row on each side; None if it is not finished."""
    source = OutputsOf(row.folder, row.experiment, row.judging.dropout_passes, row.judging.test_clips)
    found: dict[str, SideResult] = {}
    for side in row.sides:
        result = read_result(row.folder, side)
        try:
            is_right = result is not None and result.key == result_key(source, side, row.judging)
        except WeightsError:
            is_right = False
        if result is None or not is_right:
            return None
        found[side] = result
    return found


def finish_row(row: Row) -> None:
    """Train and evaluate a row as far as that is not done yet.

    Raises:
        MuleError: the row failed; what is done stays, and the next try resumes from it.
    """
    require_same_rows([row])
    if results_of(row) is not None:
        return
    row.folder.mkdir(parents=True, exist_ok=True)
    log = RowLog(row.folder / LOG)
    log.noted("started")
    if not (row.folder / CARD).exists() and row.trained_in is not None:
        take_over(row.trained_in, row.folder, row.experiment)
    elif not (row.folder / CARD).exists():
        run_experiment(row.experiment, row.folder, listener=log, resumes=True)
    judge_run(row.folder, row.experiment, sides=row.sides, judging=row.judging, noted=log.noted)


def prepare(rows: Sequence[Row], *, noted: Noted) -> None:
    """Render the clips and compute the feature maps that rows share, once, before they start."""
    rendered: list[StageData] = []
    frozen: dict[str, list[Experiment]] = {}
    for row in rows:
        experiment = row.experiment
        if not isinstance(experiment.data, StageData):
            if experiment.backbone.frozen:
                frozen.setdefault(maps_key(experiment), []).append(experiment)
        elif experiment.data not in rendered:
            rendered.append(experiment.data)
            render_sides(experiment.data, test_clips=row.judging.test_clips, noted=noted)
    for experiments in frozen.values():
        keep_maps(list({each.data.split: each for each in experiments}.values()), noted=noted)


@dataclass(frozen=True)
class RowLog:
    """Writes the progress of a row into a file beside it, since rows run in processes of their own."""

    path: Path

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """Write nothing; the metrics of the run have every step."""

    def validated(self, step: int, epoch: int, found: Validation) -> None:
        """Write one line."""
        self.noted(f"epoch {epoch}, step {step}: mAP of known actions {found.mean_ap:.4f}")

    def noted(self, sentence: str) -> None:
        """Write one line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{sentence}\n")


def trial_experiment(each: Contestant, *, seed: int, split: str | None) -> Experiment:
    """The experiment with this seed (on Stage also of the data) and class split; None keeps its own split."""
    content = each.experiment.model_dump(mode="json", exclude_none=True)
    content["seed"] = seed
    if split is not None:
        content["data"]["split"] = split
    if isinstance(each.experiment.data, StageData):
        content["data"]["seed"] = seed
    return experiment_from(content, source=each.name)


def folder_name(each: Contestant, trial: Trial) -> str:
    """The name of the folder of a trial."""
    return f"{file_stem(each.name)}-{file_stem(trial.split)}-s{trial.seed}"


def file_stem(name: str) -> str:
    """The name with characters that suit a file name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name)


def gradient_steps(experiment: Experiment) -> int:
    """How many gradient steps a whole training takes."""
    return experiment.training.epochs * batches_per_epoch(experiment) * max(inner_steps_of(experiment), 1)


def batches_per_epoch(experiment: Experiment) -> int:
    """How many batches an epoch has; for a table, counted from its rows."""
    data = experiment.data
    if isinstance(data, StageData):
        return data.train_clips // experiment.training.batch_clips
    first, _ = table_sides(data).train_actors.clips()
    return len(first) // experiment.training.batch_clips


@dataclass(frozen=True)
class RowProgress:
    """How far a row has come, read from its folder: rows may run in other processes or on other machines."""

    row: Row
    num_steps: int

    def was_started_after(self, moment: float) -> bool:
        """Whether the row was started or resumed since that moment (seconds since 1970)."""
        log = self.row.folder / LOG
        return log.exists() and log.stat().st_mtime >= moment

    def done_share(self) -> float:
        """From 0 to less than 1; `results_of` tells whether a row is finished."""
        if (self.row.folder / CARD).exists():
            return TRAINING_SHARE
        steps = [line["step"] for line in read_metrics(self.row.folder / METRICS) if line["kind"] == "step"]
        return TRAINING_SHARE * min(max(steps, default=0) / max(self.num_steps, 1), 1.0)


def progress_of(row: Row) -> RowProgress:
    """The progress of a row."""
    return RowProgress(row, row.experiment.training.epochs * batches_per_epoch(row.experiment))
