"""Tables in Polars, by way of Arrow: what is shared and what is not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from tests.tables.replace_table import replace_tables

pl = pytest.importorskip("polars")

COLORS = schema("colors")
LONG = "https://pictures.example/with/an/address/longer/than/a/view/holds.jpg"
ROWS = 1000


@pytest.fixture
def colors(tmp_path):
    """A table of several parts, as it is read."""
    dataset = Dataset(tmp_path)
    for run in "ab":
        columns = {field.name: pa.nulls(ROWS, field.type) for field in COLORS}
        columns |= {
            "url": pa.array([LONG] * ROWS),
            "frame": pa.array([None, *range(1, ROWS)], pa.int32()),
            "score": pa.array([place / ROWS for place in range(ROWS)]),
            "red": pa.array([place % 256 for place in range(ROWS)], pa.uint8()),
        }
        with replace_tables(dataset, {"colors": COLORS}, {"runs": {run: ""}}, keep_others=True) as writers:
            writers["colors"].write(pa.table(columns, schema=COLORS))
    return dataset.read("colors")


def places(column: pa.ChunkedArray) -> list[list[int | None]]:
    """Where the buffers of a column's chunks are in memory."""
    return [[buffer and buffer.address for buffer in chunk.buffers()] for chunk in column.chunks]


@pytest.mark.parametrize("name", ["frame", "score", "red"])
def test_numbers_are_shared_there_and_back(colors, name):
    """Polars holds the very buffers that Arrow read, chunk by chunk, and gives them back."""
    frame = pl.from_arrow(colors, rechunk=False)
    back = frame.to_arrow()[name]
    assert len(back.chunks) == 2
    assert [chunk[-1] for chunk in places(back)] == [chunk[-1] for chunk in places(colors[name])]
    assert back.equals(colors[name])


def test_texts_stay_where_they_are_and_get_views(colors):
    """Polars makes 16 bytes for each text, which point into the buffer that Arrow read; long texts are not copied."""
    frame = pl.from_arrow(colors, rechunk=False)
    texts = frame.to_arrow(compat_level=pl.CompatLevel.newest())["url"]
    assert texts.type == pa.string_view()
    for ours, theirs in zip(colors["url"].chunks, texts.chunks, strict=True):
        *_, read = ours.buffers()
        assert all(read.address <= buffer.address < read.address + read.size for buffer in theirs.buffers()[2:])
    assert texts.to_pylist() == colors["url"].to_pylist()
