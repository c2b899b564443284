"""Finds the shards of a run that the tables already hold, from the footers of their parts.

A *final* shard holds only settled submissions, which no longer change, so it is never written again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from lightmeter.errors import TablesError
from lightmeter.export.export_shard import ExportRun, merge_extra_types
from lightmeter.journal.queries.export import SubmissionRange
from lightmeter.tables.arrow.answer_schema import table_name
from lightmeter.tables.arrow.schema import ALL_TABLES, TABLES
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import PartInfo

SHARD_ANSWERS: Final = 5_000
"""Settled submissions in a final shard. With fewer, readers open many small files. With more, a run takes longer to
end, because its last shard is written then: this many submissions take about a second."""


def unpublished_range(dataset: Dataset, runs: Sequence[ExportRun]) -> SubmissionRange | None:
    """Return the submissions of the last run that no final shard in the tables holds.

    Args:
        dataset: The tables.
        runs: All runs of the output folder, oldest first.

    Returns:
        The range; None if all tables must be written anew. That is so if a part is broken, if a part of an older run is
        missing or does not match its journal, if a part holds the last run and others, or if the runs' schemas differ.
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
        if not _can_extend(parts[table].get(last_id, []), rest, with_gaps=table not in TABLES):
            return None
    return rest


def _by_run(parts: Sequence[PartInfo]) -> Mapping[str, list[PartInfo]]:
    """Return run id → the parts that have its rows, in the order of their ranges; id "" for parts without runs."""
    by_run: dict[str, list[PartInfo]] = defaultdict(list)
    for part in parts:
        for run_id in part.runs or {"": ""}:
            by_run[run_id].append(part)
    return {run_id: sorted(own, key=lambda part: _range_of(part).after) for run_id, own in by_run.items()}


def _range_of(part: PartInfo) -> SubmissionRange:
    """Return the range of submissions of a part; the whole range if its footer names none."""
    return SubmissionRange.from_dict(part.lineage.get("shard", {}))


def _after_final_shards(parts: Sequence[PartInfo]) -> SubmissionRange:
    """Return the range that begins after the last of the consecutive final shards."""
    rest = SubmissionRange()
    for part in parts:
        submissions = _range_of(part)
        if submissions.after == rest.after and submissions.through and submissions.answers >= SHARD_ANSWERS:
            rest = submissions.next
    return rest


def _is_complete(parts: Sequence[PartInfo], run_id: str, mark: str, *, with_gaps: bool) -> bool:
    """Return whether the parts of an older run hold all rows of its current journal.

    Args:
        parts: The parts of the run in the order of their ranges.
        run_id: Id of the run.
        mark: Current mark of its journal.
        with_gaps: Whether shards may be missing, because optional tables have no empty parts.
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


def _can_extend(parts: Sequence[PartInfo], rest: SubmissionRange, *, with_gaps: bool) -> bool:
    """Return whether a table holds all final shards of the last run before `rest`, and no part that must be removed.

    Args:
        parts: The parts of the last run in the order of their ranges.
        rest: The range of the next part.
        with_gaps: Whether final shards may be missing.
    """
    if any(len(part.runs) > 1 or _range_of(part).after > rest.after for part in parts):
        return False
    return with_gaps or _after_final_shards(parts).after >= rest.after
