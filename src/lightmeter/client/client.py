"""Client of a service: a method for each endpoint, and `analyze`, which waits for the results. No journal, no budget.

`send_request` and `fetch_response` return every answer, even one that reports an error; the engine uses them. `analyze`
and `credits` suit scripts: if an answer reports an error, they raise an exception of `lightmeter.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self, TypedDict, Unpack
from urllib.parse import quote

from pydantic import SecretStr, ValidationError

from lightmeter.client.classify import Classification, ResponseVerdict, classify_poll, classify_submission
from lightmeter.client.file_encoding import encode_files
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.polling import NEW_ID_S, PollSchedule
from lightmeter.client.request_body import encode_json
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
from lightmeter.wire.constants import MAX_CREDITS
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import Answer, BackendOffer, Backends, Credits

_FETCH: Final = "/api/fetch"
_RESPONSE: Final = "/api/response/"
_CREDITS: Final = "/api/credits"
_BACKENDS: Final = "/api/backends"

_CREDITS_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0)
"""Pauses in seconds, one before each repetition by `Client.credits` of a query that the service asked to slow down."""

_LONGEST_PAUSE_S: Final = 30.0
"""Longest Retry-After, in seconds, that `Client.credits` waits for. If it is longer, an error is raised at once."""


class AnalyzeArguments(TypedDict, total=False):
    """Optional parameters of `Client.analyze`. Each given one becomes a field of the request; others are not sent.

    `role`, `language` and `prompt` shape descriptions. `tag_score` is the lowest score of a tag. A video is analyzed at
    one frame every `capture_interval` seconds, and at `max_frames` frames at most (0: no limit). See
    `lightmeter.wire.request.AnalyzeRequest`.
    """

    role: str
    language: str
    prompt: str
    tag_score: float
    capture_interval: int
    max_frames: int


class Client:
    """Client of one service with one API key.

    Args:
        base_url: Address of the service.
        api_key: API key of the account; with None, requests are sent without a key.
        timeouts: Time limits of each HTTP exchange; the defaults of `Timeouts` if None.
        clock: Tells the time and sleeps; None means the system clock.
        connections: Maximum number of open connections; further requests wait for a free one, as long as it takes.
        proxy: Address of an HTTP proxy, or `PROXY_FROM_ENVIRONMENT` for the proxy that environment variables name;
            None means no proxy.

    Raises:
        SettingsError: the base URL, the key, the number of connections or the proxy is invalid.

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

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    async def send_request(self, body: bytes, *, idempotency_key: str | None = None) -> RawAnswer:
        """Send one analyze request, once, and return its answer; the service may charge the request.

        Args:
            body: The body as JSON, as built by `RequestBodyBuilder`.
            idempotency_key: Sent as the header Idempotency-Key. A service that honors it charges once for several
                requests with the same key. Other services ignore it: never send them the same request twice.

        Raises:
            Unreachable: nothing was sent.
            OutcomeUnknown: the request may have been sent, but no complete answer came.
        """
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return await self._transport.send("POST", _FETCH, body=body, headers=headers)

    async def fetch_response(self, request_id: str) -> RawAnswer:
        """Poll once for the results of an accepted request (GET /api/response/<id>). A poll is free and safe to repeat.

        Raises:
            Unreachable: no connection was made.
            OutcomeUnknown: no complete answer to the poll came.
        """
        return await self._transport.send("GET", _RESPONSE + quote(request_id, safe=""))

    async def credits(self) -> int:
        """Return the balance of the account in credits, rounded up, at most `MAX_CREDITS`. The query is free.

        If the service asks to slow down, the query is repeated a few times after pauses of at most 30 s.

        Raises:
            AccessDenied: the key is missing or wrong.
            ProtocolError: the answer holds no balance.
            Unreachable: no connection was made.
            OutcomeUnknown: no complete answer came; asking again is safe.
        """
        return min(ceil(await self._balance()), MAX_CREDITS)

    async def exact_credits(self) -> int | None:
        """Return the balance as `credits` does, but None if it is a fraction, or too large for an exact JSON number."""
        balance = await self._balance()
        return int(balance) if balance == int(balance) and balance < MAX_CREDITS else None

    async def _balance(self) -> float:
        for pause_s in (*_CREDITS_PAUSES_S, None):
            raw = await self._transport.send("GET", _CREDITS)
            data = parse_object_lenient(raw.body)
            if data is not None and not data.get("error"):
                try:
                    return Credits.model_validate(data).credits
                except ValidationError:
                    pass  # reported below, with an excerpt of the answer
            classification = classify_poll(raw, now=self._clock.now())
            retry_after_s = classification.retry_after_s or 0.0
            if (
                classification.verdict is not ResponseVerdict.THROTTLED
                or pause_s is None
                or retry_after_s > _LONGEST_PAUSE_S
            ):
                break
            await self._clock.sleep(max(pause_s, retry_after_s))
        if classification.verdict is ResponseVerdict.DENIED:
            raise _error_for(classification, raw.status)
        raise ProtocolError(
            f"No balance came from {self.base_url}: {classification.error or f'HTTP {raw.status}'}",
            hint="Is the base URL that of the service?",
            http_status=raw.status,
        )

    async def backends(self) -> tuple[BackendOffer, ...] | None:
        """Return the back ends that the service offers to this account, with prices. The query is free.

        Return None whenever `backend_list` does, for example if the service names no back ends.
        """
        listed = await self.backend_list()
        return None if listed is None else tuple(listed.backends)

    async def backend_list(self) -> Backends | None:
        """Return the back ends that the service offers to this account, and how it rounds charges; the query is free.

        Returns:
            None if the service lacks the endpoint, refuses the query, names no back ends, or gives no valid answer. The
            contract does not require this endpoint, so no exception is raised in these cases.
        """
        try:
            raw = await self._transport.send("GET", _BACKENDS)
        except (Unreachable, OutcomeUnknown):
            return None
        data = parse_object_lenient(raw.body)
        if (raw.status and not raw.is_success) or data is None or data.get("error"):
            return None
        try:
            listed = Backends.model_validate(data)
        except ValidationError:
            return None
        return listed if listed.backends else None

    async def analyze(
        self,
        *,
        urls: str | Iterable[str] = (),
        files: bytes | str | Path | Iterable[bytes | str | Path] = (),
        features: str | Iterable[str] = (),
        backends: str | Iterable[str] = (),
        timeout_s: float = 600.0,
        **options: Unpack[AnalyzeArguments],
    ) -> Answer:
        """Analyze images and videos, and wait for the results. The service charges credits; no budget limits them.

        Args:
            urls: URLs of images and videos. Here and below, a single value may be given without a list.
            files: Contents as bytes, or paths of local files, 20 MB each at most.
            features: Features to analyze; if empty, all but `embeddings`.
            backends: Back ends (the models of the service) to use. If empty, the defaults of the account are used; at
                the hosted service, these cost about ten credits per image.
            timeout_s: Seconds to wait for the results of a request that is not answered at once; 0 or more.
            **options: The optional parameters that `AnalyzeArguments` describes.

        Raises:
            UsageError: there are neither URLs nor files, a file cannot be read, or an option is unknown or out of
                range. Nothing was sent.
            MediaTooLarge: a file has more than 20 MB.
            AccessDenied: the key or the account may not be used.
            OutOfCredits: the price exceeds the balance of the account.
            Refused: the service did not accept the request and charged nothing; for example, it asked to slow down.
            RequestFailed: the request was accepted, but has no results.
            Unreachable: nothing was sent.
            OutcomeUnknown: the request may have been charged; the hint names the request id if there is one.
        """
        _check_options(timeout_s, options)
        contents, names = await encode_files(_as_list(files))
        fields = {
            "url": _as_list(urls),
            "file": contents,
            "file_name": names,
            "feature": _as_list(features),
            "backend": _as_list(backends),
            **options,
        }
        body = await asyncio.to_thread(encode_json, _request(fields).to_wire())  # large files take milliseconds
        raw = await self.send_request(body)
        classification = classify_submission(raw, now=self._clock.now())
        if classification.verdict is ResponseVerdict.ACKNOWLEDGED and classification.request_id is not None:
            return await self._wait(classification.request_id, PollSchedule(timeout_s))
        return _answer_or_raise(classification, raw.status)

    async def _wait(self, request_id: str, schedule: PollSchedule) -> Answer:
        """Poll for the results of an accepted request until they come; return them, or raise if the request failed.

        Polls are free, so a poll is repeated unless its answer shows that the request has ended or that the key is
        wrong. `schedule` tells how long to wait before each poll, and after how long to give up: then OutcomeUnknown is
        raised.
        """
        start, polls, pause_s, last_error = self._clock.monotonic(), 0, 0.0, None
        while (age_s := self._clock.monotonic() - start) < schedule.deadline_s:
            left_s = schedule.deadline_s - age_s
            await self._clock.sleep(min(left_s, max(pause_s, schedule.next_delay(polls, age_s))))
            polls, pause_s = polls + 1, 0.0
            try:
                raw = await self.fetch_response(request_id)
            except (Unreachable, OutcomeUnknown) as error:
                last_error = str(error)
                continue
            classification = classify_poll(raw, now=self._clock.now())
            lost = classification.verdict is ResponseVerdict.NOT_FOUND and age_s > NEW_ID_S
            if lost or classification.verdict in _LAST_POLL_VERDICTS:
                return _answer_or_raise(classification, raw.status, request_id)
            pause_s, last_error = classification.retry_after_s or 0.0, classification.error
        last = f" The last poll: {last_error.rstrip('.')}." if last_error else ""
        raise OutcomeUnknown(
            f"Request {request_id} was taken and has no result after {schedule.deadline_s:g} s.{last}",
            hint=f"Its result can be read for 24 hours: poll {request_id!r}.",
        )


_LAST_POLL_VERDICTS: Final = frozenset({ResponseVerdict.ANSWERED, ResponseVerdict.FAILED, ResponseVerdict.DENIED})
"""Verdicts on a poll after which `Client.analyze` does not poll again."""


def _error_for(classification: Classification, http_status: int, polled_id: str | None = None) -> ServiceError:
    """Return the exception with which `Client` reports an answer that has no results.

    Args:
        classification: The verdict on the answer.
        http_status: The HTTP status of the answer.
        polled_id: If the answer is that to a poll: the id of the request, which the service has accepted.
    """
    text = classification.error or f"The service answered {classification.verdict.value}."
    kind, hint = _ERRORS.get(classification.verdict, (OutcomeUnknown, "It may have been charged."))
    if classification.verdict is ResponseVerdict.THROTTLED and classification.retry_after_s is not None:
        hint = f"Not charged; send it again in {classification.retry_after_s:g} s."
    if polled_id is not None:
        hint = f"{hint} The request was taken; its id is {polled_id!r}."
    elif classification.request_id is not None and kind in {OutcomeUnknown, RequestFailed}:
        hint = f"{hint} Its request id is {classification.request_id!r}."
    error = kind(text, hint=hint, http_status=http_status)
    error.body = classification.body
    return error


_ERRORS: Final[dict[ResponseVerdict, tuple[type[ServiceError], str]]] = {
    ResponseVerdict.DENIED: (AccessDenied, "Set LIGHTMETER_API_KEY to a key of the account."),
    ResponseVerdict.NO_CREDITS: (OutOfCredits, "Buy credits, or ask for less."),
    ResponseVerdict.REFUSED: (Refused, "Not charged."),
    ResponseVerdict.THROTTLED: (Refused, "Not charged; send it again later."),
    ResponseVerdict.FAILED: (RequestFailed, "It may have been charged."),
}


def _answer_or_raise(classification: Classification, http_status: int, polled_id: str | None = None) -> Answer:
    if classification.verdict is ResponseVerdict.ANSWERED and classification.answer is not None:
        return classification.answer
    raise _error_for(classification, http_status, polled_id)


def _check_options(timeout_s: float, options: Collection[str]) -> None:
    if not (isinstance(timeout_s, int | float) and timeout_s >= 0):  # (NaN is not)
        raise UsageError(f"timeout_s: {timeout_s!r} is no number of seconds, 0 or more.")
    known = AnalyzeArguments.__annotations__
    for name in options:
        if name not in known:
            raise UsageError(f"There is no option {name!r}.", hint=f"Options: {', '.join(known)}.")


def _as_list(values: Any) -> list[Any]:
    """Return one or more values as a list; a text, bytes or a path is one value.

    Raises:
        UsageError: the value is no list, or is an open file, which would be a list of its lines.
    """
    if isinstance(values, str | bytes | bytearray | memoryview | PathLike):
        return [values]
    if hasattr(values, "read") or not isinstance(values, Iterable):
        raise UsageError(
            f"An object of type {type(values).__name__} can be neither a value nor a list here.",
            hint="Give the path of a file, or its content: files=Path('cat.jpg') or files=file.read().",
        )
    return list(values)


def _request(fields: dict[str, object]) -> AnalyzeRequest:
    if not fields["url"] and not fields["file"]:
        raise UsageError("Nothing to analyse: give URLs or files.")
    try:
        return AnalyzeRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from error
