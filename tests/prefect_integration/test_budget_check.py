"""The limits of the flow `budget-watch`, read from a real service, and the events for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from lightmeter.errors import SettingsError
from lightmeter.money.key_spending import KeySpending
from lightmeter.prefect_integration.budget_check import BudgetCheck, check_budget
from lightmeter.prefect_integration.events import EVENTS, emit_event, events_table
from lightmeter.settings import read_settings
from tests.engine.hostile import Hostile, listening


@pytest.mark.parametrize(
    ("balance", "key", "alerts"),
    [
        (99, None, ["balance_low"]),
        (100, None, []),
        (100, KeySpending("2026-03", 95, 100, 0.99), ["key_low"]),
        (100, KeySpending("2026-03", 60, 100, 0.5), ["forecast_high"]),
        (100, KeySpending("2026-03", 60, 100, 0.05), []),
        (1, KeySpending("2026-03", 92, 100, 0.5), ["balance_low", "key_low", "forecast_high"]),
        (100, KeySpending("2026-03", 0, 0, 0.5), ["key_low"]),
    ],
)
def test_limits(balance, key, alerts):
    """Each limit that is not kept is one event; a forecast counts after a tenth of its period."""
    check = BudgetCheck("http://127.0.0.1", balance, key)
    found = dict(check.alerts(100, 10))
    assert [*found] == [f"lightmeter.budget.{name}" for name in alerts]
    assert all({*check.payload()} <= {*EVENTS[name].payload} for name in found)


async def test_the_balance_is_read_for_free(charges_at_once):
    """The check reads the balance of the service and sends nothing that costs."""
    service = Hostile(lambda number, body: "ok", balance=42)
    async with listening(service) as base_url:
        found = await check_budget(read_settings(api_key=SecretStr("key"), base_url=base_url))
    assert (found.balance, found.key, service.posts) == (42, None, 0)
    with pytest.raises(SettingsError, match="No service"):
        await check_budget(read_settings(base_url=None))


def test_the_readme_lists_all_events():
    """The README has each event with its values, from the table in the code."""
    page = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    listed = page.partition("<!-- events:start -->\n")[2].partition("<!-- events:end -->")[0]
    assert listed.partition("|---|---|---|\n")[2] == events_table()


def test_unknown_events_are_refused():
    """An event that is not documented, or a value that is not, is an error of the flow."""
    with pytest.raises(ValueError, match="no event"):
        emit_event("lightmeter.run.nonsense", "out")
    with pytest.raises(ValueError, match="colour"):
        emit_event("lightmeter.run.compacted", "out", colour="red")
