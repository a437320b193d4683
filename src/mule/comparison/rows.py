"""A finished run taken over by a row whose training would end with the same weights: nothing is trained twice.

RUN/model.safetensors, outputs/*   the same files, linked where the disk allows it: they are replaced, never changed
    card.json, run.json            the same, with the name of the row's own system
    experiment.toml                the row's own

The rows of a comparison: every experiment with every seed and class split, each in a folder of its own.

    OUT/rows/NAME-SPLIT-sSEED/   a run as `mule train` leaves it, its outputs and results, and log.txt

A row is trained, then judged. Whatever was done stays done: a finished row is not touched again, an unfinished one
goes on from its last checkpoint, and a row whose experiment has changed is refused.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mule.core.config import (
    ConfigError,
    Experiment,
    StageData,
    differences,
    experiment_from,
    experiment_toml,
    load_experiment,
)
from mule.core.errors import WeightsError
from mule.core.files import write_file
from mule.evaluation.outcomes import Trial
from mule.inference.judging import Judging, judge_run, result_key
from mule.inference.results import SideResult, read_result
from mule.inference.running import OutputsOf
from mule.inference.sides import VAL, keep_maps, render_sides, sides_under_test
from mule.systems.catalogue import SYSTEMS
from mule.training.build import run_experiment
from mule.training.data import Noted
from mule.training.maps import maps_key
from mule.training.monitor import Validation
from mule.training.run_folder import CARD, EXPERIMENT, MODEL, RUN

OUTPUTS = "outputs"


def take_over(run_dir: Path, folder: Path, experiment: Experiment) -> None:
    """Makes `folder` the folder of a finished run of `experiment`, with the weights and outputs of another run.

    The card comes last, so that what has one is whole.

    Raises:
        WeightsError: that run is not finished.
    """
    if not (run_dir / CARD).exists():
        raise WeightsError(
            f"{run_dir}: {experiment.system} has the weights of this run, which is not finished. Finish it first; the same "
            "command goes on with both."
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / EXPERIMENT, experiment_toml(experiment))
    record = json.loads((run_dir / RUN).read_text(encoding="utf-8"))
    record |= {"experiment": experiment.model_dump(mode="json"), "weights_of": run_dir.name}
    write_file(folder / RUN, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    _link(run_dir / MODEL, folder / MODEL)
    (folder / OUTPUTS).mkdir(exist_ok=True)
    for path in sorted((run_dir / OUTPUTS).glob("*.*")):
        if path.suffix in (".safetensors", ".json"):
            _link(path, folder / OUTPUTS / path.name)
    card = json.loads((run_dir / CARD).read_text(encoding="utf-8"))
    write_file(
        folder / CARD, json.dumps({**card, "system": experiment.system}, indent=2, ensure_ascii=False) + "\n"
    )


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)


ROWS, LOG = "rows", "log.txt"


@dataclass(frozen=True)
class Contestant:
    """An experiment under the name its rows bear."""

    name: str
    experiment: Experiment


@dataclass(frozen=True)
class Row:
    """One training and one judgement."""

    contestant: str
    experiment: Experiment
    trial: Trial
    folder: Path
    judging: Judging
    trained_in: Path | None = None
    """The folder of the row that ends with the same weights; None if this one is trained itself."""

    @property
    def name(self) -> str:
        """What people, and the engine that runs it, call it."""
        return self.folder.name

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides it is judged on."""
        return (VAL, *sides_under_test(self.experiment))


def planned_rows(
    contestants: Sequence[Contestant],
    out: Path,
    *,
    seeds: Sequence[int],
    splits: Sequence[str] = (),
    judging: Judging,
) -> tuple[Row, ...]:
    """A row for every experiment, class split and seed; the first trial of all comes before the second of any.

    Args:
        contestants: the experiments.
        out: the folder of the comparison.
        seeds: each sets the seed of the experiment and, on Stage, of the data, which are drawn anew.
        splits: which actions are known; none is what each experiment says.
        judging: how rows are judged.

    Raises:
        ConfigError: there are no experiments, or two of one name.
    """
    names = [each.name for each in contestants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        raise ConfigError(
            f"a comparison needs experiments, each with a name of its own; got {', '.join(twice)} twice. Rename a file."
            if twice
            else "a comparison needs experiments; none was given. Name their files, or use --quick."
        )
    rows: list[Row] = []
    for seed in seeds:
        for split in splits or (None,):
            for each in contestants:
                experiment = drawn(each, seed=seed, split=split)
                trial = Trial(Path(experiment.data.split).stem, seed)
                folder = out.absolute() / ROWS / folder_name(each, trial)
                rows.append(Row(each.name, experiment, trial, folder, judging))
    return tuple(replace(row, trained_in=_same_training(row, rows)) for row in rows)


def _same_training(row: Row, rows: Sequence[Row]) -> Path | None:
    """The folder of the row whose experiment differs in its system alone, which is trained as this row's is."""
    system = SYSTEMS.get(row.experiment.system)
    if system is None or system.trained_as is None:
        return None
    twin = row.experiment.model_copy(update={"system": system.trained_as})
    return next((each.folder for each in rows if each.experiment == twin), None)


@runtime_checkable
class Begun(Protocol):
    """A training with a folder of its own: a row's, or that of the backbone rows begin with."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def experiment(self) -> Experiment:
        """What it trains."""
        ...

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        ...


def require_same_rows(rows: Sequence[Begun]) -> None:
    """What the folders of the rows hold, if anything, is of the same experiments.

    Raises:
        ConfigError: it is of others; every changed key is named.
    """
    changed: list[str] = []
    for row in rows:
        path = row.folder / EXPERIMENT
        if path.exists():
            found = differences(load_experiment(path), row.experiment)
            changed += [f"{row.name}: {key} was {old!r}, is {new!r}" for key, (old, new) in found.items()]
    if changed:
        raise ConfigError(
            "rows go on with the experiments they began with; these have changed:\n  "
            + "\n  ".join(changed[:10])
            + ("\n  …" if len(changed) > 10 else "")
            + "\nRestore them, compare in another folder (--out), or remove the folders of these rows."
        )


def results_of(row: Row) -> Mapping[str, SideResult] | None:
    """What the row found on each side; None unless it is finished."""
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
    """Trains what is not trained and judges what is not judged.

    Raises:
        MuleError: it cannot be done; what is there stays, and another try goes on from it.
    """
    require_same_rows([row])
    if results_of(row) is not None:
        return
    row.folder.mkdir(parents=True, exist_ok=True)
    log = RowLog(row.folder / LOG)
    log.noted("begun")
    if not (row.folder / CARD).exists() and row.trained_in is not None:
        take_over(row.trained_in, row.folder, row.experiment)
    elif not (row.folder / CARD).exists():
        run_experiment(row.experiment, row.folder, listener=log, resumes=True)
    judge_run(row.folder, row.experiment, sides=row.sides, judging=row.judging, noted=log.noted)


def prepare(rows: Sequence[Row], *, noted: Noted) -> None:
    """Renders clips, and computes the maps of frozen backbones, that several rows share: once, before they start."""
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
    """Writes down how a row goes, beside it: rows run where nobody watches."""

    path: Path

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """Nothing; the curves of the run have it."""

    def validated(self, step: int, epoch: int, found: Validation) -> None:
        """One line."""
        self.noted(f"epoch {epoch}, step {step}: mAP of known actions {found.mean_ap:.4f}")

    def noted(self, sentence: str) -> None:
        """One line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{sentence}\n")


def drawn(each: Contestant, *, seed: int, split: str | None) -> Experiment:
    """The experiment with this seed, on Stage also of the data, and these actions known; None is its own."""
    content = each.experiment.model_dump(mode="json", exclude_none=True)
    content["seed"] = seed
    if split is not None:
        content["data"]["split"] = split
    if isinstance(each.experiment.data, StageData):
        content["data"]["seed"] = seed
    return experiment_from(content, source=each.name)


def folder_name(each: Contestant, trial: Trial) -> str:
    """What the folder of its trial is called."""
    return f"{plain_name(each.name)}-{plain_name(trial.split)}-s{trial.seed}"


def plain_name(name: str) -> str:
    """The name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name)
