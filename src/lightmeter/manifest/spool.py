"""Copies of manifests that can be read only once, standard input and iterators, from which they are read again."""

from __future__ import annotations

import io
import os
import select
import weakref
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Lock
from typing import IO, Any, Final

import orjson

from lightmeter.manifest.in_memory import sequence_rows
from lightmeter.manifest.row_parser import RawRow
from lightmeter.tempdirs import LockedTempDir

_POLL_S: Final = 0.1
"""Seconds after which a wait for standard input looks whether it was stopped."""


class StandardInput:
    """Standard input with a copy of all bytes that were read so far; the copy is a temporary file without a name.

    Args:
        stream: The stream of the process's standard input.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream: Any = stream
        self._copy = TemporaryFile(prefix="lightmeter-")  # noqa: SIM115 (it is closed with this object)
        weakref.finalize(self, self._copy.close)
        self._copied_bytes = 0
        self._not_copied = b""
        self._is_at_end = False
        self._lock = Lock()

    def read(self, position: int, length: int, stopped: Event) -> bytes:
        """Return up to `length` bytes from `position` on; no bytes at the end. Any thread may call this.

        Args:
            position: At most the number of bytes that were read so far.
            length: Most bytes to return.
            stopped: An event that ends the wait for bytes that another process has not written yet.

        Raises:
            InterruptedError: `stopped` was set.
            OSError: the stream cannot be read, or there is no space for the copy.
        """
        with self._lock:
            if position == self._copied_bytes and not self._is_at_end:
                self._copy_more(length, stopped)
            return os.pread(self._copy.fileno(), length, position)

    def _copy_more(self, length: int, stopped: Event) -> None:
        self._not_copied = self._not_copied or self._read_stream(length, stopped)
        self._is_at_end = not self._not_copied
        copied = os.pwrite(self._copy.fileno(), self._not_copied, self._copied_bytes)
        self._copied_bytes += copied
        self._not_copied = self._not_copied[copied:]

    def _read_stream(self, length: int, stopped: Event) -> bytes:
        try:
            descriptor = self._stream.fileno()
        except OSError:  # it is in memory
            return bytes(self._stream.read(length))
        while not stopped.is_set():
            if select.select([descriptor], [], [], _POLL_S)[0]:
                return bytes(self._stream.read1(length))
        raise InterruptedError("The wait for standard input was stopped.")


@lru_cache(maxsize=1)
def standard_input(stream: IO[bytes]) -> StandardInput:
    """Return the standard input whose stream is `stream`, with the copy that earlier calls have begun."""
    return StandardInput(stream)


class StandardInputReader(io.RawIOBase):
    """Stream that reads standard input from its first byte on, although other readers may have read it before.

    Args:
        source: Standard input, with the copy of what was read before.
        stopped: An event that ends the wait for bytes that another process has not written yet: `read` then raises
            InterruptedError.
    """

    def __init__(self, source: StandardInput, stopped: Event) -> None:
        self._source = source
        self._stopped = stopped
        self._position = 0

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into `buffer`; return how many were read, 0 at the end."""
        chunk = self._source.read(self._position, len(buffer), self._stopped)
        self._position += len(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)


class SpooledRows:
    """Iterable over the manifest rows of an iterator, which are copied to a temporary file first.

    Args:
        source: Iterator over URLs, `Path`s or mappings; it is read to its end.

    Attributes:
        name: Name of the iterator's type, such as `generator`.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self.name = type(source).__name__
        self._folder = LockedTempDir()
        with self._path.open("wb") as file:
            for row in sequence_rows(source):
                values = (row.cells, row.problem, row.stored_path, row.cell_notes)
                file.write(orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE))

    @property
    def _path(self) -> Path:
        return self._folder.path / "rows.jsonl"

    def __iter__(self) -> Iterator[RawRow]:
        """Yield the rows, from the first on."""
        with self._path.open("rb") as file:
            for line in file:
                yield RawRow(*orjson.loads(line))
