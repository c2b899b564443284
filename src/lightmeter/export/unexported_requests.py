"""Finds the requests of a run that an export must still write, from the footers of the tables' Parquet files.

A range of requests in one file is called a *shard*. A *final* shard holds only answered requests whose charge is known.
They no longer change, so it is never written again. If the run asks a question (`--ask`), no shard is final, because a
repeated question changes the credits of an item.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from lightmeter.errors import TablesError
from lightmeter.export.export_shard import ExportRun, merge_extra_types
from lightmeter.journal.queries.export import SubmissionRange
from lightmeter.tables.arrow.answer_schema import table_name
from lightmeter.tables.arrow.schema import JOURNAL_TABLES, SCHEMA_VERSION, TABLES
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import PartInfo

MIN_SHARD_REQUESTS: Final = 5_000
"""Minimum number of requests in a final shard. With a smaller number, readers must open many small files. With a larger
number, a run takes longer to end, because its last shard is written at the end: 5,000 requests take about a second."""


def unexported_range(dataset: Dataset, runs: Sequence[ExportRun]) -> SubmissionRange | None:
    """Return the range of the newest run's requests that an export must write to the tables in `dataset`.

    These are the requests that are in no final shard. A final shard is a Parquet file with at least
    `MIN_SHARD_REQUESTS` requests, all answered and with a known charge, so that it need not be written again. A run
    with a question (`--ask`) has no final shards.

    Return None if adding is not possible, so that all tables must be written again from the start. This is so if
    another version of lightmeter wrote the tables, if a file is broken, if a file of an older run is missing or does
    not match its journal, if a file holds rows of the newest run and also of another run, if the newest run asks a
    question and has several files of a table, or if the schemas of the runs differ. It is also so if rows were added to
    the newest run since its files were written, because they may be duplicates of rows in these files. `runs` has all
    runs of the output folder, oldest first.
    """
    headers = [run.header for run in runs]
    ask, types = headers[-1].options.ask, merge_extra_types(headers)
    is_other_version = dataset.schema_version not in (None, SCHEMA_VERSION)
    if is_other_version or any(header.options.ask != ask or header.extra_types != types for header in headers):
        return None
    tables = (*JOURNAL_TABLES, *([] if ask is None else [table_name(ask)]))
    try:
        parts = {table: _by_run(dataset.describe(table)) for table in tables}
    except TablesError:  # a part is broken
        return None
    last_id = headers[-1].run_id
    rest = _after_final_shards(parts["assets"].get(last_id, [])) if ask is None else SubmissionRange()
    for table in tables:
        if not parts[table].keys() <= {header.run_id for header in headers}:
            return None
        for run, header in zip(runs[:-1], headers[:-1], strict=True):
            own = parts[table].get(header.run_id, [])
            is_needed = table in TABLES or table in header.options.features or table not in JOURNAL_TABLES
            if (own or is_needed) and not _is_complete(own, header.run_id, run.mark, with_gaps=table not in TABLES):
                return None
        if not _can_extend(parts[table].get(last_id, []), rest, runs[-1], with_gaps=table not in TABLES):
            return None
    return rest


def _by_run(parts: Sequence[PartInfo]) -> Mapping[str, list[PartInfo]]:
    """Return run id → the Parquet files in `parts` that have rows of this run, sorted by their first request.

    The id "" stands for files that do not name a run.
    """
    by_run: dict[str, list[PartInfo]] = defaultdict(list)
    for part in parts:
        for run_id in part.runs or {"": ""}:
            by_run[run_id].append(part)
    return {run_id: sorted(own, key=lambda part: _range_of(part).after) for run_id, own in by_run.items()}


def _range_of(part: PartInfo) -> SubmissionRange:
    return SubmissionRange.from_dict(part.lineage.get("shard", {}))


def _after_final_shards(parts: Sequence[PartInfo]) -> SubmissionRange:
    rest = SubmissionRange()
    for part in parts:
        submissions = _range_of(part)
        if submissions.after == rest.after and submissions.through and submissions.answers >= MIN_SHARD_REQUESTS:
            rest = submissions.next
    return rest


def _is_complete(parts: Sequence[PartInfo], run_id: str, mark: str, *, with_gaps: bool) -> bool:
    """Whether the Parquet files `parts` of a table hold all rows that an older run has for this table.

    Args:
        parts: The files with rows of the run, sorted by their first request.
        run_id: Id of the run.
        mark: Text that changes with the run's journal. The last file must have been written with this mark.
        with_gaps: Whether ranges of requests may be missing. They may for an optional table, which has no file for
            requests without rows.
    """
    rest = SubmissionRange()
    for part in parts:
        submissions = _range_of(part)
        if submissions.after != rest.after and not with_gaps:
            return False
        if submissions.through is None:
            return part is parts[-1] and part.runs[run_id] == mark
        rest = submissions.next
    return False


def _can_extend(parts: Sequence[PartInfo], rest: SubmissionRange, run: ExportRun, *, with_gaps: bool) -> bool:
    """Whether a table is complete once a file for the requests in `rest` is added.

    `parts` has the table's Parquet files with rows of the newest run, `run`. None of them may have rows of another run,
    start after `rest`, or have been written before rows were added to the run's journal. Together they must hold all
    requests before `rest`. With `with_gaps`, requests before `rest` may be missing: an optional table has no file for
    requests without rows.
    """
    if any(len(part.runs) > 1 or _range_of(part).after > rest.after for part in parts):
        return False
    marks = [run.mark, *(part.runs[run.header.run_id] for part in parts)]
    if len({mark.partition("-")[0] for mark in marks}) > 1:  # numbers of rows
        return False
    return with_gaps or _after_final_shards(parts).after >= rest.after
