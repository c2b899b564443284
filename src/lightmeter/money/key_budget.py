"""Budget of an API key: the most credits that all runs on this machine may spend with it in a day, week or month."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from lightmeter.client.base_url import equivalent_base_urls
from lightmeter.clock import Clock, utc_from_timestamp
from lightmeter.embedded_service import Endpoint
from lightmeter.errors import JournalError
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.header import FORMER_RUNS
from lightmeter.journal.key_ledger import KeyLedger, RunCredits, ledger_account, legacy_ledger_account
from lightmeter.journal.queries.charges import credit_totals
from lightmeter.journal.store import open_read_only
from lightmeter.settings import Settings

FILE_NAME: Final = "key-budgets.sqlite"
"""Name of the ledger file in the state directory. It counts what all runs on this machine spend with each API key."""

_log: Final = logging.getLogger(__name__)

Period = Literal["day", "week", "month"]

_FORMATS: Final[dict[Period, str]] = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}


def period_of(at: float, length: Period) -> str:
    """Return the UTC day, week or month that contains the time `at`, such as `2026-W07` for a week.

    `at` is in seconds since the epoch.
    """
    return f"{utc_from_timestamp(at):{_FORMATS[length]}}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """Credits to reserve, 0 or more, and the future that says whether the budget has room for them."""

    credits: int
    fits: asyncio.Future[bool]


class KeyBudget:
    """The budget of an API key, as one run uses it.

    `room` tells how many credits are left. `hold` reserves credits before a request is sent. `settle` replaces them by
    the charge.

    Create it with `open_key_budget`.

    Attributes:
        credits: Most credits that all runs with the key together may spend in a period.
        length: Length of the budget's period: day, week or month.
    """

    def __init__(self, ledger: KeyLedger, credits_: int, length: Period, clock: Clock, now: RunCredits) -> None:
        self.credits = credits_
        self.length: Period = length
        self._ledger = ledger
        self._clock = clock
        self._paid, self._held = now.paid, now.held
        self._left: int | None = None  # credits that the ledger leaves, as last read, less those of this run since then
        self._queue: list[_Entry] = []
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def room(self, wanted: int) -> int:
        """Return the credits, 0 or more, that may be reserved now. Other runs may reserve them before this run does.

        If they are fewer than `wanted`, credits that are still reserved for runs whose process has ended are freed
        first, as far as the journals of these runs show that they were not spent.
        """
        if self._left is None or self._left < wanted:
            async with self._lock:
                period, paid, held = period_of(self._clock.now(), self.length), self._paid, self._held
                left = await asyncio.to_thread(self._ledger.room, period, self.credits, wanted)
                self._left = left + paid + held - self._paid - self._held
        return max(0, self._left)

    async def hold(self, credits_: int) -> bool:
        """Reserve credits and return True once the ledger on the disk has them.

        If all runs together would then exceed the budget, reserve nothing and return False.
        """
        return await self._record(credits_)

    async def settle(self, held: int, paid: int) -> None:
        """Record a charge: free `held` reserved credits, and count the `paid` credits that were charged (0 or more)."""
        self._add(paid, -held)
        await self._record(0)

    def _add(self, paid: int, held: int) -> None:
        self._paid += paid
        self._held += held
        if self._left is not None:
            self._left -= paid + held

    async def _record(self, credits_: int) -> bool:
        """Reserve credits, 0 or more, and write the totals of this run to the ledger, together with other calls.

        While the ledger is written, further calls wait; one transaction then writes the credits of them all. Return
        whether the credits fit into the budget.
        """
        entry = _Entry(credits_, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_queue())
        return await entry.fits

    async def _write_queue(self) -> None:
        while self._queue:
            entries, self._queue = self._queue, []
            try:
                async with self._lock:
                    await self._write(entries)
            except Exception as error:  # noqa: BLE001 (whatever it is, each caller gets it)
                for entry in entries:
                    if not entry.fits.done():
                        entry.fits.set_exception(error)

    async def _write(self, entries: Sequence[_Entry]) -> None:
        """Reserve the credits of all `entries` in one transaction; if they do not fit, one entry after the other."""
        wanted = sum(entry.credits for entry in entries)
        period, totals = period_of(self._clock.now(), self.length), RunCredits(self._paid, self._held + wanted)
        fits = await asyncio.to_thread(self._ledger.record, period, totals, self.credits if wanted else None)
        if not fits and len(entries) > 1:
            for entry in entries:
                await self._write([entry])
            return
        if not fits:
            self._left = None  # another run has reserved credits
        for entry in entries:
            if not entry.fits.done():  # (else its caller was cancelled: the next transaction frees the credits)
                self._add(0, entry.credits if fits else 0)
                entry.fits.set_result(fits)


@contextmanager
def open_key_budget(
    settings: Settings, where: Endpoint, run_id: str, out: Path, clock: Clock
) -> Iterator[KeyBudget | None]:
    """Yield the budget of the API key that a run uses; None if no budget is set.

    Also yield None for the embedded service, because its credits are not money.

    Args:
        settings: The user's settings, with the budget and its period.
        where: The service and the API key.
        run_id: Id of the run.
        out: The output folder of the run.
        clock: Source of the time, which decides in which period credits count.

    Raises:
        JournalError: the ledger file cannot be used.
    """
    if settings.key_budget is None or where.embedded:
        yield None
        return
    key = where.api_key.get_secret_value() if where.api_key else ""
    length, path = settings.key_budget_period, settings.state_dir / FILE_NAME
    with open_read_only(out) as db:
        now = RunCredits(*credit_totals(db))
        former = [former_id for former_id, _ in json.loads(get_meta(db).get(FORMER_RUNS, "[]"))]
    ledger = KeyLedger(path, ledger_account(key), run_id, out)
    try:
        period = period_of(clock.now(), length)
        ledger.migrate_legacy_accounts(
            period, lambda account, folder: _is_legacy_account(account, key, [where.base_url, *_used_base_urls(folder)])
        )
        if (counted := ledger.latest_period(period)) != period:
            _log.warning(
                "The clock says %s, but the key was already used in %s: the budget of %s still counts. If the clock "
                "was wrong then, remove %s.",
                *(period, counted, counted, path),
            )
        ledger.replace_former_runs(former, period, now)
        ledger.record(period, now)
        ledger.correct_earlier_runs(period)
        yield KeyBudget(ledger, settings.key_budget, length, clock, now)
    finally:
        ledger.close()


def _is_legacy_account(account: str, key: str, base_urls: list[str]) -> bool:
    """Return whether older versions counted the credits of the API key `key` under the name `account` in the ledger.

    Older versions had an account for each pair of base URL and key. `base_urls` are the URLs to try.
    """
    return any(legacy_ledger_account(one, key) == account for url in base_urls for one in equivalent_base_urls(url))


def _used_base_urls(folder: Path) -> Iterator[str]:
    """Yield the base URLs of the service that the run in `folder` used, as its journal says.

    Without a journal, yield none.
    """
    try:
        with open_read_only(folder) as db:
            meta = get_meta(db)
    except JournalError:
        return
    for name in ("options", "pace"):
        base_url = json.loads(meta.get(name, "{}")).get("base_url")
        if isinstance(base_url, str):
            yield base_url
