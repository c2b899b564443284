"""From the cells of one row to an item: which column means what, and what is wrong with it. Pure.

Four column names mean something, in any case: `url`, `path`, `id` and `kind`. The first of each counts; a second
one (`URL` beside `url`) and all other columns travel along as `extra`. `ReadOptions` can name other columns for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lightmeter.errors import ManifestError
from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.manifest.item import JSON, MEDIA_KINDS, Item, MediaKind, stable_id

__all__ = ["ColumnRoles", "ItemMaker", "RawRow", "ReadOptions", "missing_column", "observe_types", "widen"]

_MAX_LAYOUTS: Final = 256  # rows of JSONL may each have other keys: what is remembered about them is bounded
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class RawRow:
    """The cells of one row under their column names, and what the format found wrong with them."""

    cells: Mapping[str, JSON]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a manifest is read.

    Attributes:
        url_column: The column that says what to analyse, in place of `url` and `path`: a value with a scheme (`://`)
            is a URL, one without is a path. Columns that are called `url` or `path` are then like any other.
        id_column: The column that holds the ids, in place of `id`.
        kind_column: The column that holds the kinds, in place of `kind`.
        lenient: A record of CSV or TSV whose quote is not closed is a row with a problem, and reading goes on with
            the next line; otherwise it is an error.
    """

    url_column: str | None = None
    id_column: str | None = None
    kind_column: str | None = None
    lenient: bool = False

    @property
    def named(self) -> dict[str, str]:
        """The columns that were named, by what they mean: `url`, `id`, `kind`."""
        named = {"url": self.url_column, "id": self.id_column, "kind": self.kind_column}
        return {role: name for role, name in named.items() if name is not None}

    def missing(self, names: Iterable[str]) -> str | None:
        """The first column that was named and is not among `names`; None if all are there."""
        there = list(names)
        return next((wanted for wanted in self.named.values() if _same_name(wanted, there) is None), None)


def missing_column(where: str, wanted: str, names: Iterable[str]) -> ManifestError:
    """The error for a column that was named and is not there; `where` is the file, with the line where known."""
    there = ", ".join(names)
    columns = f"its columns are {there}" if there else "it has no columns"
    return ManifestError(f"{where}: no column is named `{wanted}`; {columns}")


def _same_name(wanted: str, names: Iterable[str]) -> str | None:
    """The column of this name; without one, the first that differs by case or outer white space alone."""
    there = list(names)
    if wanted in there:
        return wanted
    return next((name for name in there if name.strip().casefold() == wanted.strip().casefold()), None)


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """Which column of a row means what; None where there is no such column.

    `url` and `path` are the same column where the user has named it: its values tell which of both they are.
    """

    url: str | None
    path: str | None
    item_id: str | None
    kind: str | None
    extra: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str], options: ReadOptions = ReadOptions()) -> ColumnRoles:
        """Find the columns that mean something among `names`."""
        there = tuple(names)
        found = {role: _same_name(wanted, there) for role, wanted in options.named.items()}
        if "url" in found:
            found["path"] = found["url"]
        taken, extra = set(found.values()), []
        for name in there:
            role = name.strip().casefold()
            if name in taken:
                continue
            if role in {"url", "path", "id", "kind"} and role not in found:
                found[role] = name
            else:
                extra.append(name)
        return cls(found.get("url"), found.get("path"), found.get("id"), found.get("kind"), tuple(extra))

    @property
    def usable(self) -> bool:
        """Whether rows of this layout can name anything."""
        return self.url is not None or self.path is not None


@dataclass(slots=True)
class ItemMaker:
    """Makes items of rows.

    Attributes:
        folder: What relative paths are relative to; None where the manifest is not on this machine.
        options: Which columns mean something.
    """

    folder: Path | None
    options: ReadOptions = ReadOptions()
    _layouts: dict[tuple[str, ...], ColumnRoles] = field(default_factory=dict)

    def make(self, seq: int, row: RawRow) -> Item:
        """The item of one row; never raises for what a row holds."""
        layout = self._layout(tuple(row.cells))
        url, path, identity, problem = self._target(layout, row.cells)
        kind, kind_problem = _kind(row.cells.get(layout.kind) if layout.kind else None)
        own_id = _own_id(row.cells.get(layout.item_id) if layout.item_id else None)
        return Item(
            seq=seq,
            item_id=own_id or stable_id(identity or f"row {seq}"),
            url=url,
            path=path,
            kind=kind,
            extra={name: row.cells[name] for name in layout.extra},
            problem=row.problem or problem or kind_problem,
            has_own_id=bool(own_id),
        )

    def _layout(self, names: tuple[str, ...]) -> ColumnRoles:
        layout = self._layouts.get(names)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[names] = ColumnRoles.of(names, self.options)
        return layout

    def _target(self, layout: ColumnRoles, cells: Mapping[str, JSON]) -> tuple[str, str | None, str, str | None]:
        """Text, absolute local path, identity and problem of what the row names; the URL wins over the path."""
        named = layout.url is not None and layout.url == layout.path
        url = cells.get(layout.url) if layout.url else None
        path = cells.get(layout.path) if layout.path else None
        for name, value in (("url", url), ("path", path)):
            if value is not None and not isinstance(value, str):
                return str(value), None, str(value), f"its {name} is {value!r}, which is no text"
        if isinstance(url, str) and (text := url.strip()) and not (named and "://" not in text):
            try:
                return text, None, canonical_url(text), None
            except ValueError as reason:
                return text, None, text, f"not a URL: {reason}"
        if isinstance(path, str) and (text := path.strip()):
            local, problem = self._local(text)
            return text, local, Path(text).as_posix(), problem
        return "", None, "", "neither a URL nor a path"

    def _local(self, text: str) -> tuple[str | None, str | None]:
        """Absolute path of a path cell, or the problem with it."""
        if "\0" in text or "://" in text:
            return None, "its path is no path of a local file"
        if self.folder is None and not Path(text).is_absolute():
            return None, "its path is relative to a manifest that is not on this machine"
        return str(((self.folder or Path()) / text).absolute()), None


def _kind(value: JSON) -> tuple[MediaKind | None, str | None]:
    """What a kind cell says, and the problem with it."""
    if value is None or value == "":
        return None, None
    said = value.strip().casefold() if isinstance(value, str) else ""
    for kind in MEDIA_KINDS:
        if said == kind:
            return kind, None
    if isinstance(value, str) and not said:
        return None, None
    return None, f"its kind is {value!r}, which is neither image nor video"


def _own_id(value: JSON) -> str:
    """The text of an id cell; empty when it holds none."""
    return "" if value is None else str(value).strip()


def observe_types(types: dict[str, str], extra: Iterable[str], cells: Mapping[str, JSON]) -> None:
    """Widen `types`, in place, so that they hold the values of the `extra` columns of one more row.

    Names: `bool`, `int64`, `double`, `string`, `json` for lists and objects, and `null` as long as a column held
    nothing else.
    """
    for name in extra:
        value = cells[name]
        if value is None:
            types.setdefault(name, "null")
        elif types.get(name) != (seen := _type_name(value)):
            types[name] = widen(types.get(name), seen)


def widen(known: str | None, seen: str) -> str:
    """The narrowest type that holds values of both types without changing them."""
    if known is None or known in {"null", seen}:
        return seen
    if {known, seen} == {"int64", "double"}:
        return "double"
    return "json" if "json" in {known, seen} else "string"


def _type_name(value: JSON) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if value in _INT64 else "string"
    if isinstance(value, float):
        return "double"
    return "string" if isinstance(value, str) else "json"
