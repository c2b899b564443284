"""Records in the journal which spending alerts of a run were sent, so that none is sent twice, even after a restart.

The name of an alert is its kind and the credits of its threshold: `spent 16`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Final, Literal

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import get_meta, put_meta

ALERTS_META: Final = "alerts"
"""Name under which the table `meta` stores the state of each alert, as JSON."""

AlertState = Literal["sending", "delivered", "failed", "unknown", "superseded"]
"""`unknown`: it was sent and no answer came. A failed alert was certainly not accepted. `superseded`: not sent, because
a higher threshold was reached too."""

_NOTE_START: Final = "The alert “"


def read_alerts(db: sqlite.Connection) -> dict[str, AlertState]:
    """Return the delivery state of each spending alert of a run, by the name of the alert."""
    states: dict[str, AlertState] = json.loads(get_meta(db).get(ALERTS_META, "{}"))
    return states


@sqlite.command
def claim_alert(db: sqlite.Connection, names: Sequence[str]) -> str | None:
    """Record that the caller sends one spending alert of several, and that the others are superseded; return its name.

    Args:
        db: The journal, in a transaction.
        names: Names of alerts of one kind, the highest threshold first. The first alert that was not sent yet, or whose
            sending failed, is claimed. None is returned if all were sent.
    """
    states = read_alerts(db)
    pending = [name for name in names if states.get(name, "failed") == "failed"]
    if not pending:
        return None
    _replace_notes(db, pending[1:], None)
    put_meta({ALERTS_META: json.dumps({**states, **dict.fromkeys(pending, "superseded"), pending[0]: "sending"})})(db)
    return pending[0]


@sqlite.command
def end_alert(db: sqlite.Connection, name: str, state: AlertState, problem: str | None) -> None:
    """Record the outcome of sending an alert, and replace the run's note about it.

    Args:
        db: The journal, in a transaction.
        name: Name of the alert.
        state: The outcome.
        problem: Why the alert was not delivered, as a clause; None if it was.
    """
    put_meta({ALERTS_META: json.dumps({**read_alerts(db), name: state})})(db)
    verb = "may not have been" if state == "unknown" else "was not"
    note = None if problem is None else f"{_NOTE_START}{name}” {verb} delivered: {problem}."
    _replace_notes(db, [name], note)


def _replace_notes(db: sqlite.Connection, names: Collection[str], note: str | None) -> None:
    """Delete the run's notes about alerts, and add a note unless it is None."""
    starts = tuple(f"{_NOTE_START}{name}”" for name in names)
    notes = {text for text in json.loads(get_meta(db).get("notes", "[]")) if not text.startswith(starts)}
    put_meta({"notes": json.dumps(sorted(notes | ({note} if note else set())))})(db)


def undelivered_alerts(notes: Sequence[str]) -> list[str]:
    """Return those notes of a run that report an alert that was not delivered."""
    return [note for note in notes if note.startswith(_NOTE_START)]


@sqlite.command
def add_notes(db: sqlite.Connection, notes: Collection[str]) -> None:
    """Add messages for the user to those that the journal stores."""
    stored = json.loads(get_meta(db).get("notes", "[]"))
    put_meta({"notes": json.dumps(sorted({*stored, *notes}))})(db)
