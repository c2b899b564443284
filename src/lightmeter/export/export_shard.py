"""Exports a *shard*, a range of rows of one or more runs: writes one Parquet file of every table from their journals.

Any process can export a shard, because the export only reads journals and writes files to a staging folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from lightmeter import __version__
from lightmeter.ask.question import Ask
from lightmeter.export.journal_rows import journal_row_tables
from lightmeter.export.question_table import answer_tables
from lightmeter.facts.flatten import AnswerContext, ItemRef
from lightmeter.journal.header import RunHeader
from lightmeter.journal.queries.export import SubmissionRange, journal_answers
from lightmeter.journal.queries.latest_runs import attach_latest_runs
from lightmeter.journal.store import open_read_only
from lightmeter.tables.arrow.answer_schema import answers_schema, table_name
from lightmeter.tables.arrow.schema import JOURNAL_TABLES, schema
from lightmeter.tables.dataset import open_parts
from lightmeter.tables.table_writers import TableWriters, open_table_writers


@dataclass(frozen=True, slots=True)
class ExportRun:
    """A run to export to tables, as found in an output folder.

    Attributes:
        folder: The folder of the run's journal.
        position: Position among the runs of the output folder, oldest first, from 0.
        mark: Text that changes whenever the journal changes. It is stored in the files to recognize outdated ones.
        header: Id, options and manifest data of the run, as its journal stores them.
    """

    folder: Path
    position: int
    mark: str
    header: RunHeader


@dataclass(frozen=True, slots=True)
class Shard:
    """Says which rows `export_shard` writes to one Parquet file of every table, and where.

    Attributes:
        number: Number by which the files in `staging` are named and ordered. It is unique among the shards that are
            exported together.
        ranges: Pairs of a run and the range of its submissions (sent requests) to export.
        all_runs: All runs of the output folder. The schema of `assets` has the columns of all their manifests.
        index: SQLite file that says for each item (manifest row) which run is its latest.
        staging: Folder to which the files are written.
    """

    number: int
    ranges: tuple[tuple[ExportRun, SubmissionRange], ...]
    all_runs: tuple[ExportRun, ...]
    index: Path
    staging: Path


def export_shard(shard: Shard) -> dict[str, int]:
    """Write one Parquet file of every table to the shard's staging folder. Return table → number of rows written.

    At most a few Parquet row groups are in memory.

    Raises:
        JournalError: A journal cannot be read.
        OSError: A file cannot be written.
    """
    headers = [run.header for run in shard.all_runs]
    extra_types = merge_extra_types(headers)
    asks = {header.options.ask.name: header.options.ask for header in headers if header.options.ask is not None}
    schemas = {table: schema(table, extra_types) for table in JOURNAL_TABLES}
    schemas |= {table_name(ask): answers_schema(ask) for ask in asks.values()}
    with open_parts(shard.staging, shard.number, schemas, _lineage(shard)) as parts:
        with open_table_writers(parts) as writers:
            for run, submissions in shard.ranges:
                _write_run(writers, run, submissions, shard.index, extra_types, asks)
        for part in parts.values():
            part.close()
        return {table: part.rows for table, part in parts.items()}


def export_shard_aside(shard: Shard) -> dict[str, int]:
    """Do the same as `export_shard`, but safely on unreliable workers. Return table → number of rows written.

    The files are first written to a new folder beside the SQLite file `shard.index`. Once all files are complete, they
    are moved to the folder `shard.staging`. So a worker process may be killed in the middle, and two workers may export
    the same shard.
    """
    own = shard.index.parent / f"shard-{shard.number}-{token_hex(4)}"
    own.mkdir()
    rows = export_shard(replace(shard, staging=own))
    for path in own.glob("*/*.parquet"):
        folder = shard.staging / path.parent.name
        folder.mkdir(exist_ok=True)
        path.replace(folder / path.name)
    return rows


def _write_run(
    writers: TableWriters,
    run: ExportRun,
    submissions: SubmissionRange,
    index: Path,
    extra_types: Mapping[str, str],
    asks: Mapping[str, Ask],
) -> None:
    header = run.header
    options = header.options
    with open_read_only(run.folder) as db:
        attach_latest_runs(db, index)
        with db:  # one transaction: all tables see the same state of the journal, even during a run
            for table, rows in journal_row_tables(db, header, run.position, submissions, extra_types):
                writers.add_rows(table, rows)
            for answer in journal_answers(db, run.position, submissions):
                items = [ItemRef(*item) for item in answer.items]
                context = AnswerContext(header.run_id, answer.request_id, options.role, options.language)
                writers.add_answer(answer.raw, items, context)
            if options.ask is not None and submissions.through is None:
                ask = asks[options.ask.name]
                for rows in answer_tables(db, ask, header.run_id, run.position):
                    writers.add_rows(table_name(ask), rows)


def merge_extra_types(headers: list[RunHeader]) -> dict[str, str]:
    """Return name → type name of the manifest columns that lightmeter copies without interpreting them.

    `headers` has the header of each run. If a column has different types in the manifests of the runs, the result has a
    type that fits all values.
    """
    types: dict[str, str] = {}
    for header in headers:
        for name, of in header.extra_types.items():
            known = types.setdefault(name, of)
            if known != of:
                types[name] = "double" if {known, of} == {"int64", "double"} else "string"
    return types


def _lineage(shard: Shard) -> dict[str, Any]:
    header = shard.ranges[-1][0].header
    lineage = {
        "lightmeter": __version__,
        "run_id": header.run_id,
        "manifest": header.manifest,
        "manifest_sha256": header.manifest_sha256,
        "options": header.options.model_dump_json(),
        "planned_at": header.planned_at,
        "runs": {run.header.run_id: run.mark for run, _ in shard.ranges},
    }
    if len(shard.ranges) == 1:
        lineage["shard"] = asdict(shard.ranges[0][1])
    return lineage
