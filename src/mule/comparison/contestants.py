"""What a comparison compares: experiments from files, each under the systems asked for."""

from collections.abc import Sequence
from pathlib import Path

from mule.comparison.rows import Contestant
from mule.core.config import ConfigError, load_experiment
from mule.training.experiments import with_absolute_paths, with_default_paths

QUICK = ("stage_mule", "stage_mule_literal", "stage_bce")
"""The experiments of `mule compare --quick`."""


def load_contestants(
    files: Sequence[Path], settings: Sequence[str], systems: Sequence[str]
) -> tuple[Contestant, ...]:
    """Load experiments, each named after its file, and after its system if `systems` names any.

    Raises:
        ConfigError: some files cannot be read; the message names all of them.
    """
    loaded: list[Contestant] = []
    problems: list[str] = []
    for path in files:
        try:
            experiment = with_absolute_paths(with_default_paths(load_experiment(path, settings)))
        except ConfigError as error:
            problems.append(str(error))
            continue
        loaded += [
            Contestant(f"{path.stem}_{system}", experiment.model_copy(update={"system": system}))
            for system in systems
        ] or [Contestant(path.stem, experiment)]
    if problems:
        raise ConfigError("\n".join(problems))
    return tuple(loaded)


def load_start(file: Path, settings: Sequence[str]) -> Contestant:
    """Load the experiment that trains the backbone of all rows; only settings of data and backbone apply to it."""
    shared = [each for each in settings if each.startswith(("data.", "backbone.name", "backbone.options."))]
    (start,) = load_contestants([file], shared, [])
    return start


def quick_files() -> list[Path]:
    """Return the experiments of the quick comparison, in the folder `experiments` of the current one.

    Raises:
        ConfigError: some are not there.
    """
    files = [Path("experiments") / f"{name}.toml" for name in QUICK]
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise ConfigError(
            f"--quick without experiments uses those in the folder experiments; {', '.join(missing)} are not there. "
            "Change to the repository's folder, or name experiments."
        )
    return files


def scores_by_method(pairs: Sequence[str]) -> dict[str, str]:
    """Parse METHOD=SCORE pairs.

    Raises:
        ConfigError: one has another form.
    """
    parts = [pair.partition("=") for pair in pairs]
    wrong = [pair for pair, (method, _, score) in zip(pairs, parts, strict=True) if not (method and score)]
    if wrong:
        raise ConfigError(f"a score must be given like bce-aco-r=max-logit; got {', '.join(wrong)}.")
    return {method: score for method, _, score in parts}
