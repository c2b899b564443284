"""The service's credits: held before a request is processed, settled after it, released if it fails.

The ledger uses double entry. Credits come from `grants`, are `free`, then `held`, then `revenue` or free again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil

from lightmeter.errors import OutOfCredits
from lightmeter.models.vocabulary import INSUFFICIENT_CREDITS, NO_CREDITS
from lightmeter.pricing.rates import RateTable, Rounding, millicredits_per_image, request_price
from lightmeter.service.store.database import Connection

__all__ = [
    "Balance",
    "LedgerAccount",
    "LedgerReference",
    "Tariff",
    "balance_of",
    "balances",
    "find_account_id",
    "grant",
    "hold",
    "open_account",
    "settle",
]


@dataclass(frozen=True, slots=True)
class Tariff:
    """The prices of this service.

    Attributes:
        rates: Prices by back end and feature.
        rounding: Whether each image or each request is rounded up to whole credits.
        factor: Multiplier of every price in the table; other than 1 only in rehearsals.
    """

    rates: RateTable
    rounding: Rounding
    factor: float = 1.0
    _cache: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Millicredits per picture without a prompt, by back ends and features: most requests use one of a few."""

    def max_credits(self, backends: Sequence[str], features: Sequence[str], prompt: str | None, pictures: int) -> int:
        """Return the most that a number of pictures can cost, in credits; 0 without back ends.

        Args:
            backends: Names of back ends; all exist.
            features: Names of features; all exist.
            prompt: The user's prompt, if there is one.
            pictures: Images and video frames.
        """
        if not backends:  # for the price table, an empty list means its defaults
            return 0
        return request_price(self._each(backends, features, prompt), (pictures,), self.rounding)

    def charge(self, pictures: Iterable[tuple[Sequence[str], int]], features: Sequence[str], prompt: str | None) -> int:
        """Return the charge for delivered results, in credits.

        Args:
            pictures: (back ends that answered, number of pictures) of each asset.
            features: Names of features; all exist.
            prompt: The user's prompt, if there is one.
        """
        exact = [(self._each(done, features, prompt) if done else 0, n) for done, n in pictures]
        if self.rounding is Rounding.REQUEST:
            return request_price(sum(price * n for price, n in exact), (1,), Rounding.REQUEST)
        return sum(request_price(price, (n,), Rounding.IMAGE) for price, n in exact)

    def _each(self, backends: Sequence[str], features: Sequence[str], prompt: str | None) -> int:
        """Return the price of one picture in millicredits; all names exist."""
        if prompt:
            return ceil(self.factor * millicredits_per_image(self.rates, backends, features, len(prompt)))
        key = (tuple(backends), tuple(features))
        if key not in self._cache:
            self._cache[key] = ceil(self.factor * millicredits_per_image(self.rates, backends, features))
        return self._cache[key]


class LedgerAccount(StrEnum):
    """The four ledger accounts of each customer; every entry moves credits from one to another."""

    GRANTS = "grants"
    FREE = "free"
    HELD = "held"
    REVENUE = "revenue"


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of a customer's account, and the sums of its ledger, which must agree.

    Attributes:
        account_id: Number of the account.
        name: Name of the account.
        free: Credits that can be spent.
        held: Credits held for unfinished requests.
        ledger: Sum of each ledger account; grants are negative, because credits come from them.
    """

    account_id: int
    name: str
    free: int
    held: int
    ledger: Mapping[LedgerAccount, int]

    @property
    def is_consistent(self) -> bool:
        """Whether the ledger has the same sums, and free, held and revenue add up to the grants."""
        sums = (self.ledger[LedgerAccount.FREE], self.ledger[LedgerAccount.HELD])
        return sums == (self.free, self.held) and sum(self.ledger.values()) == 0


@dataclass(frozen=True, slots=True)
class LedgerReference:
    """What a ledger entry belongs to: the account, the request if there is one, and the time."""

    account_id: int
    request_id: str | None
    at: float


def balance_of(db: Connection, account_id: int) -> int:
    """Return the credits that an account can spend."""
    ((free,),) = db.execute("SELECT credits FROM accounts WHERE account_id = ?", (account_id,))
    return int(free)


def open_account(db: Connection, name: str, credits_: int, at: float) -> int:
    """Return the number of the account called `name`; create it if it is missing.

    Args:
        db: A transaction.
        name: Name of the account.
        credits_: Credits that a new account is granted.
        at: Seconds since the epoch.
    """
    created = db.execute(
        "INSERT INTO accounts (name, credits) VALUES (?, 0) ON CONFLICT (name) DO NOTHING RETURNING account_id", (name,)
    )
    if not created:
        existing = find_account_id(db, name)
        assert existing is not None  # noqa: S101 (accounts are never deleted)
        return existing
    account_id = int(created[0][0])
    if credits_:
        grant(db, LedgerReference(account_id, None, at), credits_)
    return account_id


def find_account_id(db: Connection, name: str) -> int | None:
    """Return the number of the account with a name; None without one."""
    rows = db.execute("SELECT account_id FROM accounts WHERE name = ?", (name,))
    return int(rows[0][0]) if rows else None


def grant(db: Connection, reference: LedgerReference, amount: int) -> None:
    """Add credits to an account.

    Args:
        db: A transaction.
        reference: The account and the time.
        amount: Credits to add, 0 or more.
    """
    db.execute("UPDATE accounts SET credits = credits + ? WHERE account_id = ?", (amount, reference.account_id))
    _add_entry(db, reference, LedgerAccount.GRANTS, LedgerAccount.FREE, amount)


def hold(db: Connection, reference: LedgerReference, amount: int) -> None:
    """Hold credits of an account.

    Args:
        db: A transaction.
        reference: The account, the request and the time.
        amount: Credits to hold, 0 or more.

    Raises:
        OutOfCredits: the account has fewer credits.
    """
    # One statement checks and subtracts, so that two requests cannot both hold the last credit.
    held = db.execute(
        "UPDATE accounts SET credits = credits - ?, held = held + ? WHERE account_id = ? AND credits >= ? "
        "AND credits > 0 RETURNING account_id",
        (amount, amount, reference.account_id, amount),
    )
    if not held:
        raise OutOfCredits(INSUFFICIENT_CREDITS if balance_of(db, reference.account_id) else NO_CREDITS)
    _add_entry(db, reference, LedgerAccount.FREE, LedgerAccount.HELD, amount)


def settle(db: Connection, reference: LedgerReference, held: int, paid: int) -> int:
    """Charge part of a hold and release the rest; return the new balance.

    Args:
        db: A transaction.
        reference: The account and the request.
        held: Credits that are held.
        paid: Credits to charge, 0 to `held`.

    Raises:
        ValueError: `paid` is out of its range.
    """
    if not 0 <= paid <= held:
        raise ValueError("A charge must be between 0 and the hold.")
    rows = db.execute(
        "UPDATE accounts SET credits = credits + ?, held = held - ? WHERE account_id = ? RETURNING credits",
        (held - paid, held, reference.account_id),
    )
    _add_entry(db, reference, LedgerAccount.HELD, LedgerAccount.REVENUE, paid)
    _add_entry(db, reference, LedgerAccount.HELD, LedgerAccount.FREE, held - paid)
    return int(rows[0][0])


def _add_entry(
    db: Connection, reference: LedgerReference, debit: LedgerAccount, credit: LedgerAccount, amount: int
) -> None:
    if amount:
        db.execute(
            "INSERT INTO ledger (account_id, request_id, debit, credit, amount, at) VALUES (?, ?, ?, ?, ?, ?)",
            (reference.account_id, reference.request_id, debit, credit, amount, reference.at),
        )


def balances(db: Connection) -> list[Balance]:
    """Return every account, by name, with the sums of its ledger, from one consistent snapshot."""
    rows = db.execute(  # one statement reads one snapshot, also during writes
        "SELECT a.account_id, a.name, a.credits, a.held, l.debit, l.credit, CAST(SUM(l.amount) AS BIGINT) "
        "FROM accounts a LEFT JOIN ledger l ON l.account_id = a.account_id "
        "GROUP BY a.account_id, a.name, a.credits, a.held, l.debit, l.credit ORDER BY a.name"
    )
    accounts: dict[int, tuple[str, int, int, dict[LedgerAccount, int]]] = {}
    for account_id, name, free, held, debit, credit, amount in rows:
        *_, sums = accounts.setdefault(account_id, (name, free, held, dict.fromkeys(LedgerAccount, 0)))
        if debit is not None:
            sums[LedgerAccount(debit)] -= amount
            sums[LedgerAccount(credit)] += amount
    return [Balance(account_id, *values) for account_id, values in accounts.items()]
