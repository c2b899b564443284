"""Whether the balance that a journal holds was read after the last request: for a killed run it was not."""

from __future__ import annotations

from typing import Final, NamedTuple

import apsw

from lightmeter.journal.changes import get_meta
from lightmeter.journal.items import totals

__all__ = ["Marked", "is_current", "mark_balance", "mark_new_balance"]

_PLACE: Final = "balance_place"
"""Key of the last transition that came before the balance was read."""

_MOVES: Final = "('send', 'answer', 'collect', 'ask_again', 'pay_again')"
"""Events of requests that may move the balance."""


class Marked(NamedTuple):
    """The account when a balance was marked: the balance as the journal has it, and the credits paid by then."""

    balance: str | None
    paid: int


def mark_balance(db: apsw.Connection) -> Marked:
    """Write down that the balance in the journal was read just now, while nothing was in flight."""
    db.execute(
        "INSERT OR REPLACE INTO meta SELECT ?, CAST(coalesce(max(rowid), 0) AS TEXT) FROM transitions", (_PLACE,)
    )
    return Marked(get_meta(db).get("balance_after"), totals(db)[0])


def mark_new_balance(db: apsw.Connection, before: Marked) -> None:
    """As `mark_balance`, unless credits were paid since and the balance is the same: then it was not read again."""
    if get_meta(db).get("balance_after") != before.balance or totals(db)[0] == before.paid:
        mark_balance(db)


def is_current(db: apsw.Connection) -> bool:
    """Whether no request was sent or answered after the balance was read."""
    meta = get_meta(db)
    if _PLACE not in meta and "seconds" in meta:  # an older journal, whose run came to its end
        return True
    sent = f"SELECT count(*) FROM transitions WHERE rowid > ? AND event IN {_MOVES}"  # noqa: S608 (names of ours)
    ((moves,),) = db.execute(sent, (int(meta.get(_PLACE, "0")),))
    return not moves
