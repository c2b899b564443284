"""Tables from the journal, with no request: every row of the manifest, every fact of every answer."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import apsw

from lightmeter import __version__
from lightmeter.clock import utc_from_timestamp
from lightmeter.journal.raw import unpack
from lightmeter.journal.store import reading
from lightmeter.pipeline.session import Header, read_header
from lightmeter.tables.collector import collector_paused
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables.loading import BATCH_BYTES, Loader
from lightmeter.tables.schema import TABLES, schema

__all__ = ["export"]

_ASSETS: Final = """
SELECT i.item_id, i.url, i.status, i.reason, i.error, coalesce(i.kind, o.kind), coalesce(i.name, o.name), s.request_id,
       i.duplicate_of, s.paid, s.assets, i.submission_id, coalesce(i.width, o.width), coalesce(i.height, o.height),
       coalesce(i.duration_s, o.duration_s), coalesce(i.content_sha256, o.content_sha256), s.answered_at, i.extra, i.seq
FROM items i LEFT JOIN items o ON o.item_id = i.duplicate_of
     LEFT JOIN submissions s ON s.submission_id = coalesce(i.submission_id, o.submission_id)
ORDER BY i.seq
"""

_ANSWERS: Final = """
SELECT s.submission_id, s.request_id, a.raw FROM submissions s JOIN answers a USING (submission_id)
WHERE s.state = 'settled' ORDER BY s.submission_id
"""

_ROWS_OF: Final = """
SELECT item_id, url, asset FROM items WHERE submission_id = ?1
UNION ALL
SELECT d.item_id, d.url, i.asset FROM items i JOIN items d ON d.duplicate_of = i.item_id WHERE i.submission_id = ?1
"""

_REQUESTS: Final = """
SELECT submission_id, request_id, state, sent_at, answered_at, assets, paid, remaining, http_status, attempts, polls
FROM submissions ORDER BY submission_id
"""

_FINDINGS: Final = """
SELECT i.item_id, i.url, f.name, f.severity, f.message, f.value, f.facts
FROM findings f JOIN items i USING (seq) ORDER BY f.seq, f.rowid
"""


def export(out: Path) -> dict[str, int]:
    """Write all tables of the run in `out`, each replaced at once; returns rows by table.

    Memory is bounded by a few batches, whatever the length of the manifest.

    Raises:
        JournalError: there is no run there.
    """
    header = read_header(out)
    flattener = Flattener(header.run_id, header.extra_types)
    dataset = Dataset(out)
    schemas = {table: schema(table, header.extra_types) for table in TABLES}
    with collector_paused(), dataset.locked(), reading(out) as db:
        with dataset.replacing(schemas, _lineage(header)) as writers, Loader(writers) as loader:
            for _ in _fill(flattener, db, header):
                if flattener.size_bytes >= BATCH_BYTES:
                    loader.put(flattener.take())
                    gc.collect(1)  # what others left behind meanwhile, without the walk over all that is old
            loader.put(flattener.take())
        return {table: writers[table].rows for table in TABLES}


def _lineage(header: Header) -> dict[str, str]:
    return {
        "lightmeter": __version__,
        "run_id": header.run_id,
        "manifest": header.manifest,
        "manifest_sha256": header.manifest_sha256,
        "options": header.options.model_dump_json(),
        "planned_at": header.planned_at,
    }


def _fill(flattener: Flattener, db: apsw.Connection, header: Header) -> Iterator[None]:
    """Hand everything to the flattener, pausing after each step so that the caller may flush."""
    for row in _asset_rows(db, header):
        flattener.add_row("assets", row)
        yield
    context_options = {"role": header.options.role, "language": header.options.language}
    for submission_id, request_id, packed in db.execute(_ANSWERS):
        refs = [ItemRef(*row) for row in db.execute(_ROWS_OF, (submission_id,))]
        context = AnswerContext(run_id=header.run_id, request_id=request_id, **context_options)
        flattener.add_answer(unpack(packed), refs, context)
        yield
    for row in db.execute(_REQUESTS):
        flattener.add_row("requests", _request_row(row, header.run_id))
        yield
    for item_id, url, name, severity, message, value, facts in db.execute(_FINDINGS):
        found = {"check": name, "severity": severity, "message": message, "value": value, "facts": facts}
        flattener.add_row("prechecks", {"item_id": item_id, "url": url, "run_id": header.run_id, **found})
        yield


def _asset_rows(db: apsw.Connection, header: Header) -> Iterator[dict[str, Any]]:
    """The rows of `assets`; an item's share of its request's credits is exact before it becomes a double."""
    for values in db.execute(_ASSETS):
        row = dict(zip(_ASSET_COLUMNS, values, strict=True))
        paid, assets, own = row.pop("paid"), row.pop("assets"), row.pop("submission_id")
        seq = row.pop("seq")
        credits_ = float(Fraction(paid, assets)) if own is not None and paid is not None and assets else 0.0
        answered_at = row.pop("answered_at")
        extra: Mapping[str, Any] = json.loads(row.pop("extra"))
        yield {
            **row,
            "run_id": header.run_id,
            "credits": credits_,
            "features": list(header.options.features),
            "backends": list(header.options.backends),
            "answered_at": None if answered_at is None else utc_from_timestamp(answered_at),
            "extra": extra,
            "seq": seq,
        }


_ASSET_COLUMNS: Final = (
    *("item_id", "url", "status", "reason", "error", "kind", "name", "request_id", "duplicate_of", "paid", "assets"),
    *("submission_id", "width", "height", "duration_s", "content_sha256", "answered_at", "extra", "seq"),
)


def _request_row(row: tuple[Any, ...], run_id: str) -> dict[str, Any]:
    _, request_id, state, sent_at, answered_at, assets, paid, remaining, http_status, attempts, polls = row
    return {
        "run_id": run_id,
        "request_id": request_id,
        "state": state,
        "sent_at": None if sent_at is None else utc_from_timestamp(sent_at),
        "answered_at": None if answered_at is None else utc_from_timestamp(answered_at),
        "assets": assets,
        "credits_paid": paid,
        "credits_remaining": remaining,
        "http_status": http_status,
        "attempts": attempts,
        "polls": polls,
    }
