"""Tables from journals, with no request: every row of the manifests, every fact of every answer.

An output folder holds the journal of its run and, under `runs/`, those of the runs before it. A run whose rows are all
new to the tables adds parts of its own; otherwise the tables are written anew from all journals. `views.sql` and
`catalog.duckdb` open them by name; with the option `table_format` "delta" they stand under `delta/` too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightmeter import __version__
from lightmeter.errors import TablesError
from lightmeter.export.answer_rows import answer_records
from lightmeter.export.journal_rows import LatestRunIndex, TableSinks, write_journal_rows
from lightmeter.journal.files import journal_path
from lightmeter.journal.header import RunHeader, read_run_header
from lightmeter.journal.store import open_read_only
from lightmeter.tables.answer_schema import answers_schema, table_name
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.delta import write_delta
from lightmeter.tables.duckdb_catalog import write_catalog
from lightmeter.tables.gc_control import collector_paused
from lightmeter.tables.records import DeferredRowsBuilder
from lightmeter.tables.schema import ALL_TABLES, OPTIONAL_TABLES, TABLES, schema
from lightmeter.tables.writer import Loader
from lightmeter.tempdirs import LockedTempDir

__all__ = ["export_tables"]


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of the folder.

    Attributes:
        folder: Where its journal is.
        header: What the journal says of it.
        place: Among the runs of the folder, oldest first.
        mark: Differs when the journal does.
    """

    folder: Path
    header: RunHeader
    place: int
    mark: str


def export_tables(out: Path, *, whole: bool = False) -> dict[str, int]:
    """Write the tables of the runs in `out`; returns the rows of each table that were written.

    Each item of the manifests stands in `assets` once, as its latest run left it, with all that was ever paid for it;
    its facts are those of the latest run that answered it. Memory is bounded by a few batches, whatever the length of
    the manifests.

    Args:
        out: The output folder.
        whole: Write all tables anew, in one part each, also where adding to them would do.

    Raises:
        JournalError: there is no run there.
        TablesError: they cannot be written; what stands there is as it was, and the journals are safe.
    """
    read_run_header(out)  # says so if there is none, before anything is made
    try:
        return _exported(out, whole=whole)
    except OSError as error:
        raise TablesError(
            f"The tables cannot be written: {error}.",
            hint=f"Nothing that was answered is lost. Make room, or allow writing: lightmeter rebuild {out}",
        ) from error


def _exported(out: Path, *, whole: bool) -> dict[str, int]:
    dataset = Dataset(out)
    with dataset.locked():
        runs = _runs(out)
        with LockedTempDir() as scratch:
            latest = LatestRunIndex.of(
                [run.folder for run in runs] if len(runs) > 1 else [], scratch.path / "latest.sqlite"
            )
            beside = len(runs) > 1 and not whole and not latest.overlaps and _older_stand(dataset, runs)
            written = _write(dataset, runs, latest, beside=beside)
        write_catalog(out)
    if runs[-1].header.options.table_format == "delta":
        write_delta(dataset, str(out / "delta"))
    return written


def _runs(out: Path) -> list[_Run]:
    folders = [path.parent for path in out.glob(f"runs/*/{journal_path(out).name}")]
    # By when they began; two of the same second by when they were planned.
    headers = sorted(
        ((read_run_header(folder), folder) for folder in folders),
        key=lambda one: (one[0].run_id[:15], one[0].planned_at),
    )
    headers.append((read_run_header(out), out))
    return [_Run(folder, header, place, _mark(folder)) for place, (header, folder) in enumerate(headers)]


def _mark(folder: Path) -> str:
    with open_read_only(folder) as db:
        counts = db.execute("SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM transitions)").fetchone()
    return "-".join(map(str, counts or ()))


def _older_stand(dataset: Dataset, runs: list[_Run]) -> bool:
    """Whether the tables hold the older runs as their journals are, in parts without the last one, under its schema."""
    *older, last = runs
    wanted = {run.header.run_id: run.mark for run in older}
    ask = last.header.options.ask
    if any(run.header.options.ask != ask for run in older):
        return False
    for table in (*ALL_TABLES, *([] if ask is None else [table_name(ask)])):
        held: dict[str, str] = {}
        try:
            parts = dataset.describe(table)
        except TablesError:  # one is broken: all are written anew
            return False
        for part in parts:
            if last.header.run_id in part.runs and len(part.runs) > 1:
                return False
            held |= {run_id: mark for run_id, mark in part.runs.items() if run_id != last.header.run_id}
        # A run that did not request an optional table need not have a part of it.
        needed = wanted if table in TABLES else {run.header.run_id: run.mark for run in older if _requests(run, table)}
        if not needed.items() <= held.items() <= wanted.items():
            return False
    types = _extra_types(runs)
    return all(run.header.extra_types == types for run in runs)


def _write(dataset: Dataset, runs: list[_Run], latest: LatestRunIndex, *, beside: bool) -> dict[str, int]:
    told = runs[-1:] if beside else runs
    extra_types = _extra_types(runs)
    asks = {run.header.options.ask.name: run.header.options.ask for run in runs if run.header.options.ask is not None}
    schemas = {table: schema(table, extra_types) for table in ALL_TABLES}
    schemas |= {table_name(ask): answers_schema(ask) for ask in asks.values()}
    optional = [table for table in OPTIONAL_TABLES if not any(_requests(run, table) for run in told)]
    replacing = dataset.replacing(schemas, _lineage(told), beside=beside, only_with_rows=optional)
    with collector_paused():
        with replacing as writers, Loader(writers) as loader:
            for run in told:
                with open_read_only(run.folder) as db:
                    db.execute("ATTACH ? AS latest", (str(latest.path),))
                    write_journal_rows(TableSinks(loader, DeferredRowsBuilder(extra_types)), db, run.header, run.place)
                    if (asked := run.header.options.ask) is not None:
                        for records in answer_records(db, asks[asked.name], run.header.run_id, run.place):
                            loader.put(records)
        return {table: writers[table].rows for table in dataset.tables()}


def _requests(run: _Run, feature: str) -> bool:
    return feature in run.header.options.features


def _extra_types(runs: list[_Run]) -> dict[str, str]:
    """The manifests' own columns, each with a type that holds all it has in any of them."""
    types: dict[str, str] = {}
    for run in runs:
        for name, of in run.header.extra_types.items():
            known = types.setdefault(name, of)
            if known != of:
                types[name] = "double" if {known, of} == {"int64", "double"} else "string"
    return types


def _lineage(runs: list[_Run]) -> Mapping[str, Any]:
    header = runs[-1].header
    return {
        "lightmeter": __version__,
        "run_id": header.run_id,
        "manifest": header.manifest,
        "manifest_sha256": header.manifest_sha256,
        "options": header.options.model_dump_json(),
        "planned_at": header.planned_at,
        "runs": {run.header.run_id: run.mark for run in runs},
    }
