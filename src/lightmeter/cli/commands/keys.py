"""`lightmeter keys`: manages the accounts of the service, their keys and credits."""

from __future__ import annotations

import click

from lightmeter.cli.options import database_option, json_option
from lightmeter.cli.print_results import print_json
from lightmeter.cli.transactions import run_transaction
from lightmeter.clock import SystemClock
from lightmeter.errors import UsageError
from lightmeter.service.store import auth
from lightmeter.service.store import credits as money
from lightmeter.service.store.credits import LedgerReference
from lightmeter.service.store.sql_dialects import Connection
from lightmeter.wire.constants import MAX_CREDITS


@click.group("keys")
def keys_command() -> None:
    """Manage the accounts of your service, their keys and credits. The service may be running.

    \b
    Examples:
      lightmeter keys add alice --credits 500
      lightmeter keys list
      lightmeter keys grant alice 1000
      lightmeter keys revoke alice
    """


def _existing_account(db: Connection, name: str) -> int:
    account_id = money.find_account_id(db, name)
    if account_id is None:
        raise UsageError(f"There is no account {name!r}.", hint="See `lightmeter keys list`.")
    return account_id


def _check_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("must be valid UTF-8.", ctx, param) from None
    return value


def _check_new_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not _check_name(ctx, param, value).strip() or not value.isprintable():
        raise click.BadParameter("must be text without control characters.", ctx, param)
    return value


@keys_command.command("add")
@click.argument("name", callback=_check_new_name)
@click.option(
    "--credits",
    "credits_",
    default=0,
    show_default=True,
    type=click.IntRange(0, MAX_CREDITS),
    help="Initial credits of a new account.",
)
@database_option
def add(name: str, credits_: int, database: str) -> int:
    """Create a key for the account NAME, and the account if it does not exist.

    The key is printed as the only line of standard output. Only its hash is stored, so it cannot be shown again. An
    account may have several keys.
    """
    key = auth.new_key()

    def change(db: Connection) -> int:
        account_id = money.open_account(db, name, credits_, SystemClock().now())
        auth.add_key(db, account_id, key)
        return money.read_balance(db, account_id)

    balance = run_transaction(database, change, create=True)
    click.echo(f"New key of {name}, balance {balance}. It is not shown again:", err=True)
    click.echo(key)
    return 0


@keys_command.command("list")
@database_option
@json_option
def list_(database: str, as_json: bool) -> int:
    """List the accounts: name, balance, credits reserved for running requests, number of keys.

    The exit code is 1 if the entries in the ledger of an account do not add up to its balance.
    """
    accounts, counts = run_transaction(database, lambda db: (money.balances(db), auth.key_counts(db)))
    rows = [(account.name, account.free, account.held, counts.get(account.account_id, 0)) for account in accounts]
    if as_json:
        names = ("name", "credits", "held", "keys")
        print_json({"accounts": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        width = max([len(name) for name, *_ in rows] + [4])
        for name, free, held, keys in [("name", "credits", "held", "keys"), *rows]:
            click.echo(f"{name:<{width}}  {free:>9}  {held:>9}  {keys:>4}")
    inconsistent = [account.name for account in accounts if not account.is_consistent]
    if inconsistent:
        click.echo(f"The ledger differs from the balance of: {', '.join(inconsistent)}.", err=True)
    return 1 if inconsistent else 0


@keys_command.command("grant")
@click.argument("name", callback=_check_name)
@click.argument("credits_", metavar="CREDITS", type=click.IntRange(1, MAX_CREDITS))
@database_option
def grant(name: str, credits_: int, database: str) -> int:
    """Add CREDITS to the account NAME, and print its new balance."""

    def change(db: Connection) -> int:
        account_id = _existing_account(db, name)
        money.grant(db, LedgerReference(account_id, None, SystemClock().now()), credits_)
        return money.read_balance(db, account_id)

    click.echo(run_transaction(database, change))
    return 0


@keys_command.command("revoke")
@click.argument("name", callback=_check_name)
@database_option
def revoke(name: str, database: str) -> int:
    """Revoke all keys of the account NAME. Its credits and results stay; a key added later can use them."""
    revoked = run_transaction(database, lambda db: auth.revoke_keys(db, _existing_account(db, name)))
    click.echo(f"{revoked} {'key' if revoked == 1 else 'keys'} of {name} revoked.", err=True)
    return 0
