"""Compaction: a reader that only lists and opens files sees the same rows at every instant."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lightmeter as lm
from lightmeter.errors import UsageError
from lightmeter.export.export_tables import export_tables
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.compaction import compact
from lightmeter.tables.swap_dirs import swap_dirs
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep
from tests.tables.replace_table import replace_tables

TAGS = schema("tags")
ROWS = 10
CYCLES = 40


def add(out: Path, run: str) -> None:
    """Add a part with `ROWS` rows of one run."""
    columns = {field.name: pa.nulls(ROWS, field.type) for field in TAGS}
    rows = pa.table({**columns, "run_id": pa.array([run] * ROWS)}, schema=TAGS)
    dataset = Dataset(out)
    with replace_tables(dataset, {"tags": TAGS}, {"runs": {run: run}}, keep_others=True) as writers:
        writers["tags"].write(rows)


def test_many_parts_become_one_with_the_same_rows_and_runs(tmp_path):
    """No row is added or lost, the runs of all parts stand in the footer, and a second compaction changes nothing."""
    for run in "abc":
        add(tmp_path, run)
    dataset = Dataset(tmp_path)
    before = dataset.read("tags")
    (result,) = [one for one in compact(dataset) if one.table == "tags"]
    assert (result.parts_before, result.parts_after, result.rows) == (3, 1, 3 * ROWS)
    assert dataset.read("tags").equals(before)
    (part,) = dataset.describe("tags")
    assert part.runs == {"a": "a", "b": "b", "c": "c"}
    assert pq.read_schema(part.path).metadata[b"lightmeter.table"] == b"tags"
    assert all(one.parts_before == one.parts_after for one in compact(dataset))
    assert dataset.parts("tags") == [part.path]


def test_parts_of_older_schemas_fit_together(tmp_path):
    """A part that lacks a column, as an older version wrote it, gets nulls there."""
    add(tmp_path, "a")
    dataset = Dataset(tmp_path)
    pq.write_table(pa.table({"item_id": ["old"]}), dataset.table_folder("tags") / "part-00001.parquet")
    compact(dataset)
    (path,) = dataset.parts("tags")
    assert pq.ParquetFile(path).read().column("item_id").to_pylist() == [None] * ROWS + ["old"]


def counted(folder: Path, rng: random.Random) -> int | None:
    """Return the rows of all parts, listed first and opened later in random order; None if one is gone by then."""
    listed = list(folder.glob("*.parquet"))
    rng.shuffle(listed)
    try:
        return sum(pq.ParquetFile(path).metadata.num_rows for path in listed)
    except FileNotFoundError:
        return None


def count_by_glob(folder: Path) -> int | None:
    """Return the same as `counted`, by DuckDB's own glob."""
    try:
        with duckdb.connect() as db:
            return len(db.read_parquet(f"{folder}/*.parquet"))
    except duckdb.IOException:
        return None


@contextmanager
def watched(look: Callable[[], int | None], batches: int = 0) -> Iterator[list[int]]:
    """Have `look` count batches all the time; yields how many are certainly there, and how many may be there."""
    there, done = [batches, batches], threading.Event()
    wrong, right = [], [0]

    def read():
        while not done.is_set() or not right[0]:
            least = there[0]
            rows = look()
            if rows is not None and not least * ROWS <= rows <= there[1] * ROWS:
                wrong.append((least, rows, there[1]))
            right[0] += rows is not None

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield there
    finally:
        done.set()
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("reader", ["listing", sweep("duckdb")])
def test_a_reader_that_lists_and_opens_never_counts_less_or_twice(tmp_path, reader):
    """While parts are added and merged, each count is one that was correct while the reader was reading."""
    folder = Dataset(tmp_path).table_folder("tags")
    add(tmp_path, "first")
    rng = random.Random(1)  # noqa: S311 (the same orders from run to run)
    with watched(lambda: counted(folder, rng) if reader == "listing" else count_by_glob(folder), batches=1) as there:
        for cycle in range(CYCLES):
            there[1] += 1
            add(tmp_path, f"run {cycle}")
            there[0] += 1
            if cycle % 2:
                compact(Dataset(tmp_path))


@pytest.mark.parametrize(
    ("reader", "cycles"),
    [
        ("listing", 2),
        sweep("listing", 6),
        sweep("duckdb", 6),
    ],
)
@pytest.mark.usefixtures("charges_at_once")
async def test_a_reader_counts_right_while_runs_end_and_tables_are_rebuilt(tmp_path, reader, cycles):
    """While runs end and tables are rebuilt or compacted, each count is one that was correct during the reading."""
    out = tmp_path / "out"
    folder = Dataset(out).table_folder("tags")
    folder.mkdir(parents=True)
    rng = random.Random(1)  # noqa: S311 (the same orders from run to run)
    options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False}
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        with watched(lambda: counted(folder, rng) if reader == "listing" else count_by_glob(folder)) as there:
            for cycle in range(cycles):
                urls = [f"http://pictures.example/{cycle}/{place}.jpg" for place in range(ROWS)]
                plan = await lm.aio.plan(urls, base_url=base_url, **options)
                there[1] += 1
                await lm.aio.run(plan, out)
                there[0] += 1
                for _ in range(cycles // 2):
                    if cycle % 2:
                        compact(Dataset(out))
                    export_tables(out, rewrite_all=True)
    assert len(Dataset(out).read("assets")) == cycles * ROWS


def test_our_own_reader_lists_again_when_parts_were_merged(tmp_path):
    """`Dataset.read` gives all rows whatever happens to the parts between its listing and its opening."""

    class Late(Dataset):
        merged = False

        def parts(self, table):
            listed = super().parts(table)
            if not self.merged:
                self.merged = True
                compact(Dataset(self.out))
            return listed

    for run in "ab":
        add(tmp_path, run)
    assert Late(tmp_path).read("tags").num_rows == 2 * ROWS


def test_folders_change_places(tmp_path):
    """The two folders exchange their names; if one is missing, nothing changes."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    swap_dirs(tmp_path / "one", tmp_path / "other")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["other"]
    with pytest.raises(FileNotFoundError):
        swap_dirs(tmp_path / "one", tmp_path / "none")


def test_a_file_system_that_cannot_swap_says_what_to_do(tmp_path):
    """Without a system call that swaps folders nothing is merged, and the message says how to get a single part."""
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(UsageError, match="cannot swap"):
        swap_dirs(tmp_path, inside)  # refused by the system with the same error
