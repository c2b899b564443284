"""Reads WebDataset tars: each picture or video of a sample is a row, and the sample's texts are columns of that row.

A sample consists of consecutive members with the same key. The key is a member's name up to the first dot after its
last slash, and what follows the dot is the extension. `000123.jpg` and `000123.json` are the sample `000123`. A member
with the extension `json`, `txt` or `cls` becomes a column of that name: a JSON value, a text, or a number. All other
members are left out. Only headers and these texts are read.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from lightmeter.manifest.item import JSON, MEDIA_SUFFIXES
from lightmeter.manifest.json_values import parse_json
from lightmeter.manifest.row_parser import RawRow, plain_row
from lightmeter.manifest.tar_members import TAR_ERRORS, HeaderReader, TarMember, open_archive

MAX_TEXT_BYTES: Final = 512 * 1024
"""Longest text of a sample, in bytes, that becomes a column's value. A sample with a longer text gets a problem."""

_NAME: Final = re.compile(r"((?:.*/)?[^./][^.]*)\.([^/]+)", re.DOTALL)
_TEXT_SUFFIXES: Final = (".json", ".txt", ".cls")


@dataclass(slots=True)
class _Sample:
    """One WebDataset sample, from which `rows` makes manifest rows.

    Attributes:
        key: Common name of the sample's members, without extension.
        texts: Extension → value, for each member that is a text.
        media: (extension, member, problem) for each picture or video; the problem is None if nothing is wrong.
        others: Extensions of the members that are neither text nor media.
        problem: Why no row of the sample can be analyzed; None if nothing is wrong.
    """

    key: str
    texts: dict[str, JSON] = field(default_factory=dict)
    media: list[tuple[str, TarMember, str | None]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problem: str | None = None

    def rows(self, shown: str) -> Iterator[RawRow]:
        for extension, member, problem in self.media:
            item_id = self.key if len(self.media) == 1 else f"{self.key}.{extension}"
            path = f"{shown}/{member.name.removeprefix('./')}"
            yield _row(path, item_id, self.texts, problem or self.problem, member)
        if not self.media:
            found = ", ".join([*self.texts, *self.others])
            yield _row(f"{shown}/{self.key}", self.key, self.texts, f"the sample has no picture and no video: {found}")


def _row(
    path: str, item_id: str | None, texts: dict[str, JSON], problem: str | None, member: TarMember | None = None
) -> RawRow:
    cells: dict[str, JSON] = {"path": path, "id": item_id, **texts}
    try:
        f"{path}{item_id}".encode()
    except UnicodeEncodeError:
        cells |= {"path": _valid(path), "id": item_id and _valid(item_id)}
        return RawRow(cells, "its name is not UTF-8")
    row = plain_row(cells)
    return RawRow(row.cells, problem, member.path if member else None, row.cell_notes)


def _valid(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def tar_rows(archive: str, shown: str) -> Iterator[RawRow]:
    """Yield the rows of a WebDataset tar; the memory needed does not grow with the tar.

    If the tar is missing, damaged or cut off, the final row says so; the rows before the damage are yielded first.

    Args:
        archive: Absolute path or URI of the tar.
        shown: Name of the tar, with which the cell `path` of each row begins.
    """
    try:
        with open_archive(archive) as (stream, size_bytes):
            yield from _samples(stream, size_bytes, archive, shown)
    except TAR_ERRORS as error:
        yield _row(shown, None, {}, f"the tar cannot be read further: {error}")


def _samples(stream: HeaderReader, size_bytes: int, archive: str, shown: str) -> Iterator[RawRow]:
    sample: _Sample | None = None
    damage = None
    with tarfile.TarFile(fileobj=stream, encoding="utf-8") as tar:
        try:
            for member in _members(tar):
                found = _NAME.fullmatch(member.name.removeprefix("./"))
                if found is None or not member.isreg():
                    continue
                if sample is None or sample.key != found[1]:
                    if sample is not None:
                        yield from sample.rows(shown)
                    sample = _Sample(found[1])
                _add(sample, tar, member, found[2], TarMember(archive, member.offset, member.name), size_bytes)
            damage = _end_problem(stream, tar.offset)
        except TAR_ERRORS as error:
            damage = f"the tar is damaged or cut off after {min(tar.offset, size_bytes)} bytes: {error}"
    if sample is not None:
        yield from sample.rows(shown)
    if damage is not None:
        yield _row(shown, None, {}, damage)


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar without keeping them in memory.

    Raises:
        TAR_ERRORS: a header is damaged; see the constant for the types of exception.
    """
    end = -1
    while (member := tar.next()) is not None:
        if member.offset <= end or member.size < 0:
            raise tarfile.ReadError("a header has a wrong size")
        end = member.offset
        yield member
        tar.members.clear()  # type: ignore[attr-defined]  # known to Python, not to its stubs


def _end_problem(stream: HeaderReader, offset: int) -> str | None:
    """Return None if the tar has its end mark at `offset`; else a message that the tar is cut off or damaged."""
    stream.seek(offset)
    block = stream.read(tarfile.BLOCKSIZE)
    if block == bytes(tarfile.BLOCKSIZE):
        return None
    return f"the tar is cut off or damaged at byte {offset}: its end mark is missing"


def _add(
    sample: _Sample, tar: tarfile.TarFile, member: tarfile.TarInfo, extension: str, place: TarMember, size_bytes: int
) -> None:
    suffix = PurePosixPath(f"x.{extension.lower()}").suffix
    is_cut = member.offset_data + member.size > size_bytes and not member.issparse()
    if suffix in MEDIA_SUFFIXES:
        sample.media.append((extension, place, "the tar is cut off in this file" if is_cut else None))
    elif suffix not in _TEXT_SUFFIXES:
        sample.others.append(extension)
    elif is_cut or member.size > MAX_TEXT_BYTES:
        sample.problem = f"its .{extension} " + ("is cut off" if is_cut else f"has {member.size} bytes")
    else:
        content = tar.extractfile(member)
        try:
            sample.texts[extension] = _value(suffix, content.read() if content else b"")
        except ValueError as error:
            sample.problem = f"its .{extension} cannot be read: {error}"


def _value(suffix: str, content: bytes) -> JSON:
    """Return the value of a text member of a tar.

    `.json` gives the JSON value. `.cls` gives a number if the content is an integer. Everything else gives the text.
    `suffix` is the suffix of the member's name, such as `.json`, and `content` its bytes. Bytes that are no UTF-8
    become lone surrogates.

    Raises:
        ValueError: the content is not valid JSON.
    """
    text = content.decode("utf-8-sig", "surrogateescape").strip("\r\n")
    if suffix == ".json":
        return parse_json(text)[0]
    is_number = suffix == ".cls" and re.fullmatch(r"\s*-?\d{1,18}\s*", text) is not None
    return int(text) if is_number else text
