"""Containers for rows of the tables `tags`, `colors` and so on, decoded from answers: a list for each column. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from lightmeter.facts.coerce import coerce_values
from lightmeter.facts.columns import FACT_TABLES, TABLE_COLUMNS
from lightmeter.facts.extract import DERIVED_COLUMNS

ROW_KEY_COLUMNS: Final = ("item_id", "url", "frame", "run_id", "role", "language")
"""Names of the columns whose values a `RowKey` holds, in the same order."""

RowKey: TypeAlias = tuple[str | None, str | None, int | None, str | None, str | None, str | None]
"""The values of `ROW_KEY_COLUMNS`, which are the same in all rows about one image or frame.

It is a plain tuple, because a named tuple would take ten times as long to create.
"""

ENTRY_COLUMNS: Final = {
    table: {
        column.name: "json" if column.name == "raw" else column.kind
        for column in TABLE_COLUMNS[table]
        if column.name not in DERIVED_COLUMNS[table]
    }
    for table in (*FACT_TABLES, "errors")
}
"""Table → the columns that are read from the entries of an answer → the type of the column.

The type is a `ColumnSpec.kind`, or `json` for the column `raw`, whose values are JSON text as UTF-8 bytes.
"""


@dataclass(slots=True)
class FactColumns:
    """Rows of one fact table, such as `tags`, to convert to Arrow: one Python list for each column.

    Attributes:
        table: Name of the table.
        keys: For each image or video frame that has rows, the position of its `RowKey` in `FactRows.keys`.
        counts: For each image or video frame in `keys`, its number of rows. The rows of a frame are consecutive.
        values: Column → one value for each row, of the column's type or None. A polygon is a sequence of corners;
            emotions are a list of (name, score) pairs.
    """

    table: str
    keys: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {name: [] for name in ENTRY_COLUMNS[self.table]}

    def extend(self, keys: Sequence[int], counts: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> None:
        """Append the rows of some images or video frames to this table.

        Args:
            keys: For each image or frame, the position of its `RowKey` in `FactRows.keys`.
            counts: For each image or frame, the number of its rows.
            columns: Column → one value for each row, of the column's type.
        """
        self.keys += keys
        self.counts += counts
        for name, values in self.values.items():
            values += columns[name]  # noqa: PLW2901 (appends in place)

    def extend_coerced(self, key: int, columns: Mapping[str, Sequence[Any]], count: int) -> None:
        """Append the rows of one image or frame; values that do not fit the type of their column become None.

        Args:
            key: Position of the `RowKey` of the image or frame in `FactRows.keys`.
            columns: Column → one value of any type for each row.
            count: Number of rows.
        """
        kinds = ENTRY_COLUMNS[self.table]
        self.extend([key], [count], {name: coerce_values(kind, columns[name]) for name, kind in kinds.items()})


class FactRows(NamedTuple):
    """Rows of all fact tables, such as `tags`, decoded from some answers.

    Attributes:
        keys: The `RowKey` (item id, URL, frame, …) of each image or video frame.
        tables: Table → its rows; tables without rows are left out.
    """

    keys: list[RowKey]
    tables: dict[str, FactColumns]
