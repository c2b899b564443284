"""Which shards of a run stand in the tables already, as the footers of their parts say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from lightmeter.errors import TablesError
from lightmeter.export.export_shard import ExportRun, merge_extra_types
from lightmeter.journal.export_queries import SubmissionRange
from lightmeter.tables.answer_schema import table_name
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import PartInfo
from lightmeter.tables.schema import ALL_TABLES, TABLES

__all__ = ["SHARD_ANSWERS", "unpublished_range"]

SHARD_ANSWERS: Final = 5_000
"""Settled submissions of a final shard. With fewer, readers open many small files. With more, a run ends later, because
its last shard is written then: this many submissions take about a second."""


def unpublished_range(dataset: Dataset, runs: Sequence[ExportRun]) -> SubmissionRange | None:
    """Return the submissions of the last run that no final shard in the tables holds.

    Args:
        dataset: The tables.
        runs: All runs of the output folder, oldest first.

    Returns:
        None where all tables must be written anew: a part of an older run is missing, broken or not as the journal is
        now; the last run stands in a part with others; or the runs' schemas differ.
    """
    headers = [run.header for run in runs]
    ask, types = headers[-1].options.ask, merge_extra_types(headers)
    if any(header.options.ask != ask or header.extra_types != types for header in headers):
        return None
    tables = (*ALL_TABLES, *([] if ask is None else [table_name(ask)]))
    try:
        parts = {table: _by_run(dataset.describe(table)) for table in tables}
    except TablesError:  # a part is broken
        return None
    last_id = headers[-1].run_id
    rest = _after_final_shards(parts["assets"].get(last_id, []))
    for table in tables:
        if not parts[table].keys() <= {header.run_id for header in headers}:
            return None
        for run, header in zip(runs[:-1], headers[:-1], strict=True):
            own = parts[table].get(header.run_id, [])
            is_needed = table in TABLES or table in header.options.features or table not in ALL_TABLES
            if (own or is_needed) and not _is_complete(own, header.run_id, run.mark, with_gaps=table not in TABLES):
                return None
        if not _fits(parts[table].get(last_id, []), rest, with_gaps=table not in TABLES):
            return None
    return rest


def _by_run(parts: Sequence[PartInfo]) -> Mapping[str, list[PartInfo]]:
    """Return the parts that have rows of a run, by its id, in the order of their ranges; "" for parts of no run."""
    by_run: dict[str, list[PartInfo]] = defaultdict(list)
    for part in parts:
        for run_id in part.runs or {"": ""}:
            by_run[run_id].append(part)
    return {run_id: sorted(own, key=lambda part: _range_of(part).after) for run_id, own in by_run.items()}


def _range_of(part: PartInfo) -> SubmissionRange:
    """Return the range of a part; a part that names none holds whole runs."""
    return SubmissionRange.from_dict(part.lineage.get("shard", {}))


def _after_final_shards(parts: Sequence[PartInfo]) -> SubmissionRange:
    rest = SubmissionRange()
    for part in parts:
        submissions = _range_of(part)
        if submissions.after == rest.after and submissions.through and submissions.answers >= SHARD_ANSWERS:
            rest = submissions.next
    return rest


def _is_complete(parts: Sequence[PartInfo], run_id: str, mark: str, *, with_gaps: bool) -> bool:
    """Return whether the parts of an older run hold all of its rows, as its journal is now.

    Args:
        parts: The parts in the order of their ranges.
        run_id: The run.
        mark: What its journal's mark is now.
        with_gaps: Whether shards may be missing, as those of an optional table without rows are.
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


def _fits(parts: Sequence[PartInfo], rest: SubmissionRange, *, with_gaps: bool) -> bool:
    """Return whether a table has all final shards of the last run, and nothing else that a new part would not replace.

    Args:
        parts: The run's parts in the order of their ranges.
        rest: The range that the next part begins with.
        with_gaps: Whether final shards may be missing.
    """
    if any(len(part.runs) > 1 or _range_of(part).after > rest.after for part in parts):
        return False
    return with_gaps or _after_final_shards(parts).after >= rest.after
