"""`lightmeter jobs`: lists and cancels unfinished requests of the service."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Final

import click

from lightmeter.cli.options import database_option, json_option
from lightmeter.cli.print_results import print_json
from lightmeter.cli.transactions import run_transaction, run_transactions
from lightmeter.clock import SystemClock
from lightmeter.errors import UsageError
from lightmeter.service.store import unfinished_requests

_COLUMNS: Final = ("request_id", "account", "state", "assets", "held", "attempts", "created_at")


@click.group("jobs")
def jobs_command() -> None:
    """List and cancel the unfinished requests of your service. The service may be running.

    \b
    Examples:
      lightmeter jobs list
      lightmeter jobs cancel 0123456789abcdef0123456789abcdef
      lightmeter jobs cancel --account alice
    """


@jobs_command.command("list")
@database_option
@json_option
def list_(database: str, as_json: bool) -> int:
    """List the unfinished requests, the oldest first.

    The columns are the request id, the account, the state (queued or running), the number of URLs and files, the
    credits reserved, how many times work on it was started, and the time of the request.
    """
    found = run_transaction(database, unfinished_requests.list_unfinished)
    rows = [
        {**asdict(each), "created_at": datetime.fromtimestamp(each.created_at, UTC).isoformat(timespec="seconds")}
        for each in found
    ]
    if as_json:
        print_json({"jobs": rows})
        return 0
    table = [_COLUMNS, *(tuple(str(row[name]) for name in _COLUMNS) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        click.echo("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())
    return 0


@jobs_command.command("cancel")
@click.argument("request_ids", metavar="[REQUEST_ID]...", nargs=-1)
@click.option("--account", metavar="NAME", help="Cancel all unfinished requests of this account.")
@database_option
@json_option
def cancel(request_ids: tuple[str, ...], account: str | None, database: str, as_json: bool) -> int:
    """Cancel unfinished requests: they fail, cost nothing, and their reserved credits are released.

    A client that polls for its cancelled request is told that the operator cancelled it. A process that is executing
    the request stops within seconds. The exit code is 1 if the request of a REQUEST_ID is neither queued nor running.
    """
    if bool(request_ids) == (account is not None):
        raise UsageError("Name either requests or an account.", hint="See `lightmeter jobs list`.")

    at = SystemClock().now()
    found = run_transaction(database, unfinished_requests.list_unfinished) if account is not None else []
    wanted = list(dict.fromkeys(request_ids or [each.request_id for each in found if each.account == account]))
    # Each request has its own transaction: one that locked several requests could deadlock with the service.
    changes = [partial(unfinished_requests.cancel, request_id=request_id, at=at) for request_id in wanted]
    outcomes = dict(zip(wanted, run_transactions(database, changes), strict=True))
    cancelled = [request_id for request_id, done in outcomes.items() if done]
    missing = [request_id for request_id in request_ids if not outcomes[request_id]]
    if as_json:
        print_json({"cancelled": cancelled, "not_found": missing})
    else:
        click.echo(f"{len(cancelled)} {'request' if len(cancelled) == 1 else 'requests'} cancelled.")
    if missing:
        click.echo(f"Not queued or running: {', '.join(missing)}. See `lightmeter jobs list`.", err=True)
    return 1 if missing else 0
