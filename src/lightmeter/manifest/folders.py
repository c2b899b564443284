"""Reads folders and globs as manifests: each media file is a row, or all Parquet files or all tars hold the rows.

A folder is searched recursively, a glob only where it contains `**`. The search skips hidden files and folders, and
Parquet files if a part of their path begins with `_`. It also skips symbolic links to folders, output folders of runs,
folders that cannot be read, and files of other types: these are counted in `FileSet.notes`. Files are ordered by their
relative paths, compared as text with `/` between the parts.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any, Final, Literal, cast

from lightmeter.errors import ManifestError
from lightmeter.manifest.byte_sources import (
    CHUNK_BYTES,
    HashingReader,
    Location,
    cannot_open,
    open_raw,
    remote_file_system,
)
from lightmeter.manifest.item import MEDIA_SUFFIXES
from lightmeter.manifest.json_values import plain_text
from lightmeter.manifest.notes import ManifestNotes
from lightmeter.manifest.row_parser import RawRow, plain_row
from lightmeter.remote_files import child_uri

_JOURNAL: Final = "journal.sqlite"  # marks the output folder of a run

_OTHER: Final = "files of other types, which are not read"

_Names = Callable[[], Iterable[str]]
_Kind = Literal["media", "parquet", "tar"]


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files that together are one manifest: pictures and videos, Parquet files, or WebDataset tars.

    Attributes:
        kind: What the files are. `media`: each file is a row. `parquet` or `tar`: each file holds rows.
        base: Folder that contains the files: an absolute local path, or a path on `filesystem`.
        list_names: Returns the files' paths relative to `base`, in order; each call searches the file system again.
        filesystem: A file system of `pyarrow.fs`; None for the local file system.
        base_uri: URI of `base`, with its options; empty for the local file system.
        notes: What is not read although it is in the folder or matches the glob.
    """

    kind: _Kind
    base: str
    list_names: _Names
    filesystem: Any = None
    base_uri: str = ""
    notes: ManifestNotes = field(default_factory=ManifestNotes)

    def media_rows(self) -> Iterator[tuple[RawRow, bytes]]:
        """Yield for each media file its row, and bytes to hash: name, size and modification time.

        The row holds the file's name in the cell `path`. It has a problem if there is no regular file with content.
        """
        for name in self.list_names():
            yield _media_row(name, Path(self.base, name)), self._state(name)

    def archives(self) -> Iterator[tuple[str, str]]:
        """Yield for each tar its name relative to `base`, and its absolute path or URI."""
        for name in self.list_names():
            yield name, child_uri(self.base_uri, name) if self.base_uri else f"{self.base}/{name}"

    def digest(self) -> str:
        """Return one SHA-256 for all files of the manifest, in hexadecimal digits.

        Of Parquet files, names, sizes and contents are hashed. Of media files and tars, names, sizes and modification
        times are hashed, but no contents, because a folder may hold terabytes.
        """
        digest = sha256()
        if self.kind != "parquet":
            for name in self.list_names():
                digest.update(self._state(name))
            return digest.hexdigest()
        for name in self.list_names():
            digest.update(os.fsencode(name) + b"\0")
            with suppress(OSError, UnicodeError), self.open(name) as file:  # such a file is a bad row
                digest.update(f"{file.size()}\n".encode())
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
        return digest.hexdigest()

    def _state(self, name: str) -> bytes:
        size, modified_ns = -1, -1  # of a file that was deleted; its row cannot be read later
        if self.filesystem is not None:
            info = self.filesystem.get_file_info(f"{self.base}/{name}")
            size, modified_ns = (info.size, info.mtime_ns) if info.is_file else (size, modified_ns)
        else:
            with suppress(OSError):
                stat = Path(self.base, name).stat()
                size, modified_ns = stat.st_size, stat.st_mtime_ns
        return os.fsencode(name) + f"\0{size} {modified_ns}\n".encode()

    def open(self, name: str) -> Any:
        """Open the file `name`, one of `list_names()`, for reading; return it as a `pyarrow.NativeFile`."""
        from pyarrow import fs  # noqa: PLC0415 (Arrow only where needed)

        filesystem = self.filesystem or fs.LocalFileSystem()
        return filesystem.open_input_file(f"{self.base}/{name}")


def _media_row(name: str, file: Path) -> RawRow:
    try:
        name.encode()
        stat = file.stat()
        problem = None if stat.st_size else "the file is empty"
        if not S_ISREG(stat.st_mode):  # opening a pipe could block forever
            problem = "it is no regular file"
    except UnicodeEncodeError:
        return RawRow(plain_row({"path": name}).cells, "its name is not UTF-8")
    except OSError as error:  # such as a link to itself
        problem = f"the file cannot be read: {error.strerror}"
    # Cells are stripped of outer white space: a name that begins with some gets a folder in front.
    return RawRow({"path": name if name == name.strip() else f"./{name}"}, problem)


def stored_digest(location: Location) -> str:
    """Return the SHA-256 of a manifest in a file or folder, in hexadecimal digits.

    Of a manifest file, such as CSV, the bytes are hashed. For a folder, glob, media file or tar, see `FileSet.digest`.

    Raises:
        ManifestError: the manifest is missing or not readable.
    """
    try:
        if (files := file_set(location)) is not None:
            return files.digest()
        with open_raw(location) as opened:
            return HashingReader(opened).finish()
    except (OSError, UnicodeError) as error:
        raise cannot_open(location, error) from error


def file_set(location: Location) -> FileSet | None:
    """Return the files of a folder or glob; for a tar or a local media file, return this one file.

    Return None for other files, such as CSV, and for standard input.

    Raises:
        ManifestError: no file matches a glob; the files are both media and Parquet; no file is media, Parquet or a tar;
            a tar is compressed; the files are images and videos on a remote file system; the folder is a Delta table;
            or the location cannot be read.
    """
    _check_tar(location)
    try:
        if location.is_remote:
            return _remote_files(location)
        path = location.path
        if path is None:
            return None
        if path.is_dir():
            return _select_files(location, FileSet("media", str(path.absolute()), lambda: _list_files(path)))
        if location.is_glob:
            folder, patterns = location.glob_parts
            base = Path(folder)
            files = FileSet("media", str(base.absolute()), lambda: _glob_files(patterns, lambda: _list(base, patterns)))
            return _select_files(location, files)
        kind = _type_of(path.name)
        if kind in {"media", "tar"} and path.stat():
            return FileSet(cast("_Kind", kind), str(path.absolute().parent), lambda: [path.name])
    except OSError as error:
        raise cannot_open(location, error) from error
    return None


def _remote_files(location: Location) -> FileSet | None:
    """Return the files of a folder or glob at the remote `location`, or the tar there; None for others, such as CSV.

    The result for a tar has one file, the tar itself.
    """
    from pyarrow import fs  # noqa: PLC0415 (Arrow only where needed)

    if location.is_glob:
        uri, patterns = location.glob_parts
        filesystem, base = _open_folder(location, uri)
        names = lambda: _glob_files(patterns, lambda: _remote_names(filesystem, base))  # noqa: E731
        return _select_files(location, FileSet("media", base, names, filesystem, uri))
    filesystem, base = _open_folder(location, location.text)
    kind = filesystem.get_file_info(base).type
    if kind == fs.FileType.Directory:
        files = FileSet("media", base, lambda: _remote_names(filesystem, base), filesystem, location.text)
        return _select_files(location, files)
    if kind == fs.FileType.File and _type_of(base) == "tar":
        folder, _, name = base.rpartition("/")
        options = location.text[len(location.uri_path) :]
        uri = location.uri_path.rpartition("/")[0] + options
        return FileSet("tar", folder, lambda: [name], filesystem, uri)
    return None


def _open_folder(location: Location, uri: str) -> tuple[Any, str]:
    filesystem, base = remote_file_system(location, uri)
    return filesystem, base.rstrip("/")


def _remote_names(filesystem: Any, base: str) -> Iterator[str]:
    """Yield the sorted paths, relative to the folder `base`, of all files below it.

    Hidden files and folders (`.name`) are left out. `filesystem` is a remote `pyarrow.fs.FileSystem`.
    """
    from pyarrow import fs  # noqa: PLC0415 (Arrow only where needed)

    found = filesystem.get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
    paths = sorted(info.path.removeprefix(base).lstrip("/") for info in found if info.is_file)
    return (name for name in paths if not any(part.startswith(".") for part in name.split("/")))


def _check_tar(location: Location) -> None:
    name = location.uri_path if location.is_remote else location.text
    if name.lower().endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")):
        raise ManifestError(
            f"{location.name}: this tar is compressed, so its files cannot be read one by one",
            hint="Unpack it to a .tar: pictures and videos are compressed already.",
        )


def _select_files(location: Location, found: FileSet) -> FileSet:
    """Return those of `found`, the files of the folder or glob `location`, that make up a manifest.

    These are the Parquet files, or the pictures and videos. If there are neither, these are the tars.

    Raises:
        ManifestError: the files are both media and Parquet; no file is media, Parquet or a tar; the files are images
            and videos on a remote file system; or the folder is a Delta table.
    """
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for name in found.list_names():
        if "_delta_log" in name.split("/"):
            raise ManifestError(
                f"{location.name}: this is a Delta table: its log, not its folder, says which files belong to it",
                hint="Read it first: lightmeter.plan(deltalake.DeltaTable(…).to_pyarrow_table())",
            )
        what = _why_not_entered(Path(found.base, name)) if name.endswith("/") else _type_of(name)
        counts[what] += 1
        first.setdefault(what, plain_text(name, []))
    media, parquet, tars = counts["media"], counts["parquet"], counts["tar"]
    if media and parquet:
        raise ManifestError(
            f"{location.name}: {media} pictures and videos and {parquet} Parquet files are there, and a manifest is "
            "one or the other",
            hint="Say which with a glob in quotes, such as 'FOLDER/**/*.jpg' or 'FOLDER/**/*.parquet'.",
        )
    if not (media or parquet or tars):
        raise _no_files_error(location, counts[_OTHER], first.get(_OTHER, ""))
    if media and found.filesystem is not None:
        raise ManifestError(
            f"{location.name}: {media} pictures and videos are there, which are read from this machine alone",
            hint="Name them by https URLs, one a line, pack them into tars, or copy the folder here.",
        )
    kind: _Kind = "parquet" if parquet else "media" if media else "tar"
    for what, count in counts.items():
        if what != kind:
            shown = "tars beside other files, which are not read" if what == "tar" else what
            found.notes.add(shown, first[what], count)
    return replace(found, kind=kind, list_names=lambda: (name for name in found.list_names() if _type_of(name) == kind))


def _no_files_error(location: Location, others: int, example: str) -> ManifestError:
    if not others and location.is_glob:
        return ManifestError(f"{location.name}: no file matches", hint="`**` goes into folders: 'FOLDER/**/*.jpg'.")
    what = "among the files that match" if location.is_glob else "in this folder"
    other_files = f" ({others} other files, such as {example})" if others else ""
    return ManifestError(
        f"{location.name}: {what} is no picture, no video and no Parquet file{other_files}",
        hint="Name one file of CSV, TSV, JSON, text or Parquet, or a folder of media, Parquet files or tars.",
    )


def _why_not_entered(folder: Path) -> str:
    if folder.is_symlink():
        return "links to folders, which are not followed"
    if not os.access(folder, os.R_OK | os.X_OK):
        return "folders that cannot be read"
    return "output folders of runs, which are not read"


def _type_of(name: str) -> str:
    """Return what a file is by its name: `parquet`, `media`, `tar` or `_OTHER`; for a folder, with final `/`, `_OTHER`.

    Parquet files with a part of their path that begins with `_` are those of an unfinished job.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".parquet" and not name.endswith("/") and not any(part.startswith("_") for part in name.split("/")):
        return "parquet"
    if name.endswith("/") or suffix not in {".tar", *MEDIA_SUFFIXES}:
        return _OTHER
    return "tar" if suffix == ".tar" else "media"


def _list_files(base: Path, max_depth: int | None = None) -> Iterator[str]:
    """Yield the sorted paths, relative to `base`, of the files in this folder and its subfolders.

    Hidden files and folders (`.name`) are left out. For a subfolder that is not entered, because it is a link, contains
    a journal or cannot be read, its path with a final `/` is yielded.

    Args:
        base: The folder to search.
        max_depth: Number of levels to search, 1 for `base` alone; None means all levels.
    """
    pending = [""]
    while pending:
        name = pending.pop()
        if name and not name.endswith("/"):
            yield name
            continue
        if max_depth is not None and name.count("/") >= max_depth:
            continue
        found: list[str] = []
        is_entered = not (name and (base / name).is_symlink())
        if is_entered:
            try:
                found = _entries(base / name, name)
            except OSError:
                if not name:
                    raise
                is_entered = False
        if not is_entered or (name and f"{name}{_JOURNAL}" in found):
            yield name
        else:
            pending += reversed(found)


def _entries(folder: Path, prefix: str) -> list[str]:
    """Return the sorted names in a folder that are not hidden, each after `prefix`; those of folders end with `/`."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            is_folder = False
            with suppress(OSError):  # a link to itself
                is_folder = entry.is_dir()
            if not entry.name.startswith("."):
                found.append(f"{prefix}{entry.name}{'/' if is_folder else ''}")
    return sorted(found)


def _list(base: Path, patterns: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield the sorted paths, relative to `base`, of the files below it that are no deeper than `patterns` can match.

    Files that do not match are yielded too. `patterns` are globs relative to `base`, each split at `/`.
    """
    if base.is_dir():
        is_deep = any("**" in pattern for pattern in patterns)
        yield from _list_files(base, None if is_deep else max(map(len, patterns)))


def _glob_files(patterns: list[tuple[str, ...]], names: _Names) -> Iterator[str]:
    """Yield those paths returned by the function `names` that match one of the glob `patterns` (each split at `/`).

    If the patterns have no wildcards, as in `{a,b}.tar`, yield the patterns themselves as paths, whether the files
    exist or not: then reading a missing file raises an error.
    """
    if not any(glob.has_magic(part) for pattern in patterns for part in pattern):
        yield from ("/".join(pattern) for pattern in patterns)
        return
    for name in names():
        parts = tuple(name.split("/"))
        if name.endswith("/") or any(_matches_pattern(parts, pattern) for pattern in patterns):
            yield name


def _matches_pattern(parts: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether the path `parts` matches the glob `patterns`, both split at `/`.

    `**` matches any number of folders; as the final part of the glob, it also matches files.
    """
    if not patterns:
        return not parts
    first, *rest = patterns
    if first != "**":
        return bool(parts) and fnmatchcase(parts[0], first) and _matches_pattern(parts[1:], patterns[1:])
    return not rest or any(_matches_pattern(parts[skipped:], patterns[1:]) for skipped in range(len(parts)))
