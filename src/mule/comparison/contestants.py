"""What a comparison compares: experiments from files, each under the systems asked for."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from mule.comparison.rows import Contestant
from mule.core.config import ConfigError
from mule.training.choosing import load_for_training
from mule.training.run_folder import with_absolute_paths, with_default_paths

QUICK = (Path("stage"), ("mule", "mule-literal", "bce-aco-r"))
"""The experiment and the systems of `mule compare --quick`."""


def load_contestants(
    files: Sequence[Path], settings: Sequence[str], systems: Sequence[str]
) -> tuple[Contestant, ...]:
    """Load experiments, each named after its file, and after its system, or row, if `systems` names any.

    Raises:
        ConfigError: some files cannot be read; the message names all of them.
    """
    loaded: list[Contestant] = []
    problems: list[str] = []
    for path, system in product(files, systems or [None]):
        try:
            experiment = load_for_training(path, settings, system)
        except ConfigError as error:
            problems.append(str(error))
            continue
        name = path.stem if system is None else f"{path.stem}_{system}"
        loaded.append(Contestant(name, with_absolute_paths(with_default_paths(experiment))))
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return tuple(loaded)


def load_start(file: Path, settings: Sequence[str]) -> Contestant:
    """Load the experiment that trains the backbone of all rows; only settings of data and backbone apply to it."""
    shared = [each for each in settings if each.startswith(("data.", "backbone.name", "backbone.options."))]
    (start,) = load_contestants([file], shared, [])
    return start


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
