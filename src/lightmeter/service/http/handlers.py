"""What each endpoint does, without HTTP: admit, hold, have it done, answer."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import orjson

from lightmeter.clock import Clock
from lightmeter.errors import AccessDenied, OutOfCredits
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.response import Backends
from lightmeter.models.vocabulary import ACCESS_DENIED, REQUEST_FAILED, not_found
from lightmeter.service.analysis.backpressure import ServiceOverloaded
from lightmeter.service.http.parameters import BadRequest, named, read_uploads, validate
from lightmeter.service.http.request_ids import random_hex
from lightmeter.service.jobs.local_queue import JobQueue
from lightmeter.service.jobs.runner import Runner, RunningRequest, ServicePolicy, kinds_of
from lightmeter.service.store import auth, requests
from lightmeter.service.store.auth import Account
from lightmeter.service.store.credits import balance_of
from lightmeter.service.store.database import StoreError
from lightmeter.service.store.request_states import FINISHED, JobState
from lightmeter.service.store.requests import Attempt, NewRequest, StoredRequest, Superseded
from lightmeter.service.store.store import Store

__all__ = ["Handlers", "Reply", "ServicePolicy", "refusal"]

log = logging.getLogger("lightmeter.service")

FORGET_EVERY_S: Final = 600.0

FAILED_STATUS: Final = 500
"""Of a synchronous answer that says `failed`; on a poll the asking itself went well, so that is 200."""

OTHER_BODY: Final = "This Idempotency-Key was sent before with another request: use a new key for a new request."
OTHER_BODY_STATUS: Final = 422
"""As the IETF's draft on the Idempotency-Key header field has it, section 2.7."""

KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")
BAD_KEY: Final = "Idempotency-Key must be 1 to 255 printable ASCII characters."

REQUEST_ID: Final = re.compile(r"[0-9a-f]{32}")

PATIENCE_S: Final = 20.0
"""For a request of the same key that another process is answering: after that it can be polled for."""

LOOK_EVERY_S: Final = 0.05

SMALL_CHARS: Final = 512 * 1024
"""Of base64: decoded and hashed in less than half a millisecond, with no other thread to be asked and waited for."""


ASKED: Final = AnalyzeRequest().model_dump()
"""What stands for fields that a version of this service did not write down."""

AS_ASKED: Final = ("role", "language", "prompt", "tag_score", "capture_interval", "max_frames")
"""Fields that are echoed under their own names."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: an HTTP status, a JSON body, and headers if it needs any."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class Handlers:
    """The service behind its routes.

    Args:
        store: Requests, accounts, credits.
        runner: Does requests.
        queue: Of acknowledged requests.
        clock: Time.
        offers: See below.

    Attributes:
        terms: What is offered.
        offers: Answer of GET /api/backends.
    """

    def __init__(self, store: Store, runner: Runner, queue: JobQueue, clock: Clock, offers: Backends) -> None:
        self.terms = runner.terms
        self.offers = offers
        self._store = store
        self._runner = runner
        self._queue = queue
        self._clock = clock

    async def account(self, headers: Mapping[str, str]) -> Account:
        """Whose key is in the headers.

        Raises:
            AccessDenied: nobody's.
        """
        key = auth.read_key(headers)
        account = None if key is None else await self._store.read_inline(lambda db: auth.find_account(db, key))
        if account is None:
            raise AccessDenied(ACCESS_DENIED)
        return account

    async def credits(self, account: Account) -> Reply:
        """GET /api/credits."""
        return Reply(200, {"credits": await self._store.read_inline(lambda db: balance_of(db, account.account_id))})

    def backends(self) -> Reply:
        """GET /api/backends."""
        return Reply(200, self.offers.model_dump())

    async def analyze(self, account: Account, request: AnalyzeRequest, base_url: str, key: str | None) -> Reply:
        """POST and GET /api/fetch.

        Raises:
            BadRequest: what is asked cannot be done.
            OutOfCredits: the account cannot hold the price.
            Busy: too much waits already; nothing was held.
        """
        terms = self.terms
        if key is not None and not KEY.fullmatch(key):
            raise BadRequest(BAD_KEY)
        request = validate(request, terms.availability.features, allow_private=terms.allow_private, ports=terms.ports)
        is_small = sum(map(len, request.file)) < SMALL_CHARS
        uploads, digests = _read(request) if is_small else await asyncio.to_thread(_read, request)
        request = named(request, uploads)
        kinds = kinds_of(request, uploads)
        order = self._runner.order(request, uploads, digests)
        new = NewRequest(
            request_id=random_hex(16),
            account_id=account.account_id,
            request=request,
            uploads=uploads,
            hold=self._runner.price(order),
            at=self._clock.now(),
            acknowledged=len(kinds) > 1 or "video" in kinds,
            idempotency_key=key,
            digests=digests,
        )
        with self._runner.room(order, self._queue.waiting):
            if not new.acknowledged:
                await self._runner.welcome()
            earlier = await self._store.write(lambda db: requests.admit(db, new, self._queue.enqueue))
            if earlier is not None:
                return await self._again(earlier, new, base_url)
            if new.acknowledged:
                self._runner.metrics.job(JobState.QUEUED.value)
                self._queue.admitted(new.request_id)
                return _acknowledgment(new.request_id, account.account_id, new.echo, base_url)
            running = self._runner.begin(Attempt(new.request_id, 1), order)
        return await self._first_of(running, new, base_url)

    async def _first_of(self, running: RunningRequest, new: NewRequest, base_url: str) -> Reply:
        """A single asset: its answer, or an acknowledgment as soon as it turns out to be a video."""
        await asyncio.shield(running.known)
        if running.is_video:
            return await self._acknowledge(new.request_id, new.account_id, new.echo, base_url)
        return _finished(await asyncio.shield(running.task), FAILED_STATUS)

    async def _acknowledge(self, request_id: str, account_id: int, echo: str, base_url: str) -> Reply:
        if not await self._store.write(lambda db: requests.acknowledge(db, request_id)):
            raise Superseded(request_id)
        return _acknowledgment(request_id, account_id, echo, base_url)

    async def _again(self, earlier: StoredRequest, new: NewRequest, base_url: str) -> Reply:
        """The same request under the same idempotency key: its own answer, and nothing more is charged."""
        if not earlier.is_same_request(new):
            raise BadRequest(OTHER_BODY, OTHER_BODY_STATUS)
        known = (earlier.request_id, earlier.account_id, earlier.echo, base_url)
        running = self._runner.answering.get(earlier.request_id)
        if not earlier.acknowledged and running is not None:
            earlier = await asyncio.shield(running.task)
        if not earlier.acknowledged and earlier.state not in FINISHED:
            earlier = await self._ended_elsewhere(earlier)
        if earlier.acknowledged:
            return _acknowledgment(*known)
        return _finished(earlier, FAILED_STATUS) if earlier.state in FINISHED else await self._acknowledge(*known)

    async def _ended_elsewhere(self, earlier: StoredRequest) -> StoredRequest:
        """A request that another process answers, when it has ended or is acknowledged, or as it is after a while."""
        until = self._clock.monotonic() + PATIENCE_S
        while not earlier.acknowledged and earlier.state not in FINISHED and self._clock.monotonic() < until:
            await self._clock.sleep(LOOK_EVERY_S)
            request_id, account_id = earlier.request_id, earlier.account_id
            found = await self._store.read(lambda db: requests.find(db, request_id, account_id, 0))  # noqa: B023 (awaited here)
            if found is None:  # its process died, and it was undone
                raise Superseded(request_id)
            earlier = found
        return earlier

    async def result(self, account: Account, request_id: str) -> Reply:
        """GET /api/response/<request_id>."""
        not_before = self._clock.now() - self.terms.result_lifetime_s
        stored = None
        if REQUEST_ID.fullmatch(request_id):  # no database is asked for what it could not even write
            stored = await self._store.read(lambda db: requests.find(db, request_id, account.account_id, not_before))
        if stored is None:
            return Reply(404, {"error": not_found(request_id), "status": "failed"})
        if stored.state in FINISHED:
            return _finished(stored, 200)
        return Reply(200, {**_echo(stored.request_id, stored.account_id, stored.echo), "status": "processing"})

    async def forget_expired(self) -> None:
        """Drop requests whose results can no longer be read; goes on until it is cancelled."""
        while True:
            before = self._clock.now() - self.terms.result_lifetime_s
            try:
                await self._store.write(lambda db: requests.purge(db, before))  # noqa: B023 (awaited here)
            except StoreError:  # the next time will do
                log.exception("expired results were not dropped")
            await self._clock.sleep(FORGET_EVERY_S)


def _read(request: AnalyzeRequest) -> tuple[tuple[bytes, ...], list[bytes]]:
    """The uploads of a request, and the digest of each."""
    uploads = read_uploads(request)
    return uploads, [sha256(content).digest() for content in uploads]


def _echo(request_id: str, user_id: int, echo: str) -> dict[str, Any]:
    asked = {**ASKED, **orjson.loads(echo)}
    return {
        "request_id": request_id,
        "user_id": user_id,
        "urls": asked["url"],
        "files": len(asked["file_name"]),
        "file_names": asked["file_name"],
        "features": asked["feature"],
        "backends": asked["backend"],
        **{name: asked[name] for name in AS_ASKED},
    }


def _acknowledgment(request_id: str, user_id: int, echo: str, base_url: str) -> Reply:
    more = {"success": True, "status": "queued", "response_uri": f"{base_url}/api/response/{request_id}"}
    return Reply(200, {**_echo(request_id, user_id, echo), **more})


def _finished(stored: StoredRequest, failed_status: int) -> Reply:
    echo = _echo(stored.request_id, stored.account_id, stored.echo)
    if stored.state is JobState.FAILED:
        return Reply(failed_status, {**echo, "status": "failed", "error": stored.error})
    money = {"credits_paid": stored.paid, "credits": stored.remaining}
    results = orjson.Fragment(stored.result or b"{}")  # as it was written: nobody reads it on its way
    return Reply(200, {**echo, "status": "completed", **money, "all": results})


def refusal(error: Exception) -> Reply | None:
    """The answer to an error of the caller's, or None for one of ours."""
    if isinstance(error, BadRequest):
        return Reply(error.status, {"error": str(error), "status": "failed"})
    if isinstance(error, AccessDenied):
        return Reply(401, {"error": str(error), "status": "failed"})
    if isinstance(error, OutOfCredits):
        return Reply(402, {"error": str(error), "status": "failed"})
    if isinstance(error, ServiceOverloaded):
        return Reply(503, {"error": str(error), "status": "failed"}, {"Retry-After": str(error.retry_after_s)})
    if isinstance(error, Superseded):
        again = f"{REQUEST_FAILED}: its process ended, and nothing was charged. Send it again."
        return Reply(503, {"error": again, "status": "failed"}, {"Retry-After": "1"})
    return None
