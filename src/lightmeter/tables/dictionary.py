"""The data dictionary: a Markdown description of every column of every table.

`python -m lightmeter.tables.dictionary README.md` writes the description into `README.md`, between the marker lines
`START` and `END`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from lightmeter import atomic
from lightmeter.errors import UsageError
from lightmeter.facts.columns import KEY_COLUMNS, TABLE_COLUMNS, ColumnSpec
from lightmeter.tables.arrow.answer_schema import ANSWER_COLUMNS
from lightmeter.tables.arrow.schema import ARROW_TYPES, SCHEMA_VERSION

START: Final = "<!-- dictionary:start -->\n"
END: Final = "<!-- dictionary:end -->"

_HEAD: Final = "| column | type | meaning | unit | null when |\n|---|---|---|---|---|\n"
_FIELD_NAME: Final = re.compile(r"\b(element|item|key|value): ")  # in Arrow's names of lists and maps


def dictionary() -> str:
    """Return the data dictionary as Markdown: the columns of every table, then a collapsible section for each table."""
    parts = [
        f"Schema version {SCHEMA_VERSION}. Files carry the same words in each field's Parquet metadata.\n",
        _table("every table", KEY_COLUMNS),
        *(_table(name, columns) for name, columns in TABLE_COLUMNS.items()),
        _table("answers_NAME", ANSWER_COLUMNS),
    ]
    return "\n".join(parts)


def with_dictionary(text: str) -> str:
    """Return the Markdown text `text` with the current data dictionary between its lines `START` and `END`.

    Raises:
        UsageError: The text lacks one of these lines.
    """
    before, mark, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise UsageError("The text has no marks for the dictionary.", hint=f"They are {START.strip()} and {END}")
    return f"{before}{START}{dictionary()}{END}{after}"


def _table(name: str, columns: tuple[ColumnSpec, ...]) -> str:
    rows = ""
    for column in columns:
        arrow_type = _FIELD_NAME.sub("", str(ARROW_TYPES[column.kind]))
        cells = map(_cell, (f"`{column.name}`", arrow_type, column.description, column.unit, column.null))
        rows += f"| {' | '.join(cells)} |\n"
    return f"<details><summary><b>{name}</b>: {len(columns)} columns</summary>\n\n{_HEAD}{rows}\n</details>\n"


def _cell(text: str) -> str:
    """Return a text, escaped for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        atomic.write_text(path, with_dictionary(path.read_text(encoding="utf-8")))
