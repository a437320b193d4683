"""Train on your own videos: a table of people, a folder of videos and backbone weights become a model.

table ─▶ split ─▶ run ─▶ bundle        what `mule data split`, `mule train` and `mule bundle` do, one after another
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mule.api.bundling import BundlePlan, make_bundle
from mule.core.config import PACKAGED, experiment_toml, load_experiment
from mule.core.errors import TooFewActors
from mule.core.files import write_file
from mule.core.settings import Experiment
from mule.data.split.partition import closed_partition, drawn_sides, listed_partition
from mule.data.split.sides import apply_split
from mule.data.split.splits import Rules, Split, table_digest, write_split
from mule.data.table.reading import read_actor_table
from mule.training.build import TINY, run_experiment
from mule.training.data import videos_of
from mule.training.run_folder import with_default_paths
from mule.training.step import Listener, Silence
from mule.watching.engine.bundle import Bundle, BundleError

FEWEST_VALIDATION_ACTORS = 25
"""Calibration leaves a fifth of them out in turn, and needs twenty of the rest."""
DEFAULT_BACKBONE = "i3d_rgb_kinetics400"


@dataclass(frozen=True)
class OwnVideosPlan:
    """What to train on, and how."""

    table: Path
    videos: Path
    out: Path
    """The folder of the model; it must not exist yet. The training is kept beside it, in a folder that ends in .training."""
    weights: Path | None = None
    backbone: str = DEFAULT_BACKBONE
    """A frozen backbone of `mule weights list`, or `tiny`, which is trained from scratch."""
    name: str | None = None
    novel: tuple[str, ...] = ()
    """Actions held out of training, to evaluate novelty on."""
    groups: Mapping[str, str] = field(default_factory=dict[str, str])
    """The group (film, camera, day) of each video; videos of one group stay on one side."""
    val_share: float = 0.25
    test_share: float = 0.15
    seed: int = 0
    settings: Sequence[str] = ()
    """Settings of the experiment, such as `training.epochs=40`."""
    has_pictures: bool = True

    @property
    def folder(self) -> Path:
        """The folder of split, experiment, feature maps and run."""
        return self.out.with_name(f"{self.out.name}.training")


def train_on_own_videos(plan: OwnVideosPlan, *, listener: Listener | None = None) -> Bundle:
    """Split the table, train, and bundle the run. An interrupted training continues where it stopped.

    Raises:
        BundleError: the model's folder exists already.
        TooFewActors: the validation side is too small to calibrate on.
    """
    if plan.out.exists():
        raise BundleError(f"{plan.out}: must not exist yet; it does. Choose another name, or remove it.")
    listener = listener or Silence()
    plan.folder.mkdir(parents=True, exist_ok=True)
    split = _split(plan)
    write_split(split, plan.folder / "split.toml")
    experiment = _experiment(plan, num_known=len(split.classes.known_train))
    run_dir = plan.folder / "run"
    run_experiment(experiment, run_dir, listener=listener, resumes=True)
    bundle = BundlePlan(run_dir, plan.out, plan.name or plan.out.name, has_pictures=plan.has_pictures)
    return make_bundle(bundle, noted=listener.noted)


def _split(plan: OwnVideosPlan) -> Split:
    table = read_actor_table(plan.table, allow_unlabelled=True)
    videos_of(set(table.video_names), plan.videos)
    classes = listed_partition(table.classes, plan.novel) if plan.novel else closed_partition(table.classes)
    rules = Rules(z1_at_test="known", sides="drawn", val_share=plan.val_share, test_share=plan.test_share)
    sides = drawn_sides(
        table,
        classes,
        val_share=plan.val_share,
        test_share=plan.test_share,
        seed=plan.seed,
        groups=plan.groups,
    )
    split = Split(
        name=plan.table.stem,
        policy="list" if plan.novel else "closed",
        seed=plan.seed,
        table_digest=table_digest(table),
        classes=classes,
        rules=rules,
        videos=sides,
        groups=plan.groups,
    )
    used = apply_split(table, split)
    used.report.require_usable()
    if plan.backbone != TINY and len(used.train) + len(used.val) < FEWEST_VALIDATION_ACTORS:
        raise TooFewActors(
            f"{plan.table}: training and validation must have at least {FEWEST_VALIDATION_ACTORS} people together, to "
            f"calibrate novelty on; they have {len(used.train) + len(used.val)}. Label more people."
        )
    if plan.backbone == TINY and len(used.val) < FEWEST_VALIDATION_ACTORS:
        raise TooFewActors(
            f"{plan.table}: the validation side must have at least {FEWEST_VALIDATION_ACTORS} people, to calibrate novelty "
            f"on; it has {len(used.val)}. Label more people, or raise val_share ({plan.val_share:g})."
        )
    return split


def _experiment(plan: OwnVideosPlan, *, num_known: int) -> Experiment:
    """Return the packaged experiment with the plan's places and settings; it is written beside the split."""
    places = {
        "data.root": str(plan.folder.absolute()),
        "data.num_known": num_known,
        "data.actors": str(plan.table.absolute()),
        "data.videos": str(plan.videos.absolute()),
        "backbone.name": plan.backbone,
    }
    if plan.weights is not None:
        places["backbone.weights"] = str(plan.weights.absolute())
    settings = [f"{key}={json.dumps(value)}" for key, value in places.items()]
    if plan.backbone != DEFAULT_BACKBONE:
        settings.append("backbone.options=")
    if plan.backbone == TINY:
        settings += ["backbone.frozen=false", "backbone.map_dropout=0.0"]
    experiment = load_experiment(PACKAGED / "own.toml", [*settings, *plan.settings])
    write_file(plan.folder / "experiment.toml", experiment_toml(experiment))
    return with_default_paths(experiment)
