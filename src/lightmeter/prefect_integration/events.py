"""Events that the flows send to Prefect: `lightmeter.run.*` and `lightmeter.budget.*`. Automations react to them.

`EVENTS` lists every event with its payload. An event is about one resource: the output folder of a run, or the account
of a key. Prefect itself adds the flow run, the flow and the deployment as related resources.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from prefect.events import emit_event as send_to_prefect
from prefect.logging import get_run_logger

from lightmeter.redaction import mask_credentials

Value = int | float | str | None
"""A value in the payload of an event."""


@dataclass(frozen=True, slots=True)
class EventDescription:
    """Description of an event: when a flow sends it (`sent`), and the names of values in its payload (`payload`)."""

    sent: str
    payload: tuple[str, ...]


_NOW: Final = ("paid_now", "requests_now")
_BUDGET: Final = ("balance", "period", "spent", "budget", "left_percent", "forecast")

EVENTS: Final = MappingProxyType(
    {
        "lightmeter.run.started": EventDescription("`analyze` begins to send rows.", ("rows", "budget", "price_high")),
        "lightmeter.run.approval_required": EventDescription(
            "`analyze` waits for the approval of a plan.", ("rows", "price_high", "approve_above")
        ),
        "lightmeter.run.completed": EventDescription(
            "`analyze` leaves nothing to do; `paid_now` and `requests_now` are those of this flow run, `paid` is the "
            "run's total over all nights.",
            (*_NOW, "rows", "paid", "balance"),
        ),
        "lightmeter.run.failed": EventDescription(
            "`analyze` leaves something to do, or sent nothing; `state` is that of the flow run, such as `OverBudget`, "
            "`NotPlanned` or `Refused`.",
            ("state", "message", *_NOW, "rows", "pending", "over_budget", "in_doubt", "failed", "paid", "balance"),
        ),
        "lightmeter.run.prechecked": EventDescription(
            "`precheck` has checked all rows.", ("rows", "pending", "skipped", "duplicate")
        ),
        "lightmeter.run.collected": EventDescription(
            "`collect` has fetched answers of a run, or some still wait.", ("answered", "lost", "waiting")
        ),
        "lightmeter.run.compacted": EventDescription(
            "`compact` has merged the files of the tables.", ("tables", "files_before", "files_after", "rows")
        ),
        "lightmeter.budget.checked": EventDescription("`budget-watch` has read the balance.", _BUDGET),
        "lightmeter.budget.balance_low": EventDescription("The balance is below `min_balance`.", _BUDGET),
        "lightmeter.budget.key_low": EventDescription(
            "Less than `min_left_percent` of the key's budget is left.", _BUDGET
        ),
        "lightmeter.budget.forecast_high": EventDescription(
            "At the pace so far, the key's budget ends before its period.", _BUDGET
        ),
    }
)
"""Name → description of all events."""


def events_table() -> str:
    """Return the rows of a Markdown table of all events, for the README."""
    return "".join(
        f"| `{name}` | {event.sent} | {', '.join(f'`{value}`' for value in event.payload)} |\n"
        for name, event in EVENTS.items()
    )


def emit_event(name: str, subject: str, **payload: Value) -> None:
    """Send an event to Prefect.

    If sending fails, log a warning instead of raising an error, because the run itself has not failed.

    Args:
        name: One of `EVENTS`.
        subject: What the event is about: the output folder of a run, or the address of a service. Credentials in this
            text are removed.
        payload: The values that `EVENTS` names for the event. Credentials in texts are removed.

    Raises:
        ValueError: There is no such event, or it has no such value.
    """
    known = EVENTS.get(name)
    if known is None or not payload.keys() <= {*known.payload}:
        raise ValueError(f"{name} is no event with the values {', '.join(payload)}")
    shown = mask_credentials(subject)
    kind = name.rpartition(".")[0]
    resource = {
        "prefect.resource.id": f"{kind}.{hashlib.sha256(shown.encode()).hexdigest()[:16]}",
        "prefect.resource.name": shown,
        "lightmeter.event": name,  # automations group by labels, and match labels: not names or payloads
        "lightmeter.state": str(payload.get("state", "")),
    }
    values = {key: mask_credentials(value) if isinstance(value, str) else value for key, value in payload.items()}
    try:
        send_to_prefect(name, resource, payload=values)
    except Exception as error:  # noqa: BLE001 (whatever it is)
        get_run_logger().warning("The event %s was not sent, the run goes on: %s", name, error)
