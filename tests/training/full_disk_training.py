"""Trainings on a disk that is too small, and then is not; run as a program in a name space that may mount.

    unshare --user --map-root-user --mount python full_disk_training.py FOLDER SHARE...

Each trial has a disk of its own with room for a share of what a whole run leaves. What became of it is printed as a JSON
object per trial.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
from tiny_runs import curves_of, tiny_experiment

from mule.core.errors import MuleError
from mule.training.build import run_experiment
from mule.training.checkpoint import Checkpoints
from mule.training.run_folder import MODEL
from mule.training.step import Silence

ROOMY = "64m"


def mount(place, *options):
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(place)], check=True)


def told_by(experiment, run_dir):
    """What a training says when it stops; nothing if it comes to its end."""
    try:
        run_experiment(experiment, run_dir, listener=Silence(), resumes=True)
    except MuleError as error:
        return str(error)
    return ""


def main(folder, shares):
    torch.set_num_threads(1)
    experiment, alone = tiny_experiment(folder / "stage"), folder / "alone"
    assert not told_by(experiment, alone)
    size = sum(path.stat().st_size for path in alone.rglob("*") if path.is_file())
    for trial, share in enumerate(shares):
        disk = folder / f"disk{trial}"
        disk.mkdir()
        mount(disk, "-o", f"size={int(share * size)}")
        run_dir = disk / "run"
        told = told_by(experiment, run_dir)
        kept = Checkpoints(run_dir / "checkpoints")
        found = {
            "told": told,
            "steps": kept.steps(),
            "damaged": kept.last()[1],
            "left_over": sorted(path.name for path in run_dir.rglob(".*")),
        }
        mount(disk, "-o", f"remount,size={ROOMY}")
        found["told_later"] = told_by(experiment, run_dir)
        found["same_weights"] = (run_dir / MODEL).read_bytes() == (alone / MODEL).read_bytes()
        found["same_curves"] = curves_of(run_dir) == curves_of(alone)
        found["status"] = json.loads((run_dir / "run.json").read_text())["status"]
        print(json.dumps(found), flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main(Path(sys.argv[1]), [float(share) for share in sys.argv[2:]])
