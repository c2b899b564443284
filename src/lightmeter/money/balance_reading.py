"""Record a balance reading, and tell whether a request was sent or answered after it, as in a killed run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import apsw

from lightmeter.journal.commands import get_meta, put_meta

__all__ = ["is_balance_current", "put_balance_reading"]

_PLACE: Final = "balance_place"
"""Meta key: row id of the last transition before the balance was read."""

_CHARGING_EVENTS: Final = "('send', 'answer', 'collect', 'ask_again', 'pay_again')"
"""Events of requests that may change the balance."""


def put_balance_reading(meta: Mapping[str, str]) -> Callable[[apsw.Connection], None]:
    """Return a change that stores `meta` with a balance that was just read while nothing was in flight."""

    def change(db: apsw.Connection) -> None:
        put_meta(dict(meta))(db)
        db.execute(
            "INSERT OR REPLACE INTO meta SELECT ?, CAST(coalesce(max(rowid), 0) AS TEXT) FROM transitions", (_PLACE,)
        )

    return change


def is_balance_current(db: apsw.Connection) -> bool:
    """Whether no request was sent or answered after the balance was read."""
    meta = get_meta(db)
    if _PLACE not in meta and "seconds" in meta:  # a finished run, whose journal an older version wrote
        return True
    sent = f"SELECT count(*) FROM transitions WHERE rowid > ? AND event IN {_CHARGING_EVENTS}"  # noqa: S608 (names of ours)
    ((later,),) = db.execute(sent, (int(meta.get(_PLACE, "0")),))
    return not later
