"""Send an alert to the user's webhook when a run reaches a threshold of credits; a run never waits for the webhook."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Final, Literal

import orjson

from lightmeter.client.webhook import Delivery, is_webhook_forbidden, post_to_webhook
from lightmeter.clock import Clock, utc_from_timestamp
from lightmeter.errors import LightmeterError
from lightmeter.journal.commands.alerts import AlertState, claim_alert, end_alert
from lightmeter.journal.header import RunHeader
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.money.spend_thresholds import (
    SpendReading,
    SpendThreshold,
    parse_thresholds,
    reached_thresholds,
    read_spend,
)
from lightmeter.settings import Settings

CHECK_INTERVAL_S: Final = 1.0
"""Least seconds between two readings of what a run has spent."""

PAUSES_PER_READING: Final = 50
"""The pause after a reading is at least this many times as long as the reading, so that readings take 2 % of a core."""

END_WAIT_S: Final = 2.0
"""Most seconds for which the end of a run waits for alerts that are being delivered."""

RETRY_PAUSES_S: Final = (1.0, 5.0)
"""Seconds to wait before the first and before the second repetition of an alert that the webhook did not accept."""

log = logging.getLogger("lightmeter")

_ENDED: Final = Delivery("the run ended before it was answered")


@asynccontextmanager
async def watch_spend(journal: Journal, header: RunHeader, settings: Settings, clock: Clock) -> AsyncIterator[None]:
    """Send alerts on the spending of a run during the `with` block and at its end; without a webhook, do nothing.

    Args:
        journal: The journal of the run; it stores which alerts were sent.
        header: Id, manifest and options of the run, such as its budget.
        settings: The user's settings, with the webhook and the thresholds.
        clock: Source of the time.
    """
    alerts = SpendAlerts(journal, header, settings, clock)
    if settings.alert_webhook is None or not alerts.thresholds:
        yield
        return
    if not settings.alert_allow_private and await is_webhook_forbidden(settings.alert_webhook):
        log.warning(
            "warning: alerts on spending will not be delivered: the host of LIGHTMETER_ALERT_WEBHOOK is on this "
            "machine or in a private network. Set LIGHTMETER_ALERT_ALLOW_PRIVATE=true to allow that."
        )
    watching = asyncio.create_task(alerts.watch())
    try:
        yield
    finally:
        await alerts.finish(watching)


class SpendAlerts:
    """Sends an alert to the user's webhook for each spending threshold that a run reaches; `watch_spend` uses it."""

    def __init__(self, journal: Journal, header: RunHeader, settings: Settings, clock: Clock) -> None:
        self.thresholds = parse_thresholds(settings.alert_thresholds, header.options.budget)
        self._journal = journal
        self._header = header
        self._settings = settings
        self._clock = clock
        self._claimed: set[str] = set()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    async def watch(self) -> None:
        """Read regularly, until `finish`, what the run has spent; send an alert for each threshold newly reached."""
        started_s = monotonic()
        await self._check()
        while not await self._ends_within(max(CHECK_INTERVAL_S, PAUSES_PER_READING * (monotonic() - started_s))):
            started_s = monotonic()
            await self._check()

    async def finish(self, watching: asyncio.Task[None]) -> None:
        """Send an alert for each threshold newly reached; wait for all alerts, and cancel them after `END_WAIT_S` s.

        `watching` runs `watch`. It is awaited, not cancelled: an alert that the journal is just recording as being sent
        must be sent.
        """
        self._ending.set()
        await asyncio.wait({watching})
        await self._check()
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=END_WAIT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _check(self) -> None:
        with suppress(LightmeterError, OSError):  # (such as a full disk: the run reports it)
            reading = await asyncio.to_thread(self._read)
            for kind, reached in reached_thresholds(self.thresholds, reading):
                named = {f"{kind} {float(one.credits):.15g}": one for one in reached}
                if named.keys() <= self._claimed:
                    continue
                self._claimed |= named.keys()
                if (name := await self._journal.write(claim_alert(list(named)))) is not None:
                    task = asyncio.create_task(self._deliver(name, self._body(name, kind, named[name], reading)))
                    self._deliveries.add(task)
                    task.add_done_callback(self._deliveries.discard)

    def _read(self) -> SpendReading:
        with open_read_only(self._journal.folder) as db:
            return read_spend(db)

    def _body(
        self, name: str, kind: Literal["spent", "forecast"], threshold: SpendThreshold, reading: SpendReading
    ) -> bytes:
        """Return an alert as JSON; the README documents its fields.

        Args:
            name: Name of the alert, such as `spent 16`.
            kind: `spent` if the credits spent have reached the threshold; `forecast` if the credits that the run will
                probably spend have reached it.
            threshold: The threshold.
            reading: What the run has spent.
        """
        header = self._header
        budget, amount = header.options.budget, reading.amount(kind)
        spends = f"{'has spent' if kind == 'spent' else 'is expected to spend'} {amount} credits"
        if kind == "forecast" and budget is not None and amount is not None and amount > budget:
            spends = f"would spend {amount} credits on the whole manifest, but its budget stops it at {budget}"
        return orjson.dumps(
            {
                "event": f"lightmeter.budget.{kind}",
                "alert_id": f"{header.run_id} {name}",
                "text": f"Run {header.run_id} of {header.manifest} {spends}: {threshold.label} is reached.",
                "run_id": header.run_id,
                "manifest": header.manifest,
                "threshold": threshold.label,
                "threshold_credits": float(threshold.credits),
                "budget": budget,
                "paid": reading.paid,
                "held": reading.held,
                "forecast": reading.forecast,
                "rows": reading.counts,
                "at": utc_from_timestamp(self._clock.now()).isoformat(),
            }
        )

    async def _deliver(self, name: str, body: bytes) -> None:
        """Send the alert `name`, and record the outcome in the journal; `body` is the alert as JSON.

        Send the alert again only if the webhook certainly did not accept it.
        """
        delivery = _ENDED
        try:
            delivery = await self._send(body)
            for pause_s in RETRY_PAUSES_S:
                if not delivery.may_repeat or await self._ends_within(pause_s):
                    break
                delivery = _ENDED
                delivery = await self._send(body)
        finally:
            state: AlertState = "failed" if delivery.may_repeat else "unknown"
            change = end_alert(name, "delivered" if delivery.problem is None else state, delivery.problem)
            with suppress(LightmeterError):
                await asyncio.shield(asyncio.wrap_future(self._journal.submit(change)))

    async def _ends_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)
        return self._ending.is_set()

    async def _send(self, body: bytes) -> Delivery:
        url, allow_private = self._settings.alert_webhook, self._settings.alert_allow_private
        return Delivery() if url is None else await post_to_webhook(url, body, allow_private=allow_private)
