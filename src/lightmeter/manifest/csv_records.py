"""Reads CSV and TSV records. A record is one line, or several if a quoted field holds line breaks.

The first record that is invalid CSV ends the reading, because it is not known which of the lines after it are inside
its quotes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Final

from lightmeter.manifest.byte_sources import LineReader

# A trial with 20 odd files: pyarrow takes an unclosed quote for valid and refuses 10 MB fields; DuckDB also refuses
# these and mixed line ends, and its rejects resume inside quotes. The module `csv` was right about all of them.

MAX_RECORD_CHARS: Final = 16 * 1024 * 1024
"""Longest record in characters. It bounds the memory that a quote without end takes."""

csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD_CHARS))  # the module's own limit is 131,072 characters


class BrokenRecord(Exception):
    """Raised for a record that is invalid CSV.

    Attributes:
        line: Number, from 1, of the line in which the broken field opens its quote.
    """

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


def csv_records(lines: LineReader, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, fields) for each record; a blank line has no fields.

    Raises:
        BrokenRecord: the next record is invalid CSV.
        ManifestError: the file cannot be read further.
    """
    consumed: list[str] = []
    reason = f"it, or its record, is longer than {MAX_RECORD_CHARS} characters"

    def lines_of_records() -> Iterator[str]:
        nonlocal reason
        chars = 0
        for line in lines:
            chars = len(line) + (chars if consumed else 0)
            consumed.append(line)
            if chars > MAX_RECORD_CHARS:
                raise csv.Error
            yield line
        reason = "the file ends before the quote that closes it"

    reader = csv.reader(lines_of_records(), delimiter=delimiter, strict=True)
    try:
        for record in reader:
            yield lines.number - len(consumed) + 1, record
            consumed.clear()
    except csv.Error:
        place, is_violated = _open_field(consumed, delimiter)
        if is_violated:
            reason = f"in line {lines.number} text follows the quote that closes it"
        raise BrokenRecord(reason, lines.number - len(consumed) + 1 + place) from None


def _open_field(lines: Sequence[str], delimiter: str) -> tuple[int, bool]:
    """Return the index (from 0) of the line in which the last quoted field begins, and whether text follows its quote.

    `lines` are those of one record, up to the line in which it is found invalid.
    """
    opened, state = 0, "start"
    for number, line in enumerate(lines):
        for char in line:
            if state == "quoted":
                state = "quote" if char == '"' else "quoted"
            elif char == '"' and state != "plain":  # a doubled quote continues the field
                opened, state = (number if state == "start" else opened), "quoted"
            elif state == "quote" and char not in {delimiter, "\r", "\n"}:
                return opened, True
            else:
                state = "start" if char == delimiter else "plain"
    return opened, False


def split_line(line: str, delimiter: str) -> list[str]:
    """Return the fields of one line, parsed without the other lines; an empty list if it cannot be parsed."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
