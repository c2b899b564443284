"""Prefect flow that checks the rows of a manifest, without a key and without an analysis service.

Schedulers run it before `analyze`, which uses its results again for three days. One task checks all rows at the same
time, and stores each result as it comes: a flow that runs again, by hand or by a Prefect retry, does not repeat them.

Run it without a server: `python flows/precheck.py data/manifest.csv out/`. Deploy it: `prefect deploy --all`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Any

# Prefect reads these when it is imported; flows/analyze.py says why.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.exceptions import FailedRun
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

import lightmeter as lm
from lightmeter.errors import JournalLocked, LightmeterError
from lightmeter.prefect_integration.events import emit_event
from lightmeter.prefect_integration.flow_results import error_text, failed_state, warn_of_credentials, write_table
from lightmeter.prefect_integration.precheck_parameters import CheckParameters
from lightmeter.redaction import mask_credentials
from lightmeter.terminal import printable

ROWS_SKIPPED = "RowsSkipped"
"""Name of the completed state of a flow run that found rows which a run would skip."""


def _is_temporary(_task: object, _run: object, state: State[Any]) -> bool:
    """Return whether Prefect should retry a failed task: not if the manifest, options or folder must change."""
    error = state.data
    return isinstance(error, JournalLocked) or not isinstance(error, LightmeterError)


def _flow_name() -> str:
    return f"precheck {mask_credentials(flow_run.parameters['manifest'])}"


@task(
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=10,
    retry_condition_fn=_is_temporary,
    task_run_name="check rows",
)
async def check_rows(manifest: str, out: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check all rows and write the tables; return the report, as `lightmeter check --json` prints it.

    Args:
        manifest: A path or `s3://` URL of a manifest, a folder or a glob.
        out: The output folder.
        options: Fields of `lightmeter.option_arguments.CheckArguments`.
    """
    report = await lm.aio.check(manifest, out, **options)
    get_run_logger().info("%s", printable(str(report)))
    return report.to_dict()


@flow(name="precheck", flow_run_name=_flow_name, log_prints=True)
async def precheck(
    manifest: Annotated[str, Field(min_length=1)],
    out: Annotated[str, Field(min_length=1)],
    options: CheckParameters | None = None,
) -> dict[str, Any] | State[Any]:
    """Check the rows of a manifest, and write the tables `assets` and `prechecks`.

    The flow run is completed once all rows are checked. Its state is called `RowsSkipped` if a run would skip some, and
    says how many and why. It fails if the manifest cannot be read, or the folder holds a run.

    Args:
        manifest: A path or `s3://` URL of a manifest, a folder or a glob. Prefect stores it as given: set keys in the
            worker's environment (`AWS_ACCESS_KEY_ID`, …).
        out: The output folder; the result of an earlier check there is replaced.
        options: How the manifest is read and checked, and whether on this machine, Dask or Ray.

    Returns:
        The report, as `lightmeter check --json` prints it; or a failed state.
    """
    name = mask_credentials(manifest)
    warn_of_credentials("manifest", manifest)
    try:
        report = await check_rows(manifest, out, (options or CheckParameters()).to_options())
    except LightmeterError as error:
        return failed_state(error)
    emit_event(
        "lightmeter.run.prechecked", out, **{key: report[key] for key in ("rows", "pending", "skipped", "duplicate")}
    )
    await write_table("precheck-summary", _as_table(report), f"{name} → {out}")
    if not report["skipped"]:
        return report
    reasons = [f"{group['rows']} {group['reason']}" for group in report["reasons"] if group["status"] == "skipped"]
    message = f"{report['rows']} rows: {report['pending']} can be sent, {report['skipped']} to skip: "
    return Completed(name=ROWS_SKIPPED, message=message + ", ".join(reasons), data=report)


def _as_table(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rows with the columns `name`, `rows` and `example`, for a table on Prefect's web page.

    There is one for each outcome, and one for each check and severity. `report` is the result of `check_rows`.
    """
    outcomes = {"rows": report["rows"], "can be sent": report["pending"]}
    outcomes |= {status: report[status] for status in ("skipped", "duplicate")}
    return [
        *({"name": name, "rows": rows, "example": ""} for name, rows in outcomes.items()),
        *(
            {
                "name": f"{found['check']} ({found['severity']})",
                "rows": found["rows"],
                "example": f"{mask_credentials(found['url'])}: {found['message']}",
            }
            for found in report["findings"]
        ),
    ]


async def _main(manifest: str, out: str) -> int:
    """Run the flow without a deployment; return the exit code of `lightmeter check`."""
    try:
        report = await precheck(manifest, out)
    except LightmeterError as error:
        print(f"error: {error_text(error)}", file=sys.stderr)  # noqa: T201 (the output of the script)
        return error.exit_code
    except FailedRun as failed:
        print(failed, file=sys.stderr)  # noqa: T201 (likewise)
        return 1
    print(report)  # noqa: T201 (likewise)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*sys.argv[1:])))
