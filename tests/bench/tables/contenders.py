"""Ways to make Parquet of answers, one for each process: `python contenders.py NAME ANSWERS.ndjson FOLDER`.

Prints one JSON object: seconds (imports left out), processor time of its processes, rows and bytes written.

DuckDB does the same work: all columns of the contract, with our values (`test_flatten_speed.py` compares them), from
SQL told the shape beforehand; it names each different colour once and keeps all answers in memory. The other peers do
less: they write a row for each entry with its item and URL, but no run, `severity`, `css_name`, `is_full_text`, faces'
boxes and emotions, or `raw`, and take polygons as they come. Only ours would take answers of any other shape.
"""

# ruff: noqa: PLC0415 (each contender imports its own libraries only: what others import is not its memory)

# ruff: noqa: T201 (it is a script: it prints what it measured)

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHUNK = 1000
FIELDS = {
    "tags": ("name", "score", "source"),
    "colors": ("hex", "score", "pixel_fraction", "red", "green", "blue", "source"),
    "nsfw": ("label", "score", "likelihood", "source"),
    "descriptions": ("description", "source"),
    "texts": ("text", "bounding_poly", "source"),
    "brands": ("name", "score", "source"),
    "faces": ("bounding_poly", "joy_likelihood", "source"),
}


def lines(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=2**20) as file:
        yield from file


def chunks(path: Path) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    for line in lines(path):
        chunk.append(line)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def records(answers: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Entries of each feature with the answer's id: what each peer that cannot read open-ended keys is given."""
    tables: dict[str, list[dict[str, Any]]] = {table: [] for table in FIELDS}
    for answer in answers:
        asset, item = answer["all"]["assets"][0], answer["request_id"]
        for table, rows in tables.items():
            entries = asset[table]
            groups = entries.values() if isinstance(entries, dict) else (entries,)
            rows.extend({"item_id": item, "url": asset["name"], **entry} for group in groups for entry in group)
    return tables


class Parts:
    """One Parquet file a table, written chunk by chunk."""

    def __init__(self, folder: Path) -> None:
        import pyarrow.parquet as pq

        self._make, self._folder, self._open, self.rows = pq.ParquetWriter, folder, {}, 0

    def write(self, table: str, rows: Any) -> None:
        if table not in self._open:
            self._open[table] = self._make(self._folder / f"{table}.parquet", rows.schema, compression="zstd")
        self._open[table].write_table(rows)
        self.rows += rows.num_rows

    def close(self) -> int:
        for file in self._open.values():
            file.close()
        return self.rows


def lightmeter(source: Path, folder: Path, processes: int = 1) -> Callable[[], int]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    import pyarrow as pa

    from lightmeter.tables import Dataset
    from lightmeter.tables.table_writers import TableWriters

    assert TableWriters  # imported before the clock starts
    pa.array([""])  # the first list that becomes an array imports pandas

    def work() -> int:
        dataset = Dataset(folder)
        with dataset.locked(), dataset.staging() as staging:
            shards = [(source, staging, number, processes) for number in range(processes)]
            if processes == 1:
                export_lines(shards[0])
            else:
                with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
                    list(pool.map(export_lines, shards))
            dataset.publish(staging)
        return sum(part.rows for table in dataset.tables() for part in dataset.describe(table))

    return work


def two_processes(source: Path, folder: Path) -> Callable[[], int]:
    return lightmeter(source, folder, 2)


def export_lines(shard: tuple[Path, Path, int, int]) -> None:
    """Write one of several equal pieces of the answers as a part of every table."""
    from lightmeter.facts.flatten import AnswerContext, ItemRef
    from lightmeter.tables import TABLES
    from lightmeter.tables.arrow.schema import schema
    from lightmeter.tables.dataset import open_parts
    from lightmeter.tables.table_writers import open_table_writers

    source, staging, number, pieces = shard
    size = source.stat().st_size
    first, last = size * number // pieces, size * (number + 1) // pieces
    with (
        open_parts(staging, number, {table: schema(table) for table in TABLES}, {}) as parts,
        source.open("rb", buffering=2**20) as file,
    ):
        if first:
            file.seek(first - 1)
            file.readline()  # a line belongs to the piece it begins in
        place = file.tell()
        with open_table_writers(parts) as writers:
            while place < last:
                line = file.readline()
                place += len(line)  # to ask the file each time would be a system call for each answer
                request_id = line[15 : line.index(b'"', 15)].decode()
                item = ItemRef(
                    request_id, f"https://pictures.example.com/collection/{int(request_id[1:]) % 2000}.jpg", 0
                )
                writers.add_answer(line, [item], AnswerContext("run", request_id, "general", "English"))
        for part in parts.values():
            part.close()


def json_normalize(source: Path, folder: Path) -> Callable[[], int]:
    import orjson
    import pandas as pd
    import pyarrow as pa

    def work() -> int:
        parts = Parts(folder)
        for chunk in chunks(source):
            for table, rows in records([orjson.loads(line) for line in chunk]).items():
                parts.write(table, pa.Table.from_pandas(pd.json_normalize(rows), preserve_index=False))
        return parts.close()

    return work


def pydantic_loop(source: Path, folder: Path) -> Callable[[], int]:
    import pyarrow as pa
    from pydantic import BaseModel, create_model

    kinds = {"score": float, "pixel_fraction": float, "red": int, "green": int, "blue": int}
    kinds["bounding_poly"] = dict[str, list[dict[str, float]]]
    models: dict[str, Any] = {
        table: create_model(table, **{name: (kinds.get(name, str) | None, None) for name in names})
        for table, names in FIELDS.items()
    }
    keyed = {"tags", "colors"}
    shapes = {table: dict[str, list[of]] if table in keyed else list[of] for table, of in models.items()}
    asset_model = create_model("Asset", name=(str, ...), **{table: (of, ...) for table, of in shapes.items()})
    results = create_model("Results", assets=(list[asset_model], ...))

    class Answer(BaseModel):
        request_id: str
        all: results

    def work() -> int:
        parts = Parts(folder)
        for chunk in chunks(source):
            columns = {table: {name: [] for name in ("item_id", "url", *names)} for table, names in FIELDS.items()}
            for answer in map(Answer.model_validate_json, chunk):
                asset = answer.all.assets[0]
                for table, names in FIELDS.items():
                    entries, into = getattr(asset, table), columns[table]
                    for group in entries.values() if isinstance(entries, dict) else (entries,):
                        for entry in group:
                            into["item_id"].append(answer.request_id)
                            into["url"].append(asset.name)
                            for name in names:
                                into[name].append(getattr(entry, name))
            for table, into in columns.items():
                parts.write(table, pa.table(into))
        return parts.close()

    return work


def polars(source: Path, folder: Path) -> Callable[[], int]:
    import orjson
    import polars as pl

    def work() -> int:
        parts = Parts(folder)
        for chunk in chunks(source):
            for table, rows in records([orjson.loads(line) for line in chunk]).items():
                parts.write(table, pl.from_dicts(rows, infer_schema_length=100).to_arrow())
        return parts.close()

    return work


def duckdb(source: Path, folder: Path) -> Callable[[], int]:
    import duckdb as db

    from tests.bench.tables.duckdb_tables import css_colors, write_tables

    colors = css_colors()

    def work() -> int:
        with db.connect(":memory:") as connection:
            return write_tables(connection, source, folder, colors)

    return work


def parse_alone(source: Path, _: Path) -> Callable[[], int]:
    import orjson

    def work() -> int:
        from tests.bench.tables.answers import ROWS_EACH

        return sum(ROWS_EACH for line in lines(source) if orjson.loads(line))

    return work


def finished_tables(source: Path, group: int) -> dict[str, Any]:
    """Return the tables of the first `group` answers, in the types of their schemas."""
    from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
    from tests.facts.fact_rows import fact_tables

    flattener = Flattener()
    for place, line in zip(range(group), lines(source), strict=False):
        item = ItemRef(f"r{place}", f"https://pictures.example.com/collection/{place}.jpg", 0)
        flattener.add_answer(line, [item], AnswerContext("run", f"r{place}", "general", "English"))
    return fact_tables(flattener)


def build_alone(source: Path, _: Path) -> Callable[[], int]:
    """Make Arrow arrays of Python lists that exist: only the columns of numbers and texts that answers state."""
    import pyarrow as pa

    from lightmeter.facts.columns import CSS_NAME
    from lightmeter.facts.fact_columns import ROW_KEY_COLUMNS

    total, group = sum(1 for _ in lines(source)), 500
    tables = finished_tables(source, min(group, total))
    columns = [
        (table.column(field.name).to_pylist(), field.type)
        for table in tables.values()
        for field in table.schema
        if field.name not in {*ROW_KEY_COLUMNS, CSS_NAME, "raw"} and not pa.types.is_nested(field.type)
    ]

    def work() -> int:
        for _ in range(max(1, total // group)):
            for values, arrow_type in columns:
                pa.array(values, arrow_type)
        return sum(table.num_rows for table in tables.values()) * max(1, total // group)

    return work


def write_alone(source: Path, folder: Path) -> Callable[[], int]:
    import pyarrow.parquet as pq

    total, group = sum(1 for _ in lines(source)), 2500
    tables = finished_tables(source, min(group, total))

    def work() -> int:
        rows = 0
        for table, part in tables.items():
            with pq.ParquetWriter(folder / f"{table}.parquet", part.schema, compression="zstd") as file:
                for _ in range(max(1, total // group)):
                    file.write_table(part)
                    rows += part.num_rows
        return rows

    return work


CONTENDERS = {
    "lightmeter": lightmeter,
    "lightmeter (2 processes)": two_processes,
    "pandas.json_normalize": json_normalize,
    "pydantic loop": pydantic_loop,
    "DuckDB read_json": duckdb,
    "Polars": polars,
    "floor: JSON parse": parse_alone,
    "floor: Arrow arrays": build_alone,
    "floor: Parquet write": write_alone,
}


def cpu_now() -> float:
    """Processor time of this process and of those that it has started and that have ended, in seconds."""
    return sum(os.times()[:4])


def main(name: str, source: Path, folder: Path) -> None:
    work = CONTENDERS[name](source, folder)
    began, cpu_began = time.perf_counter(), cpu_now()
    rows = work()
    seconds, cpu_s = time.perf_counter() - began, cpu_now() - cpu_began
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "rows": rows, "size_bytes": size}))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[3]))  # the checkout: some contenders import from `tests`
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
