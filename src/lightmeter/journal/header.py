"""What the journal says of a run as a whole."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightmeter.clock import Clock, utc_from_timestamp
from lightmeter.errors import JournalError
from lightmeter.journal.commands import get_meta, last_transition_id, put_meta
from lightmeter.journal.files import journal_path
from lightmeter.journal.store import open_read_only
from lightmeter.options import Options
from lightmeter.sqlite import Change, Connection

__all__ = ["FORMER_RUNS", "RunHeader", "fresh_run_id", "is_balance_current", "put_balance_meta", "read_run_header"]

FORMER_RUNS: Final = "former_runs"
"""Name of the fact that lists ids the run had before: JSON, [id, last submission under it], …"""

_BALANCE_PLACE: Final = "balance_place"
"""Meta key: id of the last transition before the balance was read."""

_EVENTS_AFTER: Final = """
SELECT count(*) FROM transitions
WHERE rowid > ? AND event IN ('send', 'answer', 'collect', 'ask_again', 'pay_again')
"""
"""Counts the events of requests that may change the balance."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What the journal says of the run as a whole.

    Attributes:
        run_id: Names it in every table.
        manifest: Name of the manifest; with its sha256.
        options: What was asked for.
        price_per_image_milli: Millicredits an image or frame, before rounding.
        extra_types: Types of the manifest's own columns.
        planned_at: When, as ISO text.
        balance_before: Credits of the account before the first request, once known.
        balance_after: Credits after the last look, once known.
        seconds: For how long processes worked on it.
        notes: What the user was told about the run, a sentence each.
        former_runs: Ids that the run had before, oldest first, each with the last submission that was sent under it.
        retry_per_image_milli: Millicredits an image or frame for asking the question of `ask` again; 0 without one.
    """

    run_id: str
    manifest: str
    manifest_sha256: str
    options: Options
    price_per_image_milli: int
    extra_types: dict[str, str]
    planned_at: str
    balance_before: int | None
    balance_after: int | None
    seconds: float
    notes: tuple[str, ...] = ()
    former_runs: tuple[tuple[str, int], ...] = ()
    retry_per_image_milli: int = 0

    @property
    def run_ids(self) -> tuple[str, ...]:
        """All ids that the run ever had."""
        return (*(run_id for run_id, _ in self.former_runs), self.run_id)

    def idempotency_key(self, submission_id: int) -> str:
        """What a submission is sent under, each time: it holds the id that the run had at the first time."""
        under = (run_id for run_id, last in self.former_runs if submission_id <= last)
        return f"{next(under, self.run_id)}-{submission_id}"


def read_run_header(out: Path) -> RunHeader:
    """The header of the run in a folder.

    Raises:
        JournalError: there is no run there.
    """
    with open_read_only(out) as db:
        meta = get_meta(db)
    try:
        return RunHeader(
            run_id=meta["run_id"],
            manifest=meta["manifest"],
            manifest_sha256=meta["manifest_sha256"],
            options=Options.model_validate_json(meta["options"]),
            price_per_image_milli=int(meta["price_per_image_milli"]),
            extra_types=json.loads(meta["extra_types"]),
            planned_at=meta["planned_at"],
            balance_before=_number(meta.get("balance_before")),
            balance_after=_number(meta.get("balance_after")),
            seconds=float(meta.get("seconds", "0")),
            notes=tuple(json.loads(meta.get("notes", "[]"))),
            former_runs=tuple((run_id, last) for run_id, last in json.loads(meta.get(FORMER_RUNS, "[]"))),
            retry_per_image_milli=int(meta.get("retry_per_image_milli", "0")),
        )
    except (KeyError, ValueError) as error:
        raise JournalError(f"{journal_path(out)} lacks its header: {error}.") from error


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def fresh_run_id(clock: Clock) -> str:
    """A name for a run: when, and something that no other run has."""
    return f"{utc_from_timestamp(clock.now()):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def put_balance_meta(values: Mapping[str, str]) -> Change[None]:
    """Write meta values with a balance that was just read, while no request was in flight."""

    def change(db: Connection) -> None:
        put_meta({**values, _BALANCE_PLACE: str(last_transition_id(db))})(db)

    return change


def is_balance_current(db: Connection) -> bool:
    """Return whether no request was sent or answered after the balance was read; for a killed run one may have been."""
    meta = get_meta(db)
    if _BALANCE_PLACE not in meta and "seconds" in meta:  # an older journal, whose run came to its end
        return True
    ((events,),) = db.execute(_EVENTS_AFTER, (int(meta.get(_BALANCE_PLACE, "0")),))
    return not events
