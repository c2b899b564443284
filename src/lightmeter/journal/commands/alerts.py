"""Record in the journal which spending alerts of a run were sent, so that none is sent twice, even after a restart.

The name of an alert consists of its kind (`spent` or `forecast`) and its threshold in credits, such as `spent 16`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Final, Literal

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import get_meta, put_meta

ALERTS_META: Final = "alerts"
"""Name under which the table `meta` stores the state of each alert, as JSON."""

ALERT_NOTES: Final = "alert_notes"
"""Name under which the table `meta` stores the messages about undelivered alerts, as JSON: name → message."""

AlertState = Literal["delivered", "failed", "unknown", "superseded"]
"""State of an alert.

`delivered`: the receiver accepted it. `failed`: the receiver certainly did not accept it. `unknown`: it is being sent,
or was sent without an answer; so it is also after the process was killed. `superseded`: it will not be sent, because
the run has also reached a higher threshold. Earlier versions stored `sending` for an alert that was being sent.
"""

_UNANSWERED: Final = "no answer to it is recorded"


def read_alerts(db: sqlite.Connection) -> dict[str, AlertState]:
    """Return the state of each spending alert that a run has reached, as alert name (such as `spent 16`) → state."""
    states: dict[str, AlertState] = json.loads(get_meta(db).get(ALERTS_META, "{}"))
    return states


@sqlite.command
def claim_alert(db: sqlite.Connection, names: Sequence[str]) -> str | None:
    """Choose which of several spending alerts to send now, record its state as `unknown`, and return its name.

    The run has reached all of these alerts. The first in `names` that was not sent yet, or that the receiver did not
    accept, is chosen. The later ones in `names` that were not sent or not accepted are recorded as `superseded`: they
    will not be sent. Return None if no alert is left to send.

    A message tells the user that the chosen alert may not have been delivered, until `end_alert` records the outcome.
    So the message stays if the process is killed.

    Args:
        db: The journal, in a transaction.
        names: Names of alerts of one kind, either `spent` or `forecast`, such as `spent 16`; the alert with the highest
            threshold comes first.
    """
    states = read_alerts(db)
    pending = [name for name in names if states.get(name, "failed") == "failed"]
    if not pending:
        return None
    _replace_notes(db, pending[1:], None)
    put_meta({ALERTS_META: json.dumps({**states, **dict.fromkeys(pending, "superseded")})})(db)
    end_alert(pending[0], "unknown", _UNANSWERED)(db)
    return pending[0]


@sqlite.command
def end_alert(db: sqlite.Connection, name: str, state: AlertState, problem: str | None) -> None:
    """Record the outcome of sending a spending alert, and replace the message to the user about this alert.

    Args:
        db: The journal, in a transaction.
        name: Name of the alert.
        state: The outcome.
        problem: Why the alert was not delivered, as a clause. None if it was delivered: then the message is only
            deleted.
    """
    put_meta({ALERTS_META: json.dumps({**read_alerts(db), name: state})})(db)
    verb = "may not have been" if state == "unknown" else "was not"
    note = None if problem is None else f"The alert “{name}” {verb} delivered: {problem}."
    _replace_notes(db, [name], note)


def _replace_notes(db: sqlite.Connection, names: Collection[str], note: str | None) -> None:
    """Delete the messages to the user about the alerts `names`. Store `note`, if any, for the first of them."""
    stored = json.loads(get_meta(db).get(ALERT_NOTES, "{}"))
    notes = {name: text for name, text in stored.items() if name not in names}
    put_meta({ALERT_NOTES: json.dumps({**notes, **dict.fromkeys([*names][:1], note)} if note else notes)})(db)


@sqlite.command
def add_notes(db: sqlite.Connection, notes: Collection[str]) -> None:
    """Add `notes`, messages to the user about the run, to the notes that the journal stores already."""
    stored = json.loads(get_meta(db).get("notes", "[]"))
    put_meta({"notes": json.dumps(sorted({*stored, *notes}))})(db)
