from pathlib import Path

import numpy as np
import pytest

from mule.core import text_rows
from mule.core.errors import AnnotationError
from mule.core.text_rows import Problems, read_chunks, read_lines, read_named_columns


def written(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_and_lines(path):
    chunks = list(read_chunks(path))
    return [row for chunk in chunks for row in chunk.rows], [line for chunk in chunks for line in chunk.lines]


@pytest.mark.parametrize(
    "content", ["", "\n\n", "  \r\n", "\ufeff"], ids=["nothing", "lines", "spaces", "mark"]
)
def test_a_file_without_rows_is_an_error(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(
        AnnotationError, match=r"table\.csv, line 1: must hold at least one row; the file is empty"
    ):
        list(read_chunks(path))


def test_what_is_not_a_readable_file_is_an_error_that_says_what_it_is(tmp_path):
    with pytest.raises(
        AnnotationError, match=r"nowhere\.csv: must be a readable file; there is no such file"
    ):
        list(read_lines(tmp_path / "nowhere.csv"))
    with pytest.raises(AnnotationError, match="it is a directory"):
        list(read_lines(tmp_path))
    with pytest.raises(AnnotationError, match="not a directory"):
        list(read_lines(written(tmp_path, "a") / "below"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "old mac"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte-order mark"])
def test_line_ends_and_byte_order_marks_change_nothing(tmp_path, end, mark):
    path = written(tmp_path, mark + end.join(["a,b", "", '"c, d",é', ""]))
    assert rows_and_lines(path) == ([["a", "b"], ["c, d", "é"]], [1, 3])


def test_a_row_over_several_lines_is_named_by_the_first(tmp_path):
    path = written(tmp_path, 'a,"1\n2\n3"\n\nb,c\n')
    assert rows_and_lines(path) == ([["a", "1\n2\n3"], ["b", "c"]], [1, 5])


def test_lines_are_counted_across_blocks_and_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "BLOCK_BYTES", 7)
    monkeypatch.setattr(text_rows, "ROWS_PER_CHUNK", 3)
    path = written(tmp_path, "".join(f"row,{i}\n" for i in range(20)))
    rows, lines = rows_and_lines(path)
    assert [int(row[1]) + 1 for row in rows] == lines == list(range(1, 21))


@pytest.mark.parametrize("block_bytes", [4, 1 << 18])
def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(text_rows, "BLOCK_BYTES", block_bytes)
    path = written(tmp_path, b"a,b\nc,\xc3\xa9\nd,\xe9\n")
    with pytest.raises(AnnotationError, match=r"line 3: must be UTF-8 text; got the byte 0xe9"):
        list(read_chunks(path))


def test_an_open_quotation_mark_is_an_error_and_not_a_giant_cell(tmp_path):
    path = written(tmp_path, 'a,b\nc,"d\n' + "e,f\n" * 40_000)
    with pytest.raises(AnnotationError, match=r"line 2: .* quotation mark left open"):
        list(read_chunks(path))


def test_numbers_are_read_as_python_reads_them():
    np.testing.assert_array_equal(
        text_rows.numbers(["1", " -2.5e1 ", "x", "", "nan"]), [1, -25, np.nan, np.nan, np.nan]
    )


@pytest.mark.parametrize("text", ["1.0", "x", "", "-3", str(2**63), "1e3"])
def test_what_is_not_a_whole_number_is_a_problem(text):
    problems = Problems(Path("table.csv"))
    values = text_rows.whole_numbers(["7", text], "the id", [1, 2], problems)
    assert values[0] == 7
    with pytest.raises(AnnotationError, match=r"table\.csv, line 2: the id must be a whole number; got"):
        problems.raise_if_any()


def test_the_first_problems_are_told_by_line_and_the_rest_counted():
    problems = Problems(Path("table.csv"))
    problems.raise_if_any()
    problems.add_where(np.ones(8, dtype=bool), list(range(11, 19)), lambda i: f"b{i}")
    problems.add(3, "a")
    with pytest.raises(AnnotationError) as caught:
        problems.raise_if_any()
    told = "table.csv, line 3: a; line 11: b0; line 12: b1; line 13: b2; line 14: b3; and 4 more like these."
    assert str(caught.value) == told


def test_long_cells_are_cut_short_in_messages():
    assert len(text_rows.shown("x" * 1000)) < 50


def test_named_columns_are_found_wherever_they_stand(tmp_path):
    path = written(tmp_path, "other, b ,a\n1,2,3\n4,5,6\n")
    (columns,) = read_named_columns(path, ("a", "b"), Problems(path), optional=("c",))
    assert columns.texts == {"a": ["3", "6"], "b": ["2", "5"]}
    assert columns.lines == [2, 3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,c\n1,2\n", r"line 1: the header must name the columns 'a' and 'b' once each; got 'a, c'"),
        ("a,b,a\n1,2,3\n", "once each"),
        ("a,b\n", "line 2: must hold rows below the header; there are none"),
    ],
)
def test_a_header_that_does_not_fit_is_an_error(tmp_path, content, words):
    path = written(tmp_path, content)
    with pytest.raises(AnnotationError, match=words):
        list(read_named_columns(path, ("a", "b"), Problems(path)))


def test_rows_of_another_width_are_problems_and_the_others_are_still_read(tmp_path):
    path = written(tmp_path, "a,b\n1\n2,3\n4,5,6\n")
    problems = Problems(path)
    (columns,) = read_named_columns(path, ("a", "b"), problems)
    assert columns.texts["a"] == ["2"]
    with pytest.raises(AnnotationError, match=r"line 2: a row must have 2 columns; got 1; line 4: .* got 3"):
        problems.raise_if_any()
