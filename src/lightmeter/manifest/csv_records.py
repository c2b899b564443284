"""Records of CSV and TSV: one physical line each, or several where a quoted field holds line breaks.

A quote that nobody closes would take the rows after it into one field. So a quote counts as not closed where

- the file ends before it is closed, or
- a line inside the field looks like a row: read by itself, it has as many fields as the header, and what of it stands
  inside the quotes has an http or https URL in the `url` column, or a name with the suffix of a picture or a video in
  the `path` column, or
- the record has more than one line and is no CSV, or is longer than `MAX_RECORD_CHARS`.

All other fields with line breaks, such as captions, are one cell.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Final

from lightmeter.manifest.byte_sources import LineReader
from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.manifest.row_parser import ColumnRoles, ReadOptions
from lightmeter.models.vocabulary import IMAGE_SUFFIXES, MORE_VIDEO_SUFFIXES, VIDEO_SUFFIXES

__all__ = [
    "MAX_RECORD_CHARS",
    "MEDIA_SUFFIXES",
    "BrokenRecord",
    "RecordReader",
    "UnterminatedQuote",
    "opening_line",
]

MAX_RECORD_CHARS: Final = 1024 * 1024
"""Characters of a record beyond its first line; `csv` itself takes 131,072 for one field."""

MEDIA_SUFFIXES: Final = (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES, *MORE_VIDEO_SUFFIXES)
"""Suffixes that a name of a picture or a video ends in, in lower case."""

_INSIDE: Final = re.compile(r'(?:[^"]|"")*')
"""What of a line that begins inside a quoted field belongs to it: all up to a quote that is not doubled."""


class BrokenRecord(Exception):
    """One line that is no CSV."""


class UnterminatedQuote(Exception):
    """A quote that is opened and not closed.

    Attributes:
        line: The line of the quote, counted from 1.
        taken: The physical lines that were read as one record.
    """

    def __init__(self, reason: str, line: int, taken: list[str]) -> None:
        super().__init__(reason)
        self.line = line
        self.taken = taken


class RecordReader:
    """Reads records of numbered lines.

    Args:
        lines: Where they come from.
        delimiter: What stands between fields.
        options: Which columns mean something.

    Attributes:
        header: The names of the columns; None as long as the header itself is read.
    """

    def __init__(self, lines: LineReader, delimiter: str, options: ReadOptions) -> None:
        self.header: list[str] | None = None
        self._lines = lines
        self._delimiter = delimiter
        self._options = options
        self._taken: list[str] = []
        self._chars = 0
        self._not_closed: str | None = None
        self._reader = self._fresh_reader()

    def read(self) -> list[str] | None:
        """The fields of the next record, none for a blank line; None at the end.

        Raises:
            OpenQuote: A quote is not closed; all lines that were read for this record are taken.
            BrokenRecord: The next line is no CSV; it is taken.
            ManifestError: The lines cannot be read on.
        """
        self._taken, self._chars, self._not_closed = [], 0, None
        try:
            return next(self._reader, None)
        except csv.Error as error:
            taken = self._taken
            if len(taken) == 1 and self._not_closed is None:
                raise BrokenRecord(str(error)) from None
            self._reader = self._fresh_reader()
            first = self._lines.number - len(taken) + 1
            line = first + opening_line(taken, self._delimiter)
            raise UnterminatedQuote(self._not_closed or str(error), line, taken) from None

    def _fresh_reader(self) -> Iterator[list[str]]:
        return csv.reader(self._supply(), delimiter=self._delimiter, strict=True)

    def _supply(self) -> Iterator[str]:
        """Lines for the CSV reader, which asks for another one only at a record's start or inside a quoted field."""
        for line in self._lines:
            self._taken.append(line)
            if len(self._taken) > 1 and (reason := self._objection(line)):
                self._not_closed = reason
                return
            yield line
        self._not_closed = "the file ends before it"

    def _objection(self, line: str) -> str | None:
        """Why a line inside a quoted field cannot be a part of it; None if it can."""
        self._chars += len(line)
        if self._chars > MAX_RECORD_CHARS:
            return f"the record is longer than {MAX_RECORD_CHARS} characters"
        return f"line {self._lines.number} looks like a row" if self._looks_like_row(line) else None

    def _looks_like_row(self, line: str) -> bool:
        inside = _INSIDE.match(line)
        cells = _split_line(inside.group() if inside else "", self._delimiter)
        if self.header is None:
            return any(_is_url(cell) or _is_media_name(cell) for cell in cells)
        if len(self.header) not in {len(cells), len(_split_line(line, self._delimiter))}:
            return False
        layout, row = ColumnRoles.of(self.header, self._options), dict(zip(self.header, cells, strict=False))
        return _is_url(row.get(layout.url or "", "")) or _is_media_name(row.get(layout.path or "", ""))


def _is_url(text: str) -> bool:
    try:
        canonical_url(text.strip())
    except ValueError:
        return False
    return True


def _is_media_name(text: str) -> bool:
    return text.strip().lower().endswith(MEDIA_SUFFIXES)


def opening_line(lines: Sequence[str], delimiter: str) -> int:
    """Of the lines of one record, the one in which its last quoted field is opened, counted from 0."""
    opened, state = 0, "start"
    for number, line in enumerate(lines):
        for char in line:
            if state == "quoted":
                state = "quote" if char == '"' else "quoted"
            elif char == '"' and state != "plain":  # after a quote it is a doubled one: the field goes on
                opened, state = (number if state == "start" else opened), "quoted"
            else:
                state = "start" if char == delimiter else "plain"
    return opened


def _split_line(line: str, delimiter: str) -> list[str]:
    """The fields of one line read by itself; none if it is no CSV."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
