"""Writes all tables of an output folder from the journals of its runs, without sending requests.

An output folder holds the journal of its newest run and, under `runs/`, the journals of the earlier runs. The rows of a
run are divided into *shards*: each shard is one Parquet file of every table. The last shard of a run can change. All
other shards hold only *settled* submissions (answered requests whose charge is known), which no longer change. So an
export during or after the run only adds new shards. All tables are written again from the start if runs share items or
differ in their schemas, if a file is broken or missing, or if the newest run asks a question (`--ask`) and has several
shards, because a repeated question changes the credits of a settled item.

Rows of earlier runs that the newest manifest lacks have the reason `gone` in `assets`. If only new shards are added,
the export also writes the files of earlier runs in `assets` again, with this reason.

The decisions of people (`reviews.sqlite`) become the table `reviews`, which is a single file.

At the end of a run, and of each rebuild, the table `items` is made from all other tables, as a single file.

The export also writes `tables/README.md`, which describes the tables; and `views.sql` and `catalog.duckdb`, which open
them in DuckDB. If the option `table_format` is "delta" or "iceberg", the export also writes Delta or Iceberg tables to
`delta/` or `iceberg/`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from lightmeter.child_processes import map_in_processes
from lightmeter.errors import TablesError
from lightmeter.export.export_shard import ExportRun, Shard, export_shard, export_shard_aside
from lightmeter.export.folder_guide import write_folder_guide
from lightmeter.export.gone_rows import mark_gone
from lightmeter.export.items_table import write_items
from lightmeter.export.review_table import write_reviews
from lightmeter.export.unexported_requests import MIN_SHARD_REQUESTS, unexported_range
from lightmeter.facts.columns import ITEMS, OPTIONAL_TABLES, REVIEWS
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.files import journal_path, snapshot_journal
from lightmeter.journal.header import archived_runs, read_run_header
from lightmeter.journal.queries.export import SubmissionRange, journal_mark, settled_ranges
from lightmeter.journal.queries.latest_runs import build_latest_runs, has_shared_items
from lightmeter.journal.store import open_read_only
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.query.duckdb_catalog import CATALOG, write_catalog
from lightmeter.tables.remote.table_formats import write_table_format
from lightmeter.tempdirs import LockedTempDir

_SHARDS_EACH: Final = 4
"""Number of shards per process of an export. It is above 1, because some shards take longer than others."""

MapShards: TypeAlias = Callable[[Callable[[Shard], dict[str, int]], Sequence[Shard]], Iterator[dict[str, int] | None]]
"""A function that applies the given function to each shard, and yields the results in any order.

A None among the results is to be ignored.
"""

_Ranges = tuple[tuple[ExportRun, SubmissionRange], ...]


def export_tables(
    out: Path, *, rewrite_all: bool = False, processes: int = 1, map_shards: MapShards | None = None
) -> dict[str, int]:
    """Write the tables of all runs in `out` from their journals. Return table → number of rows written.

    Each item (row of a manifest, by its id) has one row in `assets`. The status in this row comes from the item's
    latest run; an item that the newest run lacks has the reason `gone`. The credits are the sum over all runs. The
    item's facts, such as tags, come from the latest run that got an answer about the image or video that the item has
    in its latest run. Without such an answer it has no facts.

    Args:
        out: The output folder.
        rewrite_all: Whether to write all tables again from the start, even if it would be enough to add new rows.
        processes: Maximum number of processes that share a large export.
        map_shards: Function that applies a function to shards on the workers of a cluster, such as
            `lightmeter.scale_out.executors.ShardExecutor.map`. `processes` is then the number of workers. The workers
            must reach `out` by the same path as this process. They read copies of the journals. None means to export on
            this machine.

    Raises:
        JournalError: There is no run in `out`.
        TablesError: The tables cannot be written. The old tables and the journals stay intact.
    """
    read_run_header(out)  # raises if there is no run, before a folder is made
    dataset = Dataset(out)
    try:
        with dataset.locked():
            runs = _runs(out)
            rest = None if rewrite_all or _shares_items(runs) else unexported_range(dataset, runs)
            ranges = _all_ranges(runs, processes) if rest is None else [((runs[-1], rest),)]
            rows = _export(dataset, runs, ranges, keep_others=rest is not None, map_shards=map_shards or processes)
            if rest is not None:
                mark_gone(dataset, runs[-1].header.run_id)
            rows[REVIEWS] = write_reviews(dataset)
            rows[ITEMS] = write_items(dataset)
            with open_read_only(out) as db:
                write_folder_guide(out, get_meta(db).get("manifest_path"))
            write_catalog(out)
        write_table_format(dataset, runs[-1].header.options.table_format)
    except OSError as error:
        raise TablesError(
            f"The tables cannot be written: {error}.",
            hint=f"Nothing that was answered is lost. Make room, or allow writing: lightmeter rebuild {out}",
        ) from error
    except BrokenExecutor as error:
        raise TablesError(
            "The tables cannot be written: one of the processes that write them died.",
            hint=f"Nothing that was answered is lost. If memory is short, free some. Then: lightmeter rebuild {out}",
        ) from error
    return {table: rows[table] for table in dataset.tables()}


def export_settled(out: Path) -> None:
    """Add the rows of settled requests to the tables during the run in `out`.

    A request is settled if it is answered and its charge is known. `export_tables` writes the other rows at the end of
    the run. Nothing is added in two cases: if the run asks a question (`--ask`), because retries change the credits of
    items, or if all tables must be written again from the start.

    Raises:
        JournalError: There is no run in `out`.
        OSError: The tables cannot be written.
    """
    dataset = Dataset(out)
    with dataset.locked():
        runs = _runs(out)
        rest = None if runs[-1].header.options.ask or _shares_items(runs) else unexported_range(dataset, runs)
        if rest is None:
            return
        with open_read_only(out) as db:
            settled = list(settled_ranges(db, rest, MIN_SHARD_REQUESTS))
        if settled:
            _export(dataset, runs, [((runs[-1], one),) for one in settled], keep_others=True)
            if not (out / CATALOG).exists():
                write_catalog(out)


def _runs(out: Path) -> list[ExportRun]:
    """Return the runs whose journals are in an output folder, oldest first."""
    runs = []
    for position, folder in enumerate([*archived_runs(out), out]):
        with open_read_only(folder) as db:
            runs.append(ExportRun(folder, position, journal_mark(db), read_run_header(folder)))
    return runs


def _shares_items(runs: Sequence[ExportRun]) -> bool:
    """Whether the newest run has an item (row of a manifest, by its id) that an older run has too."""
    rows = tuple((run.folder, run.header.run_id, run.mark.partition("-")[0]) for run in runs)
    return _rows_share_items(rows)


@lru_cache(maxsize=16)  # during a run, all exports compare the same rows
def _rows_share_items(runs: tuple[tuple[Path, str, str], ...]) -> bool:
    """Return `_shares_items` of runs with this folder, id and number of rows: they always have the same items."""
    *older, (last, _, _) = runs
    with open_read_only(last) as db:
        return has_shared_items(db, [folder for folder, _, _ in older])


def _all_ranges(runs: Sequence[ExportRun], processes: int) -> list[_Ranges]:
    """Divide the requests of all runs into shards, each for one Parquet file of every table.

    With only one process, or with few requests, there is a single shard.
    """
    whole_runs = [(run, SubmissionRange()) for run in runs]
    counts = []
    for run in runs:
        with open_read_only(run.folder) as db:
            counts.append(sum(one.answers for one in settled_ranges(db, SubmissionRange(), MIN_SHARD_REQUESTS)))
    answers_each = max(MIN_SHARD_REQUESTS, sum(counts) // (processes * _SHARDS_EACH))
    if processes == 1 or sum(counts) < 2 * answers_each:
        return [tuple(whole_runs)]
    shards: list[_Ranges] = []
    small: list[tuple[ExportRun, SubmissionRange]] = []
    for (run, everything), answers in zip(whole_runs, counts, strict=True):
        if answers < answers_each and run is not runs[-1]:
            small.append((run, everything))
        else:
            shards += [((run, one),) for one in _split_run(run, answers_each)]
    return [tuple(small), *shards] if small else shards


def _split_run(run: ExportRun, answers_each: int) -> Iterator[SubmissionRange]:
    with open_read_only(run.folder) as db:
        ranges = list(settled_ranges(db, SubmissionRange(), answers_each))
    yield from ranges[:-1]
    yield ranges[-2].next if len(ranges) > 1 else SubmissionRange()


def _export(
    dataset: Dataset,
    runs: Sequence[ExportRun],
    ranges: Sequence[_Ranges],
    *,
    keep_others: bool,
    map_shards: MapShards | int = 1,
) -> Counter[str]:
    """Write shards (ranges of requests) to new Parquet files of every table. Return table → number of rows written.

    Args:
        dataset: The tables.
        runs: All runs of the output folder, oldest first.
        ranges: The requests of each shard.
        keep_others: Whether to keep the existing files, which hold other requests. If false, the new files replace all
            files of the tables.
        map_shards: Function that applies a function to shards on a cluster. Or the maximum number of processes on this
            machine.
    """
    rows: Counter[str] = Counter()
    exported = {run.folder: run for shard in ranges for run, _ in shard}.values()
    requested = {feature for run in exported for feature in run.header.options.features}
    with LockedTempDir() as temporary, dataset.staging() as staging:
        several = [run.folder for run in runs] if len(runs) > 1 and not keep_others else []
        index = temporary.path / "latest.sqlite"
        build_latest_runs(several, index, runs[-1].position)
        shards = [Shard(number, part, tuple(runs), index, staging) for number, part in enumerate(ranges)]
        with ExitStack() as stack:
            if not isinstance(map_shards, int):
                shared = stack.enter_context(dataset.staging())
                written = map_shards(export_shard_aside, _for_cluster(shards, shared))
            elif min(map_shards, len(shards)) > 1:
                written = map_in_processes(export_shard, shards, min(map_shards, len(shards)))
            else:
                written = map(export_shard, shards)
            for rows_of_shard in written:  # an error of one shard fails the export
                rows.update(rows_of_shard)
        dataset.publish(staging, keep_others=keep_others, only_with_rows={*OPTIONAL_TABLES} - requested)
    return rows


def _for_cluster(shards: Sequence[Shard], shared: Path) -> list[Shard]:
    """Copy the files that the shards read to the folder `shared`, which the workers of a cluster can reach.

    Return the shards, changed so that they read the copies.
    """
    copies = {}
    for run in shards[0].all_runs:
        folder = shared / f"run-{run.position}"
        folder.mkdir()
        snapshot_journal(journal_path(run.folder), journal_path(folder))
        copies[run.position] = replace(run, folder=folder)
    index = shutil.copyfile(shards[0].index, shared / shards[0].index.name)
    return [
        replace(
            shard,
            ranges=tuple((copies[run.position], submissions) for run, submissions in shard.ranges),
            all_runs=tuple(copies.values()),
            index=index.absolute(),
            staging=shard.staging.absolute(),
        )
        for shard in shards
    ]
