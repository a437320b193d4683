"""Tables as Parquet files. The only module of data sets that uses pyarrow, which is an extra: mule[parquet]."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
from jaxtyping import Shaped

from mule.core.errors import AnnotationError
from mule.core.text_rows import NamedColumns

ROWS_PER_PART = 65_536


def read_parquet_columns(path: Path, names: Sequence[str]) -> Iterator[NamedColumns]:
    """The named columns as text, some ten thousand rows at a time; rows are counted from 1. An empty cell is ''."""
    arrow = _arrow()
    num_before = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            _require_columns(path, file.schema_arrow.names, names, file.metadata.num_rows)
            for batch in file.iter_batches(ROWS_PER_PART, columns=list(names)):
                texts = {name: _texts(batch.column(name), arrow) for name in names}
                yield NamedColumns(texts, list(range(num_before + 1, num_before + len(batch) + 1)))
                num_before += len(batch)
    except (OSError, arrow.ArrowException) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error).rstrip(".")
        raise AnnotationError(
            f"{path}: must be a Parquet file whose cells are text or numbers; {reason}."
        ) from None


def write_parquet(path: Path, columns: Mapping[str, Sequence[str] | Shaped[np.ndarray, " rows"]]) -> None:
    """One Parquet column per entry, numbers as numbers; NaN becomes an empty cell."""
    arrow = _arrow()
    arrays = [
        arrow.array(cells, arrow.float64(), from_pandas=True)
        if isinstance(cells, np.ndarray)
        else arrow.array(cells, arrow.string())
        for cells in columns.values()
    ]
    arrow.parquet.write_table(arrow.table(arrays, names=list(columns)), path)


def _require_columns(path: Path, found: Sequence[str], names: Sequence[str], num_rows: int) -> None:
    if any(found.count(name) != 1 for name in names) or not num_rows:
        raise AnnotationError(
            f"{path}: must hold rows and the columns {', '.join(names)}, once each; got {num_rows} rows and "
            f"{', '.join(found) or 'no columns'}."
        )


def _texts(column, arrow: ModuleType) -> list[str]:  # noqa: ANN001 - a type of a package that may be missing
    return arrow.compute.fill_null(column.cast(arrow.string()), "").to_pylist()


def _arrow() -> ModuleType:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise AnnotationError(
            "reading or writing .parquet needs pyarrow: pip install 'mule[parquet]', or use a .csv file."
        ) from None
    return pyarrow
