"""The manifest as a stream of items, wherever it is and whatever its format; memory stays flat."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import orjson

from lightmeter.errors import ManifestError
from lightmeter.manifest.byte_sources import HashingReader, LineReader, Location, cannot_open, open_raw, unpacked
from lightmeter.manifest.folders import FileSet, file_set, stored_digest
from lightmeter.manifest.in_memory import column_values, sequence_rows
from lightmeter.manifest.item import Item
from lightmeter.manifest.row_parser import ColumnRoles, ItemMaker, RawRow, ReadOptions, missing_column, observe_types
from lightmeter.manifest.text_formats import guess_format, json_rows, jsonl_rows, table_rows, text_rows

__all__ = ["ArrowStream", "ManifestReader", "ManifestSource", "digest_of", "location_of"]

_FORMATS: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".txt": "text",
    ".parquet": "parquet",
}
_DEFAULTS: Final = ReadOptions()
_ROWS_TO_SEE: Final = 1000  # a column that none of so many rows of JSON has is taken to be missing


@runtime_checkable
class ArrowStream(Protocol):
    """A table of another library (pandas, Polars, Arrow itself) that can be had as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow PyCapsule interface."""
        ...


def location_of(source: object) -> Location | None:
    """Where a manifest is stored; None for what is in memory."""
    if isinstance(source, str | Path):
        return Location(source)
    return Location(Path(source)) if isinstance(source, PathLike) else None


def digest_of(source: ManifestSource, options: ReadOptions = _DEFAULTS) -> str:
    """The `sha256` of a manifest, which is not read row by row where it is stored.

    Raises:
        ManifestError: It cannot be read.
    """
    location = location_of(source)
    if location is not None and not location.is_stdin:
        return stored_digest(location)
    reader = ManifestReader(source, options=options)
    deque(reader, maxlen=0)  # the digest is known once all of it was read
    return reader.sha256


ManifestSource: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str] | Mapping[str, Any]] | ArrowStream"
"""A file, a folder, a glob, a URI or `-` (standard input); a list of URLs, `Path`s or dicts; a DataFrame, a Series."""


class ManifestReader:
    """Iterates over the items of a manifest; each iteration reads it anew (standard input only once).

    Formats: `.csv`, `.tsv`, `.jsonl`, `.ndjson`, `.json` (one array), `.txt`, each also with `.gz`, and `.parquet`. A
    folder or a glob is its media files, a row each with a path relative to the folder, or its Parquet files, one after
    the other: the keys of folders such as `year=2024` are columns, and a row's path is relative to the folder that was
    named. A media file is a manifest of one row.

    Args:
        source: See `ManifestSource`.
        stdin: What `-` reads; the process's own standard input unless given.
        options: Which columns mean something, and what becomes of a quote that is not closed.

    Attributes:
        name: What the manifest is called in messages and lineage.
    """

    def __init__(
        self, source: ManifestSource, *, stdin: IO[bytes] | None = None, options: ReadOptions = _DEFAULTS
    ) -> None:
        self._source = source
        self._stdin = stdin
        self._options = options
        self._types: dict[str, str] = {}
        self._sha256: str | None = None
        self._location = location_of(source)
        self.name = self._location.name if self._location else type(source).__name__

    @property
    def extra_types(self) -> dict[str, str]:
        """Types by name of extra columns.

        Names: `string`, `int64`, `uint64`, `double`, `bool`, `date`, `timestamp`, `timestamp_utc`, `json`. Known from
        the first item on where the format declares them (CSV, TSV, Parquet, DataFrame); where each row may bring
        new columns (JSON lines, lists of dicts) they cover the rows read so far.
        """
        return {name: "string" if seen == "null" else seen for name, seen in self._types.items()}

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of the bytes as stored, or of the rows as JSON lines for what is in memory.

        Of a folder or a glob as `FileSet.digest` says: of media the names, sizes and times of change.

        Raises:
            RuntimeError: The manifest has not been read to its end yet.
        """
        if self._sha256 is None:
            raise RuntimeError("the manifest's digest is known once it has been read to its end")
        return self._sha256

    def __iter__(self) -> Iterator[Item]:
        """Read from the start.

        Raises:
            ManifestError: It cannot be read at all, or not to its end.
        """
        self._types.clear()
        self._sha256 = None
        folder, rows = self._folder_and_rows()
        maker = ItemMaker(folder, self._options)
        for seq, row in enumerate(rows):
            yield maker.make(seq, row)

    def _folder_and_rows(self) -> tuple[Path | None, Iterator[RawRow]]:
        """What relative paths are relative to, and the rows."""
        if self._location is None:
            return Path.cwd(), self._memory_rows()
        files = file_set(self._location)
        if files is None:
            return self._location.folder, self._stored_rows(self._location)
        return None if files.filesystem else Path(files.base), self._rows_of_files(files, self._location)

    def _rows_of_files(self, files: FileSet, location: Location) -> Iterator[RawRow]:
        """Rows of a folder, a glob or a media file; the digest is set when the last has been given."""
        try:
            if files.kind == "media":
                digest = sha256()
                for row, seen in files.media_rows():
                    digest.update(seen)
                    yield from self._with_named_columns(iter([row]), ())
                self._sha256 = digest.hexdigest()
            else:
                from lightmeter.manifest.arrow_reader import parquet_set_rows  # noqa: PLC0415 (Arrow only where needed)

                stored = files.digest()
                yield from parquet_set_rows(files, self.name, self._types, self._options)
                self._sha256 = stored
        except (OSError, UnicodeError) as error:
            raise cannot_open(location, error) from error

    def _stored_rows(self, location: Location) -> Iterator[RawRow]:
        """Rows of a file or a stream; the digest is set when the last has been given."""
        form = self._format(location)
        with open_raw(location, self._stdin) as opened:
            raw = HashingReader(opened)
            if form == "parquet":
                digest = raw.finish()
                opened.seek(0)
                from lightmeter.manifest.arrow_reader import parquet_rows  # noqa: PLC0415 (Arrow only where needed)

                yield from parquet_rows(opened, self.name, self._types, self._options)
            else:
                yield from self._line_rows(LineReader(unpacked(raw, location), self.name), form)
                digest = raw.finish()
            self._sha256 = digest

    def _format(self, location: Location) -> str | None:
        """The format by the name's suffix; None where it must be guessed from the content."""
        if location.is_stdin:
            return None
        packed = location.suffixes[-1:] == [".gz"]
        suffixes = location.suffixes[:-1] if packed else location.suffixes
        form = _FORMATS.get(suffixes[-1]) if suffixes else None
        if form is None or (packed and form == "parquet"):
            known = ", ".join(_FORMATS)
            raise ManifestError(
                f"{self.name}: the name does not say what format this is",
                hint=f"Known suffixes are {known}; each but the last may be followed by .gz.",
            )
        return form

    def _line_rows(self, lines: LineReader, form: str | None) -> Iterator[RawRow]:
        match form or guess_format(lines, self._options):
            case "csv":
                return table_rows(lines, "csv", self._types, self._options)
            case "tsv":
                return table_rows(lines, "tsv", self._types, self._options)
            case "json":
                return self._observed(json_rows(lines))
            case "jsonl":
                return self._observed(jsonl_rows(lines))
            case _:
                return self._with_named_columns(text_rows(lines), ())

    def _memory_rows(self) -> Iterator[RawRow]:
        digest = sha256()
        for row in self._rows_of_source():
            digest.update(orjson.dumps(row.cells, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
            yield row
        self._sha256 = digest.hexdigest()

    def _rows_of_source(self) -> Iterator[RawRow]:
        values = column_values(self._source)
        if values is not None or not isinstance(self._source, ArrowStream):
            return self._observed(sequence_rows(cast("Sequence[Any]", self._source) if values is None else values))
        from lightmeter.manifest.arrow_reader import open_stream, stream_rows  # noqa: PLC0415 (Arrow only where needed)

        stream = open_stream(self._source)
        if stream is not None:
            return stream_rows(stream, self.name, self._types, self._options)
        # Columns that mix Python types are no Arrow columns; row by row they are no trouble.
        return self._observed(sequence_rows(cast("Any", self._source).to_dict("records")))

    def _observed(self, rows: Iterator[RawRow]) -> Iterator[RawRow]:
        """Rows of which each may have columns of its own; their types are gathered."""
        return self._with_named_columns(self._typed(rows))

    def _typed(self, rows: Iterator[RawRow]) -> Iterator[RawRow]:
        for row in rows:
            observe_types(self._types, ColumnRoles.of(row.cells, self._options).extra, row.cells)
            yield row

    def _with_named_columns(self, rows: Iterator[RawRow], columns: Collection[str] | None = None) -> Iterator[RawRow]:
        """The rows, as long as each column that the user named is in one of the first `_ROWS_TO_SEE`.

        Args:
            rows: The rows.
            columns: What columns there are; None: those that the rows have.

        Raises:
            ManifestError: A column that was named is in none of them.
        """
        seen: dict[str, None] = dict.fromkeys(columns or ())
        looking = bool(self._options.named)
        for count, row in enumerate(rows, start=1):
            if looking:
                seen.update(dict.fromkeys(row.cells) if columns is None else {})
                looking = self._options.missing(seen) is not None
                if looking and (columns is not None or count >= _ROWS_TO_SEE):
                    break
            yield row
        if looking and (missing := self._options.missing(seen)) is not None:
            raise missing_column(self.name, missing, seen)
