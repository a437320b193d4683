"""Read small files: names, one per line, and pairs from two columns of a CSV file."""

from pathlib import Path

from mule.core.errors import AnnotationError
from mule.core.text_rows import Problems, read_lines, read_named_columns, shown


def read_names(path: Path, *, of: str) -> tuple[str, ...]:
    """Read the names in a text file, one per line.

    Raises:
        AnnotationError: the file is empty or repeats a name.
    """
    problems = Problems(path)
    names: dict[str, int] = {}
    for line, text in enumerate(read_lines(path), start=1):
        name = text.strip()
        if name and names.setdefault(name, line) != line:
            problems.add(line, f"a name must appear once; {shown(name)} is in line {names[name]} already")
    problems.raise_if_any()
    if not names:
        raise AnnotationError(f"{path}, line 1: must name {of}, one per line; the file is empty.")
    return tuple(names)


def read_pairs(path: Path, key: str, value: str) -> dict[str, str]:
    """Read two columns of a CSV file as a mapping; a key may be repeated with the same value.

    Raises:
        AnnotationError: a cell is empty, or a key has two values.
    """
    problems = Problems(path)
    pairs: dict[str, str] = {}
    for columns in read_named_columns(path, (key, value), problems):
        for name, word, line in zip(columns.texts[key], columns.texts[value], columns.lines, strict=True):
            if not name.strip() or not word.strip():
                problems.add(line, f"{key} and {value} must not be empty")
                continue
            known = pairs.setdefault(name.strip(), word.strip())
            if known != word.strip():
                problems.add(
                    line, f"{shown(name)} must have one {value}; got {shown(known)} and {shown(word)}"
                )
    problems.raise_if_any()
    return pairs
