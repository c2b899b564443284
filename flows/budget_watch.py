"""Prefect flow that reads the balance of the account and the spending of the key, and warns early. Spends nothing.

The events `lightmeter.budget.*` start automations; `lightmeter.prefect_integration.events` lists them.

Run it without a server: `python flows/budget_watch.py`. Deploy it: `prefect deploy --all`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Any

# Prefect reads these when it is imported; flows/analyze.py says why.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect import flow, get_run_logger
from prefect.client.schemas import State
from prefect.exceptions import FailedRun
from prefect.states import Completed
from pydantic import Field

from lightmeter.errors import LightmeterError
from lightmeter.prefect_integration.budget_check import check_budget
from lightmeter.prefect_integration.credentials import load_settings
from lightmeter.prefect_integration.events import emit_event
from lightmeter.prefect_integration.flow_results import failed_state, write_table


@flow(name="budget-watch")
async def budget_watch(
    min_balance: Annotated[int, Field(ge=0)] = 100,
    min_left_percent: Annotated[float, Field(ge=0, le=100)] = 10,
    credentials: str | None = None,
) -> dict[str, Any] | State[Any]:
    """Compare the balance and the key's budget with limits; complete as `BudgetLow` if a limit is not kept.

    Args:
        min_balance: Credits of the account below which `lightmeter.budget.balance_low` is sent.
        min_left_percent: Part of the key's budget (`LIGHTMETER_KEY_BUDGET`) below which `lightmeter.budget.key_low`
            is sent.
        credentials: Name of the Lightmeter Credentials block; empty means the key and the
            address in the worker's environment.

    Returns:
        The payload of the events (the balance and the spending of the key), also with the state `BudgetLow`; or a
        failed state.
    """
    try:
        found = await check_budget(await load_settings(credentials))
    except LightmeterError as error:
        return failed_state(error)
    values, alerts = found.payload(), dict(found.alerts(min_balance, min_left_percent))
    get_run_logger().info("%s: %s", found.base_url, ", ".join(f"{name} {value}" for name, value in values.items()))
    for name in ("lightmeter.budget.checked", *alerts):
        emit_event(name, found.base_url, **values)
    rows = [{"name": name, "value": value} for name, value in values.items()]
    await write_table("budget-watch", rows, " ".join((found.base_url, *alerts.values())))
    return Completed(name="BudgetLow", message=" ".join(alerts.values()), data=values) if alerts else values


if __name__ == "__main__":
    try:
        asyncio.run(budget_watch())
    except (LightmeterError, FailedRun) as problem:
        sys.exit(f"error: {problem}")
