"""Logic of each endpoint, independent of the HTTP framework: stores requests, waits for results, builds replies."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from lightmeter import telemetry
from lightmeter.clock import Clock
from lightmeter.errors import AccessDenied
from lightmeter.service.http.parameters import BadRequest, read_uploads, validate, with_file_names
from lightmeter.service.http.replies import (
    FAILED_STATUS,
    ReadFailed,
    Reply,
    acknowledgment_reply,
    echo_fields,
    failure,
    result_reply,
)
from lightmeter.service.ingest.url_rules import MAX_URL_CHARS
from lightmeter.service.jobs.job_queue import JobQueue
from lightmeter.service.jobs.runner import Runner, RunningRequest, guess_kinds
from lightmeter.service.store import auth, requests
from lightmeter.service.store.credits import read_balance
from lightmeter.service.store.request_states import FINISHED, JobState
from lightmeter.service.store.requests import Attempt, NewRequest, StoredRequest, Superseded
from lightmeter.service.store.sql_dialects import DatabaseFull, StoreError
from lightmeter.service.store.store import Store
from lightmeter.wire.constants import ACCESS_DENIED, not_found
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import Backends

log = logging.getLogger("lightmeter.service")

PURGE_INTERVAL_S: Final = 600.0
"""Seconds between two deletions of expired results."""

DATABASE_CHECK_S: Final = 2.0
"""If the database does not answer within this number of seconds, the service reports that it is not ready.

The probes that ask whether the service is ready time out soon after this time.
"""

OTHER_BODY: Final = "This Idempotency-Key was sent before with another request: use a new key for a new request."

OTHER_BODY_STATUS: Final = 422
"""HTTP status if a client sends the same idempotency key with a different request.

The number is from section 2.7 of the IETF draft on the header Idempotency-Key.
"""

IDEMPOTENCY_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")
BAD_IDEMPOTENCY_KEY: Final = "Idempotency-Key must be 1 to 255 printable ASCII characters."

REQUEST_ID: Final = re.compile(r"[0-9a-f]{32}")

MAX_WAIT_S: Final = 20.0
"""Maximum seconds that a client waits for the result of its request; then it gets the request id and must poll."""

CHECK_INTERVAL_S: Final = 0.05
"""Seconds between checks whether another process has finished a request with the same idempotency key."""

SMALL_CHARS: Final = 512 * 1024
"""If the uploads of a request have fewer base64 characters than this, they are decoded and hashed on the event loop.

This takes less than half a millisecond. Larger uploads are decoded and hashed in a thread.
"""

RANDOM_CHUNK_BYTES: Final = 4096
"""Number of random bytes that are read from the system at once.

Fewer and larger reads are faster: each read releases Python's interpreter lock, and waits to get it back.
"""

_random_bytes = bytearray()


def random_hex(size_bytes: int) -> str:
    """Return `size_bytes` cryptographically secure random bytes as hexadecimal digits.

    Call this function only on the event loop.
    """
    if len(_random_bytes) < size_bytes:
        _random_bytes.extend(os.urandom(RANDOM_CHUNK_BYTES))
    digits = _random_bytes[-size_bytes:].hex()
    del _random_bytes[-size_bytes:]
    return digits


class Handlers:
    """Logic of the endpoints of the HTTP API, independent of aiohttp.

    Args:
        store: Store of requests, accounts and credits.
        runner: Runs the requests whose clients wait for the answer; its `policy` has the prices and limits.
        queue: Job queue that runs the requests whose clients poll for the result.
        clock: Source of the time.
        offers: Body of the answer to GET /api/backends: the back ends with their features and prices.

    Attributes:
        offers: Body of the answer to GET /api/backends: the back ends with their features and prices.
    """

    def __init__(self, store: Store, runner: Runner, queue: JobQueue, clock: Clock, offers: Backends) -> None:
        self.offers = offers
        self._policy = runner.policy
        self._store = store
        self._runner = runner
        self._queue = queue
        self._clock = clock
        self._database_check: asyncio.Task[bool] | None = None

    async def account(self, headers: Mapping[str, str]) -> int:
        """Return the number of the account to which the API key in the headers belongs.

        Raises:
            AccessDenied: the key is missing or unknown.
            ReadFailed: the database failed.
        """
        key = auth.read_key(headers)
        with _read_errors():
            account_id = None if key is None else await self._store.read_inline(lambda db: auth.find_account(db, key))
        if account_id is None:
            raise AccessDenied(ACCESS_DENIED)
        return account_id

    async def credits(self, account_id: int) -> Reply:
        """Return the reply to GET /api/credits: the balance of the account.

        Raises:
            ReadFailed: the database failed.
        """
        with _read_errors():
            return Reply(200, {"credits": await self._store.read_inline(lambda db: read_balance(db, account_id))})

    async def analyze(self, account_id: int, request: AnalyzeRequest, base_url: str, key: str | None) -> Reply:
        """Check, store and run a request of /api/fetch; return its result, or its id if the client must poll.

        Args:
            account_id: Number of the client's account.
            request: The request as the client sent it.
            base_url: URL of this service, for the URL at which the client polls.
            key: Idempotency key; None: the client sent no key.

        Raises:
            BadRequest: the request is not valid.
            OutOfCredits: the balance does not cover the credits to reserve.
            ServiceOverloaded: too many images and video frames are unfinished, or the request would have to wait too
                long for one that runs alone; nothing was charged.
        """
        if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
            raise BadRequest(BAD_IDEMPOTENCY_KEY)
        has_long_urls = sum(map(len, request.url)) > MAX_URL_CHARS
        request = await asyncio.to_thread(self._validate, request) if has_long_urls else self._validate(request)
        is_small = sum(map(len, request.file)) < SMALL_CHARS
        uploads, digests = (
            _read_and_hash_uploads(request) if is_small else await asyncio.to_thread(_read_and_hash_uploads, request)
        )
        request = with_file_names(request, uploads)
        kinds = guess_kinds(request, uploads)
        job = self._runner.make_job(account_id, request, uploads, digests)
        pictures = await self._runner.count_pictures(job)
        echo = request.model_dump_json(exclude={"file"})
        new = NewRequest(
            request_id=random_hex(16),
            account_id=account_id,
            echo=echo,
            digest=sha256(sha256(echo.encode()).digest() + b"".join(digests)).digest(),
            uploads=uploads,
            hold=self._runner.credits_to_hold(job, pictures),
            at=self._clock.now(),
            client_polls=len(kinds) > 1 or "video" in kinds,
            idempotency_key=key,
        )
        with self._runner.reserve_capacity(account_id, pictures, self._queue.waiting_requests):
            if not new.client_polls:
                await self._runner.wait_for_isolated_request()
            earlier = await self._store.write(lambda db: requests.admit(db, new, self._queue.enqueue))
            if earlier is not None:
                return await self._reply_to_repeat(earlier, new, base_url)
            if new.client_polls:
                self._runner.metrics.count_job_state(JobState.QUEUED.value)
                telemetry.store_trace_parent(new.request_id)
                self._queue.start_queued(new.request_id, account_id)
                return acknowledgment_reply(new, base_url)
            running = self._runner.start(Attempt(new.request_id, 1), job)
        return await self._synchronous_reply(running, new, base_url)

    def _validate(self, request: AnalyzeRequest) -> AnalyzeRequest:
        policy = self._policy
        return validate(
            request,
            policy.availability.features,
            allow_private=policy.allow_private,
            ports=policy.ports,
            max_assets=policy.max_assets,
        )

    async def _synchronous_reply(
        self, running: RunningRequest, request: NewRequest | StoredRequest, base_url: str
    ) -> Reply:
        """Wait until a request with one asset (image or video) has ended, and return the reply with its result.

        If the asset turns out to be a video, or the request has not ended after `MAX_WAIT_S`, stop waiting, and return
        the request id, with which the client polls.

        Args:
            running: The request's run in this process.
            request: The request as it was stored.
            base_url: URL of this service, for the URL at which the client polls.
        """
        await asyncio.wait({running.must_poll}, timeout=MAX_WAIT_S)
        if not running.must_poll.done():
            running.must_poll.set_result(True)
        if running.must_poll.result():
            return await self._acknowledge(request, base_url)
        return result_reply(await asyncio.shield(running.task), FAILED_STATUS)

    async def _acknowledge(self, request: NewRequest | StoredRequest, base_url: str) -> Reply:
        # Uploads of a request with an idempotency key are stored already.
        uploads = request.uploads if isinstance(request, NewRequest) and request.idempotency_key is None else ()
        try:
            exists = await self._store.write(lambda db: requests.acknowledge(db, request.request_id, uploads))
        except DatabaseFull as error:  # the request goes on and may be charged: not the answer of a refused one
            raise StoreError(str(error)) from error
        if not exists:
            raise Superseded(request.request_id)
        return acknowledgment_reply(request, base_url)

    async def _reply_to_repeat(self, earlier: StoredRequest, new: NewRequest, base_url: str) -> Reply:
        """Return the reply to the request `new`, which has the same idempotency key as the request `earlier`.

        The reply is the result of `earlier`, after a wait if necessary, or its id if the client must poll. Nothing is
        charged for `new`. `base_url` is the URL of this service, for the URL at which the client polls.

        Raises:
            BadRequest: the new request differs from the earlier one.
        """
        if not earlier.is_same_request(new):
            raise BadRequest(OTHER_BODY, OTHER_BODY_STATUS)
        running = self._runner.running.get(earlier.request_id)
        if not earlier.client_polls and running is not None:
            return await self._synchronous_reply(running, earlier, base_url)
        if not earlier.client_polls and earlier.state not in FINISHED:
            earlier = await self._wait_for_other_process(earlier)
        if earlier.client_polls:
            return acknowledgment_reply(earlier, base_url)
        if earlier.state in FINISHED:
            return result_reply(earlier, FAILED_STATUS)
        return await self._acknowledge(earlier, base_url)

    async def _wait_for_other_process(self, earlier: StoredRequest) -> StoredRequest:
        """Wait for the request `earlier`, which another process runs, and return its current record in the database.

        Stop waiting when the request has ended, when its client polls, or after `MAX_WAIT_S`.

        Raises:
            Superseded: the other process has died, and the request was deleted, so the client must send it again.
        """
        until = self._clock.monotonic() + MAX_WAIT_S
        while not earlier.client_polls and earlier.state not in FINISHED and self._clock.monotonic() < until:
            await self._clock.sleep(CHECK_INTERVAL_S)
            request_id, account_id = earlier.request_id, earlier.account_id
            current = await self._store.read(lambda db: requests.find(db, request_id, account_id, 0))  # noqa: B023 (awaited here)
            if current is None:
                raise Superseded(request_id)
            earlier = current
        return earlier

    async def result(self, account_id: int, request_id: str) -> Reply:
        """Return the reply to GET /api/response/REQUEST_ID: the result of a request, or that it is not finished.

        The HTTP status is 404 if the request is unknown, has expired, or belongs to another account.

        Raises:
            ReadFailed: the database failed.
        """
        not_before = self._clock.now() - self._policy.result_lifetime_s
        stored = None
        if REQUEST_ID.fullmatch(request_id):  # other text is no id, and PostgreSQL rejects some of it, such as NUL
            with _read_errors():
                stored = await self._store.read(lambda db: requests.find(db, request_id, account_id, not_before))
        if stored is None:
            return failure(404, not_found(request_id))
        if stored.state in FINISHED:
            return result_reply(stored, 200)
        return Reply(200, {**echo_fields(stored), "status": "processing"})

    async def database_answers(self) -> bool:
        """Return whether the database answers within `DATABASE_CHECK_S` seconds. Concurrent calls share one query."""
        if self._database_check is None or self._database_check.done():
            self._database_check = asyncio.create_task(self._check_database())
        done, _ = await asyncio.wait({self._database_check}, timeout=DATABASE_CHECK_S)
        return bool(done) and self._database_check.result()

    async def _check_database(self) -> bool:
        try:
            await self._store.read(lambda db: db.execute("SELECT account_id FROM accounts LIMIT 1"))
        except (StoreError, RuntimeError):
            return False
        return True

    async def purge_expired(self) -> None:
        """Delete requests whose results have expired, every `PURGE_INTERVAL_S` seconds, until cancelled."""
        while True:
            before = self._clock.now() - self._policy.result_lifetime_s
            try:
                await self._store.write(lambda db: requests.purge(db, before))  # noqa: B023 (awaited here)
            except StoreError:  # retried after the interval
                log.exception("expired results were not deleted")
            await self._clock.sleep(PURGE_INTERVAL_S)


@contextmanager
def _read_errors() -> Iterator[None]:
    """Turn a StoreError of the `with` block, which must not change the database, into a ReadFailed."""
    try:
        yield
    except StoreError as error:
        log.warning("the database cannot be read: %s", error)
        raise ReadFailed("The database does not answer. Ask again.") from error


def _read_and_hash_uploads(request: AnalyzeRequest) -> tuple[tuple[bytes, ...], list[bytes]]:
    """Return the decoded uploaded files of a request, and the SHA-256 of each file."""
    uploads = read_uploads(request)
    return uploads, [sha256(content).digest() for content in uploads]
