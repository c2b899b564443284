"""Readers of text formats: CSV, TSV, JSON lines, a JSON array, and plain text with one URL a line.

An invalid line becomes a row with a problem. An error is raised only if the file as a whole is invalid.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, Literal, TypeAlias

import orjson

from lightmeter.errors import ManifestError
from lightmeter.manifest.byte_sources import LineReader
from lightmeter.manifest.canonical_url import is_url
from lightmeter.manifest.csv_records import BrokenRecord, csv_records, split_line
from lightmeter.manifest.item import MEDIA_SUFFIXES
from lightmeter.manifest.json_values import parse_json, plain_text
from lightmeter.manifest.row_parser import (
    ColumnRoles,
    RawRow,
    ReadOptions,
    column_roles,
    missing_column,
    named_columns,
    plain_row,
    storable_row,
)

LineFormat: TypeAlias = Literal["csv", "tsv", "jsonl", "json", "text"]

MAX_JSON_CHARS: Final = 64 * 1024 * 1024
"""Longest JSON array, in characters. It is read at once and takes about ten times as much memory."""

_DELIMITERS: Final = {"csv": (",", ";", "\t"), "tsv": ("\t",)}  # spreadsheets write `;` in many countries
_SHOWN_CHARS: Final = 200
_LIKE_ROW: Final = "on several lines, one of which looks like a row but stands inside quotes"
_BLANK: Final = codecs.BOM_UTF8 + b" \t\r\n"


def guess_format(lines: LineReader, options: ReadOptions) -> LineFormat:
    """Return the format of a stream without a file name, by its first characters.

    `[` means a JSON array, `{` means JSON lines. If the first line is a header with a column of URLs or paths, the
    format is CSV; otherwise it is text. That column is named `url` or `path`, or as `options` say.
    """
    if lines.head().lstrip(_BLANK).startswith(b"["):
        return "json"
    if lines.first().lstrip().startswith("{"):
        return "jsonl"
    return "csv" if _delimiter(_first_record(lines), _DELIMITERS["csv"], options) else "text"


def text_rows(lines: LineReader) -> Iterator[RawRow]:
    """Yield a row for each line; a line is a URL. Blank lines and lines that start with `#` are skipped."""
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            yield plain_row({"url": text}) if lines.damaged else RawRow({"url": text})


def jsonl_rows(lines: LineReader) -> Iterator[RawRow]:
    """Yield a row for each line; a line is a JSON object. Blank lines are skipped."""
    for line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            row, is_storable = parse_json(text)
        except json.JSONDecodeError as error:
            yield _bad_row(text, f"line {lines.number} is broken JSON: {error}")
            continue
        if isinstance(row, dict):
            yield storable_row(row) if is_storable else plain_row(row)
        else:
            yield _bad_row(text, f"line {lines.number} is no JSON object")


def _bad_row(shown: str, problem: str) -> RawRow:
    return RawRow(plain_row({"url": shown[:_SHOWN_CHARS]}).cells, problem)


def json_rows(lines: LineReader) -> Iterator[RawRow]:
    """Yield a row for each element of a JSON array; an element is an object or a URL.

    Raises:
        ManifestError: the text is not a JSON array, is invalid, or is longer than `MAX_JSON_CHARS`.
    """
    content = lines.read_all(MAX_JSON_CHARS)
    if len(content) > MAX_JSON_CHARS:
        raise lines.error(
            f"a JSON array is read as a whole, and this is longer than {MAX_JSON_CHARS} characters",
            hint="Write it as JSON lines, which are streamed: jq -c '.[]' FILE > FILE.jsonl",
        )
    try:
        rows, is_storable = parse_json(content)
    except json.JSONDecodeError as error:
        hint = "If each line is a row of its own, name the file .jsonl."
        raise lines.error(f"this is broken JSON: {error}", hint=hint, line=error.lineno) from None
    if not isinstance(rows, list):
        plan = isinstance(rows, dict) and "plan_version" in rows
        raise lines.error(
            "this is no JSON array of rows",
            hint="It is a plan: lightmeter run --plan FILE" if plan else "Put the rows into brackets.",
        )
    for place, row in enumerate(rows):
        if isinstance(row, str | dict):
            cells = {"url": row} if isinstance(row, str) else row
            yield storable_row(cells) if is_storable else plain_row(cells)
        else:
            shown = orjson.dumps(plain_row({"url": row}).cells["url"]).decode()
            yield _bad_row(shown, f"element {place} of the array is neither an object nor a text")


def table_rows(
    lines: LineReader, form: Literal["csv", "tsv"], types: dict[str, str], options: ReadOptions
) -> Iterator[RawRow]:
    """Yield the rows of a CSV or TSV file with a header.

    A file with one column needs no header if its first line is a URL. A quoted field may hold line breaks.

    Args:
        lines: The lines of the file.
        form: The format, which determines the possible delimiters.
        types: Filled before the first row: column → `string`, for all columns but those of URLs, paths, ids and kinds.
        options: Names of the columns of URLs, ids and kinds (image or video); whether a broken quote is an error.

    Raises:
        ManifestError: the header has no column of URLs or paths, or lacks a column that `options` names; two columns
            have the same name; or a quoted field is not closed, or its closing quote is followed by text.
    """
    first = _first_record(lines)
    delimiter = _delimiter(first, _DELIMITERS[form], options)
    if delimiter is None:
        if not options.named and _is_lone_url(first, _DELIMITERS[form]):
            yield from text_rows(lines)
            return
        raise _header_error(lines, first, _DELIMITERS[form], options)
    records = csv_records(lines, delimiter)
    try:
        header = _header(next(records)[1], lines, options)
    except BrokenRecord as error:
        raise _broken_record_error(lines, error) from None
    columns = column_roles(tuple(header), options)
    types.update(dict.fromkeys(columns.extra, "string"))
    holds_row = partial(_holds_row, delimiter=delimiter, columns=columns, header=header)
    try:
        for line, record in records:
            if record:
                yield _table_row(record, line, header, lines, holds_row)
    except BrokenRecord as error:
        if not options.lenient:
            raise _broken_record_error(lines, error) from None
        for _ in lines:
            pass
        yield RawRow(
            {}, f"line {error.line} opens a quote, and {error}: nothing from there to line {lines.number} is read"
        )


def _table_row(
    record: list[str], line: int, header: list[str], lines: LineReader, holds_row: Callable[[str], bool]
) -> RawRow:
    cells = dict(zip(header, record, strict=False))
    row = plain_row(cells) if lines.damaged else RawRow(cells)
    if lines.number > line:
        swallowed = (name for name in cells if holds_row(cells[name]))
        row = replace(row, cell_notes={**row.cell_notes, **dict.fromkeys(swallowed, _LIKE_ROW)})
    if len(record) != len(header):
        row = replace(row, problem=f"line {line} has {len(record)} fields, and the header {len(header)}")
    return row


def _broken_record_error(lines: LineReader, error: BrokenRecord) -> ManifestError:
    return lines.error(
        f"a quote is opened here, and {error}",
        hint='Close the quote, or write it twice (`""`) where it belongs to the text; with --lenient the rows before '
        "it are read, and the rest is one bad row.",
        line=error.line,
    )


def _holds_row(cell: str, delimiter: str, columns: ColumnRoles, header: Sequence[str]) -> bool:
    """Whether a line of a cell but its first looks like a row, as if an unclosed quote had swallowed it."""
    for line in cell.splitlines()[1:]:
        row = dict(zip(header, split_line(line, delimiter), strict=False))
        url, path = row.get(columns.url or "", ""), row.get(columns.path or "", "")
        if len(row) > 1 and (is_url(url) or path.strip().lower().endswith(MEDIA_SUFFIXES)):
            return True
    return False


def _header_error(lines: LineReader, first: str, delimiters: tuple[str, ...], options: ReadOptions) -> ManifestError:
    line = lines.number + bool(first)
    if first and options.url_column is not None:
        columns = (
            [] if _is_lone_url(first, delimiters) else max((split_line(first, mark) for mark in delimiters), key=len)
        )
        return missing_column(f"{lines.name}:{line}", options.url_column, (name.strip() for name in columns))
    return lines.error(
        "the header names no column `url` or `path`" if first else "it is empty, without even a header",
        hint="Give the column with the addresses the header `url`, or `path` for local files, or name it: --url-column",
        line=line,
    )


def _header(names: list[str], lines: LineReader, options: ReadOptions) -> list[str]:
    """Return the column names of a CSV file; a column without a name is named by its place: `column_3`.

    Args:
        names: The fields of the first record.
        lines: The lines of the file, for errors.
        options: Names of columns that must exist.

    Raises:
        ManifestError: two columns have the same name, or a column in `options` is missing.
    """
    header = named_columns(plain_text(name, []) for name in names)
    duplicates = [name for name, count in Counter(header).items() if count > 1]
    if duplicates:
        raise lines.error(f"the column {duplicates[0]!r} occurs twice", hint="Rename one of the two.")
    if missing := options.first_missing_column(header):
        raise missing_column(f"{lines.name}:{lines.number}", missing, header)
    return header


def _first_record(lines: LineReader) -> str:
    """Return the lines of the first record, without consuming them; at most 100 if its quotes are not balanced."""
    lines.first()
    taken: list[str] = []
    for line in islice(lines, 100):
        taken.append(line)
        if sum(text.count('"') for text in taken) % 2 == 0:
            break
    lines.push_back(taken)
    return "".join(taken)


def _delimiter(line: str, candidates: tuple[str, ...], options: ReadOptions) -> str | None:
    """Return the delimiter with which `line` is a header that has a column of URLs or paths; None if there is none.

    If several of `candidates` fit, it is the first of them. The column is named `url` or `path`, or as `options` say.
    """
    return next(
        (delimiter for delimiter in candidates if column_roles(tuple(split_line(line, delimiter)), options).usable),
        None,
    )


def _is_lone_url(line: str, delimiters: tuple[str, ...]) -> bool:
    return all(len(split_line(line, delimiter)) == 1 for delimiter in delimiters) and is_url(line)
