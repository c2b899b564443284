"""What each endpoint does, without HTTP: admit, hold, do, settle, answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from lightmeter.clock import Clock
from lightmeter.errors import AccessDenied, OutOfCredits
from lightmeter.media.facts import SNIFF_BYTES, kind_from_name, sniff
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.vocabulary import ACCESS_DENIED, REQUEST_FAILED, not_found
from lightmeter.service import admission, auth
from lightmeter.service.admission import Admission, Finished, Stored
from lightmeter.service.auth import Account
from lightmeter.service.credits import Tariff, balance_of
from lightmeter.service.jobs import FINISHED, JobState
from lightmeter.service.parameters import BadRequest, names_of, read_uploads, validate
from lightmeter.service.store import Store
from lightmeter.service.worker import Worker

__all__ = ["Handlers", "Reply", "Terms", "refusal"]

log = logging.getLogger("lightmeter.service")

UNLIMITED_FRAMES: Final = 600
"""`max_frames: 0` asks for every frame; so many are held for and captured at most: ten minutes at one a second."""


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
        result_lifetime_s: How long results can be read after completion.
    """

    tariff: Tariff
    offered: Mapping[str, frozenset[str]]
    allow_private: bool
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
        request = validate(request, self._terms.offered, allow_private=self._terms.allow_private)
        uploads = await asyncio.to_thread(read_uploads, request)
        videos = [_may_be_video(url) for url in request.url] + [_is_video(content) for content in uploads]
        polled = len(videos) > 1 or True in videos
        new = self._admission(account, request, uploads, videos, key, acknowledged=polled)
        earlier = await self._store.write(admission.admit(new))
        if earlier is not None:
            return await self._again(earlier, base_url)
        running = self._start(new.request_id, request, uploads)
        if new.acknowledged:
            return Reply(200, _acknowledgment(new.request_id, account.account_id, request, len(uploads), base_url))
        return await self._first_of(running, new, base_url)

    def _admission(
        self,
        account: Account,
        request: AnalyzeRequest,
        uploads: tuple[bytes, ...],
        videos: Sequence[bool | None],
        key: str | None,
        *,
        acknowledged: bool,
    ) -> Admission:
        most = request.max_frames or UNLIMITED_FRAMES
        pictures = sum(1 if video is False else most for video in videos)
        hold = self._terms.tariff.worst(request.backend, request.feature, request.prompt, pictures)
        request_id = secrets.token_hex(16)
        at = self._clock.now()
        return Admission(request_id, account.account_id, request, uploads, hold, at, acknowledged, key)

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
            body = _acknowledgment(new.request_id, new.account_id, new.request, len(new.uploads), base_url)
            return Reply(200, body)
        return _finished_reply(await asyncio.shield(running.task))

    async def _again(self, earlier: Stored, base_url: str) -> Reply:
        """The same request under the same idempotency key: its own answer, and nothing more is charged."""
        running = self._running.get(earlier.request_id)
        if earlier.acknowledged:
            files = len(earlier.request.file_name)
            return Reply(200, _acknowledgment(earlier.request_id, earlier.account_id, earlier.request, files, base_url))
        if running is not None and running.task is not None:
            earlier = await asyncio.shield(running.task)
        return _finished_reply(earlier)

    def _start(self, request_id: str, request: AnalyzeRequest, uploads: Sequence[bytes]) -> _Running:
        running = _Running()
        running.task = asyncio.create_task(self._do(request_id, request, uploads, running.is_video.set))
        self._running[request_id] = running
        running.task.add_done_callback(lambda _: self._running.pop(request_id, None))
        return running

    async def _do(
        self, request_id: str, request: AnalyzeRequest, uploads: Sequence[bytes], on_video: Callable[[], None]
    ) -> Stored:
        bounded = request.model_copy(update={"max_frames": request.max_frames or UNLIMITED_FRAMES})
        names = names_of(request, len(uploads))
        try:
            done = await self._worker.do(bounded, uploads, names, on_video)
        except Exception as error:
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
            return _finished_reply(stored)
        return Reply(200, {**_echo(stored.request_id, stored.account_id, stored.request), "status": "processing"})

    async def recover(self) -> int:
        """Take up what an earlier process acknowledged and did not finish; returns how many."""
        waiting = await self._store.write(admission.recover)
        for request_id in waiting:
            stored, uploads = await self._store.write(admission.start(request_id))
            self._start(request_id, stored.request, uploads)
        return len(waiting)

    async def drain(self, seconds: float) -> None:
        """Let what is running finish, for so long."""
        tasks = {running.task for running in self._running.values() if running.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def _may_be_video(url: str) -> bool | None:
    """True, False, or None while nobody knows."""
    kind = kind_from_name(url)
    return None if kind is None else kind == "video"


def _is_video(content: bytes) -> bool:
    known = sniff(content[:SNIFF_BYTES])
    return known is not None and known[0] == "video"


def _echo(request_id: str, user_id: int, request: AnalyzeRequest, files: int | None = None) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "user_id": user_id,
        "urls": request.url,
        "files": len(request.file_name) if files is None else files,
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


def _acknowledgment(
    request_id: str, user_id: int, request: AnalyzeRequest, files: int, base_url: str
) -> dict[str, Any]:
    more = {"success": True, "status": "queued", "response_uri": f"{base_url}/api/response/{request_id}"}
    return {**_echo(request_id, user_id, request, files), **more}


def _finished_reply(stored: Stored) -> Reply:
    echo = _echo(stored.request_id, stored.account_id, stored.request)
    if stored.state is JobState.FAILED:
        return Reply(500, {**echo, "status": "failed", "error": stored.error})
    money = {"credits_paid": stored.paid, "credits": stored.remaining}
    results = orjson.loads(stored.result or b"{}")
    return Reply(200, {**echo, "status": "completed", **money, "all": results})


NO_CREDITS_STATUS: Final = 402


def refusal(error: Exception) -> Reply | None:
    """The answer to an error of the caller's, or None for one of ours."""
    if isinstance(error, BadRequest):
        return Reply(error.status, {"error": str(error), "status": "failed"})
    if isinstance(error, AccessDenied):
        return Reply(401, {"error": str(error), "status": "failed"})
    if isinstance(error, OutOfCredits):
        return Reply(NO_CREDITS_STATUS, {"error": str(error), "status": "failed"})
    return None
