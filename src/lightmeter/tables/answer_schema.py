"""The table of answers to the user's question: its name, and the Arrow types of its columns."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from lightmeter.ask.json_schema import ListOf, Scalar, ValueType
from lightmeter.ask.question import Ask
from lightmeter.facts.columns import KEY_COLUMNS, ColumnSpec
from lightmeter.tables.schema import ARROW_TYPES, SCHEMA_VERSION, VERSION_KEY

__all__ = ["ANSWERS_PREFIX", "ANSWER_COLUMNS", "answers_schema", "arrow_type", "table_name"]

ANSWERS_PREFIX: Final = "answers_"
"""Prefix of the names of such tables."""

_SOURCE: Final = ColumnSpec("source", "string", "The back end that answered.", "no answer, or it is not said")

_AFTER: Final = (
    ColumnSpec(
        "error", "string", "Why there is no valid answer, and what became of asking again.", "the answer is valid"
    ),
    ColumnSpec(
        "raw", "string", "The text as it was answered, where it is not valid.", "the answer is valid, or none came"
    ),
)

ANSWER_COLUMNS: Final = (_SOURCE, *_AFTER)
"""The columns beside `KEY_COLUMNS` that are not the question's own: those stand between `source` and `error`."""

_SCALARS: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}


def table_name(ask: Ask) -> str:
    """Return the name of the table of a question."""
    return f"{ANSWERS_PREFIX}{ask.name}"


def arrow_type(of: ValueType) -> pa.DataType:
    """Return the Arrow type of a value of the question's schema."""
    if isinstance(of, Scalar):
        return _SCALARS[of.kind]
    if isinstance(of, ListOf):
        return pa.list_(arrow_type(of.item))
    return pa.struct([pa.field(one.name, arrow_type(one.type)) for one in of.properties])


def answers_schema(ask: Ask) -> pa.Schema:
    """Return the schema of a question's table.

    Its columns: `KEY_COLUMNS`, `source`, one for each property at the top, `error`, `raw`.
    """
    own = [
        pa.field(one.name, arrow_type(one.type), metadata=_described(one.description, "not answered", "-"))
        for one in ask.properties
    ]
    fields = [*map(_field, (*KEY_COLUMNS, _SOURCE)), *own, *map(_field, _AFTER)]
    metadata: dict[bytes | str, bytes | str] = {
        VERSION_KEY: str(SCHEMA_VERSION).encode(),
        b"lightmeter.table": table_name(ask).encode(),
        b"lightmeter.prompt": ask.prompt.encode("utf-8", "replace"),
    }
    return pa.schema(fields, metadata=metadata)


def _field(column: ColumnSpec) -> pa.Field[Any]:
    return pa.field(
        column.name, ARROW_TYPES[column.kind], metadata=_described(column.description, column.null, column.unit)
    )


def _described(description: str, null: str, unit: str) -> dict[str, str]:
    return {"description": description.encode("utf-8", "replace").decode(), "unit": unit, "null": null}
