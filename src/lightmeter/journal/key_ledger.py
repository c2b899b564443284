"""What all runs of this machine have spent with one key in a period: one small SQLite file for all of them.

A run writes its own totals here, never changes to them, and writes what it is about to hold before it holds it. So a
process that is killed leaves too much here, never too little; whoever comes next finds the truth in that run's journal.

An account is a key, however the address of its service is spelled. A period never ends by a clock that is set back:
totals are counted in the latest period of the same length that the account has been used in.
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
from lightmeter.journal.charges import credit_totals
from lightmeter.journal.commands import get_meta
from lightmeter.journal.store import open_read_only

__all__ = ["KeyLedger", "RunTotals", "account_of", "former_account_of"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    account TEXT NOT NULL,             -- hash of the key; without `key:`, of an address and the key
    period TEXT NOT NULL,              -- such as 2026-03
    run_id TEXT NOT NULL,
    folder TEXT NOT NULL,              -- where its journal is
    process TEXT NOT NULL,             -- who runs it, empty once it has ended well
    paid_before INTEGER NOT NULL,      -- what the run had paid when the period began for it
    paid INTEGER NOT NULL,             -- by the run so far, over all periods
    held INTEGER NOT NULL,
    PRIMARY KEY (account, period, run_id)
) STRICT, WITHOUT ROWID;
"""

_BUSY_TIMEOUT_MS: Final = 30_000

_MARK: Final = "key:"
"""Accounts named after a key alone begin with it; older versions named them after an address and a key."""

_PLACES: Final = ("", "runs/{run_id}")
"""Where in its folder a run's journal may be: a finished run is set aside when another manifest is run there."""


def account_of(key: str) -> str:
    """A name for the account of a key that does not give the key away."""
    return _MARK + hashlib.sha256(key.encode()).hexdigest()


def former_account_of(base_url: str, key: str) -> str:
    """The name that older versions gave the account: each spelling of the address had one of its own."""
    return hashlib.sha256(f"{base_url}\0{key}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What a run has paid over all its life, and what it holds now, in credits."""

    paid: int
    held: int


class _CapExceeded(Exception):
    """Rolls back a transaction whose totals would exceed the cap."""


class KeyLedger:
    """The file, as one run sees it. Safe with any number of processes.

    Args:
        path: The file; made if it is missing.
        account: As `account_of` names it.
        run_id: The run.
        folder: Where its journal is.

    Raises:
        JournalError: it cannot be used; nothing was sent.
    """

    def __init__(self, path: Path, account: str, run_id: str, folder: Path) -> None:
        self._path = path
        self._me = (account, run_id)
        self._folder = str(folder.resolve())
        self._process = _name_of(os.getpid())
        with self._translated():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite.connect(path, busy_timeout_ms=_BUSY_TIMEOUT_MS)
            self._db.pragma("synchronous", "full")
            self._db.execute(_SCHEMA)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite.Error, OSError) as error:
            raise JournalError(
                f"{self._path} cannot be used: {error}.", hint="The budget of the key is kept there. Nothing was sent."
            ) from error

    def close(self) -> None:
        """Leave; what is still held stays written down, and the run is no longer said to be alive."""
        account, run_id = self._me
        with self._translated():
            self._db.execute("UPDATE runs SET process = '' WHERE account = ? AND run_id = ?", (account, run_id))
            self._db.close()

    def put(self, period: str, totals_: RunTotals, cap: int | None = None) -> bool:
        """Write this run's totals down, unless all runs together would pass `cap` with them; False: they would.

        Without a cap they are always written: what was charged is true whatever the budget. They are counted in
        `latest(period)`.
        """
        try:
            with self._translated(), sqlite.write_transaction(self._db):
                self._put(self.latest(period), totals_, cap)
        except _CapExceeded:
            return False
        return True

    def latest(self, period: str) -> str:
        """The later one of a period and the last one of the same length that the account was used in."""
        # Names of periods of one length have one length, and their order is that of time.
        ((last,),) = self._db.execute(
            "SELECT coalesce(max(period), '') FROM runs WHERE account = ? AND length(period) = length(?)",
            (self._me[0], period),
        )
        return max(period, str(last))

    def migrate_legacy_accounts(self, period: str, is_mine: Callable[[str, Path], bool]) -> None:
        """Count what older versions wrote down in a period or later, where the account is this one.

        Args:
            period: The current one.
            is_mine: Says of an account's former name, and the folder of a run that used it, whether it is this account.
        """
        with self._translated(), sqlite.write_transaction(self._db):
            rows = list(
                self._db.execute(
                    "SELECT DISTINCT account, folder FROM runs "
                    "WHERE substr(account, 1, 4) <> ? AND period >= ? AND length(period) = length(?)",
                    (_MARK, period, period),
                )
            )
            for former in {account for account, folder in rows if is_mine(account, Path(folder))}:
                self._db.execute(
                    "INSERT INTO runs SELECT ?, period, run_id, folder, process, paid_before, paid, held "
                    "FROM runs WHERE account = ? ON CONFLICT DO UPDATE SET held = max(held, excluded.held), "
                    "paid_before = min(paid_before, excluded.paid_before), paid = max(paid, excluded.paid)",
                    (self._me[0], former),
                )
                self._db.execute("DELETE FROM runs WHERE account = ?", (former,))

    def succeed(self, former: Collection[str], period: str, totals_: RunTotals) -> None:
        """Take the place of a run in the same folder that goes on under this run's id, with these totals.

        Args:
            former: The ids it had.
            period: The current one.
            totals_: Of this run; what the former one spent and its journal does not know is held in them.
        """
        account, run_id = self._me
        with self._translated(), sqlite.write_transaction(self._db):
            now = self.latest(period)
            for one in former:
                self._db.execute(
                    "UPDATE OR IGNORE runs SET run_id = ?, paid = ?, held = ? "
                    "WHERE account = ? AND period = ? AND run_id = ? AND folder = ?",
                    (run_id, totals_.paid, totals_.held, account, now, one, self._folder),
                )

    def _put(self, period: str, totals_: RunTotals, cap: int | None) -> None:
        account, run_id = self._me
        db, held, paid = self._db, totals_.held, totals_.paid
        # A row of this run under a former name whose address nobody knows: what it paid since then is counted here.
        db.execute(
            "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, "
            "(SELECT coalesce(min(paid_before), ?6) FROM runs WHERE run_id = ?3 AND period = ?2 "
            "AND substr(account, 1, 4) <> ?8), ?6, ?7) ON CONFLICT DO UPDATE SET folder = excluded.folder, "
            "process = excluded.process, paid = max(paid, excluded.paid), held = excluded.held",
            (account, period, run_id, self._folder, self._process, paid, held, _MARK),
        )
        if cap is None or self.spent(period) <= cap:
            return
        self._correct_dead_runs(period)
        if self.spent(period) > cap:
            raise _CapExceeded

    def spent(self, period: str) -> int:
        """Credits paid and held in a period by all runs together."""
        ((sum_,),) = self._db.execute(
            "SELECT coalesce(sum(paid - paid_before + held), 0) FROM runs WHERE account = ? AND period = ?",
            (self._me[0], period),
        )
        return int(sum_)

    def _correct_dead_runs(self, period: str) -> None:
        """Of runs whose process is gone, the journal says what they really hold and paid."""
        account, run_id = self._me
        others = list(
            self._db.execute(
                "SELECT run_id, folder, process FROM runs WHERE account = ? AND period = ? AND run_id <> ?",
                (account, period, run_id),
            )
        )
        for other, folder, process in others:
            if process and _alive(process):
                continue
            found = _totals_of(Path(folder), other)
            if found is None:  # gone, of another version, or older than it was: what it may have spent stays counted
                continue
            self._db.execute(
                "UPDATE runs SET paid = ?1, held = ?2, process = '' "
                "WHERE account = ?3 AND period = ?4 AND run_id = ?5 AND paid <= ?1",
                (*found, account, period, other),
            )


def _totals_of(folder: Path, run_id: str) -> tuple[int, int] | None:
    """Credits (paid, held) that the journal of a run says; None if it is no longer there or cannot be read."""
    for place in _PLACES:
        try:
            with open_read_only(folder / place.format(run_id=run_id)) as journal:
                if get_meta(journal).get("run_id") == run_id:
                    return credit_totals(journal)
        except JournalError:
            continue
    return None


def _name_of(pid: int) -> str:
    """A process, so that another one that is given its number later is not taken for it."""
    try:
        # Field 22 of /proc/<pid>/stat is the start time; the second field, in brackets, may hold spaces.
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # not Linux, or gone
        began = ""
    return f"{pid}:{began}"


def _alive(process: str) -> bool:
    pid = int(process.partition(":")[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's: it is there
        pass
    return _name_of(pid) == process
