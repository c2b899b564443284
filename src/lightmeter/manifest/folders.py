"""Folders and globs as manifests: each media file is a row, or the rows of all Parquet files are read in order.

A folder is searched recursively, a glob only where it contains `**`. The search skips hidden files and folders,
symbolic links to folders, output folders of runs, files that are neither media nor Parquet, and in a Parquet data set
names that begin with `_`. Files are ordered by their relative paths, compared as text with `/` between the parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

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
from lightmeter.manifest.row_parser import RawRow

_JOURNAL: Final = "journal.sqlite"  # marks the output folder of a run

_Names = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files that together are one manifest: pictures and videos, or Parquet files.

    Attributes:
        kind: `media`: each file is a row; `parquet`: each file holds rows.
        base: Folder that the names are relative to: an absolute path, or a path on `filesystem`.
        list_names: Returns the names of the files in order; each call searches the file system again.
        filesystem: A file system of `pyarrow.fs`; None for the local one.
    """

    kind: Literal["media", "parquet"]
    base: str
    list_names: _Names
    filesystem: Any = None

    def media_rows(self) -> Iterator[tuple[RawRow, bytes]]:
        """Yield for each media file a row with its name as `path`, and its name, size and change time as bytes."""
        for name in self.list_names():
            size, modified_ns = -1, -1  # of a file that was deleted; its row cannot be read later
            with suppress(FileNotFoundError):
                stat = Path(self.base, name).stat()
                size, modified_ns = stat.st_size, stat.st_mtime_ns
            yield _media_row(name), os.fsencode(name) + f"\0{size} {modified_ns}\n".encode()

    def digest(self) -> str:
        """Return one SHA-256 of all files of the manifest, in hexadecimal digits.

        For media files, it covers names, sizes and modification times, but not contents, because a folder may hold
        terabytes. For Parquet files, it covers names, sizes and contents.
        """
        digest = sha256()
        if self.kind == "media":
            for _, file_state in self.media_rows():
                digest.update(file_state)
            return digest.hexdigest()
        for name in self.list_names():
            with self.open(name) as file:
                digest.update(f"{name}\0{file.size()}\n".encode())
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
        return digest.hexdigest()

    def open(self, name: str) -> Any:
        """Open the file `name`, one of `list_names()`, for reading; return it as a `pyarrow.NativeFile`."""
        from pyarrow import fs  # noqa: PLC0415 (Arrow only where needed)

        filesystem = self.filesystem or fs.LocalFileSystem()
        return filesystem.open_input_file(f"{self.base}/{name}")


def _media_row(name: str) -> RawRow:
    try:
        name.encode()
    except UnicodeEncodeError:
        return RawRow({"path": name.encode("utf-8", "replace").decode()}, "its name is not UTF-8")
    # Cells are stripped of outer white space: a name that begins with some gets a folder in front.
    return RawRow({"path": name if name == name.strip() else f"./{name}"})


def stored_digest(location: Location) -> str:
    """Return the SHA-256 of a stored manifest, in hexadecimal digits.

    For a single manifest file, its bytes are hashed; for a folder or a glob, all its files (`FileSet.digest`).

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
    """Return the files of a folder, a glob or a media file; None for a single manifest file.

    Raises:
        ManifestError: no file matches a glob, or the files are both media and Parquet, or neither.
    """
    try:
        if location.is_remote:
            return _remote_files(location, *remote_file_system(location))
        path = location.path
        if path is None:
            return None
        if path.is_dir():
            return _select_files(location, path, lambda: _list_files(path, path))
        if location.is_glob:
            base, patterns = location.glob_parts
            return _select_files(location, base, lambda: _glob_files(base, patterns))
        if _is_media(path.name) and path.stat():
            return FileSet("media", str(path.absolute().parent), lambda: [path.name])
    except OSError as error:
        raise cannot_open(location, error) from error
    return None


def _remote_files(location: Location, filesystem: Any, path: str) -> FileSet | None:
    """Return the Parquet files of a remote folder; None if the path is not a folder."""
    from pyarrow import fs  # noqa: PLC0415 (Arrow only where needed)

    path = path.rstrip("/")
    if filesystem.get_file_info(path).type != fs.FileType.Directory:
        return None

    def names() -> Iterator[str]:
        found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        paths = sorted(info.path.removeprefix(path).lstrip("/") for info in found if info.is_file)
        return (name for name in paths if not any(part.startswith(".") for part in name.split("/")))

    return _select_files(location, path, names, filesystem)


def _select_files(location: Location, base: Path | str, names: _Names, filesystem: Any = None) -> FileSet:
    """Return the pictures and videos, or the Parquet files, among the files that `names` lists.

    The function `names` returns the names of all files, relative to `base`; `location` is for messages.

    Raises:
        ManifestError: the files are both media and Parquet, or neither, or images and videos on a remote file system.
    """
    media, parquet, others = 0, 0, 0
    example = ""
    for name in names():
        if "_delta_log" in name.split("/"):
            raise ManifestError(
                f"{location.name}: this is a Delta table, whose files are not all its rows",
                hint="Read it first: lightmeter.plan(deltalake.DeltaTable(…).to_pyarrow_table())",
            )
        if _is_parquet(name):
            parquet += 1
        elif _is_media(name):
            media += 1
        else:
            others, example = others + 1, example or name
    if media and parquet:
        raise ManifestError(
            f"{location.name}: {media} pictures and videos and {parquet} Parquet files are there, and a manifest is "
            "one or the other",
            hint="Say which with a glob in quotes, such as 'FOLDER/**/*.jpg' or 'FOLDER/**/*.parquet'.",
        )
    if not (media or parquet):
        raise _no_files_error(location, others, example)
    if media and filesystem is not None:
        raise ManifestError(
            f"{location.name}: {media} pictures and videos are there, which are read from this machine alone",
            hint="Name them by https URLs, one a line, or copy the folder here.",
        )
    chosen = _is_parquet if parquet else _is_media
    base_path = str(base.absolute()) if isinstance(base, Path) else base
    return FileSet("parquet" if parquet else "media", base_path, lambda: filter(chosen, names()), filesystem)


def _no_files_error(location: Location, others: int, example: str) -> ManifestError:
    if not others and location.is_glob:
        return ManifestError(f"{location.name}: no file matches", hint="`**` goes into folders: 'FOLDER/**/*.jpg'.")
    what = "among the files that match" if location.is_glob else "in this folder"
    other_files = f" ({others} other files, such as {example})" if others else ""
    return ManifestError(
        f"{location.name}: {what} is no picture, no video and no Parquet file{other_files}",
        hint="Name one file of CSV, TSV, JSON, text or Parquet, or a folder of media or of Parquet files.",
    )


def _is_media(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in MEDIA_SUFFIXES


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet") and not any(part.startswith("_") for part in name.split("/"))


def _list_files(folder: Path, base: Path, max_depth: int | None = None) -> Iterator[str]:
    """Yield the sorted paths, relative to `base`, of all files in a folder, `max_depth` levels deep (None: all)."""
    with os.scandir(folder) as entries:
        found = sorted((f"{entry.name}/" if entry.is_dir() else entry.name, entry.is_symlink()) for entry in entries)
    if folder != base and any(name == _JOURNAL for name, _ in found):
        return
    for name, is_link in found:
        if name.startswith("."):
            continue
        if not name.endswith("/"):
            yield (folder / name).relative_to(base).as_posix()
        elif not is_link and max_depth != 1:
            yield from _list_files(folder / name, base, None if max_depth is None else max_depth - 1)


def _glob_files(base: Path, patterns: tuple[str, ...]) -> Iterator[str]:
    """Yield the sorted paths of the files in `base` that match a glob; `patterns` is that glob split at `/`."""
    if not base.is_dir():
        return
    for name in _list_files(base, base, None if "**" in patterns else len(patterns)):
        if _matches_pattern(tuple(name.split("/")), patterns):
            yield name


def _matches_pattern(parts: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether a path matches a glob, both split at `/`; `**` matches any folders, and as the last part also files."""
    if not patterns:
        return not parts
    first, *rest = patterns
    if first != "**":
        return bool(parts) and fnmatchcase(parts[0], first) and _matches_pattern(parts[1:], patterns[1:])
    return not rest or any(_matches_pattern(parts[skipped:], patterns[1:]) for skipped in range(len(parts)))
