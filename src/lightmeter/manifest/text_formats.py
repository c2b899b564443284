"""Readers of text formats: CSV, TSV, JSON lines, a JSON array, and plain text with one URL a line.

An invalid line becomes a row with a problem. An error is raised only if the file as a whole is invalid.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import orjson

from lightmeter.errors import ManifestError
from lightmeter.manifest.byte_sources import LineReader
from lightmeter.manifest.canonical_url import is_url
from lightmeter.manifest.csv_records import BrokenRecord, RecordReader, UnterminatedQuote, split_line
from lightmeter.manifest.json_values import parse_json
from lightmeter.manifest.row_parser import (
    RawRow,
    ReadOptions,
    column_roles,
    missing_column,
    named_columns,
    storable_row,
)

LineFormat: TypeAlias = Literal["csv", "tsv", "jsonl", "json", "text"]

MAX_JSON_BYTES: Final = 64 * 1024 * 1024
"""Longest JSON array, in bytes without compression. It is read at once and takes about ten times as much memory."""

_DELIMITERS: Final = {"csv": (",", ";", "\t"), "tsv": ("\t",)}  # spreadsheets write `;` in many countries
_SHOWN_CHARS: Final = 200
_BLANK: Final = codecs.BOM_UTF8 + b" \t\r\n"


def guess_format(lines: LineReader, options: ReadOptions) -> LineFormat:
    """Return the format of a stream without a file name, by its first characters.

    `[` means a JSON array, `{` means JSON lines. If the first line is a header with a column of URLs or paths, the
    format is CSV; otherwise it is text. That column is named `url` or `path`, or as `options` say.
    """
    if lines.head().lstrip(_BLANK).startswith(b"["):
        return "json"
    first = lines.first()
    if first.lstrip().startswith("{"):
        return "jsonl"
    return "csv" if _delimiter(first, _DELIMITERS["csv"], options) else "text"


def text_rows(lines: LineReader) -> Iterator[RawRow]:
    """Yield a row for each line; a line is a URL. Blank lines and lines that start with `#` are skipped."""
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            yield RawRow({"url": text})


def jsonl_rows(lines: LineReader) -> Iterator[RawRow]:
    """Yield a row for each line; a line is a JSON object. Blank lines are skipped."""
    for line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            row = parse_json(text)
        except json.JSONDecodeError as error:
            yield RawRow({"url": text[:_SHOWN_CHARS]}, f"line {lines.number} is broken JSON: {error}")
            continue
        if isinstance(row, dict):
            yield storable_row(row)
        else:
            yield RawRow({"url": text[:_SHOWN_CHARS]}, f"line {lines.number} is no JSON object")


def json_rows(lines: LineReader) -> Iterator[RawRow]:
    """Yield a row for each element of a JSON array; an element is an object or a URL.

    Raises:
        ManifestError: the text is not a JSON array, is invalid, or is longer than `MAX_JSON_BYTES`.
    """
    content = lines.read_all(MAX_JSON_BYTES)
    if len(content) > MAX_JSON_BYTES:
        raise lines.error(
            f"a JSON array is read as a whole, and this is longer than {MAX_JSON_BYTES // 1024**2} MiB",
            hint="Write it as JSON lines, which are streamed: jq -c '.[]' FILE > FILE.jsonl",
        )
    try:
        rows = parse_json(content.removeprefix(codecs.BOM_UTF8))
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
        if isinstance(row, dict):
            yield storable_row(row)
        elif isinstance(row, str):
            yield RawRow({"url": row})
        else:
            shown = orjson.dumps(storable_row({"url": row}).cells.get("url")).decode()[:_SHOWN_CHARS]
            yield RawRow({"url": shown}, f"element {place} of the array is neither an object nor a text")


def table_rows(
    lines: LineReader, form: Literal["csv", "tsv"], types: dict[str, str], options: ReadOptions
) -> Iterator[RawRow]:
    """Yield the rows of a CSV or TSV file with a header.

    A file with one column needs no header if its first line is a URL. A quoted field may hold line breaks.

    Args:
        lines: The lines of the file.
        form: The format, which determines the possible delimiters.
        types: Filled before the first row: column → `string`, for all columns but those of URLs, paths, ids and kinds.
        options: Names of the columns of URLs, ids and kinds (image or video); whether an unclosed quote is an error.

    Raises:
        ManifestError: the header has no column of URLs or paths, or lacks a column that `options` names; two columns
            have the same name; or a quote is not closed.
    """
    first = lines.first()
    delimiter = _delimiter(first, _DELIMITERS[form], options)
    if delimiter is None:
        if not options.named and _is_lone_url(first, _DELIMITERS[form]):
            yield from text_rows(lines)
            return
        raise _header_error(lines, first, _DELIMITERS[form], options)
    records = RecordReader(lines, delimiter, options)
    header = records.header = _header(records, lines, options)
    types.update(dict.fromkeys(column_roles(tuple(header), options).extra, "string"))
    while True:
        line = lines.number + 1
        try:
            record = records.read()
        except BrokenRecord as error:
            yield RawRow({}, f"line {line} cannot be parsed: {error}")
            continue
        except UnterminatedQuote as error:
            if not options.lenient:
                raise _unclosed_quote_error(lines, error) from None
            lines.push_back(error.consumed[1:])
            cells = zip(header, split_line(error.consumed[0], delimiter), strict=False)
            yield RawRow(dict(cells), f"line {error.line} opens a quote that is not closed: {error}")
            continue
        if record is None:
            return
        if record:
            fits = len(record) == len(header)
            problem = None if fits else f"line {line} has {len(record)} fields, and the header {len(header)}"
            yield RawRow(dict(zip(header, record, strict=False)), problem)


def _unclosed_quote_error(lines: LineReader, error: UnterminatedQuote) -> ManifestError:
    return lines.error(
        f"a quote is opened here and not closed: {error}",
        hint='Close the quote, or write it twice (`""`) where it belongs to the text; with --lenient this record is a '
        "bad row, and reading goes on with the next line.",
        line=error.line,
    )


def _header_error(lines: LineReader, first: str, delimiters: tuple[str, ...], options: ReadOptions) -> ManifestError:
    line = lines.number + bool(first)
    if "\r" in first.rstrip("\r\n"):
        hint = "Save the manifest again as UTF-8 CSV."
        return lines.error("its lines end in bare carriage returns", hint=hint, line=line)
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


def _header(records: RecordReader, lines: LineReader, options: ReadOptions) -> list[str]:
    """Read and return the column names of a CSV file; a column without a name is named by its place: `column_3`.

    Args:
        records: The records of the file; none of them has been read.
        lines: The lines of the same file, for errors.
        options: Names of columns that must exist.

    Raises:
        ManifestError: the header cannot be parsed, two columns have the same name, or a column in `options` is missing.
    """
    try:
        names = records.read() or []
    except BrokenRecord as error:
        raise lines.error(f"the header cannot be parsed: {error}") from None
    except UnterminatedQuote as error:
        raise _unclosed_quote_error(lines, error) from None
    header = named_columns(names)
    duplicates = [name for name, count in Counter(header).items() if count > 1]
    if duplicates:
        raise lines.error(f"the column {duplicates[0]!r} occurs twice", hint="Rename one of the two.")
    if missing := options.first_missing_column(header):
        raise missing_column(f"{lines.name}:{lines.number}", missing, header)
    return header


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
