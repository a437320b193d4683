"""Columns of files that options name, VIDEOS.csv:COLUMN. What reads them is imported when a command runs."""

from pathlib import Path

import typer


def value_of_each(place: str, videos: tuple[str, ...], option: str) -> dict[str, str]:
    """What the column says of each of these videos.

    Raises:
        AnnotationError: it says nothing of some.
    """
    from mule.core.text_rows import read_pairs

    return of_all(videos, read_pairs(*column_place(place, option)), f"{place}: every video")


def of_all(names: tuple[str, ...], value_of: dict[str, str], every: str) -> dict[str, str]:
    """The value of each of these names; `every` begins what is said where some have none.

    Raises:
        AnnotationError: some have none.
    """
    from mule.core.errors import AnnotationError
    from mule.data.split.splits import listed

    without = [name for name in names if name not in value_of]
    if without:
        raise AnnotationError(f"{every} of the table must have a row; {listed(without)} have none.")
    return {name: value_of[name] for name in names}


def column_place(place: str, option: str) -> tuple[Path, str, str]:
    """The file, the column of names and the column of values that an option asks for.

    Raises:
        typer.BadParameter: it does not read like FILE:COLUMN.
    """
    file, mark, column = place.rpartition(":")
    if not mark or not file or not column:
        raise typer.BadParameter(
            f"must be a file and a column, VIDEOS.csv:COLUMN; got '{place}'.", param_hint=option
        )
    return Path(file), "video", column
