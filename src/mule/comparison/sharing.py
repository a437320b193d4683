"""A finished run taken over by a row whose training would end with the same weights: nothing is trained twice.

RUN/model.safetensors, outputs/*   the same files, linked where the disk allows it: they are replaced, never changed
    card.json, run.json            the same, with the name of the row's own system
    experiment.toml                the row's own
"""

import json
import os
import shutil
from pathlib import Path

from mule.core.config import Experiment, experiment_toml
from mule.core.errors import WeightsError
from mule.training.checkpoint import write_whole
from mule.training.run_record import CARD, EXPERIMENT, MODEL, RUN

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
    write_whole(folder / EXPERIMENT, experiment_toml(experiment))
    record = json.loads((run_dir / RUN).read_text(encoding="utf-8"))
    record |= {"experiment": experiment.model_dump(mode="json"), "weights_of": run_dir.name}
    write_whole(folder / RUN, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    _link(run_dir / MODEL, folder / MODEL)
    (folder / OUTPUTS).mkdir(exist_ok=True)
    for path in sorted((run_dir / OUTPUTS).glob("*.*")):
        if path.suffix in (".safetensors", ".json"):
            _link(path, folder / OUTPUTS / path.name)
    card = json.loads((run_dir / CARD).read_text(encoding="utf-8"))
    write_whole(
        folder / CARD, json.dumps({**card, "system": experiment.system}, indent=2, ensure_ascii=False) + "\n"
    )


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)
