"""Who asks: keys are random or chosen, stored as SHA-256, compared in constant time, and never written anywhere."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import apsw

from lightmeter.models.vocabulary import AUTH_HEADER

__all__ = ["Account", "account_of", "add_key", "key_from", "name_of", "new_key", "open_account"]

SCHEME: Final = "Token "


@dataclass(frozen=True, slots=True)
class Account:
    """An account: its number (the `user_id` of answers) and its name."""

    account_id: int
    name: str


def _hash(key: str) -> bytes:
    """SHA-256 is enough for keys of high entropy; a chosen one is for the operator's own machine."""
    # Header bytes that are no UTF-8 arrive as lone surrogates: a wrong key, not an error.
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def key_from(headers: Mapping[str, str]) -> str | None:
    """The key in `X-API-Key: Token KEY`, or in `Authorization: Token KEY`."""
    for header in (AUTH_HEADER, "Authorization"):
        value = headers.get(header, "")
        if value.startswith(SCHEME) and value[len(SCHEME) :].strip():
            return value[len(SCHEME) :].strip()
    return None


def new_key() -> str:
    """A fresh key: 256 random bits."""
    return secrets.token_urlsafe(32)


def name_of(key: str) -> str:
    """What the account of a chosen key is called in the database: it must not tell the key."""
    return f"sha256:{_hash(key).hex()}"


def account_of(key: str) -> Callable[[apsw.Connection], Account | None]:
    """The account a key opens, or None."""
    wanted = _hash(key)

    def look(db: apsw.Connection) -> Account | None:
        found = db.execute(
            "SELECT key_hash, account_id, name FROM keys JOIN accounts USING (account_id) WHERE key_hash = ?", (wanted,)
        ).fetchone()
        if found is None or not hmac.compare_digest(found[0], wanted):
            return None
        return Account(found[1], found[2])

    return look


def open_account(name: str, credits_: int, at: float) -> Callable[[apsw.Connection], int]:
    """The number of the account called `name`, made with so many credits if it is missing."""

    def change(db: apsw.Connection) -> int:
        found = db.execute("SELECT account_id FROM accounts WHERE name = ?", (name,)).fetchone()
        if found is not None:
            return int(found[0])
        db.execute("INSERT INTO accounts (name, credits) VALUES (?, ?)", (name, credits_))
        account_id = db.last_insert_rowid()
        db.execute("INSERT INTO ledger VALUES (?, NULL, ?, ?)", (account_id, credits_, at))
        return account_id

    return change


def add_key(account_id: int, key: str) -> Callable[[apsw.Connection], None]:
    """Let a key open an account."""

    def change(db: apsw.Connection) -> None:
        db.execute("INSERT OR IGNORE INTO keys VALUES (?, ?)", (_hash(key), account_id))

    return change
