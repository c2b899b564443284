"""Functions by which flows report to Prefect: they make failed states of errors, write artifacts, and log warnings."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from prefect import get_run_logger
from prefect.artifacts import acreate_table_artifact
from prefect.client.schemas import State
from prefect.states import Failed

from lightmeter.errors import LightmeterError
from lightmeter.redaction import has_credentials, mask_credentials

T = TypeVar("T")

NOT_PLANNED: Final = "NotPlanned"
"""Name of the failed state of a flow run if an error ended it before anything was sent."""


def error_text(error: LightmeterError) -> str:
    """Return the message of an error and its hint as one text."""
    return f"{error} {error.hint}".rstrip()


def failed_state(error: LightmeterError, name: str | None = None) -> State[Any]:
    """Return the state of a flow or task run that `error` ended. The state's message is the error's message and hint.

    `name` is the name of the state; None means Prefect's default name, `Failed`.
    """
    return Failed(name=name, message=error_text(error), data=error)


async def write_artifact(artifact: Awaitable[T]) -> T | None:
    """Write an artifact for Prefect's web page and return its result; if that fails, log a warning and return None."""
    try:
        return await artifact
    except Exception as error:  # noqa: BLE001 (whatever it is)
        get_run_logger().warning("An artifact was not written, the run goes on: %s", error)
        return None


async def write_table(key: str, rows: list[dict[str, Any]], description: str) -> None:
    """Write a table for Prefect's web page; if that fails, log a warning.

    Args:
        key: Name of the artifact: lower-case letters, digits and dashes.
        rows: The rows of the table.
        description: Text above the table; credentials in it are removed.
    """
    await write_artifact(acreate_table_artifact(table=rows, key=key, description=mask_credentials(description)))


def warn_of_credentials(name: str, value: str) -> None:
    """Log a warning if the value of the parameter `name` holds credentials: Prefect stores parameters as they are."""
    if has_credentials(value):
        get_run_logger().warning(
            "The parameter %s holds credentials, and Prefect stores parameters as they are. "
            "Give %s, and set the key in the environment of the worker.",
            name,
            mask_credentials(value),
        )
