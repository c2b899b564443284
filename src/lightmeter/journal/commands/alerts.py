"""Alerts of a run in its journal: each is sent once, also over restarts and by several processes."""

from __future__ import annotations

import json
from typing import Final, Literal

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import get_meta, put_meta

ALERTS_META: Final = "alerts"
"""Name under which the table `meta` stores the state of each alert, as JSON."""

AlertState = Literal["sending", "delivered", "failed", "unknown"]
"""`unknown`: it was sent and no answer came. A failed alert was certainly not accepted."""


def read_alerts(db: sqlite.Connection) -> dict[str, AlertState]:
    """Return the state of each alert of a run, by name."""
    states: dict[str, AlertState] = json.loads(get_meta(db).get(ALERTS_META, "{}"))
    return states


@sqlite.command
def claim_alert(db: sqlite.Connection, name: str) -> bool:
    """Record that an alert is being sent; return False if it was sent before, unless that failed."""
    states = read_alerts(db)
    if states.get(name, "failed") != "failed":
        return False
    put_meta({ALERTS_META: json.dumps({**states, name: "sending"})})(db)
    return True


@sqlite.command
def end_alert(db: sqlite.Connection, name: str, state: AlertState, note: str | None) -> None:
    """Record the outcome of an alert; `note` is a sentence for the user, or None."""
    put_meta({ALERTS_META: json.dumps({**read_alerts(db), name: state})})(db)
    if note is not None:
        notes = json.loads(get_meta(db).get("notes", "[]"))
        put_meta({"notes": json.dumps(sorted({*notes, note}))})(db)
