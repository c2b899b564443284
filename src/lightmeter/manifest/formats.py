"""The formats made of lines: CSV, TSV, JSON lines, and plain text with one URL a line.

A line that cannot be used is a row with a problem; only a file that cannot be used at all raises.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import orjson

from lightmeter.errors import ManifestError
from lightmeter.manifest.canonical import canonical_url
from lightmeter.manifest.item import JSON
from lightmeter.manifest.rows import Layout, RawRow
from lightmeter.manifest.sources import Lines

__all__ = ["LineFormat", "guess_format", "jsonl_rows", "table_rows", "text_rows"]

LineFormat: TypeAlias = Literal["csv", "tsv", "jsonl", "text"]

_DELIMITERS: Final = {"csv": (",", ";", "\t"), "tsv": ("\t",)}  # spreadsheets of many countries write `;`
_SHOWN_CHARS: Final = 200


def guess_format(lines: Lines) -> LineFormat:
    """The format of a stream without a name: JSON lines, a table whose header names `url` or `path`, or text."""
    first = lines.first()
    if first.lstrip().startswith("{"):
        return "jsonl"
    return "csv" if _delimiter(first, _DELIMITERS["csv"]) else "text"


def text_rows(lines: Lines) -> Iterator[RawRow]:
    """One URL a line; blank lines and lines that start with `#` are skipped."""
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            yield RawRow({"url": text})


def jsonl_rows(lines: Lines) -> Iterator[RawRow]:
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


def table_rows(lines: Lines, form: Literal["csv", "tsv"], types: dict[str, str]) -> Iterator[RawRow]:
    """Rows under a header; `types` receives the extra columns (all `string`) before the first row comes.

    A file of one column whose first line is a URL needs no header.

    Raises:
        ManifestError: No header with `url` or `path`, or a column that stands there twice.
    """
    first = lines.first()
    delimiter = _delimiter(first, _DELIMITERS[form])
    if delimiter is None:
        if _is_lone_url(first, _DELIMITERS[form]):
            yield from text_rows(lines)
            return
        raise _no_header(lines, first)
    records = csv.reader(lines, delimiter=delimiter, strict=True)
    header = _header(records, lines)
    types.update(dict.fromkeys(Layout.of(header).extra, "string"))
    while True:
        opened = lines.number + 1
        try:
            record = next(records, None)
        except csv.Error as error:
            span = f"line {opened}" if lines.number <= opened else f"lines {opened} to {lines.number}"
            yield RawRow({}, f"{span} cannot be taken apart: {error}")
            continue
        if record is None:
            return
        if record:
            yield _record_row(header, record, opened)


def _no_header(lines: Lines, first: str) -> ManifestError:
    if "\r" in first.rstrip("\r\n"):
        return lines.error("its lines end in bare carriage returns", hint="Save the manifest again as UTF-8 CSV.")
    return lines.error(
        "the header names no column `url` or `path`" if first else "it is empty, without even a header",
        hint="Give the column with the addresses the header `url`, or `path` for local files.",
    )


def _record_row(header: list[str], record: list[str], line: int) -> RawRow:
    cells: dict[str, JSON] = dict(zip(header, record, strict=False))
    if len(record) == len(header):
        return RawRow(cells)
    return RawRow(cells, f"line {line} has {len(record)} fields, and the header {len(header)}")


def _header(records: Iterator[list[str]], lines: Lines) -> list[str]:
    """Names of the columns; one without a name is `column_<position>`, counted from 1."""
    try:
        names = next(records)
    except csv.Error as error:
        raise lines.error(f"the header cannot be taken apart: {error}") from None
    header = [name if name.strip() else f"column_{place}" for place, name in enumerate(names, start=1)]
    doubled = [name for name, count in Counter(header).items() if count > 1]
    if doubled:
        raise lines.error(f"the column {doubled[0]!r} stands there twice", hint="Rename one of the two.")
    return header


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _delimiter(line: str, candidates: tuple[str, ...]) -> str | None:
    """The delimiter under which `line` is a header of a manifest."""
    return next((mark for mark in candidates if Layout.of(_fields(line, mark)).usable), None)


def _is_lone_url(line: str, delimiters: tuple[str, ...]) -> bool:
    if any(len(_fields(line, mark)) != 1 for mark in delimiters):
        return False
    try:
        canonical_url(line.strip())
    except ValueError:
        return False
    return True
