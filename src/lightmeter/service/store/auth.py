"""Creates, finds and revokes API keys of accounts. The database stores only their SHA-256 hashes; no key is logged."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from lightmeter.service.store.sql_dialects import Connection
from lightmeter.wire.constants import AUTH_HEADER

SCHEME: Final = "Token "


def _hash(key: str) -> bytes:
    # A slow password hash is not needed: keys are random, except those that operators choose for their own machine.
    # Header bytes that are not UTF-8 arrive as lone surrogates. They make a wrong key, not an error.
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def read_key(headers: Mapping[str, str]) -> str | None:
    """Return the key in the header `X-API-Key: Token KEY` or `Authorization: Token KEY`.

    Return None if neither header has a key.
    """
    for header in (AUTH_HEADER, "Authorization"):
        value = headers.get(header, "")
        if value.startswith(SCHEME) and value[len(SCHEME) :].strip():
            return value[len(SCHEME) :].strip()
    return None


def new_key() -> str:
    """Return a new random key of 256 bits."""
    return secrets.token_urlsafe(32)


def account_name(key: str) -> str:
    """Return the name of the account for a key that the operator chose: a hash that does not reveal the key."""
    return f"sha256:{_hash(key).hex()}"


def find_account(db: Connection, key: str) -> int | None:
    """Return the number of the account that has this key; None if no account has it.

    The number is the `user_id` in answers.
    """
    wanted = _hash(key)
    # Reads one table only, because this runs for each request, and SQLite rereads pages after each commit.
    rows = db.execute("SELECT key_hash, account_id FROM keys WHERE key_hash = ?", (wanted,))
    return int(rows[0][1]) if rows and hmac.compare_digest(rows[0][0], wanted) else None


def add_key(db: Connection, account_id: int, key: str) -> None:
    """Add a key to an account. Do nothing if this account or another one already has the key."""
    db.execute("INSERT INTO keys (key_hash, account_id) VALUES (?, ?) ON CONFLICT DO NOTHING", (_hash(key), account_id))


def revoke_keys(db: Connection, account_id: int) -> int:
    """Delete all keys of an account; return how many there were."""
    return len(db.execute("DELETE FROM keys WHERE account_id = ? RETURNING account_id", (account_id,)))


def key_counts(db: Connection) -> dict[int, int]:
    """Return account number → number of its keys, for all accounts that have keys."""
    return dict(db.execute("SELECT account_id, count(*) FROM keys GROUP BY account_id"))
