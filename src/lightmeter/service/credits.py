"""The service's money: whole credits, held before the work, settled after it, given back on failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import apsw

from lightmeter.errors import OutOfCredits
from lightmeter.models.vocabulary import INSUFFICIENT_CREDITS, NO_CREDITS
from lightmeter.pricing.rates import RateTable, Rounding, per_image, request_price

__all__ = ["Tariff", "balance_of", "hold", "release", "settle"]


@dataclass(frozen=True, slots=True)
class Tariff:
    """What this service charges.

    Attributes:
        rates: Prices by back end and feature.
        rounding: Where a charge is rounded up.
    """

    rates: RateTable
    rounding: Rounding

    def worst(self, backends: Sequence[str], features: Sequence[str], prompt: str | None, pictures: int) -> int:
        """Most credits that so many pictures can cost; with no back ends, none."""
        if not backends:  # to the price table, no back ends would mean its own defaults
            return 0
        price = per_image(self.rates, backends, features, len(prompt or ""))
        return request_price(price, (pictures,), self.rounding)

    def charge(self, pictures: Iterable[tuple[Sequence[str], int]], features: Sequence[str], prompt: str | None) -> int:
        """Credits for what was delivered: (back ends that answered, pictures) of each asset."""
        exact = [(per_image(self.rates, done, features, len(prompt or "")) if done else 0, n) for done, n in pictures]
        if self.rounding is Rounding.REQUEST:
            return request_price(sum(price * n for price, n in exact), (1,), Rounding.REQUEST)
        return sum(request_price(price, (n,), Rounding.IMAGE) for price, n in exact)


_NEVER: Final = "a hold is settled for at most what was held"


def balance_of(db: apsw.Connection, account_id: int) -> int:
    """Credits free to spend."""
    ((free,),) = db.execute("SELECT credits FROM accounts WHERE account_id = ?", (account_id,))
    return int(free)


def hold(account_id: int, amount: int) -> Callable[[apsw.Connection], None]:
    """Set credits aside.

    Raises (from the write):
        OutOfCredits: there are not so many.
    """

    def change(db: apsw.Connection) -> None:
        free = balance_of(db, account_id)
        if free < amount or free == 0:
            raise OutOfCredits(INSUFFICIENT_CREDITS if free else NO_CREDITS)
        db.execute(
            "UPDATE accounts SET credits = credits - ?1, held = held + ?1 WHERE account_id = ?2", (amount, account_id)
        )

    return change


def release(account_id: int, amount: int) -> Callable[[apsw.Connection], None]:
    """Give back part of what is held."""

    def change(db: apsw.Connection) -> None:
        db.execute(
            "UPDATE accounts SET credits = credits + ?1, held = held - ?1 WHERE account_id = ?2", (amount, account_id)
        )

    return change


def settle(account_id: int, request_id: str, held: int, paid: int, at: float) -> Callable[[apsw.Connection], int]:
    """Charge `paid` of what was `held` and give back the rest; returns the balance."""

    def change(db: apsw.Connection) -> int:
        if not 0 <= paid <= held:
            raise ValueError(_NEVER)
        db.execute(
            "UPDATE accounts SET credits = credits + ?1 - ?2, held = held - ?1 WHERE account_id = ?3",
            (held, paid, account_id),
        )
        if paid:
            db.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", (account_id, request_id, -paid, at))
        return balance_of(db, account_id)

    return change
