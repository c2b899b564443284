"""Plan the rows of a manifest while the engine already sends the rows planned so far (`--stream`).

A temporary journal has all rows as they were planned, so that duplicates are found. The rows are then added to the
journal of the run in chunks, each in one transaction, together with the answers that earlier runs paid for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Final

from lightmeter import sqlite
from lightmeter.cache.reuse import find_cached_rows
from lightmeter.engine.run_state import RunState
from lightmeter.errors import LightmeterError, ManifestError
from lightmeter.journal.commands.append_rows import (
    Inserts,
    append_rows,
    chunk_in_memory,
    index_findings,
    read_chunk,
)
from lightmeter.journal.commands.carry_over import carry_results
from lightmeter.journal.commands.odd_sizes import add_odd_size_findings
from lightmeter.journal.commands.plan_rows import apply_cached_rows, before_sending, planned_rows, restore_rows
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.frame_rows import frame_of
from lightmeter.journal.header import MANIFEST_NOTES, PLANNING_OPEN, end_planning
from lightmeter.journal.queries.items import count_rows, count_sendable_rows_by_status
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.thumbnails import THUMBNAILS_NAME, add_thumbnails
from lightmeter.manifest.readers import ManifestReader, ManifestSource
from lightmeter.planning.checks.checked_rows import write_checked_rows
from lightmeter.planning.plan import Plan, plan_from_journal
from lightmeter.planning.preflight import preflight
from lightmeter.run_session.next_run import PLAN_NAME, comparable_runs
from lightmeter.run_session.session import Session, forget_kept_checks
from lightmeter.settings import Settings
from lightmeter.tempdirs import LockedTempDir

CHUNK_ROWS: Final = 512
"""Most rows that are added to the journal of the run in one transaction (a chunk)."""

WAIT_S: Final = 0.5
"""Least seconds between two additions of rows, so that enough images come together to share a request."""


async def plan_manifest(
    session: Session, run_state: RunState, source: ManifestSource | None, settings: Settings
) -> None:
    """Read, check and price those rows of a run's manifest that the run's journal lacks; an error stops the run.

    Args:
        session: The open run.
        run_state: State of the run, in which the planned rows are recorded, so that the engine may send them.
        source: The manifest. None if an earlier process had it in memory only: then its remaining rows cannot be read,
            which stops the run.
        settings: The user's settings.
    """
    try:
        with LockedTempDir() as temporary, Journal(temporary.path) as temporary_journal:
            await RowPlanner(session, run_state, settings, temporary, temporary_journal).plan(source)
    except LightmeterError as error:
        run_state.stop(error)
    except Exception as error:  # noqa: BLE001 (whatever it is: the engine raises it once all requests have ended)
        run_state.fail(error)


class RowPlanner:
    """Plans those rows of the manifest that the journal of a run lacks, and adds them to it in chunks.

    Rows are checked in a second, temporary journal first, because the checks compare each row with all earlier rows.

    Args:
        session: The open run.
        run_state: State of the run, in which the planned rows are recorded, so that the engine may send them.
        settings: The user's settings.
        temporary: A temporary folder, which the caller removes afterwards.
        temporary_journal: The open journal in `temporary`. It has no rows yet.
    """

    def __init__(
        self,
        session: Session,
        run_state: RunState,
        settings: Settings,
        temporary: LockedTempDir,
        temporary_journal: Journal,
    ) -> None:
        self._session = session
        self._run_state = run_state
        self._settings = settings
        self._options = session.header.options
        self._temporary = temporary
        self._temporary_journal = temporary_journal
        self._added_at_s = 0.0
        with open_read_only(session.out) as db:
            self._next = count_rows(db)
        run_state.add_planned_rows({}, self._next - 1)

    async def plan(self, source: ManifestSource | None) -> None:
        """Plan the manifest `source` from the first row that the journal of the run lacks to the last.

        Raises:
            ManifestError: the manifest cannot be read to its end, or changed meanwhile; or `source` is None, because
                the manifest was in the memory of an earlier process.
        """
        if source is None:
            raise ManifestError(
                "The rest of the manifest was in memory and cannot be read again.",
                hint="Run the same manifest with stream=True into the same folder.",
            )
        await asyncio.to_thread(self._copy_planned_rows)
        service = await preflight(self._options, self._settings, required=False)
        plan = plan_from_journal(self._temporary, self._options, self._settings, service)
        out = self._session.out
        earlier = [folder for folder in comparable_runs(plan, out) if folder != out]
        reader = ManifestReader(source, options=self._options.read_options)
        steps = write_checked_rows(reader, self._options, self._settings, self._session.clock, self._temporary_journal)
        async with aclosing(steps):
            async for _ in steps:
                if monotonic() - self._added_at_s >= WAIT_S:
                    await self._add_rows(earlier, reader.extra_types)
        await self._add_rows(earlier, reader.extra_types)
        if reader.sha256 != self._session.header.manifest_sha256:
            raise ManifestError(
                f"{reader.name} changed while it was being read.",
                hint="Run it again into the same folder: what is paid is not paid again.",
            )
        await self._finish(plan, reader)

    def _copy_planned_rows(self) -> None:
        """Copy the rows of the run's journal to the temporary journal, each with its status before it was sent."""
        with open_read_only(self._session.out) as db:
            meta, rows = get_meta(db), planned_rows(db)
            while chunk := [before_sending(row) for row, _ in islice(rows, CHUNK_ROWS)]:
                self._temporary_journal.submit(restore_rows(chunk)).result()
        del meta[PLANNING_OPEN]
        self._temporary_journal.submit(put_meta(meta)).result()
        self._temporary_journal.submit(index_findings).result()

    async def _add_rows(self, earlier: Sequence[Path], extra_types: Mapping[str, str]) -> None:
        """Add the rows planned since the last call to the journal of the run, and let the engine send them.

        Args:
            earlier: Folders of the earlier runs whose answers the rows can use, newest first.
            extra_types: Additional column of the manifest → its type, as `ManifestReader.extra_types` returns it.
        """
        while True:
            rows, inserts, counts = await asyncio.to_thread(self._next_chunk, earlier)
            if not rows:
                return
            await self._session.journal.write(append_rows(inserts, {"extra_types": json.dumps(extra_types)}))
            self._next += rows
            self._run_state.add_planned_rows(counts, self._next - 1)
            self._added_at_s = monotonic()

    def _next_chunk(self, earlier: Sequence[Path]) -> tuple[int, Inserts, Mapping[str, int]]:
        """Return (number of manifest rows to add next, SQL that inserts them and their frames, status → row count).

        In the counts, a video whose frames are sent as images counts as these frames. If a run in one of the folders
        `earlier` has an answer for a row, the row is added with this answer.
        """
        with open_read_only(self._temporary_journal.folder) as db:
            rows = [row for row, _ in planned_rows(db, self._next, self._next + CHUNK_ROWS - 1)]
        with chunk_in_memory(rows, self._options.model_dump_json()) as chunk:
            cached = find_cached_rows(chunk, self._options, self._settings, self._session.clock.now())
            for answered in list(cached):
                apply_cached_rows(answered)(chunk)
            if rows:
                carry_results(chunk, earlier)
            return (
                sum(frame_of(row.seq) is None for row in rows),
                read_chunk(chunk),
                count_sendable_rows_by_status(chunk),
            )

    async def _finish(self, plan: Plan, reader: ManifestReader) -> None:
        """Write the plan file and the thumbnails of the run, and record that all rows of the manifest are planned.

        Of `plan`, only the attribute `service` is used. `reader` has read the whole manifest.
        """
        out = self._session.out
        meta = {"extra_types": json.dumps(reader.extra_types), MANIFEST_NOTES: json.dumps(reader.notes)}
        await self._temporary_journal.write(put_meta(meta))
        plan = plan_from_journal(self._temporary, self._options, self._settings, plan.service)
        await asyncio.to_thread(plan.save, out / PLAN_NAME, thumbnails=False)
        own = self._temporary.path / THUMBNAILS_NAME
        await asyncio.to_thread(add_thumbnails, own, out / THUMBNAILS_NAME, self._settings.thumbnail_bytes)

        def complete(db: sqlite.Connection) -> None:
            if self._options.precheck:
                add_odd_size_findings(self._settings.quality.odd_size)(db)
            end_planning(meta)(db)

        await self._session.journal.write(complete)
        await asyncio.to_thread(forget_kept_checks, out, self._options, self._settings)
        self._run_state.end_planning()
