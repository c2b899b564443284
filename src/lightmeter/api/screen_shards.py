"""Lets the workers of a Dask or Ray cluster analyze the rows of a screen (`--screen`) by local back ends.

A worker analyzes the rows of a shard with its own embedded service, and writes the answers to a file. The planning
process copies these answers into the journal of the screen. The screen then decides about the rows as it does without a
cluster. If the answer about a row has errors, the row stays pending, and the planning process analyzes it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from lightmeter.api.run_result import Run
from lightmeter.api.run_steps import StartArguments, stream_folder
from lightmeter.cache.reuse import has_errors
from lightmeter.clock import SystemClock
from lightmeter.journal.commands.plan_rows import CachedAnswer, CachedRow, apply_cached_rows
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.compression import decompress
from lightmeter.journal.header import EMBEDDED_KEY, fresh_run_id, read_run_header
from lightmeter.journal.queries.items import count_by_status
from lightmeter.journal.queries.shard_rows import (
    answered_rows,
    insert_rows,
    pending_row_dicts,
    raw_answer,
    shard_ranges,
)
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.options import ScaleOutOptions
from lightmeter.planning.plan import Plan
from lightmeter.planning.progress import Progress
from lightmeter.scale_out.check_manifest import in_thread, shard_base
from lightmeter.scale_out.executors import open_executor
from lightmeter.scale_out.shard_files import ShardFolder
from lightmeter.settings import Settings
from lightmeter.tempdirs import LockedTempDir

_ANSWER_TYPES: Final[dict[str, pa.DataType]] = {
    "request_id": pa.string(),
    "answered_at": pa.float64(),
    "raw": pa.binary(),
    "rows": pa.list_(pa.struct([("seq", pa.int64()), ("asset", pa.int64()), ("name", pa.string())])),
}


@dataclass(frozen=True, slots=True)
class ScreenShard:
    """Input of `analyze_shard`, picklable for workers: some rows of a plan, and how to analyze them.

    Attributes:
        name: Name of the shard: its files are `rows-<name>.parquet` and `answers-<name>.parquet`.
        rows: Number of rows.
        folder: Folder of the files.
        meta: Values that describe the plan, such as its options: the contents of the table `meta` in its journal.
        settings: The settings of the screen, which is a free run of local back ends. They name no service.
    """

    name: str
    rows: int
    folder: ShardFolder
    meta: dict[str, str]
    settings: Settings


def analyze_shard(shard: ScreenShard) -> ScreenShard:
    """Analyze the rows in the shard's file by local back ends, write the answers to a file, and return the shard.

    Raises:
        UsageError: the file with the rows cannot be read, or the answers cannot be written.
    """
    rows = shard.folder.read(f"rows-{shard.name}.parquet").to_pylist()
    with LockedTempDir() as temp_dir:
        settings = shard.settings.model_copy(update={"state_dir": temp_dir.path / "state", "answers_dir": None})
        folder = temp_dir.path / "run"
        folder.mkdir()
        with Journal(folder) as journal:
            meta = {**shard.meta, "run_id": fresh_run_id(SystemClock()), EMBEDDED_KEY: "1"}
            journal.submit(put_meta(meta)).result()
            journal.submit(insert_rows(rows)).result()
        asyncio.run(_analyze(folder, settings))
        answers = pa.Table.from_pylist(list(_answers(folder)), schema=pa.schema(_ANSWER_TYPES))
    shard.folder.write(f"answers-{shard.name}.parquet", answers)
    return shard


async def _analyze(folder: Path, settings: Settings) -> None:
    options = read_run_header(folder).options
    async with aclosing(stream_folder(folder, options, StartArguments(tables=False), None, settings)) as steps:
        async for step in steps:
            if isinstance(step, Run) and step.stopped_by is not None:
                raise step.stopped_by


def _answers(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the answers in the journal in `folder`, each as a dict. Leave out answers that contain errors.

    The keys of the dict are `request_id`, `answered_at` (epoch seconds), `raw` (the answer, compressed as in the
    journal) and `rows`. `rows` has a dict for each row that the answer is about: `seq` is the row's number, `asset` the
    position of its image or video in the answer (from 0), and `name` the name of that image or video in the answer.
    """
    with open_read_only(folder) as db:
        for submission_id, rows in groupby(answered_rows(db), key=attrgetter("submission_id")):
            raw, (first, *others) = raw_answer(db, submission_id), rows
            if not has_errors(decompress(raw)):
                places = [{"seq": row.seq, "asset": row.asset, "name": row.name} for row in (first, *others)]
                yield {"request_id": first.request_id, "answered_at": first.answered_at, "raw": raw, "rows": places}


async def stream_screen_shards(
    plan: Plan, folder: Path, settings: Settings, scale_out: ScaleOutOptions
) -> AsyncGenerator[Progress]:
    """Let the workers of a cluster analyze the pending rows of a screen, a free run of local back ends; yield progress.

    If the caller stops this generator, the journal keeps the answers of the shards that are finished.

    Args:
        plan: The plan of the screen.
        folder: The folder of the screen, which must already hold its journal.
        settings: The settings of the screen.
        scale_out: The kind of cluster, and how many rows a shard has.

    Raises:
        UsageError: the files of the shards cannot be written or read.
        WorkersLost: several worker processes died during the same shard, or Dask's scheduler was lost.
    """
    with open_read_only(folder) as db:
        pending = count_by_status(db)["pending"]
    started = time.monotonic()
    async with aclosing(in_thread(_run_shards(plan, folder, settings, scale_out))) as steps:
        async for analyzed in steps:
            seconds = time.monotonic() - started
            counts = {"pending": max(0, pending - analyzed)}
            yield Progress("screening", pending, counts, seconds=seconds, rate=analyzed / seconds if seconds else 0.0)


def _run_shards(plan: Plan, folder: Path, settings: Settings, scale_out: ScaleOutOptions) -> Generator[int]:
    """Let workers analyze the pending rows of a screen, and store their answers in the journal in `folder`.

    About once a second, yield the number of rows analyzed so far. The arguments are those of `stream_screen_shards`:
    plan, folder and settings of the screen, and the cluster.
    """
    name = hashlib.sha256(f"{folder.absolute()}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    files = shard_base(settings, scale_out).below(f"screen-{name}")
    analyzed = 0
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(folder))  # no other process may run the screen
        cluster = stack.enter_context(open_executor(scale_out.executor))
        files.create()
        stack.callback(files.remove)
        ended = cluster.map(analyze_shard, list(_split(plan, folder, files, settings, scale_out.shard_rows)))
        stack.callback(ended.close)
        for shard in ended:
            if shard is not None:
                analyzed += shard.rows
                for answer in files.read(f"answers-{shard.name}.parquet").to_pylist():
                    journal.submit(apply_cached_rows(_cached_rows(answer))).result()
            yield analyzed


def _split(plan: Plan, folder: Path, files: ShardFolder, settings: Settings, shard_rows: int) -> Iterator[ScreenShard]:
    """Divide the pending rows of a screen into shards; write the rows of each shard to a file, and yield the shard.

    Args:
        plan: The plan of the screen.
        folder: The folder of the screen, whose journal tells which rows are pending.
        files: Where to write the files.
        settings: The settings of the screen, which each shard carries to its worker.
        shard_rows: Most rows in a shard.
    """
    with open_read_only(plan.folder) as db:
        meta = get_meta(db)
    with open_read_only(folder) as db:
        for first, last in shard_ranges(db, shard_rows):
            rows = pending_row_dicts(db, first, last)
            shard = ScreenShard(f"{first:012}", len(rows), files, meta, settings)
            files.write(f"rows-{shard.name}.parquet", pa.Table.from_pylist(rows))
            yield shard


def _cached_rows(answer: dict[str, Any]) -> list[CachedRow]:
    sha256 = hashlib.sha256(decompress(answer["raw"])).hexdigest()
    cached = CachedAnswer(sha256, answer["request_id"], answer["answered_at"], answer["raw"])
    return [CachedRow(row["seq"], row["asset"], row["name"], cached) for row in answer["rows"]]
