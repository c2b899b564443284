"""Many files as one manifest: a folder or a glob of media, a row for each file, or of Parquet files, read in order.

A folder is walked recursively; in a glob, `**` does so. Hidden files and folders, symbolic links to folders and the
output folders of runs are left out, and so are files that are neither media nor Parquet; in a data set of Parquet also
names that begin with `_`. Order is that of the relative paths, compared as text with `/` between their parts.
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
from lightmeter.manifest.byte_sources import HashingReader, Location, cannot_open, open_raw, remote_file_system
from lightmeter.manifest.row_parser import RawRow
from lightmeter.models.vocabulary import IMAGE_SUFFIXES, MORE_VIDEO_SUFFIXES, VIDEO_SUFFIXES

__all__ = ["FileSet", "file_set", "stored_digest"]

_MEDIA_SUFFIXES: Final = frozenset((*IMAGE_SUFFIXES, *VIDEO_SUFFIXES, *MORE_VIDEO_SUFFIXES))
_PARQUET_SUFFIX: Final = ".parquet"
_DELTA_LOG: Final = "_delta_log"
_JOURNAL: Final = "journal.sqlite"  # what an output folder of a run is known by
_CHUNK_BYTES: Final = 1024 * 1024

_Names = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files that are one manifest.

    Attributes:
        kind: Whether each file is a row, or holds rows.
        base: The folder that names are relative to: an absolute path, or a path on `filesystem`.
        list_names: Lists the names in order, each time anew.
        filesystem: The file system of `pyarrow.fs`; None for this machine's.
    """

    kind: Literal["media", "parquet"]
    base: str
    list_names: _Names
    filesystem: Any = None

    def media_rows(self) -> Iterator[tuple[RawRow, bytes]]:
        """A row for each file, its name in the column `path`, with what the digest takes in of it."""
        for name in self.list_names():
            size, changed = -1, -1  # of a file that went away, which is a row that cannot be read
            with suppress(FileNotFoundError):
                stat = Path(self.base, name).stat()
                size, changed = stat.st_size, stat.st_mtime_ns
            yield _media_row(name), os.fsencode(name) + f"\0{size} {changed}\n".encode()

    def digest(self) -> str:
        """Hex SHA-256 of what the files are.

        Of media: their names, sizes in bytes and times of change in nanoseconds, because a folder may hold terabytes.
        Of Parquet: their names, sizes and bytes.
        """
        digest = sha256()
        if self.kind == "media":
            for _, seen in self.media_rows():
                digest.update(seen)
            return digest.hexdigest()
        for name in self.list_names():
            with self.open(name) as file:
                digest.update(f"{name}\0{file.size()}\n".encode())
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        return digest.hexdigest()

    def open(self, name: str) -> Any:
        """One of the files, opened through Arrow."""
        from pyarrow import fs  # noqa: PLC0415 (Arrow only where needed)

        filesystem = self.filesystem or fs.LocalFileSystem()
        return filesystem.open_input_file(f"{self.base}/{name}")


def _media_row(name: str) -> RawRow:
    try:
        name.encode()
    except UnicodeEncodeError:
        return RawRow({"path": name.encode("utf-8", "replace").decode()}, "its name is not UTF-8")
    # Cells lose outer white space: a name that begins with some is written with the folder before it.
    return RawRow({"path": name if name == name.strip() else f"./{name}"})


def stored_digest(location: Location) -> str:
    """Hex SHA-256 of a manifest that is stored: of a file's bytes, packed or not, or as `FileSet.digest`.

    Raises:
        ManifestError: It is not there, or cannot be read.
    """
    try:
        if (files := file_set(location)) is not None:
            return files.digest()
        with open_raw(location) as opened:
            return HashingReader(opened).finish()
    except (OSError, UnicodeError) as error:
        raise cannot_open(location, error) from error


def file_set(location: Location) -> FileSet | None:
    """The files that a folder, a glob or the name of a media file stands for; None for one file that holds a manifest.

    Raises:
        ManifestError: Nothing matches a glob, or the files are both media and Parquet, or neither.
    """
    try:
        if location.is_remote:
            return _remote_set(location, *remote_file_system(location))
        path = location.path
        if path is None:
            return None
        if path.is_dir():
            return _set_of(location, path, lambda: _walk(path, path))
        if location.is_glob:
            base, patterns = location.glob_parts
            return _set_of(location, base, lambda: _matches(base, patterns))
        if _is_media(path.name) and path.stat():
            return FileSet("media", str(path.absolute().parent), lambda: [path.name])
    except OSError as error:
        raise cannot_open(location, error) from error
    return None


def _remote_set(location: Location, filesystem: Any, path: str) -> FileSet | None:
    """A folder of Parquet files elsewhere."""
    from pyarrow import fs  # noqa: PLC0415 (Arrow only where needed)

    path = path.rstrip("/")
    if filesystem.get_file_info(path).type != fs.FileType.Directory:
        return None

    def names() -> Iterator[str]:
        found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        told = sorted(info.path.removeprefix(path).lstrip("/") for info in found if info.is_file)
        return (name for name in told if not any(part.startswith(".") for part in name.split("/")))

    return _set_of(location, path, names, filesystem)


def _set_of(location: Location, base: Path | str, names: _Names, filesystem: Any = None) -> FileSet:
    """The files of one kind among names; which kind, all of them decide."""
    media, parquet, others = 0, 0, 0
    example = ""
    for name in names():
        if _DELTA_LOG in name.split("/"):
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
        raise _nothing_there(location, others, example)
    if media and filesystem is not None:
        raise ManifestError(
            f"{location.name}: {media} pictures and videos are there, which are read from this machine alone",
            hint="Name them by https URLs, one a line, or copy the folder here.",
        )
    chosen = _is_parquet if parquet else _is_media
    where = str(base.absolute()) if isinstance(base, Path) else base
    return FileSet("parquet" if parquet else "media", where, lambda: filter(chosen, names()), filesystem)


def _nothing_there(location: Location, others: int, example: str) -> ManifestError:
    if not others and location.is_glob:
        return ManifestError(f"{location.name}: no file matches", hint="`**` goes into folders: 'FOLDER/**/*.jpg'.")
    what = "among the files that match" if location.is_glob else "in this folder"
    beside = f" ({others} other files, such as {example})" if others else ""
    return ManifestError(
        f"{location.name}: {what} is no picture, no video and no Parquet file{beside}",
        hint="Name one file of CSV, TSV, JSON, text or Parquet, or a folder of media or of Parquet files.",
    )


def _is_media(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in _MEDIA_SUFFIXES


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(_PARQUET_SUFFIX) and not any(part.startswith("_") for part in name.split("/"))


def _walk(folder: Path, base: Path, most_deep: int | None = None) -> Iterator[str]:
    """Names of all files under a folder, relative to `base`, in order, with at most `most_deep` parts."""
    with os.scandir(folder) as entries:
        found = sorted((f"{entry.name}/" if entry.is_dir() else entry.name, entry.is_symlink()) for entry in entries)
    if folder != base and any(name == _JOURNAL for name, _ in found):
        return
    for name, is_link in found:
        if name.startswith("."):
            continue
        if not name.endswith("/"):
            yield (folder / name).relative_to(base).as_posix()
        elif not is_link and most_deep != 1:
            yield from _walk(folder / name, base, None if most_deep is None else most_deep - 1)


def _matches(base: Path, patterns: tuple[str, ...]) -> Iterator[str]:
    """Names of the files under a folder that match a pattern for each part of the name, in order."""
    if not base.is_dir():
        return
    for name in _walk(base, base, None if "**" in patterns else len(patterns)):
        if _fits(tuple(name.split("/")), patterns):
            yield name


def _fits(parts: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether the parts of a name match; `**` matches any number of folders, and at the end all that is in them."""
    if not patterns:
        return not parts
    first, *rest = patterns
    if first != "**":
        return bool(parts) and fnmatchcase(parts[0], first) and _fits(parts[1:], patterns[1:])
    return not rest or any(_fits(parts[skipped:], patterns[1:]) for skipped in range(len(parts)))
