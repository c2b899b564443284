"""What each endpoint does, without HTTP: admit, hold, do, settle, answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from lightmeter.clock import Clock
from lightmeter.errors import AccessDenied, OutOfCredits
from lightmeter.media.facts import SNIFF_BYTES, MediaKind, kind_from_name, sniff
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.vocabulary import ACCESS_DENIED, REQUEST_FAILED, not_found
from lightmeter.service import admission, auth
from lightmeter.service.admission import Admission, Finished, Stored
from lightmeter.service.auth import Account
from lightmeter.service.credits import Tariff, balance_of
from lightmeter.service.jobs import FINISHED, JobState
from lightmeter.service.parameters import BadRequest, active, named, read_uploads, validate
from lightmeter.service.store import Store
from lightmeter.service.worker import Desk, Order, Worker

__all__ = ["Handlers", "Reply", "Terms", "refusal"]

log = logging.getLogger("lightmeter.service")

FORGET_EVERY_S: Final = 600.0

FAILED_STATUS: Final = 500
"""Of a synchronous answer that says `failed`; on a poll the asking itself went well, so that is 200."""

UNLIMITED_FRAMES: Final = 600
"""`max_frames: 0` asks for every frame; so many are captured at most: ten minutes at one a second."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: an HTTP status and a JSON body."""

    status: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Terms:
    """What this service offers, and for how much.

    Attributes:
        tariff: Prices.
        offered: Features by back end.
        allow_private: Whether URLs may name private places.
        ports: Where public hosts are asked.
        result_lifetime_s: How long results can be read after completion.
    """

    tariff: Tariff
    offered: Mapping[str, frozenset[str]]
    allow_private: bool
    ports: frozenset[int]
    result_lifetime_s: float


@dataclass(slots=True)
class _Running:
    """A request that is being done in this process."""

    task: asyncio.Task[Stored] | None = None
    is_video: asyncio.Event = field(default_factory=asyncio.Event)


class Handlers:
    """The service behind its routes."""

    def __init__(self, store: Store, worker: Worker, terms: Terms, clock: Clock) -> None:
        self._store = store
        self._worker = worker
        self._terms = terms
        self._clock = clock
        self._running: dict[str, _Running] = {}

    async def account(self, headers: Mapping[str, str]) -> Account:
        """Whose key is in the headers.

        Raises:
            AccessDenied: nobody's.
        """
        key = auth.key_from(headers)
        account = None if key is None else await self._store.read(auth.account_of(key))
        if account is None:
            raise AccessDenied(ACCESS_DENIED)
        return account

    async def credits(self, account: Account) -> Reply:
        """GET /api/credits."""
        return Reply(200, {"credits": await self._store.read(lambda db: balance_of(db, account.account_id))})

    async def analyze(self, account: Account, request: AnalyzeRequest, base_url: str, key: str | None) -> Reply:
        """POST and GET /api/fetch.

        Raises:
            BadRequest: what is asked cannot be done.
            OutOfCredits: the account cannot hold the price.
        """
        terms = self._terms
        request = validate(request, terms.offered, allow_private=terms.allow_private, ports=terms.ports)
        uploads = await asyncio.to_thread(read_uploads, request)
        request = named(request, uploads)
        kinds = _kinds(request, uploads)
        order = self._order(request, uploads)
        new = Admission(
            request_id=secrets.token_hex(16),
            account_id=account.account_id,
            request=request,
            uploads=uploads,
            hold=self._price(order, sum(order.held_pictures)),
            at=self._clock.now(),
            acknowledged=len(kinds) > 1 or "video" in kinds,
            idempotency_key=key,
        )
        earlier = await self._store.write(admission.admit(new))
        if earlier is not None:
            return await self._again(earlier, base_url)
        running = self._start(new.request_id, account.account_id, order)
        if new.acknowledged:
            return _acknowledgment(new.request_id, account.account_id, request, base_url)
        return await self._first_of(running, new, base_url)

    def _order(self, request: AnalyzeRequest, uploads: tuple[bytes, ...]) -> Order:
        """What there is to do, and what is held for it: the same for the same request, also after a restart.

        What is named like an image is held for as one picture, and so is anything when there is no limit of frames:
        when a video turns out to have more, more is held before it is looked at.
        """
        pictures = tuple(1 if kind == "image" else request.max_frames or 1 for kind in _kinds(request, uploads))
        return Order(
            request=active(request, self._terms.offered),
            uploads=uploads,
            names=(*request.url, *request.file_name),
            held_pictures=pictures,
            most_frames=request.max_frames or UNLIMITED_FRAMES,
        )

    def _price(self, order: Order, pictures: int) -> int:
        request = order.request
        return self._terms.tariff.worst(request.backend, request.feature, request.prompt, pictures)

    async def _first_of(self, running: _Running, new: Admission, base_url: str) -> Reply:
        """A single asset: its answer, or an acknowledgment as soon as it turns out to be a video."""
        assert running.task is not None  # noqa: S101 (started just now)
        video = asyncio.create_task(running.is_video.wait())
        try:
            await asyncio.wait({running.task, video}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            video.cancel()
        if running.is_video.is_set():
            await self._store.write(admission.acknowledge(new.request_id))
            return _acknowledgment(new.request_id, new.account_id, new.request, base_url)
        return _finished(await asyncio.shield(running.task), FAILED_STATUS)

    async def _again(self, earlier: Stored, base_url: str) -> Reply:
        """The same request under the same idempotency key: its own answer, and nothing more is charged."""
        if earlier.acknowledged:
            return _acknowledgment(earlier.request_id, earlier.account_id, earlier.request, base_url)
        running = self._running.get(earlier.request_id)
        if running is not None and running.task is not None:
            earlier = await asyncio.shield(running.task)
        elif earlier.state not in FINISHED:  # it has just begun, or just ended: whichever, it can be polled for
            await self._store.write(admission.acknowledge(earlier.request_id))
            return _acknowledgment(earlier.request_id, earlier.account_id, earlier.request, base_url)
        return _finished(earlier, FAILED_STATUS)

    def _start(self, request_id: str, account_id: int, order: Order) -> _Running:
        async def hold_more(pictures: int) -> None:
            amount = self._price(order, pictures)
            await self._store.write(admission.hold_more(request_id, account_id, amount))

        running = _Running()
        running.task = asyncio.create_task(self._do(request_id, order, Desk(running.is_video.set, hold_more)))
        self._running[request_id] = running
        running.task.add_done_callback(lambda _: self._running.pop(request_id, None))
        return running

    async def _do(self, request_id: str, order: Order, desk: Desk) -> Stored:
        try:
            done = await self._worker.do(order, desk)
        except Exception as error:  # the caller reads a failure, the operator the reason
            log.exception("request %s broke", request_id)
            finished = Finished(0, None, f"{REQUEST_FAILED}: {type(error).__name__}.", self._clock.now())
        else:
            finished = Finished(done.paid, done.result, None, self._clock.now())
        return await self._store.write(admission.finish(request_id, finished))

    async def result(self, account: Account, request_id: str) -> Reply:
        """GET /api/response/<request_id>."""
        not_before = self._clock.now() - self._terms.result_lifetime_s
        stored = await self._store.read(admission.find(request_id, account.account_id, not_before))
        if stored is None:
            return Reply(404, {"error": not_found(request_id), "status": "failed"})
        if stored.state in FINISHED:
            return _finished(stored, 200)
        return Reply(200, {**_echo(stored.request_id, stored.account_id, stored.request), "status": "processing"})

    async def recover(self) -> int:
        """Take up what an earlier process acknowledged and did not finish; returns how many."""
        waiting = await self._store.write(admission.recover(self._clock.now()))
        for request_id in waiting:
            stored, uploads = await self._store.write(admission.start(request_id))
            order = self._order(stored.request, tuple(uploads))
            await self._store.write(admission.keep_held(request_id, self._price(order, sum(order.held_pictures))))
            self._start(request_id, stored.account_id, order)
        return len(waiting)

    async def forget_expired(self) -> None:
        """Drop requests whose results can no longer be read; goes on until it is cancelled."""
        while True:
            await self._store.write(admission.purge(self._clock.now() - self._terms.result_lifetime_s))
            await self._clock.sleep(FORGET_EVERY_S)

    async def drain(self, seconds: float) -> None:
        """Let what is running finish, for so long; what was acknowledged and is cut off is done by the next start."""
        tasks = {running.task for running in self._running.values() if running.task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _kinds(request: AnalyzeRequest, uploads: Sequence[bytes]) -> list[MediaKind | None]:
    """Of each asset, as far as URLs and contents tell before anything is fetched."""
    uploaded: list[MediaKind | None] = ["video" if _is_video(content) else "image" for content in uploads]
    return [kind_from_name(url) for url in request.url] + uploaded


def _is_video(content: bytes) -> bool:
    known = sniff(content[:SNIFF_BYTES])
    return known is not None and known[0] == "video"


def _echo(request_id: str, user_id: int, request: AnalyzeRequest) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "user_id": user_id,
        "urls": request.url,
        "files": len(request.file_name),
        "file_names": request.file_name,
        "features": request.feature,
        "backends": request.backend,
        "role": request.role,
        "language": request.language,
        "prompt": request.prompt,
        "tag_score": request.tag_score,
        "capture_interval": request.capture_interval,
        "max_frames": request.max_frames,
    }


def _acknowledgment(request_id: str, user_id: int, request: AnalyzeRequest, base_url: str) -> Reply:
    more = {"success": True, "status": "queued", "response_uri": f"{base_url}/api/response/{request_id}"}
    return Reply(200, {**_echo(request_id, user_id, request), **more})


def _finished(stored: Stored, failed_status: int) -> Reply:
    echo = _echo(stored.request_id, stored.account_id, stored.request)
    if stored.state is JobState.FAILED:
        return Reply(failed_status, {**echo, "status": "failed", "error": stored.error})
    money = {"credits_paid": stored.paid, "credits": stored.remaining}
    results = orjson.loads(stored.result or b"{}")
    return Reply(200, {**echo, "status": "completed", **money, "all": results})


def refusal(error: Exception) -> Reply | None:
    """The answer to an error of the caller's, or None for one of ours."""
    if isinstance(error, BadRequest):
        return Reply(error.status, {"error": str(error), "status": "failed"})
    if isinstance(error, AccessDenied):
        return Reply(401, {"error": str(error), "status": "failed"})
    if isinstance(error, OutOfCredits):
        return Reply(402, {"error": str(error), "status": "failed"})
    return None
