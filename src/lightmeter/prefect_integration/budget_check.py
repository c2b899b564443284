"""Reads the account's balance and what a key has spent, and compares both with limits. Spends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lightmeter.client.client import Client
from lightmeter.clock import SystemClock
from lightmeter.errors import SettingsError, Unreachable
from lightmeter.money.key_spending import KeySpending, read_key_spending
from lightmeter.planning.preflight import PREFLIGHT_TIMEOUTS, fetch_balance, require_api_key
from lightmeter.settings import Settings

FORECAST_FROM: Final = 0.1
"""Share (0 to 1) of a budget period that must have passed before its forecast is compared with the budget."""


@dataclass(frozen=True, slots=True)
class BudgetCheck:
    """The account's balance in credits (`balance`), and what the API key has spent (`key`).

    `key` is None if the key has no budget. `base_url` is the address of the service.
    """

    base_url: str
    balance: int
    key: KeySpending | None

    def payload(self) -> dict[str, int | float | str | None]:
        """Return the payload of the events `lightmeter.budget.*`, with the keys that `events.EVENTS` names.

        If the key has no budget, the payload is only the balance.
        """
        if (key := self.key) is None:
            return {"balance": self.balance}
        return {
            "balance": self.balance,
            "period": key.period,
            "spent": key.spent,
            "budget": key.budget,
            "left_percent": round(key.left_percent, 1),
            "forecast": key.forecast,
        }

    def alerts(self, min_balance: int, min_left_percent: float) -> Iterator[tuple[str, str]]:
        """Yield (name of an event, a sentence) for each problem with the balance or the key's budget.

        There are three problems: the balance is low, too little of the budget is left, or at the pace so far, the
        budget will be exceeded.

        Args:
            min_balance: Credits that the account should have at least.
            min_left_percent: Percentage of the key's budget that should be left at least.
        """
        if self.balance < min_balance:
            yield "lightmeter.budget.balance_low", f"The balance is {self.balance} credits, below {min_balance}."
        if (key := self.key) is None:
            return
        of = f"of the key's budget of {key.budget} credits for {key.period}"
        if key.left_percent < min_left_percent:
            yield "lightmeter.budget.key_low", f"{key.left_percent:.1f} % {of} is left, below {min_left_percent:g} %."
        if key.elapsed >= FORECAST_FROM and key.spent < key.budget < key.forecast:
            yield "lightmeter.budget.forecast_high", f"At the pace so far, {key.forecast} {of} will be spent."


async def check_budget(settings: Settings) -> BudgetCheck:
    """Read the account's balance from the service (free), and the key's spending from its ledger on this machine.

    Raises:
        SettingsError: The settings name no service, or no key.
        AccessDenied: The service does not accept the key.
        Unreachable: The service does not answer, or its rate limit rejects the request.
        JournalError: The ledger cannot be used.
    """
    if (url := settings.base_url) is None:
        raise SettingsError("No service is named.", hint="Set LIGHTMETER_BASE_URL, or name a credentials block.")
    key = require_api_key(url, settings)
    async with Client(url, key, timeouts=PREFLIGHT_TIMEOUTS, proxy=settings.proxy) as client:
        balance = await fetch_balance(client)
    if balance is None:
        raise Unreachable(f"{url} asks to slow down.", hint="Try again later.")
    return BudgetCheck(url, balance, read_key_spending(settings, SystemClock().now()))
