"""What a converter knows of a published data set and the columns of a table cannot hold, in a file beside the table.

TABLE.origin.json   the data set, the published number of each class, and the second at which the videos start

With it a run's scores can be written in the formats of the official evaluation programs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mule.core.errors import AnnotationError
from mule.core.files import write_file
from mule.data.convert.ava_files import AVA_60, AVA_80
from mule.data.convert.charades import NUM_CLASSES


class Origin(BaseModel):
    """The data set that a table was converted from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["mule-origin-1"] = "mule-origin-1"
    dataset: Literal["ava", "charades"]
    class_numbers: dict[str, int]
    """Published number of each class by its name in the table, whether it occurs or not."""
    starts_at_s: float = 0.0
    """Published time of the start of every video: 900 for films that were cut there."""


def ava_origin(*, num_classes: Literal[60, 80], starts_at_s: float) -> Origin:
    """Return the origin of a table of AVA."""
    names = AVA_60 if num_classes == 60 else AVA_80
    numbers = {name: number for number, name in names.items()}
    return Origin(dataset="ava", class_numbers=numbers, starts_at_s=starts_at_s)


def charades_origin(class_names: Mapping[int, str] | None) -> Origin:
    """Return the origin of a table of Charades; without names its classes are codes such as `c008`."""
    names = class_names or {number: f"c{number:03d}" for number in range(NUM_CLASSES)}
    return Origin(dataset="charades", class_numbers={name: number for number, name in names.items()})


def origin_file(table: Path) -> Path:
    """Return where the origin of a table is kept: beside it, under its name."""
    return table.with_suffix(".origin.json")


def write_origin(origin: Origin, table: Path) -> None:
    """Write the origin of a table beside it."""
    write_file(origin_file(table), origin.model_dump_json(indent=1) + "\n")


def read_origin(table: Path) -> Origin | None:
    """Read the origin of a table; None if it has none.

    Raises:
        AnnotationError: the file is damaged.
    """
    path = origin_file(table)
    try:
        return Origin.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise AnnotationError(
            f"{path}: must be the origin of a table, as `mule data from-ava` and `from-charades` write it; {error}."
        ) from None


def keep_origin(source: Path, table: Path) -> None:
    """Give a table the origin of the table it was made from, if that has one."""
    origin = read_origin(source)
    if origin is not None:
        write_origin(origin, table)
