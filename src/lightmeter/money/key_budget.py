"""The budget of a key: what all runs of this machine together may spend with it in a day, a week or a month."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from lightmeter.client.base_url import equivalent_base_urls
from lightmeter.clock import Clock, utc_from_timestamp
from lightmeter.embedded_service import Endpoint
from lightmeter.errors import JournalError
from lightmeter.journal.charges import credit_totals
from lightmeter.journal.commands import get_meta
from lightmeter.journal.header import FORMER_RUNS
from lightmeter.journal.key_ledger import KeyLedger, RunTotals, ledger_account, legacy_ledger_account
from lightmeter.journal.store import open_read_only
from lightmeter.settings import Settings

__all__ = ["KeyBudget", "open_key_budget", "period_of"]

FILE_NAME: Final = "key-budgets.sqlite"

_log: Final = logging.getLogger(__name__)

Period = Literal["day", "week", "month"]

_FORMATS: Final[dict[Period, str]] = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}


def period_of(at: float, length: Period) -> str:
    """The name of the calendar period, in UTC, that a moment (epoch seconds) lies in."""
    return f"{utc_from_timestamp(at):{_FORMATS[length]}}"


class KeyBudget:
    """What one run may take of a key's budget. Made by `open_key_budget`.

    Attributes:
        credits: The budget.
        length: Of its period.
    """

    def __init__(self, ledger: KeyLedger, credits_: int, length: Period, clock: Clock, now: RunTotals) -> None:
        self.credits = credits_
        self.length: Period = length
        self._ledger = ledger
        self._clock = clock
        self._paid, self._held = now.paid, now.held
        self._turn = asyncio.Lock()

    async def hold(self, credits_: int) -> bool:
        """Set credits aside; False if all runs together would pass the budget with them."""
        async with self._turn:
            fits = await self._put(self._paid, self._held + credits_, self.credits)
            self._held += credits_ if fits else 0
        return fits

    async def settle(self, held: int, paid: int) -> None:
        """End a hold with what was charged: 0 if nothing was."""
        async with self._turn:
            self._held -= held
            self._paid += paid
            await self._put(self._paid, self._held, None)

    async def _put(self, paid: int, held: int, cap: int | None) -> bool:
        period = period_of(self._clock.now(), self.length)
        return await asyncio.to_thread(self._ledger.record, period, RunTotals(paid, held), cap)


@contextmanager
def open_key_budget(
    settings: Settings, where: Endpoint, run_id: str, out: Path, clock: Clock
) -> Iterator[KeyBudget | None]:
    """The budget of the key that a run uses, for as long as the block lasts; None if there is none to keep.

    The embedded service's credits are play money: no budget is kept for it.

    Raises:
        JournalError: the file that it is kept in cannot be used.
    """
    if settings.key_budget is None or where.embedded:
        yield None
        return
    key = where.api_key.get_secret_value() if where.api_key else ""
    length, path = settings.key_budget_period, settings.state_dir / FILE_NAME
    with open_read_only(out) as db:
        now = RunTotals(*credit_totals(db))
        former = [former_id for former_id, _ in json.loads(get_meta(db).get(FORMER_RUNS, "[]"))]
    ledger = KeyLedger(path, ledger_account(key), run_id, out)
    try:
        period = period_of(clock.now(), length)
        ledger.migrate_legacy_accounts(
            period, lambda account, folder: _is_former(account, key, [where.base_url, *_used_in(folder)])
        )
        if (counted := ledger.latest_period(period)) != period:
            _log.warning(
                "The clock says %s, and the key was used in %s already: the budget of %s goes on. If the clock was "
                "wrong then, remove %s.",
                *(period, counted, counted, path),
            )
        ledger.replace_former_runs(former, period, now)
        ledger.record(period, now)
        yield KeyBudget(ledger, settings.key_budget, length, clock, now)
    finally:
        ledger.close()


def _is_former(account: str, key: str, addresses: list[str]) -> bool:
    """Whether an older version named the account of this key so, at one of these addresses however spelled."""
    return any(
        legacy_ledger_account(one, key) == account for address in addresses for one in equivalent_base_urls(address)
    )


def _used_in(folder: Path) -> Iterator[str]:
    """The addresses that the run in a folder is known to have used."""
    try:
        with open_read_only(folder) as db:
            meta = get_meta(db)
    except JournalError:
        return
    for name in ("options", "pace"):
        said = json.loads(meta.get(name, "{}")).get("base_url")
        if isinstance(said, str):
            yield said
