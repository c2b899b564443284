"""Computes prices, and reserves and charges the credits of the service's accounts, with a double-entry ledger.

The service reserves ("holds") the maximum price before it processes a request. Afterwards it charges the actual price
and releases the other reserved credits. If the request fails, it charges nothing. Each account has four ledger
accounts: credits move from `grants` to `free`, from `free` to `held`, and from `held` to `revenue` or back to `free`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import TypeAlias

from lightmeter.errors import OutOfCredits, UsageError
from lightmeter.pricing.rates import RateTable, Rounding, millicredits_per_image, request_price
from lightmeter.service.store.sql_dialects import Connection
from lightmeter.wire.constants import INSUFFICIENT_CREDITS, MAX_CREDITS, NO_CREDITS

BackendFeatures: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Names of back ends, each with the features that it answers; no features: all except `embeddings`."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices of this service. It computes how many credits to reserve for a request, and how many to charge.

    Attributes:
        rates: Price of each feature of each back end.
        rounding: Which price is rounded up to whole credits: the price of each image or frame, or of each request.
        factor: Factor by which all prices are multiplied. It is 1, unless the service injects the fault `prices`.
    """

    rates: RateTable
    rounding: Rounding
    factor: float = 1.0
    _cache: dict[BackendFeatures, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Back ends with features → millicredits for a picture, if the request has no prompt."""

    def max_credits(self, backends: Sequence[str], features: Sequence[str], prompt: str | None, pictures: int) -> int:
        """Return the maximum price of a number of pictures, in credits. It is 0 if `backends` is empty.

        Args:
            backends: Names of existing back ends.
            features: Names of existing features; empty: all features except `embeddings`.
            prompt: The user's prompt. None or empty: the request has no prompt.
            pictures: Number of images and video frames.
        """
        if not backends:  # the price table takes an empty list for its default back ends
            return 0
        priced = tuple((backend, tuple(features)) for backend in backends)
        return request_price(self._millicredits_per_picture(priced, prompt), (pictures,), self.rounding)

    def charge(self, pictures: Iterable[tuple[BackendFeatures, int]], prompt: str | None) -> int:
        """Return the price of the delivered results, in credits.

        Args:
            pictures: What answered, and for how many pictures (images or video frames).
            prompt: The user's prompt. None or empty: the request has no prompt.
        """
        exact = [(self._millicredits_per_picture(answered, prompt), n) for answered, n in pictures]
        if self.rounding is Rounding.REQUEST:
            return request_price(sum(price * n for price, n in exact), (1,), Rounding.REQUEST)
        return sum(request_price(price, (n,), Rounding.IMAGE) for price, n in exact)

    def _millicredits_per_picture(self, priced: BackendFeatures, prompt: str | None) -> int:
        if not prompt and priced in self._cache:
            return self._cache[priced]
        chars = len(prompt or "")
        exact = sum(millicredits_per_image(self.rates, [backend], features, chars) for backend, features in priced)
        price = ceil(self.factor * exact)
        if not prompt:
            self._cache[priced] = price
        return price


class LedgerAccount(StrEnum):
    """The four ledger accounts of each customer. An entry of the ledger moves credits between two of them.

    `GRANTS` is the source of all credits. `FREE` has the credits that the customer can spend, `HELD` the credits
    reserved for unfinished requests, and `REVENUE` the credits that were charged.
    """

    GRANTS = "grants"
    FREE = "free"
    HELD = "held"
    REVENUE = "revenue"


@dataclass(frozen=True, slots=True)
class Balance:
    """Credits of a customer's account, and the sums of its ledger entries. Both must agree (`is_consistent`).

    Attributes:
        account_id: Number of the account.
        name: Name of the account.
        free: Credits that the customer can spend.
        held: Credits held for unfinished requests.
        ledger: Ledger account → sum of its entries. The sum of `grants` is negative, because credits leave it.
    """

    account_id: int
    name: str
    free: int
    held: int
    ledger: Mapping[LedgerAccount, int]

    @property
    def is_consistent(self) -> bool:
        """Whether the sums in `ledger` agree with the account's free and held credits, and add up to 0."""
        sums = (self.ledger[LedgerAccount.FREE], self.ledger[LedgerAccount.HELD])
        return sums == (self.free, self.held) and sum(self.ledger.values()) == 0


@dataclass(frozen=True, slots=True)
class LedgerReference:
    """What an entry in the credit ledger refers to: an account, a request and a time.

    Attributes:
        account_id: Number of the account whose credits move.
        request_id: Request that the credits are for; None: the entry is a grant.
        at: Time of the entry, in seconds since the epoch.
    """

    account_id: int
    request_id: str | None
    at: float


def read_balance(db: Connection, account_id: int) -> int:
    """Return the credits that an account can spend. Credits reserved for unfinished requests are not included."""
    ((free,),) = db.execute("SELECT credits FROM accounts WHERE account_id = ?", (account_id,))
    return int(free)


def open_account(db: Connection, name: str, credits_: int, at: float) -> int:
    """Return the number of the account called `name`; create the account if it is missing.

    Args:
        db: A transaction.
        name: Name of the account.
        credits_: Credits granted to a new account.
        at: Time of this grant, in seconds since the epoch.

    Raises:
        UsageError: `credits_` are more than `MAX_CREDITS`.
    """
    created = db.execute(
        "INSERT INTO accounts (name, credits) VALUES (?, 0) ON CONFLICT (name) DO NOTHING RETURNING account_id", (name,)
    )
    ((account_id,),) = created or db.execute("SELECT account_id FROM accounts WHERE name = ?", (name,))
    if created:
        grant(db, LedgerReference(account_id, None, at), credits_)
    return int(account_id)


def find_account_id(db: Connection, name: str) -> int | None:
    """Return the number of the account called `name`; None if it does not exist."""
    rows = db.execute("SELECT account_id FROM accounts WHERE name = ?", (name,))
    return int(rows[0][0]) if rows else None


def grant(db: Connection, reference: LedgerReference, amount: int) -> None:
    """Add `amount` credits, 0 or more, to the account that `reference` names.

    Raises:
        UsageError: the account would have more than `MAX_CREDITS`; the transaction must be rolled back.
    """
    if not db.execute(
        "UPDATE accounts SET credits = credits + ? WHERE account_id = ? AND credits + held <= ? RETURNING account_id",
        (min(amount, MAX_CREDITS), reference.account_id, max(-1, MAX_CREDITS - amount)),
    ):
        raise UsageError(
            f"An account can have at most {MAX_CREDITS:,} credits: {amount:,} more are too many.",
            hint="Grant fewer credits; `lightmeter keys list` shows the balances.",
        )
    _add_entry(db, reference, LedgerAccount.GRANTS, LedgerAccount.FREE, amount)


def hold(db: Connection, reference: LedgerReference, amount: int) -> None:
    """Reserve `amount` credits, 0 or more, for a request; `reference` names the account and the request.

    Raises:
        OutOfCredits: the account can spend less than `amount`, or it can spend no credits at all.
    """
    # One statement checks and subtracts, so that two requests cannot both hold the last credit.
    held = db.execute(
        "UPDATE accounts SET credits = credits - ?, held = held + ? WHERE account_id = ? AND credits >= ? "
        "AND credits > 0 RETURNING account_id",
        (amount, amount, reference.account_id, amount),
    )
    if not held:
        raise OutOfCredits(INSUFFICIENT_CREDITS if read_balance(db, reference.account_id) else NO_CREDITS)
    _add_entry(db, reference, LedgerAccount.FREE, LedgerAccount.HELD, amount)


def charge_held(db: Connection, reference: LedgerReference, held: int, paid: int) -> int:
    """Charge `paid` of the credits that were reserved for a request, and release the rest.

    Return the credits that the account can then spend.

    Args:
        db: A transaction.
        reference: The account, the request and the time of the charge.
        held: Credits that were reserved for the request.
        paid: Credits to charge, 0 to `held`.

    Raises:
        ValueError: `paid` is not from 0 to `held`.
    """
    if not 0 <= paid <= held:
        raise ValueError("A charge must be between 0 and the held credits.")
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
    """Return the balances of all accounts with the sums of their ledger entries, sorted by name of the account.

    All of them are read at the same moment.
    """
    rows = db.execute(  # one statement reads one snapshot, even during writes
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
