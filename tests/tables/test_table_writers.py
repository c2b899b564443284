"""Answers are decoded and written in batches of limited size."""

from __future__ import annotations

import tracemalloc

import orjson
import pytest

from lightmeter.facts.flatten import AnswerContext, ItemRef
from lightmeter.tables import TABLES
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.dataset import open_parts
from lightmeter.tables.parts import read_batches
from lightmeter.tables.table_writers import open_table_writers

TAGS = 50
CONTEXT = AnswerContext("run", "req", None, None)


def shared_answer(score) -> bytes:
    """An answer about one picture, and an error; a score of another type than a number is decoded leniently."""
    tags = {f"tag{n}": [{"name": f"tag{n}", "score": score, "source": "googlevision"}] for n in range(TAGS)}
    return orjson.dumps({"all": {"assets": [{"name": "u", "tags": tags}], "errors": ["clarifai: busy"]}})


def write_answer(folder, raw: bytes, items: list[ItemRef]) -> int:
    """Write one answer about many manifest rows to tables; return the most bytes of Python objects at a time."""
    folder.mkdir()
    with open_parts(folder, 0, {table: schema(table) for table in TABLES}, {}) as parts:
        tracemalloc.start()
        try:
            with open_table_writers(parts) as writers:
                writers.add_answer(raw, items, CONTEXT)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        for part in parts.values():
            part.close()
    return peak


@pytest.mark.parametrize("score", [0.95, "0.95"])
def test_memory_does_not_grow_with_the_duplicates_of_a_picture(tmp_path, score):
    """Four times as many rows with the same picture take no more memory; each has all facts, and errors stand once."""
    items = [ItemRef(f"item{n}", "u", 0) for n in range(4800)]
    raw = shared_answer(score)
    write_answer(tmp_path / "first", raw, items[:1])  # Arrow imports more modules with its first arrays
    few = write_answer(tmp_path / "few", raw, items[:1200])
    many = write_answer(tmp_path / "many", raw, items)
    assert many < 1.5 * few

    def column(table, name):
        (path,) = (tmp_path / "many" / table).glob("*.parquet")
        return [value for batch in read_batches(path) for value in batch.column(name).to_pylist()]

    assert column("tags", "item_id") == [item.item_id for item in items for _ in range(TAGS)]
    assert column("tags", "name") == [f"tag{n}" for n in range(TAGS)] * len(items)
    assert column("errors", "message") == ["clarifai: busy"]
