"""Formats query results as text: cut to fit a terminal, or complete as CSV, JSON or Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from lightmeter.terminal import BIDI_CONTROLS, CONTROLS

MAX_ROWS: Final = 60  # on a terminal

_GAP: Final = 2
_MIN_COLUMN_WIDTH: Final = 14  # columns are cut to this width before a whole column is left out
_MAX_COLUMN_WIDTH: Final = 60
_MAX_NESTED_WIDTH: Final = 32
_BATCH_ROWS: Final = 8192
_CONTROL_CHARS: Final = re.compile(rf"[{CONTROLS}{BIDI_CONTROLS}\t\r\n\u2028\u2029]+")
_RAW_CONTROLS: Final = re.compile(f"[\x7f{CONTROLS}{BIDI_CONTROLS}]")


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    name: str
    cells: tuple[str, ...]
    is_number: bool
    is_empty: bool

    @property
    def width(self) -> int:
        return min(_MAX_COLUMN_WIDTH, max(map(cell_len, (self.name, *self.cells))))

    @property
    def min_width(self) -> int:
        """Minimum width in characters to which the column may be cut. A column of numbers is never cut."""
        return self.width if self.is_number else min(self.width, _MIN_COLUMN_WIDTH)


def format_table(answer: pa.Table, width: int) -> tuple[list[str], str]:
    """Return the table `answer` as lines of text for a terminal, and a note on the number of rows and what is left out.

    The lines show only the first rows, and only the columns that fit into `width` characters.
    """
    shown = answer.slice(0, MAX_ROWS)
    columns = [_column(name, column) for name, column in zip(shown.column_names, shown.columns, strict=True)]
    visible = _columns_that_fit(columns, width)
    widths = _widths(visible, width)
    lines = [_line(row, visible, widths) for row in zip(*((of.name, *of.cells) for of in visible), strict=True)]
    rows = f"{answer.num_rows:,} {'row' if answer.num_rows == 1 else 'rows'}"
    more = f", the first {len(shown)} are shown" if len(shown) < answer.num_rows else ""
    hidden = ""
    if left_out := [column.name for column in columns if column not in visible]:
        hidden = f"; {len(left_out)} of {answer.num_columns} columns are not shown: {', '.join(left_out)}"
    how = ". All of it: --output csv, json or markdown; or name columns in the query" if more or hidden else ""
    return lines, f"{rows}{more}{hidden}{how}."


def _column(name: str, column: pa.ChunkedArray[Any]) -> _Column:
    of = column.type
    is_number = pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of)
    cells = tuple(map(_cell, _values(column)))
    return _Column(_one_line(name), cells, is_number, is_empty=not any(cells))


def _cell(value: Any) -> str:
    """Return a value as a short text. A list or an object becomes the beginning of its JSON."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if _is_nested(value):
        return _cut(_one_line(_json(value)), _MAX_NESTED_WIDTH)
    return _one_line(str(value))


def _one_line(text: str) -> str:
    """Return `text` on one line, with a space in place of each character that controls a terminal."""
    return _CONTROL_CHARS.sub(" ", text)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def _columns_that_fit(columns: Sequence[_Column], width: int) -> list[_Column]:
    """Return the columns that fit into `width` characters if each is cut to its `min_width`; at least one column.

    Empty columns are left out first, then other columns, from the last one backward.
    """
    visible = list(columns)
    while len(visible) > 1 and sum(column.min_width + _GAP for column in visible) - _GAP > width:
        empty = [column for column in visible if column.is_empty]
        visible.remove((empty or visible)[-1])
    return visible


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Return the width of each column in characters, so that a line with its gaps fits into `width` characters.

    Each column gets its `min_width`. The rest of the line is shared equally among the columns that are still cut.
    """
    widths = [column.min_width for column in columns]
    spare = width - sum(widths) - _GAP * (len(columns) - 1)
    while spare > 0:
        cut = [at for at, column in enumerate(columns) if widths[at] < column.width]
        if not cut:
            break
        for at in cut[:spare]:
            widths[at] += 1
        spare -= min(spare, len(cut))
    return widths


def _line(row: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> str:
    cells = []
    for text, column, width in zip(row, columns, widths, strict=True):
        cell = _cut(text, width)
        blank = " " * (width - cell_len(cell))
        cells.append(blank + cell if column.is_number else cell + blank)
    return (" " * _GAP).join(cells).rstrip()


def as_csv(answer: pa.Table) -> Iterator[str]:
    """Yield the table `answer` as CSV with a header (RFC 4180), many lines at a time.

    Nested values are JSON, nulls are empty.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    header: list[Sequence[Any]] = [answer.column_names]
    for rows in chain([header], _chunks(answer)):
        writer.writerows([_json(value) if _is_nested(value) else value for value in row] for row in rows)
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def as_json(answer: pa.Table) -> Iterator[str]:
    """Yield the table `answer` as pieces of one JSON array, with an object for each row.

    Times are ISO 8601, NaN and infinities are null.
    """
    names = _unique_names(answer.column_names)
    before = "[\n"
    for rows in _chunks(answer):
        for row in rows:
            yield before + _json(dict(zip(names, row, strict=True)))
            before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def as_markdown(answer: pa.Table) -> Iterator[str]:
    """Yield the table `answer` as pieces of a Markdown table with all rows and columns."""
    yield _pipes(answer.column_names) + _pipes(["---"] * answer.num_columns)
    for rows in _chunks(answer):
        yield "".join(map(_pipes, rows))


def _pipes(row: Sequence[Any]) -> str:
    texts = ("" if value is None else _json(value) if _is_nested(value) else str(value) for value in row)
    return "| " + " | ".join(_one_line(text).replace("\\", "\\\\").replace("|", "\\|") for text in texts) + " |\n"


def _chunks(answer: pa.Table) -> Iterator[list[Sequence[Any]]]:
    """Yield the rows of the table `answer` in lists of at most 8,192; a row is a sequence of its values."""
    for batch in answer.to_batches(max_chunksize=_BATCH_ROWS):
        yield list(zip(*map(_values, batch.columns), strict=True))


def _values(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> list[Any]:
    """Return the values of a column; as DuckDB's texts where a date is outside the years 1 to 9999 of Python."""
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        import duckdb  # noqa: PLC0415 (rarely needed here)

        table = duckdb.from_arrow(pa.Table.from_arrays([column], ["it"]))
        return [text for (text,) in table.project("it::VARCHAR").fetchall()]


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, dict, tuple))


def _json(value: Any) -> str:
    is_ascii = "utf" not in (sys.stdout.encoding or "utf").lower()  # an escape of the output would be no JSON
    text = json.dumps(_to_json_value(value), ensure_ascii=is_ascii, default=_text)
    return _RAW_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _to_json_value(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinities become null, the pairs of a map become an object."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _to_json_value(inner) for name, inner in value.items()}
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return {str(name): _to_json_value(inner) for name, inner in value}
    return [_to_json_value(inner) for inner in value] if _is_nested(value) else value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _unique_names(names: Sequence[str]) -> list[str]:
    """Return the names of columns, made unique: the second `name` becomes `name_2`."""
    unique: list[str] = []
    for name in names:
        number, free = 2, name
        while free in unique:
            number, free = number + 1, f"{name}_{number}"
        unique.append(free)
    return unique
