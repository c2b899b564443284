"""Records in the journal which spending alerts of a run were sent, so that none is sent twice, even after a restart."""

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
    """Return the delivery state of each spending alert of a run, by the name of the alert."""
    states: dict[str, AlertState] = json.loads(get_meta(db).get(ALERTS_META, "{}"))
    return states


@sqlite.command
def claim_alert(db: sqlite.Connection, name: str) -> bool:
    """Record that the caller sends a spending alert; return False if it was sent before, unless the sending failed."""
    states = read_alerts(db)
    if states.get(name, "failed") != "failed":
        return False
    put_meta({ALERTS_META: json.dumps({**states, name: "sending"})})(db)
    return True


@sqlite.command
def end_alert(db: sqlite.Connection, name: str, state: AlertState, note: str | None) -> None:
    """Record the outcome of sending an alert; `note` is a sentence for the user, or None."""
    put_meta({ALERTS_META: json.dumps({**read_alerts(db), name: state})})(db)
    if note is not None:
        notes = json.loads(get_meta(db).get("notes", "[]"))
        put_meta({"notes": json.dumps(sorted({*notes, note}))})(db)
