"""The service's money: whole credits, held before the work, settled after it, given back on failure.

The ledger is kept in double entry: credits come from `grants`, are `free`, then `held`, then `revenue` or free again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import Final

from lightmeter.errors import OutOfCredits
from lightmeter.models.vocabulary import INSUFFICIENT_CREDITS, NO_CREDITS
from lightmeter.pricing.rates import RateTable, Rounding, millicredits_per_image, request_price
from lightmeter.service.store.database import Connection

__all__ = [
    "Balance",
    "LedgerAccount",
    "LedgerReference",
    "Tariff",
    "account_named",
    "balance_of",
    "balances",
    "grant",
    "hold",
    "open_account",
    "settle",
]


@dataclass(frozen=True, slots=True)
class Tariff:
    """What this service charges.

    Attributes:
        rates: Prices by back end and feature.
        rounding: Where a charge is rounded up.
        factor: What every price of the table is multiplied by; 1, except for rehearsals.
    """

    rates: RateTable
    rounding: Rounding
    factor: float = 1.0
    _known: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Prices without a prompt, each worked out once: nearly all requests ask for one of a few."""

    def worst(self, backends: Sequence[str], features: Sequence[str], prompt: str | None, pictures: int) -> int:
        """Most credits that so many pictures can cost; with no back ends, none."""
        if not backends:  # to the price table, no back ends would mean its own defaults
            return 0
        return request_price(self._each(backends, features, prompt), (pictures,), self.rounding)

    def charge(self, pictures: Iterable[tuple[Sequence[str], int]], features: Sequence[str], prompt: str | None) -> int:
        """Credits for what was delivered: (back ends that answered, pictures) of each asset."""
        exact = [(self._each(done, features, prompt) if done else 0, n) for done, n in pictures]
        if self.rounding is Rounding.REQUEST:
            return request_price(sum(price * n for price, n in exact), (1,), Rounding.REQUEST)
        return sum(request_price(price, (n,), Rounding.IMAGE) for price, n in exact)

    def _each(self, backends: Sequence[str], features: Sequence[str], prompt: str | None) -> int:
        """Millicredits for a picture; all names exist."""
        if prompt:
            return ceil(self.factor * millicredits_per_image(self.rates, backends, features, len(prompt)))
        asked = (tuple(backends), tuple(features))
        if asked not in self._known:
            self._known[asked] = ceil(self.factor * millicredits_per_image(self.rates, backends, features))
        return self._known[asked]


_NEVER: Final = "a hold is settled for at most what was held"


class LedgerAccount(StrEnum):
    """Where credits of an account can be; every movement takes from one and gives to another."""

    GRANTS = "grants"
    FREE = "free"
    HELD = "held"
    REVENUE = "revenue"


@dataclass(frozen=True, slots=True)
class Balance:
    """An account as it stands, and what its ledger says of it: the two must agree.

    Attributes:
        account_id: Its number.
        name: Its name.
        free: Credits that can be spent.
        held: Credits set aside for requests that are being done.
        ledger: Sum of each book over the ledger; grants are negative, because they are where credits come from.
    """

    account_id: int
    name: str
    free: int
    held: int
    ledger: Mapping[LedgerAccount, int]

    @property
    def is_sound(self) -> bool:
        """Whether the ledger says the same, and free, held and revenue sum to the grants."""
        said = (self.ledger[LedgerAccount.FREE], self.ledger[LedgerAccount.HELD])
        return said == (self.free, self.held) and sum(self.ledger.values()) == 0


@dataclass(frozen=True, slots=True)
class LedgerReference:
    """Why credits move: the account, the request if there is one, and when."""

    account_id: int
    request_id: str | None
    at: float


def balance_of(db: Connection, account_id: int) -> int:
    """Credits free to spend."""
    ((free,),) = db.execute("SELECT credits FROM accounts WHERE account_id = ?", (account_id,))
    return int(free)


def open_account(db: Connection, name: str, credits_: int, at: float) -> int:
    """The number of the account called `name`, made with so many credits if it is missing."""
    made = db.execute(
        "INSERT INTO accounts (name, credits) VALUES (?, 0) ON CONFLICT (name) DO NOTHING RETURNING account_id", (name,)
    )
    if not made:
        known = account_named(db, name)
        assert known is not None  # noqa: S101 (accounts are never deleted)
        return known
    account_id = int(made[0][0])
    if credits_:
        grant(db, LedgerReference(account_id, None, at), credits_)
    return account_id


def account_named(db: Connection, name: str) -> int | None:
    """The number of an account, or None."""
    rows = db.execute("SELECT account_id FROM accounts WHERE name = ?", (name,))
    return int(rows[0][0]) if rows else None


def grant(db: Connection, cause: LedgerReference, amount: int) -> None:
    """Give an account credits."""
    db.execute("UPDATE accounts SET credits = credits + ? WHERE account_id = ?", (amount, cause.account_id))
    _move(db, cause, LedgerAccount.GRANTS, LedgerAccount.FREE, amount)


def hold(db: Connection, cause: LedgerReference, amount: int) -> None:
    """Set credits aside.

    Raises:
        OutOfCredits: there are not so many.
    """
    # One statement decides and takes, so no two requests can both find the last credit.
    taken = db.execute(
        "UPDATE accounts SET credits = credits - ?, held = held + ? WHERE account_id = ? AND credits >= ? "
        "AND credits > 0 RETURNING account_id",
        (amount, amount, cause.account_id, amount),
    )
    if not taken:
        raise OutOfCredits(INSUFFICIENT_CREDITS if balance_of(db, cause.account_id) else NO_CREDITS)
    _move(db, cause, LedgerAccount.FREE, LedgerAccount.HELD, amount)


def settle(db: Connection, cause: LedgerReference, held: int, paid: int) -> int:
    """Charge `paid` of what was `held` and give back the rest; returns the balance."""
    if not 0 <= paid <= held:
        raise ValueError(_NEVER)
    rows = db.execute(
        "UPDATE accounts SET credits = credits + ?, held = held - ? WHERE account_id = ? RETURNING credits",
        (held - paid, held, cause.account_id),
    )
    _move(db, cause, LedgerAccount.HELD, LedgerAccount.REVENUE, paid)
    _move(db, cause, LedgerAccount.HELD, LedgerAccount.FREE, held - paid)
    return int(rows[0][0])


def _move(db: Connection, cause: LedgerReference, debit: LedgerAccount, credit: LedgerAccount, amount: int) -> None:
    if amount:
        db.execute(
            "INSERT INTO ledger (account_id, request_id, debit, credit, amount, at) VALUES (?, ?, ?, ?, ?, ?)",
            (cause.account_id, cause.request_id, debit, credit, amount, cause.at),
        )


def balances(db: Connection) -> list[Balance]:
    """Every account by name, with the sums of its ledger, all of one instant."""
    rows = db.execute(  # one statement sees one snapshot, also while others write
        "SELECT a.account_id, a.name, a.credits, a.held, l.debit, l.credit, CAST(SUM(l.amount) AS BIGINT) "
        "FROM accounts a LEFT JOIN ledger l ON l.account_id = a.account_id "
        "GROUP BY a.account_id, a.name, a.credits, a.held, l.debit, l.credit ORDER BY a.name"
    )
    found: dict[int, tuple[str, int, int, dict[LedgerAccount, int]]] = {}
    for account_id, name, free, held, debit, credit, amount in rows:
        *_, books = found.setdefault(account_id, (name, free, held, dict.fromkeys(LedgerAccount, 0)))
        if debit is not None:
            books[LedgerAccount(debit)] -= amount
            books[LedgerAccount(credit)] += amount
    return [Balance(account_id, *known) for account_id, known in found.items()]
