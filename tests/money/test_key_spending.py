"""What was spent with a key in the present period, and the forecast for its end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from lightmeter.money.key_budget import FILE_NAME
from lightmeter.money.key_spending import KeySpending, read_key_spending
from lightmeter.settings import read_settings

MARCH = datetime(2026, 3, 8, 18, tzinfo=UTC)  # a Sunday


@pytest.mark.parametrize(
    ("length", "period", "elapsed"),
    [("day", "2026-03-08", 0.75), ("week", "2026-W10", 6.75 / 7), ("month", "2026-03", 7.75 / 31)],
)
def test_the_elapsed_share_is_that_of_the_utc_period(monkeypatch, tmp_path, length, period, elapsed):
    """Days, weeks and months begin at midnight in UTC; without a ledger nothing is spent, and none is created."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "100")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path))
    settings = read_settings(api_key=SecretStr("key"), key_budget_period=length)
    found = read_key_spending(settings, MARCH.timestamp())
    assert found == KeySpending(period, 0, 100, pytest.approx(elapsed))
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize(("spent", "elapsed", "left", "forecast"), [(20, 0.25, 80.0, 80), (0, 0.0, 100.0, 0)])
def test_the_forecast_goes_on_at_the_pace_so_far(spent, elapsed, left, forecast):
    """A quarter of the period with 20 credits makes 80 credits at its end."""
    found = KeySpending("2026-03", spent, 100, elapsed)
    assert (found.left_percent, found.forecast) == (left, forecast)


async def test_the_spending_of_runs_counts(try_out, monkeypatch):
    """Credits that a run paid are spent in the present period; reading them changes no run in the ledger."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "50")
    _, service = await try_out(lambda number, body: "ok")
    settings = read_settings()
    now = datetime.now(UTC).timestamp()
    found = [read_key_spending(settings, now) for _ in range(2)]
    assert found[0] == found[1]
    assert (found[0].spent, found[0].budget) == (len(service.charged), 50) == (6, 50)
    assert read_key_spending(read_settings(api_key=SecretStr("another")), now).spent == 0
    monkeypatch.delenv("LIGHTMETER_KEY_BUDGET")
    assert read_key_spending(read_settings(), now) is None
