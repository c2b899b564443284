"""Reads CSV and TSV records. A record is one line, or several if a quoted field holds line breaks.

If a quote is not closed, the rows after it would become part of one field. So `RecordReader.read` raises
`UnterminatedQuote` if a quote counts as unclosed. This is so if

- the file ends before it is closed, or
- a line inside the field looks like a row: parsed alone, it has as many fields as the header, and its part before the
  quote that would close the field has an http or https URL in the `url` column or a picture's or video's file name in
  the `path` column, or
- the record has several lines and is invalid CSV, or is longer than `MAX_RECORD_CHARS`.

Any other quoted field with line breaks, such as a caption, is one cell.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Final

from lightmeter.manifest.byte_sources import LineReader
from lightmeter.manifest.canonical_url import is_url
from lightmeter.manifest.item import MEDIA_SUFFIXES
from lightmeter.manifest.row_parser import ReadOptions, column_roles

MAX_RECORD_CHARS: Final = 1024 * 1024
"""Longest record, in characters that follow its first line. The module `csv` limits one field to 131,072 characters."""

_QUOTED_PART: Final = re.compile(r'(?:[^"]|"")*')  # in a line inside a quoted field: up to the closing quote


class BrokenRecord(Exception):
    """Raised for a line of a manifest that is invalid CSV; the lines after it can still be read."""


class UnterminatedQuote(Exception):
    """Error for a quote in a CSV file that is opened and not closed.

    Attributes:
        line: Number, from 1, of the line with the quote.
        consumed: The lines read in search of the closing quote, from the start of the record on.
    """

    def __init__(self, reason: str, line: int, consumed: list[str]) -> None:
        super().__init__(reason)
        self.line = line
        self.consumed = consumed


class RecordReader:
    """Reader of CSV records from numbered lines.

    Args:
        lines: The lines of the file.
        delimiter: Character between fields.
        options: Names of the columns of URLs, ids and kinds (image or video).

    Attributes:
        header: Column names, which the caller sets after it has read the first record; None before that.
    """

    def __init__(self, lines: LineReader, delimiter: str, options: ReadOptions) -> None:
        self.header: list[str] | None = None
        self._lines = lines
        self._delimiter = delimiter
        self._options = options
        self._consumed: list[str] = []
        self._chars = 0
        self._unclosed_reason: str | None = None
        self._reader = self._new_reader()

    def read(self) -> list[str] | None:
        """Return the fields of the next record; an empty list for a blank line, None at the end of the file.

        Raises:
            UnterminatedQuote: a quote is not closed; the next call continues after the error's `consumed` lines.
            BrokenRecord: the next line is invalid CSV; the next call continues with the line after it.
            ManifestError: the file cannot be read further.
        """
        self._consumed, self._chars, self._unclosed_reason = [], 0, None
        try:
            return next(self._reader, None)
        except csv.Error as error:
            consumed = self._consumed
            if len(consumed) == 1 and self._unclosed_reason is None:
                raise BrokenRecord(str(error)) from None
            self._reader = self._new_reader()
            first = self._lines.number - len(consumed) + 1
            line = first + opening_line(consumed, self._delimiter)
            raise UnterminatedQuote(self._unclosed_reason or str(error), line, consumed) from None

    def _new_reader(self) -> Iterator[list[str]]:
        return csv.reader(self._lines_for_csv(), delimiter=self._delimiter, strict=True)

    def _lines_for_csv(self) -> Iterator[str]:
        """Yield lines to the parser of Python's module `csv`; end before a line that shows that a quote is unclosed."""
        for line in self._lines:
            self._consumed.append(line)
            if len(self._consumed) > 1 and (reason := self._reject_reason(line)):
                self._unclosed_reason = reason
                return
            yield line
        self._unclosed_reason = "the file ends before it"

    def _reject_reason(self, line: str) -> str | None:
        """Return why `line` cannot continue the quoted field that an earlier line opened; None if it can."""
        self._chars += len(line)
        if self._chars > MAX_RECORD_CHARS:
            return f"the record is longer than {MAX_RECORD_CHARS} characters"
        return f"line {self._lines.number} looks like a row" if self._looks_like_row(line) else None

    def _looks_like_row(self, line: str) -> bool:
        inside = _QUOTED_PART.match(line)
        cells = split_line(inside.group() if inside else "", self._delimiter, strict=True)
        if self.header is None:
            return any(is_url(cell) or _is_media_name(cell) for cell in cells)
        if len(self.header) not in {len(cells), len(split_line(line, self._delimiter, strict=True))}:
            return False
        columns, row = column_roles(tuple(self.header), self._options), dict(zip(self.header, cells, strict=False))
        return is_url(row.get(columns.url or "", "")) or _is_media_name(row.get(columns.path or "", ""))


def _is_media_name(text: str) -> bool:
    return text.strip().lower().endswith(MEDIA_SUFFIXES)


def opening_line(lines: Sequence[str], delimiter: str) -> int:
    """Return the index (from 0) of the line in which the final quoted field begins; 0 if no field is quoted.

    `lines` are the lines of one CSV record.
    """
    opened, state = 0, "start"
    for number, line in enumerate(lines):
        for char in line:
            if state == "quoted":
                state = "quote" if char == '"' else "quoted"
            elif char == '"' and state != "plain":  # a doubled quote continues the field
                opened, state = (number if state == "start" else opened), "quoted"
            else:
                state = "start" if char == delimiter else "plain"
    return opened


def split_line(line: str, delimiter: str, *, strict: bool = False) -> list[str]:
    """Return the fields of one line, parsed without the other lines; an empty list if the line is invalid CSV.

    If `strict`, a line with an unclosed quote is invalid; otherwise the quoted field ends with the line.
    """
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=strict), [])
    except csv.Error:
        return []
