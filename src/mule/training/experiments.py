"""Complete an experiment: where its data and weights lie on this machine, and the one a finished run was trained by."""

from collections.abc import Sequence
from pathlib import Path

from mule.core.config import ConfigError, Experiment, StageData, differences, load_experiment
from mule.core.files import cache_folder
from mule.features.weights.cards import WEIGHT_CARDS
from mule.features.weights.download import place_of
from mule.training.run_folder import EXPERIMENT


def with_usual_places(experiment: Experiment) -> Experiment:
    """Return the experiment with rendered clips and published weights in the cache folder, unless it names a place."""
    data, backbone = experiment.data, experiment.backbone
    if isinstance(data, StageData) and data.root is None:
        data = data.model_copy(update={"root": cache_folder() / "stage"})
    if backbone.weights is None and backbone.name in WEIGHT_CARDS:
        path = place_of(WEIGHT_CARDS[backbone.name], cache_folder())
        backbone = backbone.model_copy(update={"weights": path if path.is_file() else None})
    return experiment.model_copy(update={"data": data, "backbone": backbone})


def experiment_of(run_dir: Path, settings: Sequence[str] = ()) -> Experiment:
    """Return the experiment a run was trained by.

    Args:
        run_dir: the folder of the run, or of a bundle made of it.
        settings: `data.root=DIR` and `loading.…` if the data lies elsewhere now; nothing else may change.

    Raises:
        ConfigError: the folder holds no run, or a setting would change what was trained.
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
            f"a trained run must be judged as it was trained; {', '.join(changed)} cannot change. Only data.root and "
            "loading can."
        )
    return with_usual_places(wanted)
