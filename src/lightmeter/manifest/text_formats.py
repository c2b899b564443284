"""The formats made of text: CSV, TSV, JSON lines, a JSON array, and plain text with one URL a line.

A line that cannot be used is a row with a problem; only a file that cannot be used at all raises.
"""

from __future__ import annotations

import codecs
import csv
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import orjson

from lightmeter.errors import ManifestError
from lightmeter.manifest.byte_sources import LineReader
from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.manifest.csv_records import BrokenRecord, RecordReader, UnterminatedQuote
from lightmeter.manifest.item import JSON
from lightmeter.manifest.row_parser import ColumnRoles, RawRow, ReadOptions, missing_column

__all__ = ["MAX_JSON_BYTES", "LineFormat", "guess_format", "json_rows", "jsonl_rows", "table_rows", "text_rows"]

LineFormat: TypeAlias = Literal["csv", "tsv", "jsonl", "json", "text"]

MAX_JSON_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a JSON array, unpacked: it is read as a whole, and takes some ten times as much memory."""

_DELIMITERS: Final = {"csv": (",", ";", "\t"), "tsv": ("\t",)}  # spreadsheets of many countries write `;`
_SHOWN_CHARS: Final = 200
_BLANK: Final = codecs.BOM_UTF8 + b" \t\r\n"


def guess_format(lines: LineReader, options: ReadOptions) -> LineFormat:
    """The format of a stream without a name.

    A bracket begins a JSON array, a brace JSON lines; a header that names the column of URLs is that of a table; all
    else is text.
    """
    if lines.head().lstrip(_BLANK).startswith(b"["):
        return "json"
    first = lines.first()
    if first.lstrip().startswith("{"):
        return "jsonl"
    return "csv" if _delimiter(first, _DELIMITERS["csv"], options) else "text"


def text_rows(lines: LineReader) -> Iterator[RawRow]:
    """One URL a line; blank lines and lines that start with `#` are skipped."""
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            yield RawRow({"url": text})


def jsonl_rows(lines: LineReader) -> Iterator[RawRow]:
    """One JSON object a line; blank lines are skipped."""
    for line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            yield RawRow({"url": text[:_SHOWN_CHARS]}, f"line {lines.number} is broken JSON: {error}")
            continue
        if isinstance(row, dict):
            yield RawRow(row)
        else:
            yield RawRow({"url": text[:_SHOWN_CHARS]}, f"line {lines.number} is no JSON object")


def json_rows(lines: LineReader) -> Iterator[RawRow]:
    """One JSON array of objects, or of texts that are URLs.

    Raises:
        ManifestError: It is no JSON array, is broken, or is longer than `MAX_JSON_BYTES`.
    """
    content = lines.rest(MAX_JSON_BYTES)
    if len(content) > MAX_JSON_BYTES:
        raise lines.error(
            f"a JSON array is read as a whole, and this is longer than {MAX_JSON_BYTES // 1024**2} MiB",
            hint="Write it as JSON lines, which are streamed: jq -c '.[]' FILE > FILE.jsonl",
        )
    try:
        rows = orjson.loads(content.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
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
            yield RawRow(row)
        elif isinstance(row, str):
            yield RawRow({"url": row})
        else:
            shown = orjson.dumps(row).decode()[:_SHOWN_CHARS]
            yield RawRow({"url": shown}, f"element {place} of the array is neither an object nor a text")


def table_rows(
    lines: LineReader, form: Literal["csv", "tsv"], types: dict[str, str], options: ReadOptions
) -> Iterator[RawRow]:
    """Rows under a header; `types` receives the extra columns (all `string`) before the first row comes.

    A file of one column whose first line is a URL needs no header. A quoted field may hold line breaks; which quotes
    count as not closed says `records`.

    Args:
        lines: The lines of the file.
        form: Which delimiters it may have.
        types: Filled with the types of the extra columns.
        options: Which columns mean something, and whether a record with a quote that is not closed is a bad row.

    Raises:
        ManifestError: No header with the column of URLs or paths, a named column that is not there, a column that
            stands there twice, or a quote that is not closed.
    """
    first = lines.first()
    delimiter = _delimiter(first, _DELIMITERS[form], options)
    if delimiter is None:
        if not options.named and _is_lone_url(first, _DELIMITERS[form]):
            yield from text_rows(lines)
            return
        raise _no_header(lines, first, _DELIMITERS[form], options)
    records = RecordReader(lines, delimiter, options)
    header = records.header = _header(records, lines, options)
    types.update(dict.fromkeys(ColumnRoles.of(header, options).extra, "string"))
    while True:
        opened = lines.number + 1
        try:
            record = records.read()
        except BrokenRecord as error:
            yield RawRow({}, f"line {opened} cannot be taken apart: {error}")
            continue
        except UnterminatedQuote as error:
            if not options.lenient:
                raise _open_quote(lines, error) from None
            lines.push_back(error.taken[1:])
            cells = zip(header, _fields(error.taken[0], delimiter), strict=False)
            yield RawRow(dict(cells), f"line {error.line} opens a quote that is not closed: {error}")
            continue
        if record is None:
            return
        if record:
            yield _record_row(header, record, opened)


def _open_quote(lines: LineReader, error: UnterminatedQuote) -> ManifestError:
    return lines.error(
        f"a quote is opened here and not closed: {error}",
        hint='Close the quote, or write it twice (`""`) where it belongs to the text; with --lenient this record is a '
        "bad row, and reading goes on with the next line.",
        line=error.line,
    )


def _no_header(lines: LineReader, first: str, delimiters: tuple[str, ...], options: ReadOptions) -> ManifestError:
    line = lines.number + bool(first)
    if "\r" in first.rstrip("\r\n"):
        hint = "Save the manifest again as UTF-8 CSV."
        return lines.error("its lines end in bare carriage returns", hint=hint, line=line)
    if first and options.url_column is not None:
        columns = [] if _is_lone_url(first, delimiters) else max((_fields(first, mark) for mark in delimiters), key=len)
        return missing_column(f"{lines.name}:{line}", options.url_column, (name.strip() for name in columns))
    return lines.error(
        "the header names no column `url` or `path`" if first else "it is empty, without even a header",
        hint="Give the column with the addresses the header `url`, or `path` for local files, or name it: --url-column",
        line=line,
    )


def _record_row(header: list[str], record: list[str], line: int) -> RawRow:
    cells: dict[str, JSON] = dict(zip(header, record, strict=False))
    if len(record) == len(header):
        return RawRow(cells)
    return RawRow(cells, f"line {line} has {len(record)} fields, and the header {len(header)}")


def _header(records: RecordReader, lines: LineReader, options: ReadOptions) -> list[str]:
    """Names of the columns; one without a name is `column_<position>`, counted from 1."""
    try:
        names = records.read() or []
    except BrokenRecord as error:
        raise lines.error(f"the header cannot be taken apart: {error}") from None
    except UnterminatedQuote as error:
        raise _open_quote(lines, error) from None
    header = [name if name.strip() else f"column_{place}" for place, name in enumerate(names, start=1)]
    doubled = [name for name, count in Counter(header).items() if count > 1]
    if doubled:
        raise lines.error(f"the column {doubled[0]!r} stands there twice", hint="Rename one of the two.")
    if missing := options.missing(header):
        raise missing_column(f"{lines.name}:{lines.number}", missing, header)
    return header


def _fields(line: str, delimiter: str) -> list[str]:
    """The fields of one line read by itself, a quote that is not closed left open; none if it is no CSV."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _delimiter(line: str, candidates: tuple[str, ...], options: ReadOptions) -> str | None:
    """The delimiter under which `line` is a header of a manifest."""
    return next((mark for mark in candidates if ColumnRoles.of(_fields(line, mark), options).usable), None)


def _is_lone_url(line: str, delimiters: tuple[str, ...]) -> bool:
    if any(len(_fields(line, mark)) != 1 for mark in delimiters):
        return False
    try:
        canonical_url(line.strip())
    except ValueError:
        return False
    return True
