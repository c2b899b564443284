"""Defines the name and the Arrow schema of a table of answers.

Such a table, `answers_<name>`, holds the answers to a question that the user asks about each image or video (`--ask`).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lightmeter.ask.json_schema import ListOf, Scalar, ValueType
from lightmeter.ask.question import Ask
from lightmeter.facts.columns import KEY_COLUMNS, ColumnSpec
from lightmeter.tables.arrow.schema import field_of, schema_metadata

ANSWERS_PREFIX: Final = "answers_"
"""Prefix of the name of each table with the answers to a user's question."""

_SOURCE: Final = ColumnSpec("source", "string", "The back end that answered.", "no answer, or it is not said")

_ERROR_COLUMNS: Final = (
    ColumnSpec(
        "error", "string", "Why there is no valid answer, and what became of asking again.", "the answer is valid"
    ),
    ColumnSpec(
        "raw", "string", "The text as it was answered, where it is not valid.", "the answer is valid, or none came"
    ),
)

ANSWER_COLUMNS: Final = (_SOURCE, *_ERROR_COLUMNS)
"""Columns of every table of answers besides `KEY_COLUMNS` and the columns that the question's JSON schema defines.

The question's columns come between `source` and `error`.
"""

_SCALAR_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}


def table_name(ask: Ask) -> str:
    """Return `answers_<name of the question>`, the table that holds the answers to the user's question (`--ask`)."""
    return f"{ANSWERS_PREFIX}{ask.name}"


def arrow_type(value_type: ValueType) -> pa.DataType:
    """Return the Arrow type of a column for a type in the JSON schema of the answers to the user's question."""
    if isinstance(value_type, Scalar):
        return _SCALAR_TYPES[value_type.kind]
    if isinstance(value_type, ListOf):
        return pa.list_(arrow_type(value_type.item))
    return pa.struct([pa.field(prop.name, arrow_type(prop.type)) for prop in value_type.properties])


def answers_schema(ask: Ask) -> pa.Schema:
    """Return the Arrow schema of the table that holds the answers to the user's question (`--ask`).

    Its columns are, in this order: `KEY_COLUMNS` (such as `item_id`), `source` (the back end), one for each top-level
    property that the question's JSON schema asks for, `error`, and `raw` (the text of an invalid answer).
    """
    question_fields = [
        pa.field(
            prop.name,
            arrow_type(prop.type),
            metadata={
                "description": prop.description.encode("utf-8", "replace").decode(),
                "unit": "-",
                "null": "not answered",
            },
        )
        for prop in ask.properties
    ]
    fields = [*map(field_of, (*KEY_COLUMNS, _SOURCE)), *question_fields, *map(field_of, _ERROR_COLUMNS)]
    prompt = ask.prompt.encode("utf-8", "replace")
    return pa.schema(fields, metadata={**schema_metadata(table_name(ask)), b"lightmeter.prompt": prompt})
