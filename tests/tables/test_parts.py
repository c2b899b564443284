"""A part has the same contents whether its rows came dictionary-encoded or not."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.parts import PartWriter

WORDS = ["sky", "sea", None, "sky", "ü" * 9]


def spelled(words):
    """Return a table of tags with these words as item and name."""
    other = {field.name: pa.nulls(len(words), field.type) for field in schema("tags")}
    return pa.table(other | {"item_id": pa.array(words), "name": pa.array(words)}, schema=schema("tags"))


def as_dictionaries(table):
    """The same rows, with item and name as dictionaries."""
    for name in ("item_id", "name"):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(name).dictionary_encode())
    return table


def written(path, groups):
    """Write a part of these tables, and return the schema, footer and rows that a reader finds."""
    writer = PartWriter(path, schema("tags"), {"run": 1})
    for group in groups:
        writer.write(group)
        writer.flush()
    writer.close()
    with pq.ParquetFile(path) as file:
        fields = [(field.name, field.type, field.metadata) for field in file.schema_arrow]
        return fields, file.metadata.metadata, file.schema_arrow.metadata, file.read().to_pydict()


MANY = [f"{place:0100d}" for place in range(30_000)]  # more than a dictionary page holds


@pytest.mark.parametrize("words", [WORDS, [], MANY], ids=["few", "none", "many"])
@pytest.mark.parametrize("first", [spelled, lambda words: as_dictionaries(spelled(words))], ids=["texts", "dictionary"])
def test_dictionaries_leave_no_trace(tmp_path, words, first):
    """Types, descriptions, lineage and rows are those of texts, whichever form the first and later ones have."""
    other = [spelled(["more"]), as_dictionaries(spelled(["less", None]))]
    plain = written(tmp_path / "plain.parquet", [spelled(words), spelled(["more"]), spelled(["less", None])])
    assert written(tmp_path / "mixed.parquet", [first(words), *other]) == plain
    assert plain[0][0][:2] == ("item_id", pa.string())
    assert plain[0][0][2][b"description"]


def test_a_part_without_rows_is_a_part(tmp_path):
    """A part without rows has its schema."""
    fields, footer, _, rows = written(tmp_path / "empty.parquet", [])
    assert [name for name, *_ in fields] == schema("tags").names
    assert b"lightmeter.lineage" in footer
    assert not rows["name"]
