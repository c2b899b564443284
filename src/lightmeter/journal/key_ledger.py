"""A ledger of the credits that all runs on this machine spend with one API key in a period: one SQLite file for all.

A run writes its total credits to the ledger, not single charges. Before it sends a request, it also reserves the price
of the request in the ledger. So a killed process leaves totals that may be too high. They are too low only if a charge
was higher than its reservation. The next run of the key corrects these totals from the journal of the killed run.

Each API key is one account, whatever the URL of the service. A period is a day, week or month. If the machine's clock
was set back, credits count in the latest period in which the account was used, not in the period of the clock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.errors import JournalError
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.queries.charges import credit_totals
from lightmeter.journal.store import open_read_only

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    account TEXT NOT NULL,             -- hash of the key; without the prefix `key:`, hash of an address and the key
    period TEXT NOT NULL,              -- such as 2026-03
    run_id TEXT NOT NULL,
    folder TEXT NOT NULL,              -- output folder of the run
    process TEXT NOT NULL,             -- pid and start time; empty after a regular end
    paid_before INTEGER NOT NULL,      -- credits the run had paid before its first entry in this period
    paid INTEGER NOT NULL,             -- credits the run has paid since it began, over all periods
    held INTEGER NOT NULL,
    PRIMARY KEY (account, period, run_id)
) STRICT, WITHOUT ROWID;
"""

_BUSY_TIMEOUT_MS: Final = 30_000

_KEY_PREFIX: Final = "key:"
"""Prefix of account names that depend on a key alone.

The account names of older versions lack it: they depend on a URL and a key.
"""


def ledger_account(key: str) -> str:
    """Return the name of the account in which the credits spent with an API key are counted.

    The name does not reveal the key.
    """
    return _KEY_PREFIX + hashlib.sha256(key.encode()).hexdigest()


def legacy_ledger_account(base_url: str, key: str) -> str:
    """Return the name of the account in which older versions counted credits spent with an API key at `base_url`."""
    return hashlib.sha256(f"{base_url}\0{key}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RunCredits:
    """Credits of a run: `paid` since it began, and `held`, which it reserves now for requests that may be charged."""

    paid: int
    held: int


class _CapExceeded(Exception):
    """Raised to roll back a transaction of the ledger if credits would exceed the budget of the API key."""


class KeyLedger:
    """A file that counts the credits that all runs on this machine spend with one API key in each period.

    A period is a UTC day, week or month, as text such as `2026-03-31`, `2026-W13` or `2026-03`. Any number of processes
    may use the file at once.

    Args:
        path: The SQLite file; created if it is missing.
        account: Name of the API key's account, from `ledger_account`.
        run_id: Id of the run that opens the file and reports its own credits.
        folder: The run's output folder.

    Raises:
        JournalError: the file cannot be used. All methods raise it.
    """

    def __init__(self, path: Path, account: str, run_id: str, folder: Path) -> None:
        self._path = path
        self._run = (account, run_id)
        self._folder = str(folder.resolve())
        self._process = _process_name(os.getpid())
        with self._errors_translated():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite.connect(path, busy_timeout_ms=_BUSY_TIMEOUT_MS)
            self._db.pragma("synchronous", "full")
            self._db.execute(_SCHEMA)

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite.Error, OSError) as error:
            raise JournalError(
                f"{self._path} cannot be used: {error}.", hint="It stores the budget of the key. Nothing was sent."
            ) from error

    def close(self) -> None:
        """Mark the run's process as ended and close the file. The credits that the run reserves stay recorded."""
        account, run_id = self._run
        with self._errors_translated():
            self._db.execute("UPDATE runs SET process = '' WHERE account = ? AND run_id = ?", (account, run_id))
            self._db.close()

    def record(self, period: str, totals: RunCredits, cap: int | None = None) -> bool:
        """Write this run's credits, and return True.

        If the credits of all runs would exceed `cap`, write nothing and return False.

        Args:
            period: The current period, such as `2026-03`. If the key was already used in a later period, the credits
                count in that period.
            totals: Credits that the run has paid since it began, and credits that it reserves now.
            cap: Most credits that all runs may spend with the key in the period. With None the totals are always
                written.
        """
        account, run_id = self._run
        try:
            with self._errors_translated(), sqlite.write_transaction(self._db):
                latest = self.latest_period(period)
                # A row of this run may exist under a legacy account name: its `paid_before` is taken over.
                self._db.execute(
                    "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, "
                    "(SELECT coalesce(min(paid_before), ?6) FROM runs WHERE run_id = ?3 AND period = ?2 "
                    "AND substr(account, 1, 4) <> ?8), ?6, ?7) ON CONFLICT DO UPDATE SET folder = excluded.folder, "
                    "process = excluded.process, paid = max(paid, excluded.paid), held = excluded.held",
                    (account, latest, run_id, self._folder, self._process, totals.paid, totals.held, _KEY_PREFIX),
                )
                if cap is not None:
                    self._check_cap(latest, cap)
        except _CapExceeded:
            return False
        return True

    def latest_period(self, period: str) -> str:
        """Return the latest period in which credits of this API key were recorded, or `period` if it is later.

        A period is a day, week or month, as text such as `2026-03`. `period` is the present one; only recorded periods
        of the same kind are compared with it. A recorded period can be later than the present one if the machine's
        clock was set back.
        """
        # Names of periods of one length have the same number of characters, and sort by time.
        query = "SELECT coalesce(max(period), '') FROM runs WHERE account = ? AND length(period) = length(?)"
        with self._errors_translated():
            return max(period, str(self._db.execute(query, (self._run[0], period)).get))

    def migrate_legacy_accounts(self, period: str, is_mine: Callable[[str, Path], bool]) -> None:
        """Add the credits that older versions of lightmeter recorded for this API key under other account names.

        Args:
            period: The current day, week or month, such as `2026-03`; account names that were last used in an earlier
                period are left out.
            is_mine: Function of an account name and the folder of a run in that account; it returns whether the account
                belongs to this API key.
        """
        with self._errors_translated(), sqlite.write_transaction(self._db):
            rows = self._db.execute(
                "SELECT DISTINCT account, folder FROM runs "
                "WHERE substr(account, 1, 4) <> ? AND period >= ? AND length(period) = length(?)",
                (_KEY_PREFIX, period, period),
            )
            for former in {account for account, folder in rows if is_mine(account, Path(folder))}:
                self._db.execute(
                    "INSERT INTO runs SELECT ?, period, run_id, folder, process, paid_before, paid, held "
                    "FROM runs WHERE account = ? ON CONFLICT DO UPDATE SET held = max(held, excluded.held), "
                    "paid_before = min(paid_before, excluded.paid_before), paid = max(paid, excluded.paid)",
                    (self._run[0], former),
                )
                self._db.execute("DELETE FROM runs WHERE account = ?", (former,))

    def replace_former_runs(self, former: Collection[str], period: str, totals: RunCredits) -> None:
        """Record the credits of this run under its current id instead of the ids that it had before.

        A run gets another id when the user continues it from a restored journal.

        Args:
            former: Ids that the run had before.
            period: The current day, week or month, such as `2026-03`.
            totals: Credits of this run. They include credits that the run spent under a former id, even if the restored
                journal lacks the requests.
        """
        account, run_id = self._run
        with self._errors_translated(), sqlite.write_transaction(self._db):
            latest = self.latest_period(period)
            for former_id in former:
                self._db.execute(
                    "UPDATE OR IGNORE runs SET run_id = ?, paid = ?, held = ? "
                    "WHERE account = ? AND period = ? AND run_id = ? AND folder = ?",
                    (run_id, totals.paid, totals.held, account, latest, former_id, self._folder),
                )

    def spent(self, period: str) -> int:
        """Return the credits that all runs spent with the key in a period such as `2026-03`: paid plus reserved."""
        query = "SELECT coalesce(sum(paid - paid_before + held), 0) FROM runs WHERE account = ? AND period = ?"
        with self._errors_translated():
            return int(self._db.execute(query, (self._run[0], period)).get)

    def room(self, period: str, cap: int, wanted: int) -> int:
        """Return the credits, 0 or more, that runs may still reserve in a period without exceeding `cap` together.

        If they are fewer than `wanted`, first correct the credits of other runs whose process has ended.

        Args:
            period: The current period, such as `2026-03`. If the key was already used in a later period, that counts.
            cap: Most credits that all runs may spend with the key in the period.
            wanted: Credits to reserve next.
        """
        latest = self.latest_period(period)
        if cap - self.spent(latest) < wanted:
            with self._errors_translated(), sqlite.write_transaction(self._db):
                self._correct_dead_runs(latest, everywhere=True)
        return max(0, cap - self.spent(latest))

    def _check_cap(self, period: str, cap: int) -> None:
        if self.spent(period) > cap:
            self._correct_dead_runs(period, everywhere=True)
            if self.spent(period) > cap:
                raise _CapExceeded

    def correct_earlier_runs(self, period: str) -> None:
        """Correct the ledger's credits of earlier runs of this folder, and of killed runs, from their journals.

        Requests with an unknown charge have moved from the earlier runs to this run, which reserves their credits. So
        the ledger must not also reserve these credits for the earlier runs. A killed run may have been charged more
        than it reserved. `period` is the current period, such as `2026-03`.
        """
        with self._errors_translated(), sqlite.write_transaction(self._db):
            self._correct_dead_runs(self.latest_period(period), everywhere=False)

    def _correct_dead_runs(self, period: str, *, everywhere: bool) -> None:
        """Correct the ledger's credits of other runs whose process has ended, from the journals of these runs.

        Only the credits of `period` (such as `2026-03`) are corrected. Credits paid are never lowered. If `everywhere`
        is false, the runs that ended regularly in other folders are left out: their credits are right, or too high.
        """
        account, run_id = self._run
        query = "SELECT run_id, folder, process FROM runs WHERE account = ? AND period = ? AND run_id <> ?"
        for other, folder, process in list(self._db.execute(query, (account, period, run_id))):
            if not (everywhere or process or folder == self._folder) or (process and _is_alive(process)):
                continue
            totals = _read_journal_totals(Path(folder), other)
            if totals is None:  # missing or unreadable: what the run may have spent stays counted
                continue
            self._db.execute(
                "UPDATE runs SET paid = ?1, held = ?2, process = '' "
                "WHERE account = ?3 AND period = ?4 AND run_id = ?5 AND paid <= ?1",
                (*totals, account, period, other),
            )


def _read_journal_totals(folder: Path, run_id: str) -> tuple[int, int] | None:
    """Return the credits (paid, reserved) in the journal of a run; None if the journal is missing or unreadable.

    `folder` is the output folder of the run. If a later run followed, the journal is in its subfolder `runs/RUN_ID`.
    """
    for place in (folder, folder / "runs" / run_id):  # a finished run is archived when the next one starts
        try:
            with open_read_only(place) as journal:
                if get_meta(journal).get("run_id") == run_id:
                    return credit_totals(journal)
        except JournalError:
            continue
    return None


def _process_name(pid: int) -> str:
    """Return a text that identifies a process. A later process with the same pid has another text.

    On systems other than Linux, the text is only the pid, and a later process may have the same.
    """
    try:
        # Field 22 of /proc/<pid>/stat is the start time; the second field, in brackets, may hold spaces.
        start_time = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # not Linux, or the process has ended
        start_time = ""
    return f"{pid}:{start_time}"


def _is_alive(process: str) -> bool:
    pid = int(process.partition(":")[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as another user
        pass
    return _process_name(pid) == process
