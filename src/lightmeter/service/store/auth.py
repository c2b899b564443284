"""Who asks: keys are random or chosen, stored as SHA-256, compared in constant time, and never written anywhere."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lightmeter.models.vocabulary import AUTH_HEADER
from lightmeter.service.store.database import Connection

__all__ = [
    "Account",
    "account_of",
    "add_key",
    "key_counts",
    "key_from",
    "name_of",
    "new_key",
    "revoke_keys",
]

SCHEME: Final = "Token "


@dataclass(frozen=True, slots=True)
class Account:
    """An account: its number, the `user_id` of answers."""

    account_id: int


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


def account_of(db: Connection, key: str) -> Account | None:
    """The account a key opens, or None."""
    wanted = _hash(key)
    # One table: each change of another connection has a file's pages read anew, and this is asked with each request.
    rows = db.execute("SELECT key_hash, account_id FROM keys WHERE key_hash = ?", (wanted,))
    if not rows or not hmac.compare_digest(rows[0][0], wanted):
        return None
    return Account(rows[0][1])


def add_key(db: Connection, account_id: int, key: str) -> None:
    """Let a key open an account; one that opens another already goes on opening that."""
    db.execute("INSERT INTO keys (key_hash, account_id) VALUES (?, ?) ON CONFLICT DO NOTHING", (_hash(key), account_id))


def revoke_keys(db: Connection, account_id: int) -> int:
    """No key opens this account any more; returns how many did."""
    return len(db.execute("DELETE FROM keys WHERE account_id = ? RETURNING account_id", (account_id,)))


def key_counts(db: Connection) -> dict[int, int]:
    """How many keys open each account, by its number; accounts without keys are missing."""
    return dict(db.execute("SELECT account_id, count(*) FROM keys GROUP BY account_id"))
