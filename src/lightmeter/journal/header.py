"""The header of a run: its id, options, prices, balances and so on, from the table `meta` of the run's journal."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightmeter.clock import Clock, utc_from_timestamp
from lightmeter.errors import JournalError
from lightmeter.journal.commands.alerts import ALERT_NOTES
from lightmeter.journal.commands.submissions import get_meta, last_transition_id, put_meta
from lightmeter.journal.files import journal_path
from lightmeter.journal.store import open_read_only
from lightmeter.options import Options
from lightmeter.pricing.rates import Rounding, least_charged_milli, parse_rounding
from lightmeter.redaction import mask_credentials
from lightmeter.sqlite import Connection, command

FORMER_RUNS: Final = "former_runs"
"""Key in the table `meta` of the ids that the run had before its present id.

The value is a JSON list of [run id, last submission id that was sent under it].
"""

CARRIED_FROM: Final = "carried_from"
"""Key in the table `meta` of the earlier runs whose open requests this run took over.

The value has the form of `FORMER_RUNS`: a JSON list of [run id, last submission id that was sent under it].
"""

FOLDED: Final = "folded"
"""Key in the table `meta` of the id of a removed run.

Before an older run is removed, its rows are added to this journal. The value is the id of the run that was added last.
"""

CHECKED_ONLY: Final = "checked_only"
"""Key in the table `meta` that marks a journal whose rows were only checked: it holds no run that can be resumed."""

EMBEDDED_KEY: Final = "embedded"
"""Key in the table `meta`: `1` if the run was planned for the embedded service, `0` if for another service."""
PLANNING_OPEN: Final = "planning_open"
"""Key in the table `meta` that marks an incomplete journal: the last rows of its manifest are not planned yet."""

ALIASES: Final = "aliases"
"""Key in the table `meta` of a JSON object: requested name of a back end that is an alias → its `source` in answers."""

POSITION: Final = "position"
"""Key in the table `meta` of the run's position among the runs of its output folder; the first run has 1."""

MANIFEST_NOTES: Final = "manifest_notes"
"""Key in the table `meta` of a JSON list of sentences: `ManifestReader.notes` of the manifest that was planned."""

_BALANCE_PLACE: Final = "balance_place"
"""Key in the table `meta` of the id of the last transition (state change of a request) before the balance was read."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The values that describe a run as a whole. Prices are in millicredits: thousandths of a credit.

    Attributes:
        run_id: Id of the run.
        manifest: File name of the manifest.
        manifest_sha256: Hash of the manifest's content.
        options: The run's options.
        price_per_image_milli: Price of an image or video frame, in millicredits, before rounding.
        extra_types: The manifest's additional columns, as column name → type.
        planned_at: When the run was planned, in ISO 8601.
        balance_before: Balance of the account in credits before the first request; None while unknown.
        balance_after: Balance of the account in credits when it was last read; None while unknown.
        seconds: Sum of the durations of the run's processes, in seconds; a killed process does not count.
        notes: Messages to the user about the run, one sentence each.
        alert_notes: Those of them that report spending alerts that were not delivered.
        former_runs: Earlier ids of the run, oldest first, each with the last submission id that was sent under it.
        retry_per_image_milli: Price of asking the user's question (`--ask`) a second time about an image or frame, in
            millicredits; 0 without a question.
        carried_from: Ids of earlier runs whose unanswered or unsettled requests this run took over, oldest first, each
            with the last id of a submission that it sent.
        checked_only: Whether the folder holds only the result of `lightmeter check`, which sends nothing, and no run.
        planning_open: Whether the manifest has rows that are not planned yet (`--stream`).
        position: Position among the runs of the folder, from 1; 0 if an older version of lightmeter began the run.
        rounding: Whether the service says that it rounds up each image or each request to whole credits; None if it
            does not say.
        embedded: Whether the run uses the embedded service; None if it is not known, because an older version of
            lightmeter began the run.
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
    alert_notes: tuple[str, ...] = ()
    former_runs: tuple[tuple[str, int], ...] = ()
    retry_per_image_milli: int = 0
    carried_from: tuple[tuple[str, int], ...] = ()
    checked_only: bool = False
    planning_open: bool = False
    position: int = 0
    rounding: Rounding | None = None
    embedded: bool | None = None

    @property
    def least_charged_milli(self) -> int:
        """Least millicredits that an image or frame adds to a charge.

        If the service rounds up each image, this is its price rounded up to a multiple of 1000, and each image costs
        exactly that. Otherwise, it is the price before rounding: a request whose sum is rounded up may cost more.
        """
        return least_charged_milli(self.price_per_image_milli, self.rounding)

    @property
    def is_free(self) -> bool:
        """Whether the run costs nothing: the embedded service analyzes it with local models, and charges no price."""
        return bool(self.embedded) and self.price_per_image_milli == 0 and self.retry_per_image_milli == 0

    @property
    def run_ids(self) -> tuple[str, ...]:
        """All ids of the run, oldest first. A run gets another id when its journal is restored from a copy."""
        return (*(run_id for run_id, _ in self.former_runs), self.run_id)

    def idempotency_key(self, submission_id: int) -> str:
        """Return the idempotency key of a submission (POST).

        It contains the id that the run had when it first sent the submission.
        """
        ids = (run_id for run_id, last in (*self.carried_from, *self.former_runs) if submission_id <= last)
        return f"{next(ids, self.run_id)}-{submission_id}"


def read_run_header(out: Path) -> RunHeader:
    """Return the header of the run in the folder `out`.

    Raises:
        JournalError: the folder has no run, or the header of the run is incomplete.
    """
    with open_read_only(out) as db:
        meta = get_meta(db)
    try:
        options = Options.model_validate_json(meta["options"])
        alert_notes = tuple(json.loads(meta.get(ALERT_NOTES, "{}")).values())
        return RunHeader(
            run_id=meta["run_id"],
            manifest=mask_credentials(meta["manifest"]),
            manifest_sha256=meta["manifest_sha256"],
            options=options,
            price_per_image_milli=int(meta["price_per_image_milli"]),
            extra_types=json.loads(meta["extra_types"]),
            planned_at=meta["planned_at"],
            balance_before=json.loads(meta.get("balance_before", "null")),
            balance_after=json.loads(meta.get("balance_after", "null")),
            seconds=float(meta.get("seconds", "0")),
            notes=(*json.loads(meta.get("notes", "[]")), *alert_notes),
            alert_notes=alert_notes,
            former_runs=tuple((run_id, last) for run_id, last in json.loads(meta.get(FORMER_RUNS, "[]"))),
            carried_from=tuple((run_id, last) for run_id, last in json.loads(meta.get(CARRIED_FROM, "[]"))),
            retry_per_image_milli=int(meta.get("retry_per_image_milli", "0")),
            checked_only=CHECKED_ONLY in meta,
            planning_open=PLANNING_OPEN in meta,
            position=int(meta.get(POSITION, "0")),
            rounding=parse_rounding(meta.get("rounding")),
            embedded=_is_embedded(options, meta),
        )
    except (KeyError, ValueError) as error:
        raise JournalError(f"{journal_path(out)} lacks its header: {error}.") from error


def _is_embedded(options: Options, meta: Mapping[str, str]) -> bool | None:
    """Return whether a run uses the embedded service; None if neither its options nor its table `meta` tell it."""
    if options.base_url is not None:
        return False
    if EMBEDDED_KEY in meta:
        return meta[EMBEDDED_KEY] == "1"
    return False if "pace" in meta else None  # an older version; it stored a learned rate limit only for other services


def archived_runs(out: Path) -> list[Path]:
    """Return the folders `out/runs/*` of the earlier runs that an output folder keeps, oldest first.

    Raises:
        JournalError: a journal cannot be read.
    """
    folders = [path.parent for path in out.glob(f"runs/*/{journal_path(out).name}")]
    headers = {folder: read_run_header(folder) for folder in folders}
    # A process that was killed may leave the copy of a run before the run is replaced, or a run that was removed.
    gone = {_folded_run(folder) for folder in [*folders, *([out] if journal_path(out).exists() else [])]}
    if journal_path(out).exists():
        gone.add(read_run_header(out).run_id)
    return sorted((folder for folder in folders if headers[folder].run_id not in gone), key=lambda f: _age(headers[f]))


def _age(header: RunHeader) -> tuple[int, str, str, str]:
    """Return a key that sorts the runs of a folder by age, oldest first.

    The key is (position of the run among the runs of its folder, from 1; first 15 characters of the run id, which are
    the time when it was made; time of the plan; run id). Runs of older versions of lightmeter all have the position 0.
    """
    return header.position, header.run_id[:15], header.planned_at, header.run_id


def _folded_run(folder: Path) -> str | None:
    """Return the id of the earlier run that was last merged into the journal in `folder` and then removed.

    Return None if no run was merged.
    """
    with open_read_only(folder) as db:
        return get_meta(db).get(FOLDED)


def fresh_run_id(clock: Clock) -> str:
    """Return a new unique run id. It begins with the time of `clock` in UTC, such as `20260131T235959`."""
    return f"{utc_from_timestamp(clock.now()):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


@command
def end_planning(db: Connection, values: Mapping[str, str]) -> None:
    """Record that all rows of the manifest are planned, and write `values` (name → text) to the table `meta`."""
    db.execute("DELETE FROM meta WHERE key = ?", (PLANNING_OPEN,))
    put_meta(values)(db)


@command
def put_balance_meta(db: Connection, values: Mapping[str, str]) -> None:
    """Write `values` (name → text) to the table `meta`, and mark the account's balance as up to date.

    `values` must contain `balance_after`: the balance that was read just now, in credits.
    The balance counts as up to date until the next request is sent or answered: see `is_balance_current`.
    """
    put_meta({**values, _BALANCE_PLACE: str(last_transition_id(db))})(db)


def is_balance_current(db: Connection) -> bool:
    """Return whether the balance in the journal is up to date: no request was sent or answered after it was read."""
    meta = get_meta(db)
    if _BALANCE_PLACE not in meta and "seconds" in meta:  # an older journal, whose run came to its end
        return True
    events = db.execute(
        "SELECT count(*) FROM transitions "
        "WHERE rowid > ? AND event IN ('send', 'answer', 'collect', 'ask_again', 'pay_again')",
        (int(meta.get(_BALANCE_PLACE, "0")),),
    ).get
    return not events
