"""The experiment file: one experiment is one TOML file, complete apart from the defaults in `mule.core.settings`.

A file may say in tables [systems.NAME] what differs for a system, or for a row that names its system itself:

    [systems.acar-r101]
    system = "acar"
    training.epochs = 5

The table of the chosen system applies before `--set`, and like there an empty value ("") returns a key to its default. The
loaded experiment is flat.
"""

import difflib
import json
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ValidationError

from mule.core.documents import DocumentError, toml_of
from mule.core.errors import MuleError, did_you_mean
from mule.core.files import os_reason
from mule.core.settings import Experiment, StageData, TableData
from mule.core.text_rows import shown


class ConfigError(MuleError, ValueError):
    """An experiment file, or an override of it, cannot be used; the message names the key."""


PACKAGED = Path(__file__).resolve().parents[1] / "experiments"
"""The experiments that come with the package."""


def experiment_file(name: Path) -> Path:
    """Return the file of an experiment: the packaged one for a bare name such as `stage`, else the path itself."""
    packaged = PACKAGED / f"{name}.toml"
    is_bare = len(name.parts) == 1 and not name.suffix and not name.is_file()
    return packaged if is_bare and packaged.is_file() else name


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Load an experiment from a file, or by the name of a packaged one, with `a.b=c` set on top of it.

    `system=NAME` chooses the table [systems.NAME], if the file has one; by default the file's own `system` does.

    Raises:
        ConfigError: the file cannot be read, or keys or values are wrong; the message names all of them.
    """
    content = _read(path)
    rows = _rows(content, path)
    named = [override for override in overrides if override.partition("=")[0].strip() == "system"]
    for override in named:
        _set(content, override)
    row = content.get("system")
    if isinstance(row, str) and row in rows:
        content = _merged({**content, "system": row}, rows[row])
    for override in overrides:
        if override not in named:
            _set(content, override)
    return experiment_from(content, source=path.name)


def systems_by_row(path: Path) -> dict[str, str]:
    """Return the system of each row of an experiment file: of each of its tables [systems.NAME].

    Raises:
        ConfigError: the file cannot be read.
    """
    return {name: str(table.get("system", name)) for name, table in _rows(_read(path), path).items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        return toml_of(experiment_file(path).read_bytes())
    except (OSError, ValueError) as error:
        names = ", ".join(sorted(each.stem for each in PACKAGED.glob("*.toml")))
        raise ConfigError(
            f"{path}: must be an experiment in TOML that can be read; {os_reason(error)}. Give a file, or one of {names}."
        ) from None


def _rows(content: dict[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """Take the tables [systems.NAME] out of a file's content."""
    rows = content.pop("systems", {})
    if not isinstance(rows, dict) or not all(isinstance(each, dict) for each in rows.values()):
        raise ConfigError(
            f"{path}: systems must hold tables, such as [systems.acar]; got {shown(repr(rows))}."
        )
    return rows


_MOST_LETTERS = 100
"""Letters of a value in a message."""
WHOLE_TABLES = ("options",)
"""Tables that are one value: a row that gives one replaces the whole."""


def _merged(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with the changes of a row; an empty value returns a key to its default."""
    merged = dict(content)
    for key, value in changes.items():
        if isinstance(value, dict) and key not in WHOLE_TABLES:
            own = merged.get(key, {})
            merged[key] = _merged(own, value) if isinstance(own, dict) else value
        elif value == "":
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def experiment_from(content: Mapping[str, Any], *, source: str) -> Experiment:
    """Return the experiment that plain values describe; messages call it `source`."""
    try:
        return Experiment.model_validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        problems = "\n  ".join(_explained(problem) for problem in error.errors())
        raise ConfigError(f"{source}: every key must be known and of its type.\n  {problems}") from None


def experiment_toml(experiment: Experiment) -> str:
    """Return the whole experiment as TOML, defaults included; `load_experiment` reads the same one back."""
    return tomli_w.dumps(experiment.model_dump(mode="json", exclude_none=True))


def differences(first: Experiment, second: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two experiments differ, by dotted key.

    The data's folder and the loading settings are ignored, and so is `data.num_known` where one of them leaves it out.
    """
    pair = [dict(_leaves(each.model_dump(mode="json"), ())) for each in (first, second)]
    keys = [key for key in {**pair[0], **pair[1]} if key != "data.root" and not key.startswith("loading.")]
    both = {key: (pair[0].get(key), pair[1].get(key)) for key in keys}
    if None in both.get("data.num_known", ()):
        del both["data.num_known"]
    return {key: (old, new) for key, (old, new) in both.items() if old != new}


def _set(content: dict[str, Any], override: str) -> None:
    """Set one key; without a value the key returns to its default."""
    key, is_set, text = override.partition("=")
    *tables, name = key.strip().split(".")
    if not is_set or not all((*tables, name)):
        raise ConfigError(f"--set must look like optimizer.lr=1e-3; got {override!r}.")
    for table in tables:
        within: Any = content.setdefault(table, {})
        if not isinstance(within, dict):
            raise ConfigError(f"--set {override}: {table!r} is a value, not a table of settings.")
        content = within
    if text.strip():
        content[name] = _value(text.strip())
    else:
        _require_known((*tables, name), override)
        content.pop(name, None)


def _require_known(key: tuple[str, ...], override: str) -> None:
    """Refuse to return a key to its default that has none."""
    models: list[type[BaseModel]] = [Experiment]
    for at, part in enumerate(key):
        known = [name for model in models for name in model.model_fields]
        if part not in known:
            raise ConfigError(f"--set {override}: unknown key {part!r}.{did_you_mean(part, known)}")
        models = [each for model in models for each in _models_of(_annotation(model, part))]
        if not models and at + 1 < len(key) and part not in WHOLE_TABLES:
            raise ConfigError(f"--set {override}: {part!r} is a value, not a table of settings.")
        if not models:
            return


def _annotation(model: type[BaseModel], name: str) -> Any:  # noqa: ANN401 - an annotation
    field = model.model_fields.get(name)
    return None if field is None else field.annotation


def _value(text: str) -> Any:  # noqa: ANN401 - whatever TOML has
    try:
        return toml_of(f"value = {text}")["value"]
    except DocumentError:
        return text  # a bare word or a path; the type of the key decides whether that is allowed


def _explained(problem: Any) -> str:  # noqa: ANN401 - pydantic's own record
    *path, key = problem["loc"] or ("",)
    place = [str(part) for part in path if part not in ("stage", "table")]
    table = f"[{'.'.join(place)}]: " if place else ""
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(key), _known_keys(problem["loc"][:-1]), n=1, cutoff=0.5)
        return f"{table}unknown key {shown(str(key))}." + (f" Did you mean {near[0]!r}?" if near else "")
    if problem["type"] == "missing":
        return f"{table}{key!r} must be given."
    return f"{table}{key} = {_shortened(problem['input'])}: {problem['msg'][0].lower()}{problem['msg'][1:]}."


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def _known_keys(path: Sequence[str | int]) -> list[str]:
    """Return the keys of the table at a path; a tag selects the kind of data."""
    model: type[BaseModel] = Experiment
    for part in path:
        models = _models_within(model, str(part))
        if models:
            model = models[0]
    return list(model.model_fields)


def _models_within(model: type[BaseModel], part: str) -> list[type[BaseModel]]:
    chosen = {"stage": StageData, "table": TableData}.get(part)
    if chosen is not None:
        return [chosen]
    field = model.model_fields.get(part)
    return [] if field is None else list(_models_of(field.annotation))


def _models_of(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - an annotation
    if get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _models_of(each)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def _leaves(content: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield ".".join((*path, key)), value


_MOST_REASONS = 3


def reasons_of(error: ValidationError) -> str:
    """Return what a schema found wrong, in a few words each, with its place."""
    found = error.errors(include_url=False, include_context=False)
    reasons = [_reason_of(each["loc"], each["msg"]) for each in found[:_MOST_REASONS]]
    more = len(found) - _MOST_REASONS
    return "; ".join(reasons) + (f"; and {more} more" if more > 0 else "")


def _reason_of(place: tuple[int | str, ...], message: str) -> str:
    where = ".".join(str(part)[:40] for part in place)[:120] or "the whole"
    what = message.removeprefix("Value error, ").rstrip(".")
    return f"{where}: {what[:1].lower()}{what[1:200]}"
