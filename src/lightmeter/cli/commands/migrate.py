"""`lightmeter migrate`: create or migrate the tables in the database of the service."""

from __future__ import annotations

import click

from lightmeter.cli.options import database_option
from lightmeter.cli.transactions import run_transaction
from lightmeter.redaction import mask_credentials
from lightmeter.service.store.schema import VERSION


@click.command("migrate")
@database_option
def migrate_command(database: str) -> int:
    """Create the tables of the service in a database, or migrate them from an earlier version. Safe to repeat.

    `serve` and `worker` also do this when they start. When you roll out a new version, run this command first. It fails
    if the database cannot be reached, or if a newer version has already migrated it.

    \b
    Example:
      PGPASSWORD=… lightmeter migrate --database postgresql://user@host/lightmeter
    """
    run_transaction(database, lambda _: None, create=True)
    click.echo(f"{mask_credentials(database)} has version {VERSION} of the tables.")
    return 0
