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
    """Create the tables of the service in a database, or migrate those of an earlier version. Repeating it is safe.

    `serve` and `worker` do this too when they start. In a rollout, run this command before them: it fails if the
    database cannot be reached, or if a newer version has migrated it.

    \b
    Example:
      PGPASSWORD=… lightmeter migrate --database postgresql://user@host/lightmeter
    """
    run_transaction(database, lambda _: None)
    click.echo(f"{mask_credentials(database)} has version {VERSION} of the tables.")
    return 0
