"""The Python function `collect`: fetch answers that are ready at the service, without sending a new request."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightmeter.api.run_result import output_folder
from lightmeter.api.run_steps import NO_ROWS, StartArguments, stream_folder
from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.submissions import submissions_in
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submission_states import IN_DOUBT, State
from lightmeter.settings import Settings, read_settings

_WAITING: Final = frozenset({State.ACKED})
_LOST: Final = IN_DOUBT | {State.PROVEN_PAID_LOST, State.PLANNED}
"""States of a request that the service accepted, but whose answer it no longer has.

`planned` means that the request will be sent again, because the account's balance proves that it was not charged.
"""


@dataclass(frozen=True, slots=True)
class CollectReport:
    """What became of the requests of a run that the service had accepted, but not yet answered.

    Attributes:
        answered: Requests whose answers were fetched.
        lost: Requests whose answers the service no longer has.
        waiting: Requests that the service has not answered yet.
    """

    answered: int
    lost: int
    waiting: int


async def collect(out: Path | str, *, wait_s: float | None = None, settings: Settings | None = None) -> CollectReport:
    """Fetch the answers that wait at the service, and write the tables. Send no request that costs credits.

    A service keeps answers for 24 hours. If no request of the run waits for an answer, the service is not contacted.

    Args:
        out: The output folder of the run.
        wait_s: Maximum seconds to wait for answers that are not ready; None waits until each is fetched or has expired.
        settings: The user's settings, with the key; None means those of the environment and the settings file.

    Raises:
        JournalLocked: Another process is executing the run; it fetches the answers itself.
        JournalError: The folder holds no run.
        AccessDenied: The service does not accept the key.
        Unreachable: The service does not answer.
    """
    folder = output_folder(out)
    options = read_run_header(folder).options
    before = await asyncio.to_thread(_requests_in, folder, _WAITING)
    if not before:
        return CollectReport(0, 0, 0)
    stop = asyncio.Event()
    timer = None if wait_s is None else asyncio.get_running_loop().call_later(wait_s, stop.set)
    try:
        steps = stream_folder(folder, options, StartArguments(NO_ROWS), stop, settings or read_settings())
        async with aclosing(steps):
            async for _ in steps:
                pass
    finally:
        if timer is not None:
            timer.cancel()
    waiting = before & await asyncio.to_thread(_requests_in, folder, _WAITING)
    lost = before & await asyncio.to_thread(_requests_in, folder, _LOST)
    return CollectReport(len(before) - len(waiting) - len(lost), len(lost), len(waiting))


def _requests_in(folder: Path, states: Collection[State]) -> set[int]:
    """Return the ids of the requests of the run in `folder` that are in one of the given states."""
    with open_read_only(folder) as db:
        return {record.submission_id for record in submissions_in(db, states)}
