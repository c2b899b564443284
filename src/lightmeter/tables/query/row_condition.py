"""Validates SQL conditions over the tables of a run that select items (manifest rows), such as `nsfw.severity > .5`.

A condition names a table before each column. An item matches if the condition holds for at least one combination of
its rows in `assets` and in the tables that the condition names. If the item has no row in a table, the columns of that
table are null. Examples:

- `nsfw.severity BETWEEN .1 AND .9`: at least one label of one frame has a severity in this range.
- `tags.name IN ('dog', 'cat') AND tags.score > .95`: at least one tag is `dog` or `cat` with a score above .95.
- `NOT EXISTS (SELECT 1 FROM faces WHERE faces.item_id = assets.item_id)`: the item has no face.

The known columns are those of the data dictionary; columns copied from the manifest are unknown here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from lightmeter.errors import SettingsError, UsageError
from lightmeter.facts.columns import ITEMS
from lightmeter.tables.arrow.schema import ALL_TABLES, schema
from lightmeter.tables.query.duckdb_query import QuerySession
from lightmeter.tempdirs import LockedTempDir

_TABLES: Final = tuple(table for table in ALL_TABLES if table != ITEMS)
"""The tables that a condition may name; `items` is made from them at the end of a run."""

_EXAMPLE: Final = (
    "Write the table before each column, and texts in single quotes: tags.name = 'dog' AND tags.score > .95, or "
    "nsfw.severity BETWEEN .1 AND .9"
)


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A valid SQL condition that selects items (manifest rows).

    Attributes:
        sql: The condition.
        joined: The tables whose columns the condition uses outside of subqueries, except `assets`.
        tables: All tables that the condition reads, except `assets`.
    """

    sql: str
    joined: tuple[str, ...]
    tables: tuple[str, ...]

    @property
    def query(self) -> str:
        """SQL query with one row for each item with the status `ok`: its `item_id`, and `matches` (true or false)."""
        return (
            f"SELECT item_id, coalesce(bool_or(matches), false) AS matches FROM ({self.rows_query}) "  # noqa: S608 (this is the user's own query)
            "GROUP BY item_id"
        )

    @property
    def rows_query(self) -> str:
        """SQL query with the columns `item_id` and `matches` (true, false or null), for items with the status `ok`.

        The result has one row for each combination of an item's rows in the tables `joined`, not one for each item.
        """
        joins = " ".join(f"LEFT JOIN {table} ON {table}.item_id = assets.item_id" for table in self.joined)
        return f"SELECT assets.item_id, (\n{self.sql}\n) AS matches FROM assets {joins} WHERE assets.status = 'ok'"  # noqa: S608 (likewise)


def parse_condition(sql: str, name: str) -> RowCondition:
    """Return the condition `sql` as an object if it is valid for the columns of the tables; read no table.

    Args:
        sql: The condition.
        name: Name of the option that holds the condition, for messages.

    Raises:
        SettingsError: it is not a condition, or reads a column that no table has; the message says what is wrong.
    """
    if not sql.strip():
        raise SettingsError(f"{name}: the condition is empty.")
    expression: dict[str, Any] = {}
    with LockedTempDir() as empty, QuerySession(empty.path) as session:
        try:
            expression = _parse(session, sql)
            joined = tuple(
                sorted({names[0].lower() for names in _columns(expression) if names[1:]} & set(_TABLES) - {"assets"})
            )
            read = tuple(sorted({*joined, *_subquery_tables(expression)} - {"assets"}))
            condition = RowCondition(sql, joined, read)
            types = session.ask(f"DESCRIBE {condition.rows_query}").column("column_type").to_pylist()
            if types[1] == "BOOLEAN":
                session.ask(condition.query)
        except UsageError as error:
            text = next(_column_problems(expression), None)
            if text is None:
                said = str(error).removeprefix("the query cannot be answered: ")
                text = re.split(r"\s+(?:LINE \d|Candidate|Did you mean)", said)[0].rstrip(". ")
            raise SettingsError(f"{name}: {text}.", hint=_EXAMPLE) from error
    if types[1] != "BOOLEAN":
        raise SettingsError(f"{name}: it is a value of type {types[1]}, not a condition.")
    return condition


def _parse(session: QuerySession, sql: str) -> dict[str, Any]:
    """Return the syntax tree of a condition; raise UsageError if `sql` is not exactly one expression.

    The DuckDB of `session` parses the text; no table is read.
    """
    query = f"SELECT 1 WHERE (\n{sql}\n)"
    text = session.ask("SELECT json_serialize_sql($query::VARCHAR) AS tree", {"query": query}).column("tree")[0]
    tree: dict[str, Any] = json.loads(text.as_py())
    if tree["error"]:
        raise UsageError(tree["error_message"])
    statements = tree["statements"]
    node = statements[0]["node"]
    if len(statements) != 1 or node["type"] != "SELECT_NODE" or node["where_clause"] is None or _has_more(node):
        raise UsageError("it is more than one condition")
    condition: dict[str, Any] = node["where_clause"]
    return condition


def _has_more(node: dict[str, Any]) -> bool:
    """Return whether a query has clauses after WHERE, which means that the user's text was not just a condition.

    `node` is the query's SELECT in DuckDB's syntax tree.
    """
    return bool(node["modifiers"] or node["group_expressions"] or node["having"] or node["qualify"])


def _columns(tree: Any) -> Iterator[list[str]]:
    """Yield the parts of each column's name (`nsfw`, `severity`) in a syntax tree, except in subqueries."""
    if isinstance(tree, list):
        for part in tree:
            yield from _columns(part)
    elif isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield tree["column_names"]
        for name, part in tree.items():
            if name != "subquery":
                yield from _columns(part)


def _column_problems(tree: Any) -> Iterator[str]:
    """Yield an error message for each column in a syntax tree that is named without its table, or does not exist.

    Columns in subqueries are not checked.
    """
    for names in _columns(tree):
        if len(names) == 1:
            yield f"{names[0]} is neither a column with its table before it nor a text in single quotes"
        elif names[0].lower() not in _TABLES:
            yield f"there is no table {names[0]}; the tables are {', '.join(_TABLES)}"
        elif names[1].lower() not in (known := schema(names[0].lower()).names):
            yield f"{names[0]} has no column {names[1]}; its columns are {', '.join(known)}"


def _subquery_tables(tree: Any) -> Iterator[str]:
    """Yield, in lower case, the names of the tables that subqueries in a syntax tree read."""
    if isinstance(tree, list):
        for part in tree:
            yield from _subquery_tables(part)
    elif isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE":
            yield tree["table_name"].lower()
        for part in tree.values():
            yield from _subquery_tables(part)
