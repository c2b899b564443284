"""Whether the balance that a journal holds was read after the last request: for a killed run it was not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import apsw

from lightmeter.journal.commands import get_meta, put_meta

__all__ = ["is_balance_current", "put_balance_reading"]

_PLACE: Final = "balance_place"
"""Key of the last transition that came before the balance was read."""

_MOVES: Final = "('send', 'answer', 'collect', 'ask_again', 'pay_again')"
"""Events of requests that may move the balance."""


def put_balance_reading(meta: Mapping[str, str]) -> Callable[[apsw.Connection], None]:
    """Write down facts of the run with a balance that was read just now, while nothing was in flight."""

    def change(db: apsw.Connection) -> None:
        put_meta(dict(meta))(db)
        db.execute(
            "INSERT OR REPLACE INTO meta SELECT ?, CAST(coalesce(max(rowid), 0) AS TEXT) FROM transitions", (_PLACE,)
        )

    return change


def is_balance_current(db: apsw.Connection) -> bool:
    """Whether no request was sent or answered after the balance was read."""
    meta = get_meta(db)
    if _PLACE not in meta and "seconds" in meta:  # an older journal, whose run came to its end
        return True
    sent = f"SELECT count(*) FROM transitions WHERE rowid > ? AND event IN {_MOVES}"  # noqa: S608 (names of ours)
    ((moves,),) = db.execute(sent, (int(meta.get(_PLACE, "0")),))
    return not moves
