"""Experiments with every path filled in: of a file that is to be trained, and of a run that was."""

from collections.abc import Sequence
from pathlib import Path

from mule.core.config import ConfigError, Experiment, StageData, differences, load_experiment
from mule.core.files import cache_folder
from mule.features.weights.cards import WEIGHT_CARDS
from mule.features.weights.download import place_of
from mule.training.run_folder import EXPERIMENT


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


def experiment_of(run_dir: Path, settings: Sequence[str] = ()) -> Experiment:
    """Load the experiment of a run, with settings such as the folder its data is in now.

    Raises:
        ConfigError: the folder holds no run, or a setting changes what the run was trained on or how.
    """
    path = run_dir / EXPERIMENT
    if not path.is_file():
        raise ConfigError(
            f"{run_dir}: must be the folder of a run; it has no {EXPERIMENT}. `mule train` makes one."
        )
    trained, wanted = load_experiment(path), load_experiment(path, settings)
    changed = differences(trained, wanted)
    if changed:
        raise ConfigError(
            f"a trained run must keep its settings; {', '.join(changed)} cannot be changed. --set may change "
            "data.root and loading only."
        )
    return with_default_paths(wanted)
