"""The folder of a run: its record, its curves, and the card of its weights.

    RUN/experiment.toml     the whole experiment, defaults included
        run.json            versions, commit, hardware, digests of data and split, timings, warnings
        metrics.jsonl       a JSON line per logged step and per validation
        events/             the same for TensorBoard
        checkpoints/        where `--resume` continues from
        model.safetensors   the weights, once training is done
        card.json           what these weights are
        mule-manifest.json  SHA-256 of experiment, weights and card, and of a memory if there is one

Every file is written whole; only `metrics.jsonl` grows, and a truncated last line is dropped.

Experiments with every path filled in: of a file that is to be trained, and of a run that was.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from torch import nn

from mule.core import __version__
from mule.core.config import ConfigError, differences, load_experiment, reasons_of
from mule.core.documents import DocumentError, json_of
from mule.core.errors import WeightsError
from mule.core.files import cache_folder, os_reason, sweep, write_file
from mule.core.manifest import require_sealed, write_sealed
from mule.core.processes import num_ranks
from mule.core.settings import Experiment, StageData
from mule.core.text_rows import shown
from mule.features.weights.cards import WEIGHT_CARDS
from mule.features.weights.download import place_of
from mule.training.checkpoint import CheckpointError, weights_file

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

METRICS, EVENTS = "metrics.jsonl", "events"
NO_TENSORBOARD = "Event files need TensorBoard: pip install 'mule-actions[tensorboard]'. metrics.jsonl has the same curves."


class Curves:
    """Writes the curves of a run, and event files where TensorBoard is installed."""

    def __init__(self, run_dir: Path, *, last_step: int, has_events: bool) -> None:
        """Open the curves, and remove lines of an earlier session about steps after `last_step`."""
        self._path = run_dir / METRICS
        lines = [line for line in read_metrics(self._path) if line["step"] <= last_step]
        write_file(self._path, "".join(f"{json.dumps(line)}\n" for line in lines))
        self._events = _event_writer(run_dir / EVENTS, next_step=last_step + 1) if has_events else None
        self.lacks_events = has_events and self._events is None
        """Whether event files are requested but TensorBoard is not installed."""

    def add(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Add one point to every curve.

        Raises:
            CheckpointError: the disk is full.
        """
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            if self._events is not None:
                _write_numbers(self._events, values, step, prefix=f"{kind}/")
        except OSError as error:
            raise CheckpointError(
                f"{self._path}: must be written; {(error.strerror or str(error)).lower()}."
            ) from error

    def close(self) -> None:
        """Write the last points to disk."""
        if self._events is not None:
            self._events.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a file of curves, without a truncated last one.

    Raises:
        CheckpointError: a line is none of curves; the message names it.
    """
    return list(_whole_lines(path)) if path.exists() else []


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            values = json_of(line, finite=False)
        except DocumentError as error:
            raise CheckpointError(
                f"{path}, line {number}: must be JSON; {error}. Remove the line, and resume."
            ) from None
        if not isinstance(values, dict) or type(values.get("step")) is not int:
            raise CheckpointError(
                f"{path}, line {number}: must be an object with a whole step; got {shown(str(values))}. Remove the line, "
                "and resume."
            )
        yield values


def _event_writer(folder: Path, *, next_step: int) -> "SummaryWriter | None":
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=next_step)


def _write_numbers(writer: "SummaryWriter", values: Mapping[str, Any], step: int, *, prefix: str) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping):
            _write_numbers(writer, value, step, prefix=f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            writer.add_scalar(f"{prefix}{name}", value, step)


EXPERIMENT, RUN, MODEL, CARD = "experiment.toml", "run.json", "model.safetensors", "card.json"
PACKAGES = ("torch", "numpy", "safetensors", "pydantic", "av")
VARIABLES = ("ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")
"""Variables that choose algorithms; the number of threads is recorded as it is."""
CARD_FORMAT = "mule-run-2"
OLD_CARD_FORMAT = "mule-run-1"
"""Of runs without a manifest, before version 0.2."""


class RunCard(BaseModel):
    """What vouches for the weights of a run; further entries are for people."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    format: Literal["mule-run-1", "mule-run-2"]
    classes: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    weights_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    @field_validator("classes")
    @classmethod
    def _require_each_once(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError("Every class must be named once")
        return names


class _Sessions(BaseModel):
    """The part of a run's record that later sessions add to."""

    model_config = ConfigDict(extra="allow", strict=True)

    sessions: list[dict[str, Any]] = []


def read_card(run_dir: Path) -> dict[str, Any]:
    """Read the card of a finished run, after checking that its files are those of the manifest.

    Raises:
        WeightsError: the run is not finished, or a file that decides something is missing, changed or extra.
    """
    path = run_dir / CARD
    try:
        card = RunCard.model_validate(json_of(path.read_bytes(), finite=False))
    except FileNotFoundError:
        raise WeightsError(
            f"{path}: a finished run must have a card; there is none. Finish the run with `mule train … --resume`."
        ) from None
    except ValidationError as error:
        raise WeightsError(
            f"{path}: must be the card of a run; {reasons_of(error)}. Copy it again."
        ) from None
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: must be the card of a run; {os_reason(error)}. Copy it again.") from None
    require_sealed(run_dir, vouched={MODEL: card.weights_sha256}, is_needed=card.format == CARD_FORMAT)
    return card.model_dump()


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    def begin(self, experiment_toml: str, facts: Mapping[str, Any]) -> list[str]:
        """Record what is about to be trained; an earlier session of the same run keeps its entry.

        Return what differs from the earlier session, if the bits of the result depend on it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: must be a folder that can be made; {error.strerror}."
            ) from error
        sweep(self.path)
        write_sealed(self.path, {EXPERIMENT: experiment_toml.encode()})
        earlier, now = self.record().get("sessions", []), environment()
        self._write({**facts, "status": "running", "sessions": [*earlier, {"started_at": _now(), **now}]})
        return _other_bits(earlier[-1], now) if earlier else []

    def update(self, **entries: Any) -> None:  # noqa: ANN401 - anything JSON has
        """Add entries to the record; those of the current session go to `session`."""
        record = self.record()
        sessions = record.get("sessions")
        if not sessions:
            raise CheckpointError(
                f"{self.path / RUN}: must exist as long as the run is trained; it was removed. Train again in another folder."
            )
        sessions[-1] = {**sessions[-1], **entries.pop("session", {})}
        self._write({**record, **entries, "sessions": sessions})

    def record(self) -> dict[str, Any]:
        """Return the content of `run.json`; empty if there is none yet."""
        path = self.path / RUN
        try:
            return _Sessions.model_validate(json_of(path.read_bytes(), finite=False)).model_dump()
        except FileNotFoundError:
            return {}
        except ValidationError as error:
            raise CheckpointError(
                f"{path}: must be the record of a run; {reasons_of(error)}. Remove it and resume."
            ) from None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error}). Remove it and resume.") from error

    def write_model(self, model: nn.Module, card: Mapping[str, Any]) -> None:
        """Write the weights of the run, the card that vouches for them, and the manifest of all that decides."""
        file = weights_file(model.state_dict(), {"format": CARD_FORMAT})
        whole = {"format": CARD_FORMAT, **card, "weights_sha256": hashlib.sha256(file).hexdigest()}
        text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        write_sealed(self.path, {MODEL: file, CARD: text.encode()}, begins=True)

    def _write(self, record: Mapping[str, Any]) -> None:
        write_file(self.path / RUN, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def environment() -> dict[str, Any]:
    """Return what a result may depend on besides the experiment: versions, commit, hardware."""
    return {
        "python": platform.python_version(),
        "packages": {"mule": __version__, **{name: found for name in PACKAGES if (found := _version(name))}},
        "git_commit": _commit(),
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "num_cores": os.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "num_processes": num_ranks(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
            "cuda": torch.version.cuda,
            "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        },
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _other_bits(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say which versions and which hardware differ between two sessions of a run."""
    return [
        f"{name} was {old} and is {new}, so the weights may differ from those of an uninterrupted run in their last digits"
        for part in ("packages", "hardware")
        for name, new in now[part].items()
        if name != "num_cores" and (old := before.get(part, {}).get(name, new)) != new
    ]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the source, marked if files differ from it; None outside a repository."""
    source = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(source), *arguments],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if not commit or git("ls-files", "--error-unmatch", __file__) is None:
        return commit and f"{commit}, with files of its own"
    return f"{commit}, changed" if git("status", "--porcelain", "--untracked-files=no") else commit


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def with_default_paths(experiment: Experiment) -> Experiment:
    """Fill in the cache folder for rendered clips and published weights where the experiment gives no path."""
    data, backbone = experiment.data, experiment.backbone
    if isinstance(data, StageData) and data.root is None:
        data = data.model_copy(update={"root": cache_folder() / "stage"})
    if backbone.weights is None and backbone.name in WEIGHT_CARDS:
        path = place_of(WEIGHT_CARDS[backbone.name], cache_folder())
        backbone = backbone.model_copy(update={"weights": path if path.is_file() else None})
    return experiment.model_copy(update={"data": data, "backbone": backbone})


def with_absolute_paths(experiment: Experiment) -> Experiment:
    """Make the experiment's paths absolute, so that it runs the same from any folder."""
    data, backbone = experiment.data, experiment.backbone
    if data.root is not None:
        data = data.model_copy(update={"root": data.root.absolute()})
    if backbone.weights is not None:
        backbone = backbone.model_copy(update={"weights": backbone.weights.absolute()})
    return experiment.model_copy(update={"data": data, "backbone": backbone})


HOW_TESTED = "data.test_"
"""Settings of a test, which a finished training does not depend on."""


def trained_experiment(run_dir: Path, settings: Sequence[str] = ()) -> Experiment:
    """Load the experiment file of a run; backbone weights that lie in the run's folder are found there.

    Raises:
        ConfigError: the file cannot be read, or a setting is wrong.
    """
    experiment = load_experiment(run_dir / EXPERIMENT, settings)
    backbone = experiment.backbone
    if backbone.weights is None or not (run_dir / backbone.weights).is_file():
        return experiment
    beside = backbone.model_copy(update={"weights": run_dir / backbone.weights})
    return experiment.model_copy(update={"backbone": beside})


def experiment_of(run_dir: Path, settings: Sequence[str] = ()) -> Experiment:
    """Load the experiment of a run, with settings such as the folder its data is in now.

    Raises:
        ConfigError: the folder holds no run, or a setting changes what the run was trained on or how.
        WeightsError: a file of a finished run is missing, changed or extra.
    """
    path = run_dir / EXPERIMENT
    if not path.is_file():
        raise ConfigError(
            f"{run_dir}: must be the folder of a run; it has no {EXPERIMENT}. `mule train` makes one."
        )
    if (run_dir / CARD).is_file():
        read_card(run_dir)
    trained, wanted = trained_experiment(run_dir), trained_experiment(run_dir, settings)
    changed = [key for key in differences(trained, wanted) if not key.startswith(HOW_TESTED)]
    if changed:
        raise ConfigError(
            f"a trained run must keep its settings; {', '.join(changed)} cannot be changed. --set may change "
            "data.root, data.test_… and loading only."
        )
    return with_default_paths(wanted)
