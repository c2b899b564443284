"""Compute what all runs on this machine spent with an API key in the present period; forecast the sum at its end."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from lightmeter.clock import utc_from_timestamp
from lightmeter.journal.key_ledger import KeyLedger, ledger_account
from lightmeter.money.key_budget import FILE_NAME, Period, period_of
from lightmeter.settings import Settings


@dataclass(frozen=True, slots=True)
class KeySpending:
    """Credits spent with an API key in the present day, week or month, and the budget of the key.

    Attributes:
        period: The day, week or month in UTC, such as `2026-03`. If the clock was set back, it is the latest period in
            which the key was used.
        spent: Credits paid or reserved in the period.
        budget: Most credits that may be spent in the period.
        elapsed: Part of the period that has passed, 0 to 1. It is 1 if `period` is later than the clock says.
    """

    period: str
    spent: int
    budget: int
    elapsed: float

    @property
    def left_percent(self) -> float:
        """The part of the budget that is left in the period, in percent of the budget; 0 if the budget is 0."""
        return 100 * max(0, self.budget - self.spent) / self.budget if self.budget else 0.0

    @property
    def forecast(self) -> int:
        """Credits that will be spent by the end of the period if spending goes on at its average pace in the period."""
        return round(self.spent / self.elapsed) if self.elapsed else self.spent


def read_key_spending(settings: Settings, now_s: float) -> KeySpending | None:
    """Return what was spent with the API key in the settings; None if the settings have no key or no budget of the key.

    Args:
        settings: The user's settings, with the key, its budget and the period.
        now_s: The present time in seconds since the epoch.

    Raises:
        JournalError: The ledger file cannot be used.
    """
    if settings.key_budget is None or settings.api_key is None:
        return None
    period, spent = period_of(now_s, settings.key_budget_period), 0
    counted, path = period, settings.state_dir / FILE_NAME
    if path.exists():
        account = ledger_account(settings.api_key.get_secret_value())
        with closing(KeyLedger(path, account, "", Path())) as ledger:  # no run: nothing is recorded
            counted = ledger.latest_period(period)
            spent = ledger.spent(counted)
    elapsed = _elapsed_share(utc_from_timestamp(now_s), settings.key_budget_period) if counted == period else 1.0
    return KeySpending(counted, spent, settings.key_budget, elapsed)


def _elapsed_share(now: datetime, length: Period) -> float:
    """Return the part of a period that has passed, 0 to 1.

    The period is the day, week or month (`length`) that contains `now`.
    """
    start = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if length == "week":
        start -= timedelta(days=start.weekday())
    elif length == "month":
        start = start.replace(day=1)
    ends = {
        "day": start + timedelta(days=1),
        "week": start + timedelta(days=7),
        "month": (start + timedelta(days=31)).replace(day=1),
    }
    return (now - start) / (ends[length] - start)
