"""The budget of a key: what all runs of this machine together may spend with it in a day, a week or a month."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from lightmeter.clock import Clock, utc_from_timestamp
from lightmeter.journal.items import totals
from lightmeter.journal.key_ledger import KeyLedger, RunTotals, account_of
from lightmeter.journal.store import reading
from lightmeter.pipeline.embedded import Endpoint
from lightmeter.settings import Settings

__all__ = ["KeyBudget", "key_budget", "period_of"]

FILE_NAME: Final = "key-budgets.sqlite"

Period = Literal["day", "week", "month"]

_FORMATS: Final[dict[Period, str]] = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}


def period_of(at: float, length: Period) -> str:
    """The name of the calendar period, in UTC, that a moment (epoch seconds) lies in."""
    return f"{utc_from_timestamp(at):{_FORMATS[length]}}"


class KeyBudget:
    """What one run may take of a key's budget. Made by `key_budget`.

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
        return await asyncio.to_thread(self._ledger.put, period, RunTotals(paid, held), cap)


@contextmanager
def key_budget(settings: Settings, where: Endpoint, run_id: str, out: Path, clock: Clock) -> Iterator[KeyBudget | None]:
    """The budget of the key that a run uses, for as long as the block lasts; None if there is none to keep.

    The embedded service's credits are play money: no budget is kept for it.

    Raises:
        JournalError: the file that it is kept in cannot be used.
    """
    if settings.key_budget is None or where.embedded:
        yield None
        return
    key = where.api_key.get_secret_value() if where.api_key else ""
    with reading(out) as db:
        now = RunTotals(*totals(db))
    ledger = KeyLedger(settings.state_dir / FILE_NAME, account_of(where.base_url.rstrip("/"), key), run_id, out)
    try:
        ledger.put(period_of(clock.now(), settings.key_budget_period), now)
        yield KeyBudget(ledger, settings.key_budget, settings.key_budget_period, clock, now)
    finally:
        ledger.close()
