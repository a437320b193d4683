"""Where a model runs: on a runtime by name, on the fastest one, or on the graphs that `mule export` wrote.

auto     what was chosen before for this model, this size of clips and these packages. Otherwise torch, if few clips are
         to come; else every installed runtime is exported, compared with torch and timed, and the fastest is kept
FOLDER   the exported graphs for clips of their size; clips of another size run as with auto
"""

import importlib.metadata
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from mule.core import __version__
from mule.core.errors import FileError, RangeError, ShapeError, WeightsError
from mule.core.files import write_file
from mule.features.pooling import FeatureMaps
from mule.model import ModelOutput, MuleModel, SceneBoxes
from mule.runtime.engines import RUNTIME_PACKAGES, Runtime, Target, require_runtime
from mule.runtime.exported import open_exported, read_export_card, running_model
from mule.runtime.graphs import digest_of
from mule.runtime.openvino import ClipSize, RuntimeMissing
from mule.runtime.running import running_anywhere

AUTO = "auto"
FEWEST_CLIPS_TO_CHOOSE = 60
"""With fewer clips to come, exporting and timing every runtime costs more than the fastest one saves."""
TIMED_RUNS = 2


class Choice(BaseModel):
    """The runtime that `auto` chose for a model and a size of clips, as it is kept beside the graphs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: Runtime
    why: str
    seconds: Mapping[str, float]
    """For a clip with four people, by runtime."""
    made_by: Mapping[str, str]
    """Versions of the packages, and threads; with others it is chosen again."""


@dataclass(frozen=True)
class Chooser:
    """Chooses the runtime of a model, size by size."""

    model: MuleModel
    kept_in: Path
    num_clips: int | float = math.inf
    """How many clips are expected."""
    noted: Callable[[str], None] = lambda _: None

    def running(self) -> MuleModel:
        """Return the model on the runtime that is chosen at the first clip of each size."""
        return _by_size(self._opened)

    def choice(self, size: ClipSize) -> Choice | None:
        """Return the kept choice for clips of this size, or make one; None where few clips are to come.

        Raises:
            FileError: graphs cannot be written.
        """
        path = self.kept_in / f"{digest_of(self.model)[:20]}-{'x'.join(map(str, size))}.{AUTO}.json"
        kept = _kept(path)
        if kept is not None or self.num_clips < FEWEST_CLIPS_TO_CHOOSE:
            return kept
        made = self._choose(size)
        self.noted(made.why)
        write_file(path, made.model_dump_json(indent=2) + "\n")
        return made

    def _opened(self, size: ClipSize) -> MuleModel:
        try:
            choice = self.choice(size)
        except FileError as error:
            self.noted(f"runtime torch, because the graphs of others cannot be kept: {error}")
            return self.model
        return self.model if choice is None else self._on(choice.runtime)

    def _on(self, runtime: Runtime) -> MuleModel:
        return running_model(self.model, runtime, kept_in=self.kept_in, noted=self.noted)

    def _choose(self, size: ClipSize) -> Choice:
        seconds, reasons = {"torch": seconds_per_clip(self.model, size)}, []
        for target in get_args(Target):
            try:
                require_runtime(target)
                seconds[target] = seconds_per_clip(self._on(target), size)
            except FileError:
                raise
            except RuntimeMissing as missing:
                reasons.append(str(missing).split(". ")[0])
            except Exception as failure:  # the packages' errors share no other parent
                reasons.append(f"{target} cannot run it ({' '.join(str(failure).split())[:200]})")
        runtime = next(each for each in get_args(Runtime) if seconds.get(each) == min(seconds.values()))
        why = f"runtime {runtime}, {seconds['torch'] / seconds[runtime]:.1f} times as fast as torch"
        if runtime == "torch":
            why = f"runtime torch: {'; '.join(reasons) or 'no other is faster'}"
        return Choice(runtime=runtime, why=why, seconds=seconds, made_by=_made_by())


def model_on(
    model: MuleModel,
    runtime: str,
    *,
    kept_in: Path,
    num_clips: int | float = math.inf,
    noted: Callable[[str], None] = lambda _: None,
) -> MuleModel:
    """Return the model on `auto`, `torch`, `onnx`, `openvino`, or on the graphs in a folder of `mule export`.

    Args:
        model: on torch, in evaluation mode; one that runs elsewhere already stays there with `auto`.
        runtime: see above.
        kept_in: the folder of kept graphs and choices.
        num_clips: how many clips are expected; see `FEWEST_CLIPS_TO_CHOOSE`.
        noted: receives a sentence before an export, and one about what `auto` chose.

    Raises:
        RangeError: there is no such runtime, or the model cannot be exported.
        RuntimeMissing: its package is not installed.
        WeightsError: the graphs in the folder belong to another model.
    """
    if runtime == AUTO:
        return _on_the_fastest(model, kept_in=kept_in, num_clips=num_clips, noted=noted)
    if runtime not in get_args(Runtime) and Path(runtime).is_dir():
        others = _on_the_fastest(model, kept_in=kept_in, num_clips=num_clips, noted=noted)
        return _on_exported(model, Path(runtime), others, noted)
    return running_model(model, require_runtime(runtime), kept_in=kept_in, noted=noted)


def _on_the_fastest(
    model: MuleModel, *, kept_in: Path, num_clips: int | float, noted: Callable[[str], None]
) -> MuleModel:
    if not isinstance(model.backbone, nn.Module):
        return model
    try:
        digest_of(model)
    except RangeError as error:
        noted(f"runtime torch: {error}")
        return model
    return Chooser(model, kept_in, num_clips, noted).running()


def _on_exported(
    model: MuleModel, folder: Path, others: MuleModel, noted: Callable[[str], None]
) -> MuleModel:
    card = read_export_card(folder)
    if card.model_sha256 != digest_of(model):
        raise WeightsError(
            f"{folder}: must be exported from this model; it is of another, {card.model_sha256[:12]}…. Export it again "
            "(`mule export`)."
        )
    exported = running_anywhere(lambda _: open_exported(folder))

    def opened(size: ClipSize) -> MuleModel:
        if size == card.clip_size:
            return exported
        _, rows, cols = size
        noted(
            f"{folder} is for clips of {card.clip_size[2]} × {card.clip_size[1]} pixels; these are {cols} × {rows} and run "
            f"without it (`mule export --size {rows}x{cols}` makes one)"
        )
        return others

    return _by_size(opened)


def _by_size(opened: Callable[[ClipSize], MuleModel]) -> MuleModel:
    """Return a model that asks for another one at each new size of clips, and keeps the latest."""
    latest: dict[ClipSize, MuleModel] = {}
    return MuleModel(partial(_see, latest, opened), partial(_decide, latest)).eval()


def _see(
    latest: dict[ClipSize, MuleModel],
    opened: Callable[[ClipSize], MuleModel],
    clips: Float[Tensor, "clips 3 frames rows cols"],
) -> FeatureMaps:
    frames, rows, cols = clips.shape[2:]
    size = (frames, rows, cols)
    if size not in latest:
        model = opened(size)
        latest.clear()
        latest[size] = model
    return latest[size].backbone(clips)


def _decide(
    latest: dict[ClipSize, MuleModel], features: Sequence[FeatureMaps], boxes: SceneBoxes
) -> ModelOutput:
    if not latest:
        raise ShapeError(
            "a model whose runtime is chosen by the clips must see a clip before it decides; got none."
        )
    (model,) = latest.values()
    return model.decide(features, boxes)


@torch.inference_mode()
def seconds_per_clip(model: MuleModel, size: ClipSize) -> float:
    """Return the time for a clip of noise with four people and four objects: the best of a few, after one that opens all."""
    clip = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(0))
    _, rows, cols = size
    boxes = torch.tensor([[0.1, 0.1, 0.4, 0.9]]) * torch.tensor([cols, rows, cols, rows])
    whose = torch.zeros(4, dtype=torch.int64)
    scene = SceneBoxes(boxes.repeat(4, 1), whose, boxes.repeat(4, 1), whose)
    times: list[float] = []
    for _ in range(1 + TIMED_RUNS):
        started_at = time.perf_counter()
        model.decide([model.backbone(clip)], scene)
        times.append(time.perf_counter() - started_at)
    return min(times[1:])


def _kept(path: Path) -> Choice | None:
    try:
        choice = Choice.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None  # none, or of another version
    return choice if choice.made_by == _made_by() else None


def _made_by() -> dict[str, str]:
    versions = {"mule": __version__, "torch": torch.__version__, "threads": str(torch.get_num_threads())}
    for package in RUNTIME_PACKAGES.values():
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "none"
    return versions
