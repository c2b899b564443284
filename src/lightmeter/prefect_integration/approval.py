"""Pauses a flow run until a person allows it to spend what it may cost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from prefect.client.schemas import State
from prefect.flow_runs import apause_flow_run
from prefect.input import RunInput
from prefect.logging import get_run_logger
from prefect.states import Failed
from pydantic import Field

from lightmeter.api.run_result import RunSummary, summarize
from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.frame_counts import UNSENT, frames_to_send
from lightmeter.journal.queries.items import count_by_reason
from lightmeter.journal.store import open_read_only
from lightmeter.prefect_integration.events import emit_event
from lightmeter.pricing.estimate import CreditRange, counted, run_price

REFUSED: Final = "Refused"
"""Name of the failed state of a flow run if a person refused its price."""

NOT_APPROVED: Final = "NotApproved"
"""Name of the failed state of a flow run if nobody approved its price in time."""

_POLL_S: Final = 2
"""Seconds between two checks whether a person has answered."""

_MOST_REASONS: Final = 5
"""Maximum number of reasons, for rows that are not sent, that the form lists."""

_SPARE_S: Final = 3600
"""Prefect's own time limit for the pause is longer than the waiting time by this many seconds.

If that limit came first, Prefect would fail the run in a state that does not have our name.
"""


class Approval(RunInput):
    """The form that a paused flow run shows. It asks whether to spend the credits."""

    approve: bool = Field(default=False, description="Spend the credits. Otherwise the run ends, and nothing is sent.")
    reason: str = Field(default="", description="Why; it appears in the log.")


def price_of_unsent_rows(out: Path) -> CreditRange:
    """Return the price of the rows that the run in `out` has not sent yet, computed from the prices in its plan."""
    header = read_run_header(out)
    with open_read_only(out) as db:
        return run_price(header.least_charged_milli, *frames_to_send(db, UNSENT), header.retry_per_image_milli)


def most_credits(price: CreditRange, summary: RunSummary) -> int | None:
    """Return the maximum credits that a run can still spend: the upper price, or if lower, the rest of the budget.

    `price` is that of the rows not sent yet. Return None if it has no upper end and there is no budget.
    """
    budget_left = None if summary.budget is None else max(0, summary.budget - summary.paid - summary.held)
    bounds = [bound for bound in (price.high, budget_left) if bound is not None]
    return min(bounds, default=None)


async def approve_run(out: Path, above: int, hours: float, manifest: str) -> State[Any] | None:
    """If the planned run in `out` may still spend more than `above` credits, ask a person for approval.

    Return None if the run may start, because it was approved or needs no approval. Otherwise return the failed state of
    the flow run.

    Args:
        out: The output folder of the run.
        above: Maximum credits that need no approval.
        hours: Hours to wait for the answer.
        manifest: Row of a Markdown table that names the manifest. The person sees it above the rows of `plan_lines`.
    """
    price, summary = price_of_unsent_rows(out), summarize(out)
    plan, most = [manifest, *plan_lines(out, price, summary)], most_credits(price, summary)
    return await ask_for_approval(str(out), most, above, hours, plan, rows=summary.rows, price_high=price.high)


def plan_lines(out: Path, price: CreditRange, summary: RunSummary) -> list[str]:
    """Return rows of a Markdown table that describe the planned run in `out` to the person who approves it.

    Args:
        out: The output folder of the run.
        price: Price of the rows that are not sent yet.
        summary: The row and credit counts of the run.
    """
    options = read_run_header(out).options
    with open_read_only(out) as db:
        reasons = [f"{rows:,} {status} ({reason})" for status, reason, rows, _ in count_by_reason(db)]
    counts = ", ".join(f"{rows:,} {status.replace('_', ' ')}" for status, rows in summary.counts.items() if rows)
    others = [counted(len(reasons) - _MOST_REASONS, "other reason")] if len(reasons) > _MOST_REASONS else []
    values = {
        "rows": f"{summary.rows:,}: {counts}",
        "rows not sent or failed": ", ".join([*reasons[:_MOST_REASONS], *others]),
        "features": ", ".join(options.features) or "all that the back ends offer",
        "back ends": ", ".join(options.backends) or "the service's choice",
        "price of the rest": str(price),
        "paid so far": f"{summary.paid:,}",
        "budget": "none" if summary.budget is None else f"{summary.budget:,}",
    }
    return [f"| {name} | {value} |" for name, value in values.items() if value]


async def ask_for_approval(  # noqa: PLR0913 (the last two are the event's)
    out: str,
    most: int | None,
    above: int,
    hours: float,
    plan: list[str],
    *,
    rows: int | None = None,
    price_high: int | None = None,
) -> State[Any] | None:
    """Send the event `lightmeter.run.approval_required`, and pause the flow run until a person answers.

    Return None if the person approves, or if no approval is needed. Return a failed state if the person refuses, or if
    nobody answers in time.

    Args:
        out: The output folder of the run.
        most: Maximum credits that the run may spend; None if there is no limit.
        above: Maximum credits that need no approval.
        hours: Maximum hours to wait for the answer.
        plan: What the form shows about the plan: rows of a Markdown table with two columns.
        rows: Rows of the manifest; None if it is read while it is sent.
        price_high: Upper price of the rows that are not sent yet; None if it is not known.
    """
    if most is not None and most <= above:
        return None
    emit_event("lightmeter.run.approval_required", out, rows=rows, price_high=price_high, approve_above=above)
    cost = "an amount that is not known" if most is None else f"at most {most:,} credits"
    text = "\n".join([f"This run costs {cost}; {above:,} need no approval.", "", "| plan | |", "|---|---|", *plan])
    form = Approval.with_initial_data(description=text)
    get_run_logger().info("The run costs %s: it waits %g h for approval.", cost, hours)
    wait_s = hours * 3600
    try:
        async with asyncio.timeout(wait_s):
            answer = await apause_flow_run(wait_for_input=form, timeout=round(wait_s) + _SPARE_S, poll_interval=_POLL_S)
    except TimeoutError:
        return Failed(name=NOT_APPROVED, message=f"Nobody approved {cost} within {hours:g} h. Nothing was sent.")
    if answer is None or not answer.approve:
        reason = "" if answer is None or not answer.reason else f": {answer.reason}"
        return Failed(name=REFUSED, message=f"The price, {cost}, was refused{reason}. Nothing was sent.")
    get_run_logger().info("The price was approved. %s", answer.reason)
    return None
