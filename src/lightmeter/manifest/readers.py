"""Reads a manifest of any supported format and location as a stream of items, in bounded memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import sha256
from itertools import chain
from os import PathLike
from pathlib import Path
from threading import Event
from typing import IO, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import orjson

from lightmeter.daemon_threads import call_in_daemon_thread
from lightmeter.errors import ManifestError
from lightmeter.manifest.byte_sources import HashingReader, LineReader, Location, cannot_open, decompress, open_raw
from lightmeter.manifest.folders import FileSet, file_set, stored_digest
from lightmeter.manifest.in_memory import column_values, sequence_rows
from lightmeter.manifest.item import Item
from lightmeter.manifest.notes import ManifestNotes
from lightmeter.manifest.row_parser import RawRow, ReadOptions, column_roles, make_item, missing_column, observe_types
from lightmeter.manifest.spool import SpooledRows, StandardInputReader, standard_input
from lightmeter.manifest.tar_samples import tar_rows
from lightmeter.manifest.text_formats import guess_format, json_rows, jsonl_rows, table_rows, text_rows
from lightmeter.redaction import has_credentials

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
_SEARCHED_ROWS: Final = 1000


@runtime_checkable
class ArrowStream(Protocol):
    """Type of all tables that Arrow can read through `__arrow_c_stream__`, such as pandas and Polars DataFrames."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow data: a capsule of the Arrow PyCapsule interface."""
        ...


def location_of(source: object) -> Location | None:
    """Return the location of a manifest given by path, URI or `-`; None if it is in memory, such as a list."""
    if isinstance(source, Location):
        return source
    if isinstance(source, str | Path):
        return Location(source)
    return Location(Path(source)) if isinstance(source, PathLike) else None


def digest_of(source: ManifestSource, options: ReadOptions = _DEFAULTS) -> str:
    """Return the SHA-256 of a manifest, equal to `ManifestReader.sha256`.

    Files are hashed without parsing their rows. Standard input and manifests in memory are read row by row with
    `options`.

    Raises:
        ManifestError: the manifest cannot be read.
    """
    location = location_of(source)
    if location is not None and not location.is_stdin:
        return stored_digest(location)
    reader = ManifestReader(source, options=options)
    deque(reader, maxlen=0)  # the digest is known after the last row
    return reader.sha256


ManifestSource: TypeAlias = (
    "str | PathLike[str] | Location | Iterable[str | PathLike[str] | Mapping[str, Any]] | ArrowStream"
)
"""What a manifest may be given as.

A text or path names a file, folder, glob, URI or `-` (standard input). A list, another iterable such as a generator,
or a Series has URLs, `Path`s or dicts. A DataFrame is a table. A `Location` is a path or URI that is already resolved.
"""


def _name_of(source: object) -> str:
    return source.name if isinstance(source, SpooledRows) else type(source).__name__


async def rereadable(source: ManifestSource) -> ManifestSource:
    """Return a manifest that can be read several times: `source`, or a copy of its rows if `source` is an iterator.

    An iterator, such as a generator, is read to its end, in a thread. The rows are copied to a temporary file; the
    batches of an Arrow reader are kept in memory. Neither Ctrl-C nor the end of the process waits for an iterator that
    blocks.
    """
    if not isinstance(source, Iterator):
        return source
    return await call_in_daemon_thread(partial(_copy_rows, source), "lightmeter-manifest")


def _copy_rows(source: Iterator[Any]) -> ManifestSource:
    if isinstance(source, ArrowStream):
        import pyarrow as pa  # noqa: PLC0415 (Arrow only where needed)

        return cast("ArrowStream", pa.table(source))
    return cast("ManifestSource", SpooledRows(source))


class ManifestReader:
    """Iterable over the items of a manifest; each iteration reads the manifest again, unless it is an iterator.

    A file may be `.csv`, `.tsv`, `.jsonl`, `.ndjson`, `.json` (one array) or `.txt`, each also with `.gz`; or
    `.parquet`.

    A folder or a glob is read by the type of its files. If they are pictures and videos, each file is a row. If they
    are Parquet files, the rows of all files are read in order, and the key of a folder such as `year=2024` is a column.
    If they are WebDataset tars, each picture or video of a sample is a row (`tar_samples`).

    Args:
        source: The manifest: path of a file or folder, glob, URI, or `-` (standard input); list of URLs, `Path`s or
            dicts; DataFrame or Series.
        stdin: Stream to read if `source` is `-`; None means the standard input of the process.
        options: Names of the columns of URLs, ids and kinds (image or video); treatment of broken quotes.

    Attributes:
        name: Name of the manifest in messages and tables.
    """

    def __init__(
        self, source: ManifestSource, *, stdin: IO[bytes] | None = None, options: ReadOptions = _DEFAULTS
    ) -> None:
        self._source = source
        self._stdin = stdin
        self._options = options
        self._types: dict[str, str] = {}
        self._notes = ManifestNotes()
        self._sha256: str | None = None
        self._stopped = Event()
        self._location = location_of(source)
        self.name = _name_of(source) if self._location is None else self._location.name

    @property
    def extra_types(self) -> dict[str, str]:
        """Column → type, for the extra columns: all but those of the URL, path, id and kind.

        A type is `string`, `int64`, `uint64`, `double`, `bool`, `date`, `timestamp`, `timestamp_utc` or `json`. The
        types of CSV, TSV, Parquet and DataFrames are known from the first item on. In JSON lines and lists of dicts,
        each row may add columns, so the result covers only the rows that were read so far.
        """
        return {name: {"null": "string", "long": "int64"}.get(kind, kind) for name, kind in self._types.items()}

    @property
    def notes(self) -> list[str]:
        """What is read otherwise than it stands in the manifest, or not at all, with counts, in the rows so far."""
        return self._notes.sentences

    @property
    def stored_at(self) -> str | None:
        """The absolute path or URI (without credentials) of the manifest; None if it is in memory or standard input."""
        return None if self._location is None or self._location.is_stdin else self._location.absolute

    @property
    def sha256(self) -> str:
        """SHA-256 of the manifest, in hexadecimal digits.

        Of a file, the bytes are hashed; of a list or a DataFrame, the rows as JSON lines. For a folder or a glob, the
        value is `FileSet.digest`.

        Raises:
            RuntimeError: the manifest was not read to its end yet.
        """
        if self._sha256 is None:
            raise RuntimeError("the manifest's digest is known once it has been read to its end")
        return self._sha256

    def stop(self) -> None:
        """Read no more rows.

        If another thread waits for standard input, a ManifestError is raised there. If it waits for the next row of the
        user's iterator, that row is the last one that is taken from the iterator.
        """
        self._stopped.set()

    def __iter__(self) -> Iterator[Item]:
        """Yield the rows of the manifest as items, from the first row on.

        Raises:
            ManifestError: the manifest cannot be read, or cannot be read to its end.
        """
        self._types.clear()
        self._notes = ManifestNotes()
        self._sha256 = None
        folder, rows = self._folder_and_rows()
        for seq, row in enumerate(rows):
            if self._stopped.is_set():
                return
            for column, note in row.cell_notes.items():
                self._notes.add(f"values of {column!r} that are {note}", f"row {seq + 1}")
            yield make_item(seq, row, folder, self._options)

    def _folder_and_rows(self) -> tuple[Path | None, Iterator[RawRow]]:
        """Return the folder to which relative paths in the manifest refer (None if remote), and the manifest's rows."""
        if self._location is None:
            return Path.cwd(), self._memory_rows()
        files = file_set(self._location)
        if files is None:
            return self._location.folder, self._stored_rows(self._location)
        self._notes.update(files.notes)
        return None if files.filesystem else Path(files.base), self._rows_of_files(files, self._location)

    def _rows_of_files(self, files: FileSet, location: Location) -> Iterator[RawRow]:
        """Yield a row for each media file of the folder or glob `location`, or the rows of its Parquet files or tars.

        After the last row, the property `sha256` is set to `FileSet.digest`.
        """
        try:
            if files.kind == "media":
                self._must_name_no_column()
                digest = sha256()
                for row, file_state in files.media_rows():
                    digest.update(file_state)
                    yield row
                self._sha256 = digest.hexdigest()
            elif files.kind == "tar":
                yield from self._tar_rows(files, location)
            else:
                from lightmeter.manifest.arrow_reader import parquet_set_rows  # noqa: PLC0415 (Arrow only where needed)

                stored = files.digest()
                yield from parquet_set_rows(files, self.name, self._types, self._options)
                self._sha256 = stored
        except (OSError, UnicodeError) as error:
            raise cannot_open(location, error) from error

    def _tar_rows(self, files: FileSet, location: Location) -> Iterator[RawRow]:
        if has_credentials(location.text):
            raise ManifestError(
                f"{self.name}: the files in a tar are read again when they are sent, and a key in a URI is not stored",
                hint="Set the key in the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        stored = files.digest()
        rows = (row for name, archive in files.archives() for row in tar_rows(archive, name))
        yield from self._typed_rows(rows)
        self._sha256 = stored

    def _stored_rows(self, location: Location) -> Iterator[RawRow]:
        """Yield the rows of a manifest file or of standard input; after the last row, set the property `sha256`."""
        file_format = self._format(location)
        with self._open_stdin() if location.is_stdin else open_raw(location) as opened:
            raw = HashingReader(opened)
            if file_format == "parquet":
                digest = raw.finish()
                opened.seek(0)
                from lightmeter.manifest.arrow_reader import parquet_rows  # noqa: PLC0415 (Arrow only where needed)

                yield from parquet_rows(opened, self.name, self._types, self._options)
            else:
                yield from self._line_rows(LineReader(decompress(raw, location), self.name), file_format)
                digest = raw.finish()
            self._sha256 = digest

    def _open_stdin(self) -> AbstractContextManager[Any]:
        return nullcontext(self._stdin or StandardInputReader(standard_input(sys.stdin.buffer), self._stopped))

    def _format(self, location: Location) -> str | None:
        """Return a manifest's format, such as `csv`, by the suffix of its file name; None for standard input.

        Raises:
            ManifestError: the suffix is unknown.
        """
        if location.is_stdin:
            return None
        is_gzip = location.suffixes[-1:] == [".gz"]
        suffixes = location.suffixes[:-1] if is_gzip else location.suffixes
        file_format = _FORMATS.get(suffixes[-1]) if suffixes else None
        if file_format is None or (is_gzip and file_format == "parquet"):
            known = ", ".join(_FORMATS)
            raise ManifestError(
                f"{self.name}: the name does not say what format this is",
                hint=f"Known suffixes are {known}; each but the last may be followed by .gz.",
            )
        return file_format

    def _line_rows(self, lines: LineReader, file_format: str | None) -> Iterator[RawRow]:
        match file_format or guess_format(lines, self._options):
            case "csv" | "tsv" as form:
                return table_rows(lines, form, self._types, self._options)
            case "json":
                return self._typed_rows(json_rows(lines))
            case "jsonl":
                return self._typed_rows(jsonl_rows(lines))
            case _:
                self._must_name_no_column()
                return text_rows(lines)

    def _memory_rows(self) -> Iterator[RawRow]:
        digest = sha256()
        for row in self._rows_of_source():
            digest.update(orjson.dumps(row.cells, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
            yield row
        self._sha256 = digest.hexdigest()

    def _rows_of_source(self) -> Iterator[RawRow]:
        values = column_values(self._source)
        if values is not None or not isinstance(self._source, ArrowStream):
            return self._typed_rows(sequence_rows(cast("Iterable[Any]", self._source) if values is None else values))
        from lightmeter.manifest.arrow_reader import batch_rows, open_stream  # noqa: PLC0415 (Arrow only where needed)

        stream = open_stream(self._source)
        if stream is not None:
            return batch_rows(stream, stream.schema, self.name, self._types, self._options)
        # Arrow has no columns of mixed Python types, and passes on 64 levels of nesting; Python values may have both.
        table = cast("Any", self._source)
        if hasattr(table, "to_pylist"):
            return self._typed_rows(sequence_rows(table.to_pylist()))
        from lightmeter.manifest.mixed_columns import mixed_frame_rows  # noqa: PLC0415 (pandas only where needed)

        return mixed_frame_rows(table, self.name, self._types, self._options)

    def _typed_rows(self, rows: Iterator[RawRow]) -> Iterator[RawRow]:
        """Yield `rows` unchanged. Before each row, adapt the column types that `extra_types` returns to its values.

        `rows` come from a source in which each row may have other columns, such as JSON lines or a list of dicts. No
        row is yielded before all columns that the user named in the options were found, because it may be paid for
        (`--stream`) before a later one is read.

        Raises:
            ManifestError: a column that the user named is in none of the first `_SEARCHED_ROWS` rows.
        """
        first_rows: list[RawRow] = []
        columns: dict[str, None] = {}
        missing = self._options.first_missing_column(columns)
        while missing is not None and len(first_rows) < _SEARCHED_ROWS and (row := next(rows, None)) is not None:
            first_rows.append(row)
            columns.update(dict.fromkeys(row.cells))
            missing = self._options.first_missing_column(columns)
        if missing is not None:
            raise missing_column(self.name, missing, columns)
        for row in chain(first_rows, rows):
            observe_types(self._types, column_roles(tuple(row.cells), self._options).extra, row.cells)
            yield row

    def _must_name_no_column(self) -> None:
        """Raise ManifestError if the options name a column. Called for manifests without columns (lists of URLs)."""
        if missing := self._options.first_missing_column(()):
            raise missing_column(self.name, missing, ())
