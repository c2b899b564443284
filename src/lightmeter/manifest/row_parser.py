"""Converts the cells of a row to an item by the names of its columns. No I/O.

Four column names have a role, in upper or lower case: `url`, `path`, `id` and `kind`. If two columns match one role
(`URL` and `url`), the first column has it. All columns without a role are extra columns. `ReadOptions` can give roles
to columns of other names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from lightmeter.errors import ManifestError
from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.manifest.item import JSON, MEDIA_KINDS, Item, MediaKind, stable_id
from lightmeter.manifest.json_values import TOO_DEEP, is_too_deep, plain_text, plain_value

LARGEST_EXACT: Final = 2**53
"""The largest integer up to which a `double` holds every integer."""

_LOCAL_FILES: Final = "; local files need a table with the column `path`, such as CSV with the header `path`"


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row of a manifest before it is parsed.

    Attributes:
        cells: Column → value.
        problem: Why the row cannot be analyzed, such as broken JSON; None if no problem is known yet.
        stored_path: For a file in a tar, the value for the field `path` of the item, which no cell holds; else None.
        cell_notes: Column → what its value is, such as `json_values.NOT_TEXT`, for cells that are odd or are not read
            as they stand in the manifest. A row with such a URL or path is not analyzed.
    """

    cells: Mapping[str, JSON]
    problem: str | None = None
    stored_path: str | None = None
    cell_notes: Mapping[str, str] = field(default_factory=dict)


def storable_row(cells: Mapping[str, JSON], cell_notes: Mapping[str, str] = MappingProxyType({})) -> RawRow:
    """Return a row with these cells and notes; a cell that is nested too deeply to be stored becomes null."""
    deep = [name for name, value in cells.items() if isinstance(value, (list, dict)) and is_too_deep(value)]
    if not deep:
        return RawRow(cells, cell_notes=cell_notes)
    return RawRow({**cells, **dict.fromkeys(deep)}, cell_notes={**cell_notes, **dict.fromkeys(deep, TOO_DEEP)})


def plain_row(cells: Mapping[Any, Any]) -> RawRow:
    """Return the row with these cells, converted to JSON; a cell that JSON lacks becomes null or a text with `?`."""
    kept: dict[str, JSON] = {}
    notes: dict[str, str] = {}
    for name, value in cells.items():
        column, reasons = plain_text(name, []), list[str]()
        try:
            kept[column] = plain_value(value, reasons)
        except RecursionError:
            kept[column], reasons = None, [TOO_DEEP]
        if reasons:
            notes[column] = reasons[0]
    return storable_row(kept, notes)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading a manifest.

    Attributes:
        url_column: Column that names what to analyze, in place of `url` and `path`. A value with a scheme (`://`) is a
            URL, a value without is a path. Columns called `url` or `path` are then extra columns. None: not set.
        id_column: Column that holds the ids; None means the column `id`.
        kind_column: Column that holds the kinds (image or video); None means the column `kind`.
        lenient: What happens at a broken quote in CSV or TSV. If true, that record and all lines after it become one
            row with a problem. If false, an error is raised.
    """

    url_column: str | None = None
    id_column: str | None = None
    kind_column: str | None = None
    lenient: bool = False

    @property
    def named(self) -> dict[str, str]:
        """Role → column name that the user set for it: `{"url": "photo_link"}` if only `url_column` is set."""
        named = {"url": self.url_column, "id": self.id_column, "kind": self.kind_column}
        return {role: name for role, name in named.items() if name is not None}

    def first_missing_column(self, names: Iterable[str]) -> str | None:
        """Return the first column name that is set here, but that no column of the manifest has; None if there is none.

        The names are tried in the order `url_column`, `id_column`, `kind_column`. Case and outer white space do not
        matter. `names` are the manifest's columns.
        """
        available = list(names)
        return next((wanted for wanted in self.named.values() if _same_name(wanted, available) is None), None)


def named_columns(names: Iterable[str]) -> list[str]:
    """Return the names of the columns of a table; a column without a name is named by its place: `column_3`."""
    return [name if name.strip() else f"column_{place}" for place, name in enumerate(names, start=1)]


def missing_column(where: str, wanted: str, names: Iterable[str]) -> ManifestError:
    """Return the error for a column that the user named but the manifest lacks.

    Args:
        where: Name of the manifest, and the line if known.
        wanted: Name of the missing column.
        names: Names of the columns that exist.
    """
    listed = ", ".join(names)
    columns = f"its columns are {listed}" if listed else "it has no columns"
    return ManifestError(f"{where}: no column is named `{wanted}`; {columns}")


def _same_name(wanted: str, names: Iterable[str]) -> str | None:
    """Return the column named `wanted`, else the first that differs only in case or outer white space, else None."""
    available = list(names)
    if wanted in available:
        return wanted
    return next((name for name in available if name.strip().casefold() == wanted.strip().casefold()), None)


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """Which columns of a manifest hold the URL, the path, the id and the kind (image or video); None if no column does.

    If the user named a column of URLs, `url` and `path` are both that column: each of its values is a URL or a path.
    All columns without a role are in `extra`.
    """

    url: str | None
    path: str | None
    item_id: str | None
    kind: str | None
    extra: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether the manifest has a column of URLs or paths, without which no row can be analyzed."""
        return self.url is not None or self.path is not None


@lru_cache(maxsize=256)  # each row of JSON lines may have other columns
def column_roles(names: tuple[str, ...], options: ReadOptions) -> ColumnRoles:
    """Return which columns hold the URL, path, id and kind (image or video).

    `names` are all columns of a manifest. `options` may give a role to a column whose name does not show it.
    """
    found = {role: _same_name(wanted, names) for role, wanted in options.named.items()}
    if "url" in found:
        found["path"] = found["url"]
    taken, extra = set(found.values()), []
    for name in names:
        role = name.strip().casefold()
        if name in taken:
            continue
        if role in {"url", "path", "id", "kind"} and role not in found:
            found[role] = name
        else:
            extra.append(name)
    return ColumnRoles(found.get("url"), found.get("path"), found.get("id"), found.get("kind"), tuple(extra))


def make_item(seq: int, row: RawRow, folder: Path | None, options: ReadOptions) -> Item:
    """Return the item of one row; if a cell is invalid, the item's `problem` says so.

    Args:
        seq: Number of the row, from 0.
        row: The row.
        folder: Folder to which relative paths refer; None if the manifest is not on this machine.
        options: Names of the columns of URLs, ids and kinds (image or video).
    """
    roles = column_roles(tuple(row.cells), options)
    url, path, identity, problem = _target(roles, row.cells, folder)
    for name, note in row.cell_notes.items():
        if name in {roles.url, roles.path}:
            problem = f"its {name} is {note}"
    if row.stored_path is not None:
        path, problem = row.stored_path, None
    kind, kind_problem = _kind(row.cells.get(roles.kind) if roles.kind else None)
    id_cell = row.cells.get(roles.item_id) if roles.item_id else None
    own_id = "" if id_cell is None else str(id_cell).strip()
    is_sample_key = row.stored_path is not None and roles.item_id == "id"
    return Item(
        seq=seq,
        item_id=own_id or stable_id(identity or f"row {seq}"),
        url=url,
        path=path,
        kind=kind,
        extra={name: row.cells[name] for name in roles.extra},
        problem=row.problem or problem or kind_problem,
        has_own_id=bool(own_id) and not is_sample_key,
    )


def _target(
    roles: ColumnRoles, cells: Mapping[str, JSON], folder: Path | None
) -> tuple[str, str | None, str, str | None]:
    """Read the URL or path of a row; if it has both, the path is ignored.

    Args:
        roles: Which columns hold the URL and the path.
        cells: Column → value of the row.
        folder: Folder to which relative paths refer; None if the manifest is not on this machine.

    Returns:
        Four values: the URL or path as text; the absolute path of a local file, or None; the text from which
        `stable_id` makes the id; the problem, or None.
    """
    is_named = roles.url is not None and roles.url == roles.path
    url = cells.get(roles.url) if roles.url else None
    path = cells.get(roles.path) if roles.path else None
    for name, value in (("url", url), ("path", path)):
        if value is not None and not isinstance(value, str):
            return str(value), None, str(value), f"its {name} is {value!r}, which is no text"
    if isinstance(url, str) and (text := url.strip()) and not (is_named and "://" not in text):
        try:
            return text, None, canonical_url(text), None
        except ValueError as reason:
            return text, None, text, f"not a URL: {reason}{'' if '://' in text else _LOCAL_FILES}"
    if isinstance(path, str) and (text := path.strip()):
        local, problem = _local_path(text, folder)
        return text, local, Path(text).as_posix(), problem
    return "", None, "", "neither a URL nor a path"


def _local_path(text: str, folder: Path | None) -> tuple[str | None, str | None]:
    """Return (absolute path, None) for the text of a path cell; (None, reason) if it is not a local path.

    Relative paths refer to `folder`; None means that the manifest is not on this machine.
    """
    if "\0" in text or "://" in text:
        return None, "its path is no path of a local file"
    if folder is None and not Path(text).is_absolute():
        return None, "its path is relative to a manifest that is not on this machine"
    return str(((folder or Path()) / text).absolute()), None


def _kind(value: JSON) -> tuple[MediaKind | None, str | None]:
    """Return (image or video, None) for the cell `value`; (None, problem) if it is invalid; (None, None) if empty."""
    text = value.strip().casefold() if isinstance(value, str) else value
    for kind in MEDIA_KINDS:
        if text == kind:
            return kind, None
    if text is None or text == "":
        return None, None
    return None, f"its kind is {value!r}, which is neither image nor video"


def observe_types(types: dict[str, str], extra: Iterable[str], cells: Mapping[str, JSON]) -> None:
    """Adapt the column types in `types` to one more row: a value that does not fit widens its column's type.

    For example, a float changes `int64` to `double`. A type is `bool`, `int64`, `double`, `string`, `json` for lists
    and objects, `null` while all values are null, or `long`: 64-bit integers of which some are beyond 2^53, so that a
    `double` may change them. Beside a float, a `long` column becomes `string`.

    Args:
        types: Column → type for the rows so far; changed in place.
        extra: Names of the columns whose types are recorded.
        cells: Cells of the row.
    """
    for name in extra:
        known, observed = types.get(name, "null"), _type_name(cells[name])
        if observed in {"null", known}:
            types[name] = known
        elif known == "null":
            types[name] = observed
        elif {known, observed} in ({"int64", "double"}, {"int64", "long"}):
            types[name] = "double" if "double" in {known, observed} else "long"
        else:
            types[name] = "json" if "json" in {known, observed} else "string"


def _type_name(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if abs(value) <= LARGEST_EXACT else "long" if -(2**63) <= value < 2**63 else "string"
    if isinstance(value, float):
        return "double"
    return "string" if isinstance(value, str) else "json"
