"""The thin client: a method for each endpoint, and `analyze`, which waits. No journal, no budget.

A run with a budget and a journal stands on `submit` and `poll`, which never raise for what a service says;
`analyze`, `credits` and `check_key` are for scripts and raise the errors of `lightmeter.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack
from urllib.parse import quote

import orjson
from pydantic import SecretStr, ValidationError

from lightmeter.client.classify import Classification, ResponseVerdict, classify_poll, classify_submission
from lightmeter.client.file_upload import encode_files
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.polling import PollSchedule
from lightmeter.client.transport import Timeouts, Transport
from lightmeter.clock import Clock, SystemClock
from lightmeter.errors import (
    AccessDenied,
    OutcomeUnknown,
    OutOfCredits,
    ProtocolError,
    Refused,
    RequestFailed,
    ServiceError,
    Unreachable,
    UsageError,
)
from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.response import Answer, BackendOffer, Backends, Credits

__all__ = ["AnalyzeOptions", "Client", "error_for"]

_FETCH: Final = "/api/fetch"
_RESPONSE: Final = "/api/response/"
_CREDITS: Final = "/api/credits"
_BACKENDS: Final = "/api/backends"
_IDEMPOTENCY_HEADER: Final = "Idempotency-Key"

_CREDITS_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0)
_LONGEST_PAUSE_S: Final = 30.0

# Bodies with uploads in them take the loop milliseconds to write as JSON.
_SMALL_BODY_CHARS: Final = 256 * 1024


class AnalyzeOptions(TypedDict, total=False):
    """Options of `Client.analyze`, as in `AnalyzeRequest`; what is not given is not sent."""

    role: str
    language: str
    prompt: str
    tag_score: float
    capture_interval: int
    max_frames: int


class Client:
    """Talks to one service with one key.

    Args:
        base_url: Address of the service.
        api_key: Key of the account; None sends none.
        timeouts: How long to wait for a single HTTP exchange.
        clock: Time and sleep; the machine's when not given.
        connections: Most connections open at once.
        proxy: As for `Transport`: none unless it is asked for.

    Raises:
        SettingsError: the base URL, the key or the proxy cannot be used.

    Example:
        >>> async with Client("http://127.0.0.1:8080", key) as client:  # doctest: +SKIP
        ...     answer = await client.analyze(urls=["https://example.org/cat.jpg"], backends=["imagenet"])
    """

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | str | None = None,
        *,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        connections: int = 64,
        proxy: str | None = None,
    ) -> None:
        self._transport = Transport(base_url, api_key, timeouts, connections, proxy=proxy)
        self._clock = clock or SystemClock()

    def __repr__(self) -> str:
        return f"Client({self.base_url!r})"

    @property
    def base_url(self) -> str:
        """Address of the service, without a trailing slash."""
        return self._transport.base_url

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def submit(
        self, request: AnalyzeRequest | bytes, *, idempotency_key: str | None = None
    ) -> tuple[RawAnswer, Classification]:
        """Send one analyze request, once; it may be charged.

        Args:
            request: What to analyse; or its body, as `RequestBodyBuilder` makes it.
            idempotency_key: Sent as the header Idempotency-Key. No service of the contract need honour it: only
                where one is known to, the same request under the same key may be sent twice and is charged once.

        Raises:
            UsageError: it cannot be written as JSON; nothing was sent.
            Unreachable: nothing was sent.
            OutcomeUnknown: it was sent, or may have been, and no whole answer came.
        """
        raw = await self.send_request(request, idempotency_key=idempotency_key)
        return raw, classify_submission(raw, now=self._clock.now())

    async def send_request(self, request: AnalyzeRequest | bytes, *, idempotency_key: str | None = None) -> RawAnswer:
        """As `submit`, without reading what the answer means: for whoever keeps its bytes first."""
        headers = {} if idempotency_key is None else {_IDEMPOTENCY_HEADER: idempotency_key}
        body = request if isinstance(request, bytes) else await _json(request)
        return await self._transport.send("POST", _FETCH, body=body, headers=headers)

    async def poll(self, request_id: str) -> tuple[RawAnswer, Classification]:
        """Ask once for the results of an acknowledged request; free, and safe to repeat.

        Raises:
            Unreachable: no connection.
            OutcomeUnknown: no whole answer.
        """
        raw = await self.fetch_response(request_id)
        return raw, classify_poll(raw, now=self._clock.now())

    async def fetch_response(self, request_id: str) -> RawAnswer:
        """As `poll`, without reading what the answer means: for whoever keeps its bytes first."""
        return await self._transport.send("GET", _RESPONSE + quote(request_id, safe=""))

    async def credits(self) -> int:
        """The balance of the account in credits; free.

        A plea to slow down is kept: asked again after it, or after pauses that grow, for half a minute each at most.

        Raises:
            AccessDenied: the key is missing or wrong.
            ProtocolError: the answer is no balance.
            Unreachable: no connection.
            OutcomeUnknown: no whole answer; asking again is safe.
        """
        for pause_s in (*_CREDITS_PAUSES_S, None):
            raw = await self._transport.send("GET", _CREDITS)
            data = parse_object_lenient(raw.body)
            if data is not None and not data.get("error"):
                try:
                    return Credits.model_validate(data).credits
                except ValidationError:
                    pass  # told below, with what the answer looks like
            judgement = classify_poll(raw, now=self._clock.now())
            asked_s = judgement.retry_after_s or 0.0
            if judgement.verdict is not ResponseVerdict.THROTTLED or pause_s is None or asked_s > _LONGEST_PAUSE_S:
                break
            await self._clock.sleep(max(pause_s, asked_s))
        if judgement.verdict is ResponseVerdict.DENIED:
            raise error_for(judgement, raw.status)
        raise ProtocolError(
            f"No balance came from {self.base_url}: {judgement.error or f'HTTP {raw.status}'}",
            hint="Is the base URL that of the service?",
            http_status=raw.status,
        )

    async def backends(self) -> tuple[BackendOffer, ...] | None:
        """The back ends that the service offers to this account, with their prices; free.

        Returns:
            None where the service does not say: it has no such endpoint, refuses, names none, answers something that
            cannot be read, or does not answer. The contract does not ask for this endpoint, so none of it is an error.
        """
        try:
            raw = await self._transport.send("GET", _BACKENDS)
        except (Unreachable, OutcomeUnknown):
            return None
        data = parse_object_lenient(raw.body)
        if raw.status != HTTPStatus.OK or data is None or data.get("error"):
            return None
        try:
            return tuple(Backends.model_validate(data).backends) or None
        except ValidationError:
            return None

    async def check_key(self) -> None:
        """Raise unless the key is accepted, by a request that asks for nothing and so costs nothing.

        Raises:
            AccessDenied: the key is missing or wrong, or the account may not be used.
            ProtocolError: the answer is none of a service of this contract.
            Unreachable: no connection.
            OutcomeUnknown: no whole answer; asking again is safe.
        """
        raw = await self._transport.send("POST", _FETCH, body=b"{}")
        judgement = classify_submission(raw, now=self._clock.now())
        if judgement.verdict is ResponseVerdict.DENIED:
            raise error_for(judgement, raw.status)
        # A service that has seen the key complains about the empty request, or about the empty account.
        if judgement.verdict not in {ResponseVerdict.REFUSED, ResponseVerdict.NO_CREDITS, ResponseVerdict.THROTTLED}:
            raise ProtocolError(
                f"{self.base_url} does not answer like a service of this contract: {judgement.error}",
                http_status=raw.status,
            )

    async def analyze(
        self,
        *,
        urls: Iterable[str] = (),
        files: Iterable[bytes | str | Path] = (),
        features: Iterable[str] = (),
        backends: Iterable[str] = (),
        timeout_s: float = 600.0,
        **options: Unpack[AnalyzeOptions],
    ) -> Answer:
        """Analyse images and videos and wait for the results; charged at once, with no budget in between.

        Args:
            urls: Addresses of images and videos.
            files: Contents as bytes, or paths of local files, 20 MB each at most.
            features: What to look for; none means all.
            backends: Who looks; none means the account's defaults, about ten credits an image at the hosted
                service.
            timeout_s: Seconds to wait for results, from the acknowledgment on.
            **options: As in `AnalyzeOptions`.

        Raises:
            UsageError: neither URLs nor files, a file that cannot be read, or an option out of range.
            MediaTooLarge: a file is over the limit.
            AccessDenied: the key or the account may not be used.
            OutOfCredits: the account holds less than the price.
            Refused: not taken and not charged; also when the service asks to slow down.
            RequestFailed: taken and not done.
            Unreachable: nothing was sent.
            OutcomeUnknown: it may have been charged; a hint names the request id where there is one.
        """
        contents, names = await encode_files(files)
        given = {
            "url": list(urls),
            "file": contents,
            "file_name": names,
            "feature": list(features),
            "backend": list(backends),
            **options,
        }
        raw, judgement = await self.submit(_request(given))
        if judgement.verdict is ResponseVerdict.ACKNOWLEDGED and judgement.request_id is not None:
            return await self._wait(judgement.request_id, PollSchedule(deadline_s=timeout_s))
        return _answer_or_raise(judgement, raw.status)

    async def _wait(self, request_id: str, schedule: PollSchedule) -> Answer:
        """Poll until there is a result; a poll that fails is asked again, as it costs nothing."""
        start, polls, pause_s = self._clock.monotonic(), 0, 0.0
        while not schedule.expired(age_s := self._clock.monotonic() - start):
            left_s = schedule.deadline_s - age_s
            await self._clock.sleep(min(left_s, max(pause_s, schedule.next_delay(polls, age_s))))
            polls, pause_s = polls + 1, 0.0
            try:
                raw, judgement = await self.poll(request_id)
            except (Unreachable, OutcomeUnknown):
                continue
            if judgement.verdict in {ResponseVerdict.PROCESSING, ResponseVerdict.THROTTLED, ResponseVerdict.UNCERTAIN}:
                pause_s = judgement.retry_after_s or 0.0
                continue
            return _answer_or_raise(judgement, raw.status)
        raise OutcomeUnknown(
            f"Request {request_id} was taken and has no result after {schedule.deadline_s:g} s.",
            hint=f"Its result can be read for 24 hours: poll {request_id!r}.",
        )


def error_for(judgement: Classification, http_status: int | None = None) -> ServiceError:
    """The exception that says what a judgement without results says."""
    text = judgement.error or f"The service answered {judgement.verdict.value}."
    kind, hint = _ERRORS.get(judgement.verdict, (OutcomeUnknown, "It may have been charged."))
    if judgement.verdict is ResponseVerdict.THROTTLED and judgement.retry_after_s is not None:
        hint = f"Not charged; send it again in {judgement.retry_after_s:g} s."
    if judgement.request_id is not None and kind is OutcomeUnknown:
        hint = f"{hint} Its request id is {judgement.request_id!r}."
    return kind(text, hint=hint, http_status=http_status)


_ERRORS: Final[dict[ResponseVerdict, tuple[type[ServiceError], str]]] = {
    ResponseVerdict.DENIED: (AccessDenied, "Set LIGHTMETER_API_KEY to a key of the account."),
    ResponseVerdict.NO_CREDITS: (OutOfCredits, "Buy credits, or ask for less."),
    ResponseVerdict.REFUSED: (Refused, "Not charged."),
    ResponseVerdict.THROTTLED: (Refused, "Not charged; send it again later."),
    ResponseVerdict.FAILED: (RequestFailed, "It was taken, and may have been charged."),
}


def _answer_or_raise(judgement: Classification, http_status: int) -> Answer:
    if judgement.verdict is ResponseVerdict.ANSWERED and judgement.answer is not None:
        return judgement.answer
    raise error_for(judgement, http_status)


def _request(given: dict[str, object]) -> AnalyzeRequest:
    if not given["url"] and not given["file"]:
        raise UsageError("Nothing to analyse: give URLs or files.")
    try:
        return AnalyzeRequest.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from error


async def _json(request: AnalyzeRequest) -> bytes:
    if sum(map(len, request.file)) > _SMALL_BODY_CHARS:
        return await asyncio.to_thread(_encode, request)
    return _encode(request)


def _encode(request: AnalyzeRequest) -> bytes:
    try:
        return orjson.dumps(request.to_wire())
    except orjson.JSONEncodeError as error:  # half a surrogate pair, as broken file names have
        raise UsageError(f"The request cannot be written as JSON: {error}.") from error
