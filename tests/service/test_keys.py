"""`lightmeter keys` changes accounts while the service runs, on both databases."""

from __future__ import annotations

import asyncio
import json

import click
import pytest
from click.testing import CliRunner

from lightmeter.cli.commands.keys import keys_command
from lightmeter.errors import SettingsError, UsageError


def keys(database, *words):
    """Run `lightmeter keys`; return its result."""
    return CliRunner().invoke(
        keys_command, [*words, "--database", database], catch_exceptions=False, standalone_mode=False
    )


def accounts(database):
    """Return the accounts that `keys list --json` prints."""
    return json.loads(keys(database, "list", "--json").stdout)["accounts"]


def test_add_prints_a_new_key(database):
    """Each `add` prints another key; the account is created once; `list` never shows a key."""
    printed = [keys(database, "add", "alice", "--credits", "500").stdout.splitlines() for _ in range(2)]
    assert [len(lines) for lines in printed] == [1, 1]
    assert printed[0] != printed[1]
    assert all(len(key) >= 40 for (key,) in printed)
    assert accounts(database) == [{"name": "alice", "credits": 500, "held": 0, "keys": 2}]
    listed = keys(database, "list").stdout
    assert "alice" in listed
    assert not any(key in listed for (key,) in printed)


def test_grants_add_up(database, books):
    """Credits of several grants add up, and each grant is in the ledger."""
    keys(database, "add", "bob")
    assert [keys(database, "grant", "bob", "7").stdout for _ in range(2)] == ["7\n", "14\n"]
    (book,) = asyncio.run(books(database))
    assert (book.is_consistent, book.free, book.ledger["grants"]) == (True, 14, -14)


@pytest.mark.parametrize("credits_", [2**53, 2**63, 10**40])
def test_more_credits_than_an_account_can_have_are_refused(database, credits_):
    """A new account, a grant and the sum of two grants have at most 2^53 - 1 credits; the balance stays."""
    for words in [("add", "dora", "--credits", str(credits_)), ("grant", "dora", str(credits_))]:
        with pytest.raises(click.UsageError, match=str(2**53 - 1)):
            keys(database, *words)
    keys(database, "add", "dora", "--credits", str(2**53 - 2))
    with pytest.raises(UsageError, match="at most 9,007,199,254,740,991 credits"):
        keys(database, "grant", "dora", "2")
    assert accounts(database) == [{"name": "dora", "credits": 2**53 - 2, "held": 0, "keys": 1}]
    assert keys(database, "grant", "dora", "1").stdout == f"{2**53 - 1}\n"


def test_a_name_that_is_not_utf_8_is_refused(database):
    """Bytes of the command line that are not UTF-8 are a wrong name, not an exception of the database."""
    with pytest.raises(click.UsageError, match="valid UTF-8"):
        keys(database, "add", "a\udcff")


@pytest.mark.parametrize("words", [("grant", "nobody", "5"), ("revoke", "nobody")], ids=" ".join)
def test_an_unknown_account_is_an_error(database, words):
    """The error names the account, and none is created."""
    keys(database, "add", "alice")
    with pytest.raises(UsageError, match="no account 'nobody'"):
        keys(database, *words)
    assert [account["name"] for account in accounts(database)] == ["alice"]


@pytest.mark.parametrize("words", [("list",), ("grant", "alice", "5"), ("revoke", "alice")], ids=" ".join)
def test_a_mistyped_database_is_an_error(tmp_path, words):
    """A command that reads or changes accounts does not create an SQLite database."""
    with pytest.raises(SettingsError, match=r"There is no database .*/mistyped\.db"):
        keys(f"sqlite:///{tmp_path / 'mistyped.db'}", *words)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SettingsError, match="is a folder"):
        keys(f"sqlite:///{tmp_path}", *words)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\tb"])
def test_a_name_that_cannot_be_read_is_refused(database, name):
    """An account has a name that is not empty and has no control characters."""
    with pytest.raises(click.UsageError, match="without control characters"):
        keys(database, "add", name)


async def test_a_running_service_sees_changes_at_once(starting, calling, database, encoded):
    """A key works as soon as it is printed and until it is revoked; the credits stay for the next key."""
    service = await starting(database=database)
    caller = await calling(service)
    key = (await asyncio.to_thread(keys, database, "add", "carol", "--credits", "3")).stdout.strip()
    caller.headers = {"X-API-Key": f"Token {key}"}
    assert (await caller.ask(file=encoded())).body["credits"] == 2
    await asyncio.to_thread(keys, database, "grant", "carol", "8")
    assert await caller.balance() == 10
    await asyncio.to_thread(keys, database, "revoke", "carol")
    assert (await caller.send("GET", "/api/credits")).status == 401
    key = (await asyncio.to_thread(keys, database, "add", "carol")).stdout.strip()
    caller.headers = {"X-API-Key": f"Token {key}"}
    assert await caller.balance() == 10
