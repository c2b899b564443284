"""Reads manifests from a local file, standard input or a URI such as `s3://…`: as bytes, or as numbered lines of text.

Every exception of a library becomes a `ManifestError`. It names the file, the line if known, and what to do.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, AnyStr, Final, cast
from urllib.parse import urlsplit

from lightmeter.errors import ManifestError, SettingsError
from lightmeter.manifest.json_values import is_valid_text
from lightmeter.paths import local_path
from lightmeter.redaction import mask_credentials
from lightmeter.remote_files import open_file_system

CHUNK_BYTES: Final = 1024 * 1024
_MAX_LINE_CHARS: Final = 16 * 1024 * 1024  # bounds memory for a file that is not text
_PARQUET_MAGIC: Final = b"PAR1"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ESCAPED: Final = re.compile(r"\[([*?[])\]")  # a literal character as `glob.escape` writes it
_BRACES: Final = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")  # `{a,b}` or `{000..010}`
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)")
_GZIP_ERRORS: Final = (gzip.BadGzipFile, EOFError, zlib.error)


class Location:
    """Location of a manifest: local path, glob, URI, or `-` for standard input.

    It does not change when the working folder changes later.

    Attributes:
        text: The location as the user wrote it.
        name: Name for messages: `text`, but without the credentials and options of a URI.
        path: The absolute local path; None for standard input and URIs.
        is_remote: Whether it is a URI of a file system (`s3://…`, `gs://…`, `file://…`).
        absolute: The location as a text that does not depend on the working folder; credentials in a URI are removed.
        folder: The folder to which relative paths in the manifest refer; None if the location is a URI.
        suffixes: The final one or two suffixes in lower case, such as `[".csv", ".gz"]`.
    """

    def __init__(self, source: str | Path) -> None:
        self.text = str(source)
        self.is_stdin = self.text == "-"
        self.is_remote = isinstance(source, str) and "://" in source
        self.path = None if self.is_stdin or self.is_remote else local_path(source)
        self.name, named = _uri_parts(self.text) if self.is_remote else (self.text, PurePosixPath(self.text))
        self.suffixes = [suffix.lower() for suffix in named.suffixes[-2:]]
        self.folder: Path | None = None if self.is_remote else Path.cwd() if self.path is None else self.path.parent
        self.absolute = mask_credentials(self.text) if self.path is None else str(self.path)
        if self.path is not None and self.is_glob:
            # The working or home folder before the pattern may hold characters that a pattern would interpret.
            written = str(Path(source))
            self._pattern = written if self.absolute.endswith(written) else written.partition("/")[2]
            self._before = self.absolute.removesuffix(self._pattern)
            self.absolute = f"{glob.escape(self._before)}{self._pattern}"

    @property
    def is_glob(self) -> bool:
        """Whether the location is a pattern (`photos/*.jpg`, `{00..09}.tar`) and no local file has this exact name."""
        if self.is_remote:
            return _is_pattern(self.uri_path)
        return self.path is not None and _is_pattern(self.text) and not self.path.exists()

    @property
    def uri_path(self) -> str:
        """The URI without its options (`?region=…`); read it only if `is_remote` is true."""
        return self.text.partition("?")[0]

    @property
    def glob_parts(self) -> tuple[str, list[tuple[str, ...]]]:
        """The folder of a glob that precedes the first wildcard, and the patterns that follow, each split at `/`.

        The glob `a/b*/*.jpg` gives `a` and the pattern (`b*`, `*.jpg`). Braces give several patterns: `a/{x,y}.tar`
        gives `a` and the patterns (`x.tar`,) and (`y.tar`,). If the glob is a URI, the folder keeps the URI's options.
        """
        if self.is_remote:
            scheme, _, path = self.uri_path.partition("://")
            root, parts, options = f"{scheme}://", path.split("/"), self.text[len(self.uri_path) :]
        else:
            root, parts, options = "", list(Path(self._pattern).parts), ""
        fixed = next(place for place, part in enumerate(parts) if _is_pattern(part) or "{" in part)
        names = [_ESCAPED.sub(r"\1", part) for part in parts[:fixed]]
        base = f"{root}{'/'.join(names)}{options}" if root else str(Path(self._before, *names))
        return base, [tuple(found.split("/")) for found in expand_braces("/".join(parts[fixed:]))]


def _uri_parts(uri: str) -> tuple[str, PurePosixPath]:
    """Return a URI without its credentials and options (such as `?region=…`), and the path in the URI."""
    masked = mask_credentials(uri)
    try:
        parts = urlsplit(masked)
    except ValueError:  # opening it reports that it is invalid
        return masked, PurePosixPath(masked)
    return parts._replace(query="", fragment="").geturl(), PurePosixPath(parts.path)


def _is_pattern(text: str) -> bool:
    """Whether a path has wildcards, or braces that `expand_braces` expands.

    A URI must be given without its options, because the `?` before them would count as a wildcard.
    """
    return glob.has_magic(_ESCAPED.sub("", text)) or _BRACES.search(text) is not None


def expand_braces(pattern: str) -> Iterator[str]:
    """Yield `pattern` once for each choice of its braces, `{a,b}` or a range of numbers such as `{000..010}`."""
    found = _BRACES.search(pattern)
    if found is None:
        yield pattern
        return
    limits = _RANGE.fullmatch(found[1])
    choices: Iterable[str] = found[1].split(",")
    if limits is not None:
        first, last = limits.groups()
        choices = (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
    for choice in choices:
        yield from expand_braces(f"{pattern[: found.start()]}{choice}{pattern[found.end() :]}")


class HashingReader(io.RawIOBase):
    """Stream that passes on the bytes of the stream `raw` and computes their SHA-256."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._digest = sha256()

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes of the stream `raw` into `buffer`; return how many were read, 0 at the end."""
        chunk = self._raw.read(len(buffer))
        self._digest.update(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def finish(self) -> str:
        """Read the stream `raw` to its end; return the SHA-256 of all its bytes, in hexadecimal digits."""
        while self.read(CHUNK_BYTES):
            pass
        return self._digest.hexdigest()


@contextmanager
def open_raw(location: Location) -> Iterator[Any]:
    """Open a manifest for reading its stored bytes, without decompression; a context manager that yields the stream.

    The location is not standard input.

    Raises:
        ManifestError: the file is missing or not readable.
    """
    try:
        if location.path is not None:
            opened: Any = location.path.open("rb")
        else:
            filesystem, path = remote_file_system(location)
            opened = filesystem.open_input_file(path)
    except (OSError, ValueError, ImportError) as error:
        # pyarrow raises ArrowInvalid, a ValueError, for an unknown scheme.
        raise cannot_open(location, error) from None  # the cause may quote the key
    with opened:
        yield opened


def remote_file_system(location: Location, uri: str = "") -> tuple[Any, str]:
    """Return the `pyarrow.fs` file system of a URI such as `s3://BUCKET/FILE`, and the path on it, `BUCKET/FILE`.

    Args:
        location: The manifest, for messages.
        uri: The URI to open; empty means the URI of `location`.

    Raises:
        ManifestError: the scheme is unknown, is http or https, or needs a missing package or environment variable.
    """
    if location.text.partition("://")[0].lower() in {"http", "https"}:
        raise cannot_open(location, ValueError("a manifest is not read over HTTP: download it first"))
    try:
        return open_file_system(uri or location.text)
    except (OSError, ValueError, SettingsError) as error:
        raise cannot_open(location, error) from None


def cannot_open(location: Location, error: Exception) -> ManifestError:
    """Return the error for a location that cannot be opened or read because of `error`."""
    if isinstance(error, FileNotFoundError):
        return ManifestError(f"{location.name}: there is no such file", hint="Check the manifest's path.")
    return ManifestError(f"{location.name}: it cannot be opened: {error}")


def decompress(raw: io.RawIOBase, location: Location) -> io.BufferedReader | gzip.GzipFile:
    """Return a buffered stream of `raw`; it decompresses if the file's name or its first two bytes show gzip.

    `location` is the location of the file.

    Raises:
        ManifestError: the content is Parquet under another name or on standard input, or it cannot be read.
    """
    stream: io.BufferedReader = io.BufferedReader(raw, CHUNK_BYTES)
    try:
        head = stream.peek(4)
    except OSError as error:
        raise cannot_open(location, error) from error
    if head[:4] == _PARQUET_MAGIC:
        raise ManifestError(
            f"{location.name}: this is Parquet, which is read from its end",
            hint="Name it as a file that ends in .parquet.",
        )
    if location.suffixes[-1:] == [".gz"] or head[:2] == _GZIP_MAGIC:
        return gzip.GzipFile(fileobj=stream, mode="rb")
    return stream


class LineReader:
    """Iterator over the numbered lines of UTF-8 text, each with its line end, in bounded memory.

    A line ends with LF, CRLF or CR. A text that begins with a byte order mark of UTF-16 is read as UTF-16. Bytes that
    are no valid text become lone surrogates, so that only the values in which they stand are damaged.

    Attributes:
        name: The manifest's name, for messages.
        number: Number, from 1, of the line returned most recently; 0 before the first line.
        damaged: Whether a line so far had bytes that are no valid text.
    """

    def __init__(self, stream: io.BufferedReader | gzip.GzipFile, name: str) -> None:
        self._stream = stream
        self.name = name
        self.number = 0
        self.damaged = False
        self._pushed_back: list[str] = []

    def __iter__(self) -> Iterator[str]:
        """Yield the remaining lines of the text file, each with its line end.

        Raises:
            ManifestError: the file is broken gzip, has a line over 16 Mi characters, or cannot be read further.
        """
        while line := self._next_line():
            yield line

    def first(self) -> str:
        """Return the next line that is not blank, without consuming it; return `""` if there is none.

        Blank lines before it are consumed.
        """
        for line in self:
            if line.strip():
                self.push_back([line])
                return line
        return ""

    def push_back(self, lines: Sequence[str]) -> None:
        """Put back lines that were read from this file: the iterator returns them next, in the given order."""
        self._pushed_back.extend(reversed(lines))
        self.number -= len(lines)

    def head(self) -> bytes:
        """Return about the first 64 bytes of the text without consuming them; call this before any line is read."""
        return self._read(self._stream.peek, 64)

    def read_all(self, max_chars: int) -> str:
        """Read the text to its end, or until more than `max_chars` have been read; return it.

        Call this before any line is read.
        """
        chunks, size = [], 0
        while size <= max_chars and (chunk := self._read(self._text.read, CHUNK_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
        return "".join(chunks)

    def error(self, message: str, *, hint: str = "", line: int | None = None) -> ManifestError:
        """Return an error whose message begins with the file's name and a line number.

        `line` is the line number; None means that of the line read most recently. `hint` says what the user can do.
        """
        return ManifestError(f"{self.name}:{max(line or self.number, 1)}: {message}", hint=hint)

    @cached_property
    def _text(self) -> io.TextIOWrapper:
        is_utf16 = self.head()[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
        encoding, errors = ("utf-16", "replace") if is_utf16 else ("utf-8-sig", "surrogateescape")
        return io.TextIOWrapper(cast("Any", self._stream), encoding, errors, newline="")  # (line ends stay as written)

    def _next_line(self) -> str:
        if self._pushed_back:
            self.number += 1
            return self._pushed_back.pop()
        line = self._read(self._text.readline, _MAX_LINE_CHARS + 1)
        self.number += bool(line)  # the end of the file is not a line
        if len(line) > _MAX_LINE_CHARS:
            raise self.error(f"a line is longer than {_MAX_LINE_CHARS} characters", hint="Is this really a text file?")
        self.damaged = self.damaged or not is_valid_text(line)
        return line

    def _read(self, read: Callable[[int], AnyStr], size: int) -> AnyStr:
        try:
            return read(size)
        except (*_GZIP_ERRORS, OSError) as error:
            self.number += 1
            if isinstance(error, _GZIP_ERRORS):
                raise self.error(f"the gzip is broken or cut off: {error}", hint="Fetch the file again.") from error
            raise self.error(f"it cannot be read further: {error}") from error
