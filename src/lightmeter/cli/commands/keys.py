"""`lightmeter keys`: accounts of the service, their keys and their credits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import click

from lightmeter.cli.options import json_option
from lightmeter.cli.serve_options import database_option
from lightmeter.cli.terminal import print_json
from lightmeter.clock import SystemClock
from lightmeter.errors import UsageError
from lightmeter.service.store import auth
from lightmeter.service.store import credits as money
from lightmeter.service.store.credits import LedgerReference
from lightmeter.service.store.database import Connection
from lightmeter.service.store.store import Store

__all__ = ["command"]

T = TypeVar("T")


@click.group("keys")
def command() -> None:
    """Open accounts at your service, give them keys and credits. Works beside a running service.

    \b
    Examples:
      lightmeter keys add alice --credits 500
      lightmeter keys list
      lightmeter keys grant alice 1000
      lightmeter keys revoke alice
    """


def _changed(database: str, change: Callable[[Connection], T]) -> T:
    async def run() -> T:
        store = Store(database)
        try:
            return await store.write(change)
        finally:
            store.close()

    return asyncio.run(run())


def _known(db: Connection, name: str) -> int:
    account_id = money.find_account_id(db, name)
    if account_id is None:
        raise UsageError(f"There is no account {name!r}.", hint="See `lightmeter keys list`.")
    return account_id


@command.command("add")
@click.argument("name")
@click.option("--credits", "credits_", default=0, show_default=True, type=click.IntRange(0), help="For a new account.")
@database_option
def add(name: str, credits_: int, database: str) -> int:
    """Print a fresh key for the account NAME, which is opened if it is missing.

    The key is shown this once, as the only line of standard output, and stored hashed. An account may have several.
    """
    key = auth.new_key()

    def change(db: Connection) -> int:
        account_id = money.open_account(db, name, credits_, SystemClock().now())
        auth.add_key(db, account_id, key)
        return money.balance_of(db, account_id)

    balance = _changed(database, change)
    click.echo(f"A key for {name}, balance {balance}. It is not shown again:", err=True)
    click.echo(key)
    return 0


@command.command("list")
@database_option
@json_option
def list_(database: str, as_json: bool) -> int:
    """Show the accounts: name, balance, credits held for running requests, and how many keys open it.

    The exit code is 1 if the ledger of an account does not agree with its balance.
    """
    accounts, counts = _changed(database, lambda db: (money.balances(db), auth.key_counts(db)))
    rows = [(each.name, each.free, each.held, counts.get(each.account_id, 0)) for each in accounts]
    if as_json:
        names = ("name", "credits", "held", "keys")
        print_json({"accounts": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        width = max([len(name) for name, *_ in rows] + [4])
        for name, free, held, keys in [("name", "credits", "held", "keys"), *rows]:
            click.echo(f"{name:<{width}}  {free:>9}  {held:>9}  {keys:>4}")
    unsound = [each.name for each in accounts if not each.is_consistent]
    if unsound:
        click.echo(f"The ledger does not agree with the balance of: {', '.join(unsound)}.", err=True)
    return 1 if unsound else 0


@command.command("grant")
@click.argument("name")
@click.argument("credits_", metavar="CREDITS", type=click.IntRange(1))
@database_option
def grant(name: str, credits_: int, database: str) -> int:
    """Give the account NAME so many CREDITS more; prints its new balance."""

    def change(db: Connection) -> int:
        account_id = _known(db, name)
        money.grant(db, LedgerReference(account_id, None, SystemClock().now()), credits_)
        return money.balance_of(db, account_id)

    click.echo(_changed(database, change))
    return 0


@command.command("revoke")
@click.argument("name")
@database_option
def revoke(name: str, database: str) -> int:
    """End all keys of the account NAME at once. Its credits stay, and so do its results, for a key added later."""
    ended = _changed(database, lambda db: auth.revoke_keys(db, _known(db, name)))
    click.echo(f"{ended} {'key' if ended == 1 else 'keys'} of {name} ended.", err=True)
    return 0
